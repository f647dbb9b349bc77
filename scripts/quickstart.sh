#!/usr/bin/env bash
# From nothing to a translator: install, train on the embedded corpus, translate, score.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
prepare_environment

run=runs/quickstart
[ -z "${1:-}" ] || run=$(absolute "$1")
# A start that time has ended is gone on with for another half hour.
starts=$(grep -c 'finished: .* minutes are over' "$run/train.log" 2>/dev/null || true)
.venv/bin/seq2seq train model=tiny schedule=demo run_dir="$run" resume=auto \
    training.max_minutes=$((30 * (${starts:-0} + 1)))

bleu=$(grep -o '"valid/bleu": [0-9]*' "$run/metrics.jsonl" | tail -n 1 | grep -o '[0-9]*$')
if [ "$bleu" -lt 50 ]; then
    echo "the model has not learned to translate yet (validation BLEU $bleu): this machine is slow or" \
        "busy; start this script again, and the training goes on" >&2
    exit 1
fi

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
