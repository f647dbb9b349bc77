#!/usr/bin/env bash
# From nothing to a translator: install, train on the embedded corpus, translate, score.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment

run=runs/quickstart
[ -z "${1:-}" ] || run=$(absolute "$1")
# Started again, it goes on where it was stopped.
.venv/bin/seq2seq train model=tiny schedule=demo run_dir="$run" resume=auto

for split in test test_unseen; do
    echo
    echo "$split:"
    .venv/bin/seq2seq translate --model "$run" -i "data/everyday/$split.en" -o "$run/$split.out.de"
    .venv/bin/seq2seq score -i "$run/$split.out.de" -r "data/everyday/$split.de"
done

echo
echo "The first sentences of the test set, their translations, and the references:"
paste -d '\n' <(head -n 4 data/everyday/test.en) <(head -n 4 "$run/test.out.de") \
    <(head -n 4 data/everyday/test.de) <(printf '\n\n\n\n')
