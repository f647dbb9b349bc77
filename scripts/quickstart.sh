#!/usr/bin/env bash
# From nothing to a translator: install, train on the embedded corpus, translate, score.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment

run=${1:-runs/quickstart}
if [ -d "$run/checkpoints" ]; then
    .venv/bin/seq2seq train model=tiny run_dir="$run" resume=true
else
    .venv/bin/seq2seq train model=tiny run_dir="$run"
fi

for part in test test_unseen; do
    echo
    echo "$part:"
    .venv/bin/seq2seq translate --model "$run" -i "data/everyday/$part.en" -o "$run/$part.out.de"
    .venv/bin/seq2seq score -i "$run/$part.out.de" -r "data/everyday/$part.de"
done

echo
echo "The first sentences of the test set, as translated, and as they should be:"
paste -d '\n' <(head -n 4 data/everyday/test.en) <(head -n 4 "$run/test.out.de") \
    <(head -n 4 data/everyday/test.de) <(printf '\n\n\n\n')
