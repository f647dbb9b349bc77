#!/usr/bin/env bash
# What only a GPU can tell, in 8 minutes and without downloads: training, the speed of a step, translation,
# the tests of tests/test_cuda.py, the kernels of a step; what matters most comes first.
# bash scripts/gpu_day.sh [--small] [--seconds N] [--wheels DIR] [--data DIR] [FOLDER]
# FOLDER/table.md, by default in runs/gpu_day, has a line for each part, also for one that fails or runs out
# of time, and below it what each printed; the table is printed at the end. DIR has wheels to install for
# this script alone, or Multi30k: {train,val,test_2016_flickr}.{en,de}.gz; else the embedded corpus is
# trained on. --small runs the same at tiny sizes on the CPU, to see that all is there.
set -uo pipefail
source "$(dirname "$0")/environment.sh"

python=$(test -x .venv/bin/python && echo .venv/bin/python || command -v python3)
device=cuda
total=480  # seconds
grace=10   # seconds in which a part that is stopped may show what it has measured
wheels='' data=''
while [ $# -gt 0 ]; do
    case $1 in
        --small) device=cpu ;;
        --seconds) total=$2 && shift ;;
        --wheels) wheels=$(absolute "$2") && shift ;;
        --data) data=$(absolute "$2") && shift ;;
        *) break ;;
    esac
    shift
done
folder=runs/gpu_day
[ -z "${1:-}" ] || folder=$(absolute "$1")
mkdir -p "$folder"
: >"$folder/lines" >"$folder/details"
export PYTHONPATH=$PWD
if [ -n "$wheels" ]; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$folder/site" "$wheels"/*.whl
    export PYTHONPATH=$PWD:$folder/site
fi
failed=0

# TITLE SECONDS ENDED [FIGURES]: add a line to the table.
add_line() {
    printf '| %s | %s | %d | %s |\n' "$1" "${4:-}" "$2" "${3//|//}" >>"$folder/lines"
    {
        printf '# %s\n\n| part | figures | seconds | ended |\n|---|---|---|---|\n' "$heading"
        cat "$folder/lines" "$folder/details"
    } >"$folder/table.md"
    echo "$1: $2 s, $3" >&2
}

# TITLE SECONDS FIGURES COMMAND...: run a part, in what is left of the time; FIGURES is a function that reads
# them from what the part printed.
measure() {
    local title=$1 limit=$2 figures=$3 left=$((total - SECONDS - grace)) started=$SECONDS ended code
    shift 3
    limit=$((left < limit ? left : limit))
    if [ "$limit" -le 0 ]; then
        add_line "$title" 0 "not started, for want of time"
        return
    fi
    timeout --kill-after=$grace "$limit" "$@" >"$folder/stdout" 2>"$folder/stderr" </dev/null
    code=$?
    case $code in
        0) ended=done ;;
        124 | 137) ended="out of time" ;;
        *) ended="failed: $(grep -v '^ *$' "$folder/stderr" "$folder/stdout" -h | tail -n 1 | cut -c1-200)" ;;
    esac
    [ $code = 0 ] || failed=1
    printf '\n## %s\n\n```\n%s\n\n%s\n%s\n```\n' "$title" "$*" "$(cat "$folder/stdout")" \
        "$(tr '\r' '\n' <"$folder/stderr" | tail -n 40)" >>"$folder/details"
    add_line "$title" $((SECONDS - started)) "$ended" "$($figures)"
}

# The speed of the records, and the best validation BLEU.
of_training() {
    "$python" - "$model" <<'PY'
import json, re, statistics, sys
from pathlib import Path
run = Path(sys.argv[1])
records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
speeds = [r["train/tokens_per_second"] for r in records if "train/tokens_per_second" in r]
validated = re.findall(r"([\d.]+) min: .*BLEU ([\d.]+)", (run / "train.log").read_text())
said = [f"{statistics.median(speeds):,.0f} tokens/s"]
if validated:
    said.append(f"best {max(float(score) for _, score in validated):g} in {validated[-1][0]} minutes")
print(", ".join(said))
PY
}
# The first row of the benchmark's table.
of_step() {
    awk -F'|' '/^\| ours|^\| torch/ { printf "%s: %s tokens/s, %s ms, %s GiB, waiting %s, filled up %s; ",
        $2, $3, $5 * 1000, $6, $8, $9 }' "$folder/stdout" | tr -s ' '
}
of_score() { grep -o '^BLEU.*' "$folder/stdout" | head -n 1; }
of_tests() { tail -n 1 "$folder/stdout"; }
nothing() { :; }

if [ $device = cuda ]; then
    heading=$("$python" -c 'import torch; print("torch", torch.__version__, torch.cuda.get_device_name())') ||
        { echo "no GPU that PyTorch can use: --small tries everything without one" >&2; exit 1; }
    tests=tests/test_cuda.py
    sizes=(--vocab-size 37000 --tokens 25000 --steps 12)
    small=(--vocab-size 8000 --tokens 1024 --steps 300)
    training=(model=small schedule=small_data data.tokenizer.vocab_size=8000 training.max_minutes=1.5)
    models=(base big)
else
    heading="tiny sizes on a CPU: these times mean nothing"
    tests=tests/cuda/test_gpu_tests.py  # the same ones on a simulated GPU
    sizes=(--vocab-size 500 --tokens 256 --steps 1)
    small=("${sizes[@]}")
    training=(model=tiny schedule=demo training.max_steps=20 data.tokenizer.vocab_size=500)
    models=(small)
fi
source_file=data/everyday/test.en reference=data/everyday/test.de
if [ -n "$data" ]; then
    training+=(data=files "data.train.source=$data/train.en.gz" "data.train.target=$data/train.de.gz"
        "data.valid.source=$data/val.en.gz" "data.valid.target=$data/val.de.gz"
        data.source_language=en data.target_language=de)
    source_file=$data/test_2016_flickr.en.gz reference=$data/test_2016_flickr.de.gz
    text=$data/train.en.gz
else
    text=$source_file
fi
model=$folder/model-$(date +%H%M%S)
step=(scripts/benchmarks/training.py --device $device --rounds 1)

measure "seq2seq train" 130 of_training "$python" -m seq2seq train "${training[@]}" device=$device \
    cache="$folder/cache" run_dir="$model"
measure "A step of small" 60 of_step "$python" "${step[@]}" --size small "${small[@]}" --only "ours, bf16"
for size in "${models[@]}"; do
    measure "A step of $size" 80 of_step "$python" "${step[@]}" --size "$size" "${sizes[@]}" \
        --micro-batch-tokens 4096 --only "ours, bf16"
done
measure "Translating $(basename "$text"), cold" 60 nothing "$python" -m seq2seq translate --model "$model" \
    --device $device -i "$text" -o "$folder/translated"
measure "Translating $(basename "$source_file")" 40 nothing "$python" -m seq2seq translate --model "$model" \
    --device $device -i "$source_file" -o "$folder/out"
measure "Its score" 20 of_score "$python" -m seq2seq score -i "$folder/out" -r "$reference"
measure "A step of base by torch.nn" 60 of_step "$python" "${step[@]}" --size "${models[0]}" "${sizes[@]}" \
    --only "torch.nn, bf16"
measure "The tests that need a GPU" 100 of_tests "$python" -m pytest -q --no-header -p no:cacheprovider "$tests"
measure "Kernels of a step" 60 nothing "$python" "${step[@]}" --size "${models[0]}" "${sizes[@]}" \
    --micro-batch-tokens 4096 --only "ours, bf16" --profile 40
sed '/^## /,$d' "$folder/table.md"
exit $failed
