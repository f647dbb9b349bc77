#!/usr/bin/env bash
# Changes the package in one place at a time and prints which changes the tests don't see.
# bash scripts/mutants.sh [NAME ...] [--jobs N] [--list]; the changes are in scripts/mutants.toml.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment dev

exec .venv/bin/python scripts/mutants.py "$@"
