#!/usr/bin/env bash
# Everything that only a GPU can tell, in at most 25 minutes and without downloads: its tests, the speed
# of training steps and of translation beside their peers, and the time that kernels take.
# bash scripts/gpu_day.sh [FOLDER]; the tables end up in FOLDER/table.md, by default runs/gpu_day.
set -uo pipefail
source "$(dirname "$0")/environment.sh"

python=$(test -x .venv/bin/python && echo .venv/bin/python || command -v python3)
folder=${1:-runs/gpu_day}
mkdir -p "$folder"
table=$folder/table.md
export PYTHONPATH=$PWD

# TITLE SECONDS COMMAND...: the command's output under its title, whatever becomes of it.
measure() {
    local title=$1 seconds=$2 started=$SECONDS
    shift 2
    printf '\n## %s\n\n```\n%s\n```\n\n' "$title" "$*" >>"$table"
    timeout "$seconds" "$@" >>"$table" 2>"$folder/stderr" ||
        printf '\nended with %s: %s\n' "$?" "$(tail -n 1 "$folder/stderr")" >>"$table"
    echo "$title: $((SECONDS - started)) s"
}

"$python" -c 'import torch; print("#", torch.__version__, torch.cuda.get_device_name())' >"$table" ||
    { echo "no GPU that PyTorch can use" >&2; exit 1; }

measure "The tests that need a GPU" 120 "$python" -m pytest -q tests/test_cuda.py
step=(scripts/benchmark_training.py --device cuda --size base --vocab-size 37000 --tokens 25000
      --micro-batch-tokens 4096 --steps 8 --rounds 1)
measure "A step of the base model, beside its peers" 300 "$python" "${step[@]}"
measure "A step without each fast form" 240 "$python" "${step[@]}" --kernels
measure "A step of one part" 60 "$python" "${step[@]}" --micro-batch-tokens 25000 --only ours
measure "Kernels of a step" 60 "$python" scripts/profile_step.py --device cuda
measure "Kernels of a step, compiled" 120 "$python" scripts/profile_step.py --device cuda --compile
measure "Kernels of a step, packed" 60 "$python" scripts/profile_step.py --device cuda --packed
# A model of base size that has learned a little: speed depends on sizes and lengths alone.
model=$folder/model
measure "A training of the base model on the embedded corpus" 180 \
    "$python" -m seq2seq train schedule=demo model=base device=cuda cache="$folder/cache" \
    run_dir="$model" training.max_steps=300 training.max_minutes=2
decode=(scripts/benchmark_decoding.py --device cuda --model "$model" --source data/everyday/test.en
        --reference data/everyday/test.de --rounds 1 --single 20)
measure "Translation, beside its peers" 420 "$python" "${decode[@]}" --beam 4
echo "all of it: $((SECONDS / 60)) minutes; $table"
