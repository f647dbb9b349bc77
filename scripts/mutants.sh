#!/usr/bin/env bash
# Change model, training, decoding and evaluation, one line at a time, and list the changes ("mutants") that
# no test of these folders notices. pyproject.toml configures mutmut, which works in mutants/.
# bash scripts/mutants.sh          all of them, thousands
# bash scripts/mutants.sh COUNT    as many, drawn at random
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment dev
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "mutmut>=3.8,<3.9"

mkdir -p mutants  # Python doesn't look again for a folder that isn't there when it starts
export PYTHONPATH=$PWD/mutants  # for the processes that tests start
chosen=()
if [ -n "${1:-}" ]; then
    # The first run makes all mutants and finds out which tests call each function.
    .venv/bin/mutmut run "seq2seq.transformer.x_attention__mutmut_1"
    # Not of print-time-estimates, which drops what the first run has found out.
    mapfile -t chosen < <(.venv/bin/mutmut results --all true | grep -o '[^ ]*__mutmut_[0-9]*' | shuf -n "$1")
    chosen+=(--max-children 1)
fi
.venv/bin/mutmut run "${chosen[@]}"
echo "Mutants that survived; .venv/bin/mutmut show NAME prints the change:"
.venv/bin/mutmut results | grep -v "not checked" || echo "    none"
