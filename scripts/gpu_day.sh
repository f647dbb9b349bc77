#!/usr/bin/env bash
# Everything that only a GPU can tell, in at most 25 minutes and without downloads: its tests, the speed
# of training steps and of translation beside their peers, and the time that kernels take.
# bash scripts/gpu_day.sh [--small] [FOLDER]; the tables end up in FOLDER/table.md, by default
# runs/gpu_day. --small runs the same commands at tiny sizes on the CPU, to see that all is there.
set -uo pipefail
source "$(dirname "$0")/environment.sh"

python=$(test -x .venv/bin/python && echo .venv/bin/python || command -v python3)
device=cuda
if [ "${1:-}" = --small ]; then
    device=cpu
    shift
fi
folder=${1:-runs/gpu_day}
mkdir -p "$folder"
table=$folder/table.md
export PYTHONPATH=$PWD

# TITLE SECONDS COMMAND...: the command's output under its title, whatever becomes of it.
measure() {
    local title=$1 seconds=$2 started=$SECONDS watcher
    shift 2
    printf '\n## %s\n\n```\n%s\n```\n\n' "$title" "$*" >>"$table"
    if [ $device = cuda ]; then
        nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits -lms 500 \
            >"$folder/use" 2>/dev/null &
        watcher=$!
    fi
    timeout "$seconds" "$@" >>"$table" 2>"$folder/stderr" ||
        printf '\nended with %s: %s\n' "$?" "$(tail -n 1 "$folder/stderr")" >>"$table"
    if [ $device = cuda ]; then
        kill $watcher 2>/dev/null
        awk -F', ' '{ busy += $1; if ($2 > most) most = $2 } END { if (NR) printf \
            "\nThe GPU was busy %.0f %% of the time; at most %d MiB were used.\n", busy / NR, most }' \
            "$folder/use" >>"$table"
    fi
    printf '\n%d s.\n' $((SECONDS - started)) >>"$table"
    echo "$title: $((SECONDS - started)) s"
}

if [ $device = cuda ]; then
    "$python" -c 'import torch; print("#", torch.__version__, torch.cuda.get_device_name())' >"$table" ||
        { echo "no GPU that PyTorch can use: --small tries everything without one" >&2; exit 1; }
    batch=(--size base --vocab-size 37000 --tokens 25000 --steps 8)
    parts=(--micro-batch-tokens 4096)
    profile=()
    kernels=()
    training=(model=base training.max_steps=300 training.max_minutes=2)
    text=(--single 20)
else
    echo "# tiny sizes on a CPU: these times mean nothing" >"$table"
    batch=(--size small --vocab-size 500 --tokens 256 --steps 1)
    parts=(--micro-batch-tokens 64)
    profile=(--tokens 256 --layers 1 --vocab-size 500 --rows 3)
    kernels=(--tokens 256 --layers 1 --vocab-size 500 --times 1 --sentences 1 3)
    training=(model=tiny training.max_steps=20 data.tokenizer.vocab_size=500)
    text=(--single 2 --sentences 8)
fi

measure "The tests that need a GPU" 90 "$python" -m pytest -q tests/test_cuda.py
step=(scripts/benchmark_training.py --device $device --rounds 1 "${batch[@]}")
measure "A step of the model, beside its peers" 210 "$python" "${step[@]}" "${parts[@]}"
measure "A step without each fast form" 210 "$python" "${step[@]}" "${parts[@]}" --kernels
measure "A step of one part" 60 "$python" "${step[@]}" --only ours
show=(scripts/profile_step.py --device $device "${profile[@]}")
measure "Kernels of a step" 45 "$python" "${show[@]}"
measure "Kernels of a step, compiled" 90 "$python" "${show[@]}" --compile
measure "Kernels of a step, packed" 45 "$python" "${show[@]}" --packed
measure "Single parts of a step" 150 \
    "$python" scripts/benchmark_kernels.py --device $device "${kernels[@]}"
# A model that has learned a little: speed depends on sizes and lengths alone.
model=$folder/model
measure "A training on the embedded corpus" 150 \
    "$python" -m seq2seq train schedule=demo device=$device cache="$folder/cache" \
    run_dir="$model" "${training[@]}"
decode=(scripts/benchmark_decoding.py --device $device --model "$model" --beam 4 --rounds 1
        --source data/everyday/test.en --reference data/everyday/test.de "${text[@]}")
measure "Translation, beside its peers" 300 "$python" "${decode[@]}"
measure "Translation without each fast form" 150 "$python" "${decode[@]}" --kernels
echo "all of it: $((SECONDS / 60)) minutes; $table"
