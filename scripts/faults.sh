#!/usr/bin/env bash
# Inject the faults that users meet: mistyped keys, kills, full disks, invalid bytes, hostile models.
# --full: as often as the table in tests/faults/README.md states, and count them.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment dev

options=()
if [ "${1:-}" = --full ]; then
    options+=(--full-faults)
    shift
fi
.venv/bin/python -m pytest tests/faults -q "${options[@]}" "$@"
