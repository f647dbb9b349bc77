#!/usr/bin/env bash
# Everything that only a GPU can tell, in at most 25 minutes and without downloads: its tests, the speed
# of training steps and of translation compared with peers, and the time that kernels take.
# bash scripts/gpu_day.sh [--small] [--seconds N] [FOLDER]: FOLDER/table.md, by default in runs/gpu_day,
# has a line for each part, also for one that fails or runs out of time, and below it what each printed.
# --small runs the same at tiny sizes on the CPU, to see that all is there.
set -uo pipefail
source "$(dirname "$0")/environment.sh"

python=$(test -x .venv/bin/python && echo .venv/bin/python || command -v python3)
device=cuda
total=1500  # seconds
grace=20    # seconds in which a part that is stopped may show what it has measured
while [ $# -gt 0 ]; do
    case $1 in
        --small) device=cpu ;;
        --seconds) total=$2 && shift ;;
        *) break ;;
    esac
    shift
done
folder=runs/gpu_day
[ -z "${1:-}" ] || folder=$(absolute "$1")
mkdir -p "$folder"
: >"$folder/lines" >"$folder/details"
export PYTHONPATH=$PWD
failed=0

# TITLE SECONDS ENDED [USE]: add a line to the table.
add_line() {
    printf '| %s | %d | %s | %s |\n' "$1" "$2" "${3//|//}" "${4:-}" >>"$folder/lines"
    {
        printf '# %s\n\n| part | seconds | ended | GPU |\n|---|---|---|---|\n' "$heading"
        cat "$folder/lines" "$folder/details"
    } >"$folder/table.md"
    echo "$1: $2 s, $3"
}

# TITLE SECONDS COMMAND...: run a part, in what is left of the time.
measure() {
    local title=$1 limit=$2 left=$((total - SECONDS - grace)) started=$SECONDS ended use='' watcher code
    shift 2
    limit=$((left < limit ? left : limit))
    if [ "$limit" -le 0 ]; then
        add_line "$title" 0 "not started, for want of time"
        return
    fi
    if [ $device = cuda ]; then
        nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits -lms 500 \
            >"$folder/use" 2>/dev/null &
        watcher=$!
    fi
    printf '\n## %s\n\n```\n%s\n```\n\n' "$title" "$*" >>"$folder/details"
    timeout --kill-after=$grace "$limit" "$@" >>"$folder/details" 2>"$folder/stderr" </dev/null
    code=$?
    case $code in
        0) ended=done ;;
        124 | 137) ended="out of time" ;;
        *) ended="failed: $(grep -v '^ *$' "$folder/stderr" | tail -n 1)" ;;
    esac
    [ $code = 0 ] || failed=1
    printf '\n```\n%s\n```\n' "$(tr '\r' '\n' <"$folder/stderr" | tail -n 20)" >>"$folder/details"
    if [ $device = cuda ]; then
        kill $watcher 2>/dev/null
        use=$(awk -F', ' '{ busy += $1; if ($2 > most) most = $2 } END { if (NR) printf \
            "busy %.0f %%, at most %d MiB", busy / NR, most }' "$folder/use")
    fi
    add_line "$title" $((SECONDS - started)) "$ended" "$use"
}

if [ $device = cuda ]; then
    heading=$("$python" -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())') ||
        { echo "no GPU that PyTorch can use: --small tries everything without one" >&2; exit 1; }
    tests=tests/test_cuda.py
    batch=(--size base --vocab-size 37000 --tokens 25000 --steps 8)
    parts=(--micro-batch-tokens 4096)
    training=(model=base training.max_steps=300 training.max_minutes=2)
    text=(--single 20)
    peers=()
    searched=()
else
    heading="tiny sizes on a CPU: these times mean nothing"
    tests=tests/cuda/test_gpu_tests.py  # the same ones on a simulated GPU
    batch=(--size small --vocab-size 500 --tokens 256 --steps 1)
    parts=(--micro-batch-tokens 64)
    training=(model=tiny training.max_steps=20 data.tokenizer.vocab_size=500)
    text=(--single 1 --sentences 4)
    peers=(--only "ours, bf16" "torch.nn, bf16" "Marian, fp32" matmuls)
    searched=(--only "ours, bf16" engine "Hugging Face" "CTranslate2, float32, 2 x 1")
fi

measure "The tests that need a GPU" 90 "$python" -m pytest -q "$tests"
step=(scripts/benchmarks/training.py --device $device --rounds 1 "${batch[@]}")
measure "A step of the model and of its peers" 210 "$python" \
    "${step[@]}" "${parts[@]}" "${peers[@]}"
measure "A step without each fast form" 190 "$python" "${step[@]}" "${parts[@]}" --kernels
measure "A step of one micro-batch" 60 "$python" "${step[@]}" --only ours
measure "Kernels of a step, plain and compiled" 135 \
    "$python" "${step[@]}" "${parts[@]}" --only "ours, bf16" --profile 40
# A model that has learned a little: speed depends on sizes and lengths alone.
model=$folder/model-$(date +%H%M%S)
train=(-m seq2seq train schedule=demo device=$device cache="$folder/cache" "${training[@]}")
measure "Training on the embedded corpus" 150 "$python" "${train[@]}" run_dir="$model"
measure "Training, compiled" 60 \
    "$python" "${train[@]}" run_dir="$model-compiled" compile=true training.max_steps=20
decode=(scripts/benchmarks/decoding.py --device $device --model "$model" --beam 4 --rounds 1
        --source data/everyday/test.en --reference data/everyday/test.de "${text[@]}")
measure "Translation, ours and by peers" 260 "$python" "${decode[@]}" "${searched[@]}"
measure "Translation without each fast form" 150 "$python" "${decode[@]}" --kernels
echo "all of it: $SECONDS s; $folder/table.md"
exit $failed
