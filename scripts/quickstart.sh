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

echo
echo "Three sentences:"
printf '%s\n' "The old teacher buys a red apple at the market." \
    "We go to the cinema because the weather is bad." \
    "She does not want to get up early." | tee "$run/hello.en"
.venv/bin/seq2seq translate --model "$run" -i "$run/hello.en"

for part in test test_unseen; do
    echo
    echo "$part:"
    .venv/bin/seq2seq translate --model "$run" -i "data/everyday/$part.en" -o "$run/$part.out.de"
    .venv/bin/seq2seq score -i "$run/$part.out.de" -r "data/everyday/$part.de"
done
