"""Count what a training step asks of a GPU, without one: kernels, bytes, copies and waits.

The step is that of `seq2seq train` with the paper's token budget, on the simulated device of
`tests/cuda`, whose tensors have shapes and no numbers:

    python scripts/count_kernels.py

A kernel reads each tensor that it is given, and writes its results, once. What is compiled counts
as PyTorch's compiler is expected to divide it: the loss of a chunk is a kernel that reads the
logits and one that reads them again and writes the gradient; the end of a sublayer is one kernel
forward and two backward, for the gradients of its inputs and for those of its norm's weights.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter
from seq2seq.device import Compute
from seq2seq.fast.training import PLAIN, AddAndNorm, TrainingKernels, fuse_sublayer_ends
from seq2seq.model import TransformerConfig
from seq2seq.storage.trained_model import new_transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.trainer import Trainer

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.cuda.device import CudaTensor, inside, journal, note
from tests.cuda.simulation import simulated

FORMS = {
    "plain model": (PLAIN, False),
    "fast forms, one micro-batch after the other": (TrainingKernels(joined=False), False),
    "micro-batches joined (as `seq2seq train` runs)": (TrainingKernels(), False),
    "and compiled (`compile=true`)": (TrainingKernels(), True),
}


class _End(torch.autograd.Function):
    """The end of a sublayer as a compiler divides it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, key: Tensor) -> Any:
        ctx.save_for_backward(x, y, weight, bias)
        made = CudaTensor(torch.empty_like(inside(x)))
        note("compiled end of a sublayer", (), [x, y, weight, bias, key], made)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        made = [CudaTensor(torch.empty_like(inside(x))) for x in ctx.saved_tensors]
        note("compiled end, gradients of inputs", (), [gradient, *ctx.saved_tensors], made[:2])
        note("compiled end, gradients of weights", (), [gradient, *ctx.saved_tensors], made[2:])
        return *made, None


def counted_end(rate: float, epsilon: float) -> AddAndNorm:
    """Take the place of `compiled_add_and_norm`."""
    end: AddAndNorm = _End.apply
    return end


def counted_loss(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, ...]:
    """Take the place of `compiled_loss`."""
    number = [CudaTensor(torch.empty((), device="meta")) for _ in range(2)]
    gradient = CudaTensor(torch.empty_like(inside(logits)))
    note("compiled loss", (), [logits, targets], number)
    note("compiled gradient of the loss", (), [logits, targets], gradient)
    return *number, gradient


def write_corpus(path: Path, *, pairs: int, length: int, vocab_size: int) -> EncodedCorpus:
    """Write random pairs of about one length."""
    random = np.random.default_rng(1)
    with EncodedCorpusWriter(path, vocab_size) as writer:
        for _ in range(pairs):
            sides = [
                random.integers(4, vocab_size, length - 1 + drift).tolist()
                for drift in random.integers(-1, 2, 2)
            ]
            writer.write([sides[0]], [sides[1]])
    return EncodedCorpus(path)


def count(
    corpus: EncodedCorpus,
    config: TransformerConfig,
    vocab_size: int,
    kernels: TrainingKernels,
    compiled: bool,
) -> None:
    """Count the second of two steps."""
    compute = Compute(torch.device("cuda"), torch.bfloat16)
    training = TrainingConfig()
    batching = training.batching(corpus, seed=1)
    model = new_transformer(config, vocab_size).to(compute.device).train()
    trainer = Trainer(model, batching, training, compute=compute, seed=1, kernels=kernels)
    if compiled:
        fuse_sublayer_ends(model, counted_end)
        trainer.updater.loss.chunk_loss_fn = counted_loss
    if trainer.updater.joins:
        trainer.updater.joined = trainer.micro_batches
    batches = batching.epoch(0)
    trainer.start_update(batches[: trainer.micro_batches])
    journal.clear()
    trainer.start_update(batches[trainer.micro_batches : 2 * trainer.micro_batches])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--length", type=int, default=28, help="tokens of a sentence")
    parser.add_argument("--vocab-size", type=int, default=37_000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--kernels", type=int, default=0, help="print as many, by their bytes")
    arguments = parser.parse_args()
    config = TransformerConfig(num_layers=arguments.layers)
    print("| step of the base model | kernels | GB | host copies | waits |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, simulated(shapes_alone=True):
        corpus = write_corpus(
            Path(folder) / "train.arrow",
            pairs=60_000 // arguments.length,
            length=arguments.length,
            vocab_size=arguments.vocab_size,
        )
        for name, (kernels, compiled) in FORMS.items():
            count(corpus, config, arguments.vocab_size, kernels, compiled)
            print(
                f"| {name} | {journal.kernels.total():,} | {journal.bytes.total() / 1e9:.1f} |"
                f" {len(journal.copies)} | {len(journal.waits)} |"
            )
            for kernel, size in journal.bytes.most_common(arguments.kernels):
                print(f"| &nbsp; {kernel} | {journal.kernels[kernel]:,} | {size / 1e9:.1f} | | |")


if __name__ == "__main__":
    main()
