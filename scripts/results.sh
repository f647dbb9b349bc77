#!/usr/bin/env bash
# Run one of conf/experiment/results from raw text to scores, and print its row of the table of results; or
# the rows of Table 3 at a quarter of their widths, with the name table3, and print the comparison with the paper.
# bash scripts/results.sh NAME FOLDER [--runs FOLDER] [KEY=VALUE...]; FOLDER has the corpora (scripts/README.md),
# and the runs are written to runs/results, or to the folder of --runs.
# Started again, it continues where it stopped.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment
checkout=$PWD
cd "$started_in"
exec "$checkout/.venv/bin/python" "$checkout/scripts/results.py" "$@"
