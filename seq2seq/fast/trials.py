"""Forms of a training step that wait for a GPU to say whether they are faster.

Each computes the same as the usual one, as the tests show on a CPU. It is used if the environment
variable SEQ2SEQ_TRIALS names it, with a comma between several:

    SEQ2SEQ_TRIALS=loss_by_sums python scripts/benchmarks/training.py --device cuda

`scripts/gpu_day.py` times a step with each. They are no options, and no run records them: after
that, a form either takes the place of the usual one or is removed, and its name leaves this file.
"""

import os

VARIABLE = "SEQ2SEQ_TRIALS"
TRIALS = {
    "contiguous_blocks": "attention reads no numbers of blocks, which are always adjacent",
    "rows_of_128": "a multiple of 128 rows, so that attention checks no bounds",
    "autotune": "PyTorch's compiler tries the tiles of attention, and those of its own kernels",
    "blocks_of_64": "masks in blocks of 64 rows; on an H100 with autotune alone",
    "loss_by_sums": "the sum of the log-probabilities from that of the logits",
    "relu_in_matmul": "bias and ReLU in the matmul before them",
}


def on_trial(name: str) -> bool:
    """Return whether a form is chosen by the environment."""
    chosen = set(filter(None, os.environ.get(VARIABLE, "").split(",")))
    if unknown := {*chosen, name} - TRIALS.keys():
        raise ValueError(f"{VARIABLE}: {', '.join(unknown)}: not among {', '.join(TRIALS)}")
    return name in chosen
