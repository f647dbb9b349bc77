#!/usr/bin/env bash
# Change the package in one place after the other, and list the changes ("mutants") that no test notices.
# bash scripts/mutants.sh                all of them, thousands
# bash scripts/mutants.sh COUNT          as many, drawn evenly from all packages
# bash scripts/mutants.sh COUNT ARGS     with the tests that pytest takes by ARGS: tests/data -k corpus
# Stopped and started again, it goes on; it works in mutants/.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment dev
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "pytest-cov>=6,<8"
exec .venv/bin/python scripts/mutants.py "$@"
