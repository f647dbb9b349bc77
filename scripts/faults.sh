#!/usr/bin/env bash
# Injects the faults that users meet (kills, flipped bits, full disks, odd bytes, strangers' models)
# and prints how many were tried and survived. --full: as often as the table in tests/faults/README.md says.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment dev

options=()
if [ "${1:-}" = --full ]; then
    options+=(--full-faults)
    shift
fi
.venv/bin/python -m pytest tests/faults -q "${options[@]}" "$@"
