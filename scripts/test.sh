#!/usr/bin/env bash
# Run all checks before a commit: format, lint, types, import contracts, tests.
# --fast: format, lint and the unit tests alone, in under a minute, between two edits.
# Further arguments go to pytest: bash scripts/test.sh -k beam
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment dev

# One file after another on each core, since the tests of a file share what they prepare.
parallel=(--numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder)
# Processes that tests start need not compile the package, each for itself.
unset PYTHONDONTWRITEBYTECODE

.venv/bin/ruff format --check .
.venv/bin/ruff check .
# No file of the package is opened in the encoding of the locale, which differs by system.
.venv/bin/ruff check --preview --select PLW1514 seq2seq
if [ "${1:-}" = --fast ]; then
    shift
    exec .venv/bin/python -m pytest "${parallel[@]}" -m "not slow and not integration" --durations=5 "$@"
fi
.venv/bin/mypy
.venv/bin/lint-imports --no-logo
.venv/bin/python -m pytest "${parallel[@]}" -m "not slow" --durations=10 "$@"
