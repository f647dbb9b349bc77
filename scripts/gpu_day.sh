#!/usr/bin/env bash
# What only a GPU can tell, in calls of ten minutes that go on where the last one stopped: see gpu_day.py.
# bash scripts/gpu_day.sh [--small] [--seconds N] [--corpora DIR] [--wheels DIR] [--only NAME]... [--again] [FOLDER]
set -euo pipefail
source "$(dirname "$0")/environment.sh"
checkout=$PWD
python=$(test -x .venv/bin/python && echo "$checkout/.venv/bin/python" || command -v python3)
export PYTHONPATH=$checkout
cd "$started_in"
exec "$python" "$checkout/scripts/gpu_day.py" "$@"
