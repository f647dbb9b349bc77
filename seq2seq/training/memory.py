"""How many micro-batches, or which part of one, are computed at once, to fit into memory.

A step consists of the same micro-batches on any device, whose gradients are summed. A GPU with much
memory computes several at once. Where a whole micro-batch does not fit, its sentences run in
slices, one after the other.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch.optim import Optimizer

from seq2seq.data.encoded import EncodedCorpus, Rows
from seq2seq.errors import OutOfMemoryError
from seq2seq.model import Transformer


def split(micro_batch: Rows, slices: int) -> list[Rows]:
    """Split a micro-batch into at most `slices` slices of almost equal size; none is empty."""
    return [pairs for pairs in np.array_split(micro_batch, slices) if len(pairs)]


def find_joined(
    attempt: Callable[[Sequence[Rows]], None],
    micro_batches: Sequence[Rows],
    corpus: EncodedCorpus,
    most: int,
) -> int:
    """Find how many micro-batches of an epoch fit into memory at once: `most`, half of them, ...

    `attempt` computes micro-batches together, and raises OutOfMemoryError if they don't fit.
    Returns 1 if no two fit; whether one does is not tried.
    """
    largest_first = sorted(micro_batches, key=lambda pairs: -_padded_tokens(pairs, corpus))
    joined = most
    while joined > 1:
        try:
            attempt(largest_first[:joined])
            return joined
        except OutOfMemoryError:
            joined = -(-joined // 2)
    return 1


def _padded_tokens(pairs: Rows, corpus: EncodedCorpus) -> int:
    source, target = corpus.lengths(pairs)
    return len(pairs) * int(source.max() + target.max())


def find_slices(
    attempt: Callable[[Rows], None], micro_batches: Sequence[Rows], corpus: EncodedCorpus
) -> int:
    """Find the smallest number of slices, of 1, 2, 4, ..., whose largest fits into memory."""
    slices = 1
    while True:
        largest = max(
            (pairs for micro_batch in micro_batches for pairs in split(micro_batch, slices)),
            key=lambda pairs: _padded_tokens(pairs, corpus),
        )
        try:
            attempt(largest)
            return slices
        except OutOfMemoryError as error:
            if len(largest) == 1:
                (source,), (target,) = corpus.lengths(largest)
                raise OutOfMemoryError(
                    f"out of memory with a single pair of {source} source and {target} target"
                    " tokens: lower data.filter.max_tokens or take a smaller model"
                ) from error
        slices *= 2


@contextmanager
def preserve_state(
    model: Transformer, optimizer: Optimizer, device: torch.device
) -> Iterator[None]:
    """Restore random state, gradients and mode afterwards; reserve the memory of later steps."""
    training = model.training
    model.train()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        # The gradients of other slices, and Adam's two moments from the first update on. The copy
        # of the model that a validation makes takes the place of the gradients.
        copies = 1 if optimizer.state else 3
        reserved = [torch.empty_like(p) for p in model.parameters() for _ in range(copies)]
        try:
            yield
        finally:
            del reserved
            optimizer.zero_grad(set_to_none=True)
            model.train(training)
