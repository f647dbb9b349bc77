"""Forms of a training step that wait for a GPU to say whether they are faster.

Each computes the same as the usual one, but for dropout's masks: the tests compare their updates,
for `autotune` on a GPU alone (tests/test_cuda.py). It is used if the environment variable
SEQ2SEQ_TRIALS names it, with a comma between several:

    SEQ2SEQ_TRIALS=loss_by_sums python scripts/benchmarks/training.py --device cuda

`scripts/gpu_day.py` times a step with each. They are no options, but a run records them among its
sessions. After that, a form either takes the place of the usual one or is removed, and its name
leaves this file.
"""

import os

from seq2seq.errors import UsageError

VARIABLE = "SEQ2SEQ_TRIALS"
TRIALS = {
    "contiguous_blocks": "attention reads no numbers of blocks, which are always adjacent",
    "rows_of_128": "a multiple of 128 rows, so that attention checks no bounds",
    "autotune": "PyTorch's compiler tries the tiles of attention, and those of its own kernels",
    "blocks_of_64": "masks in blocks of 64 rows; on an H100 with autotune alone",
    "loss_by_sums": "the sum of the log-probabilities from that of the logits",
    "relu_in_matmul": "bias and ReLU in the matmul before them",
    "hashed_dropout": "dropout's random numbers are cheap hashes",
    "sums_in_matmul": "the loss's gradient of the weight is summed in the matmul, in float32",
    "keys_and_values_at_once": "those of all cross-attentions by one matmul",
}


def chosen_trials() -> set[str]:
    """Return the forms that the environment chooses; refuse unknown names."""
    chosen = set(filter(None, os.environ.get(VARIABLE, "").split(",")))
    if unknown := sorted(chosen - TRIALS.keys()):
        raise UsageError(f"{VARIABLE}={','.join(unknown)}: not among {', '.join(TRIALS)}")
    return chosen


def on_trial(name: str) -> bool:
    """Return whether a form is chosen by the environment."""
    assert name in TRIALS
    return name in chosen_trials()
