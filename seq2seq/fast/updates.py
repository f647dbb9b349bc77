"""Updates in less time: one graph for a step, and the next one started before metrics are read.

On a GPU with PyTorch's compiler, a process joins all its micro-batches of a step, in one shape, as
one CUDA graph; on a CPU, it computes one micro-batch after the other, in one shape if oneDNN
compiles its matmuls for AMX.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from seq2seq import update
from seq2seq.batches import cut
from seq2seq.changes import changed_code, changed_functions, report_unused
from seq2seq.device import Compute, HostCopy, oom_as_user_error
from seq2seq.encoded_corpus import PairIndices
from seq2seq.errors import OutOfMemoryError
from seq2seq.fast import rows
from seq2seq.fast.graphs import Graphs
from seq2seq.fast.training import FastModel, StepNumbers
from seq2seq.fast.trials import on_trial
from seq2seq.settings import Setting
from seq2seq.transformer import Transformer
from seq2seq.update import (
    RunningMean,
    StepBatches,
    StepMetrics,
    Updater,
    check_finite,
    dropout_share,
    gradients_of,
    seed_masks,
)

logger = logging.getLogger("seq2seq")


@dataclass(eq=False, repr=False, kw_only=True)
class FastUpdater(Updater):
    """`Updater` with the fast forms that suit the model and the device.

    On a GPU, `update` returns the metrics of the update before: it starts one, and then waits for
    the one that was under way, so that the GPU always has work.
    """

    dropout: bool = True  # cheap masks
    residual: bool = True  # residual sums in autocast's precision
    compiled: bool = True  # layers and loss, where PyTorch has a compiler for the GPU

    def __post_init__(self) -> None:
        super().__post_init__()
        device, on_gpu = self.compute.device, self.compute.on_gpu
        self.fast = FastModel(
            self.model,
            self.compute,
            dropout=self.dropout,
            residual=self.residual,
            compiled=self.compiled,
        )
        self.compiled = self.fast.compiled
        for group in self.optimizer.param_groups:
            group["capturable"] = on_gpu
        self.losses = torch.zeros(2, dtype=torch.float64, device=device)
        """Smoothed loss and cross-entropy, summed over the step so far."""
        self.losses_and_norm = torch.zeros(3, dtype=torch.float64, device=device)
        self.diverged = torch.zeros((), device=device)
        self.numbers = self.fast.set_numbers(StepNumbers())
        self.started: deque[StartedUpdate] = deque()
        """The updates whose metrics have not been read."""
        self.read_at = -math.inf
        """The time at which metrics were last read."""
        count = math.ceil(self.micro_batches / self.world.size) if self.fast.joins else 1
        source, target = self.batching.most_tokens
        self.set_most_tokens((count * source, count * target))

    def set_most_tokens(self, most_tokens: tuple[int, int]) -> None:
        """Compute at most as many source and target tokens at once."""
        self.most_tokens = most_tokens
        self.shape: rows.Shape | None = None
        self.graphs: Graphs | None = None
        self.recorded: tuple[Tensor, rows.RowBatch] | None = None
        # A table that grows would wait for the GPU, and have another address.
        longest, weight = self.batching.corpus.longest, self.model.embedding.weight
        self.fast.model.positions(weight.new_empty(1, max(longest), weight.size(1)))
        if not self.fast.one_shape:
            return
        multiple = 128 if on_trial("rows_of_128") else 64
        source, target = (-(-tokens // multiple) * multiple for tokens in most_tokens)
        self.shape = rows.Shape((source, target), None, None)
        if self.fast.joins:
            # At most half as many pairs (see `cut`), then the sentences that fill up.
            fill = max(s // most + 1 for s, most in zip((source, target), longest, strict=True))
            self.shape = rows.Shape((source, target), min(most_tokens) // 2 + fill, longest)
            self.graphs = Graphs(self.compute.device)

    def release_memory(self) -> bool:
        """Drop the graphs, which the next steps record again."""
        if self.graphs is None:
            return False
        self.set_most_tokens(self.most_tokens)
        torch.cuda.empty_cache()
        return True

    def collate(self, micro_batches: Sequence[PairIndices]) -> StepBatches:
        """Make this process's batches of a step, each with the numbers by which it is seeded.

        They are the number of its first micro-batch and, from the second part of that one on, the
        number of the part.
        """
        share = self.world.own_part(micro_batches)
        if self.fast.joins:
            numbers, pairs_of_each = zip(*share, strict=True)
            share = [(numbers[0], np.concatenate(pairs_of_each))]
        corpus, batches = self.batching.corpus, []
        for number, pairs in share:
            parts = cut(pairs, corpus.lengths(pairs), self.most_tokens)
            for i, part in enumerate(parts):
                batches.append(((number, i) if i else (number,), self.host_batch(part)))
        source, target = corpus.lengths(np.concatenate(micro_batches))
        return StepBatches(batches, int(source.sum()), int(target.sum()))

    def host_batch(self, pairs: PairIndices) -> rows.HostBatch:
        """Make a batch on the host."""
        batch = rows.make_host_batch(self.batching.corpus.tokens(pairs), self.shape)
        return batch.pin() if self.compute.on_gpu else batch

    def update(self, step: int, batches: StepBatches, where: str = "") -> StepMetrics:
        """Do update number `step`, from 1; on a GPU, start it.

        Returns the sums of the metrics that are known now and have not been returned yet. If a loss
        or the norm is not finite, neither this update nor any after it is done.
        """
        started, rate = time.perf_counter(), self.learning_rate(step)
        share = dropout_share(step, self.config.dropout_warmup_steps)
        numbers = StepNumbers(batches.target_tokens, rate, share, RunningMean.weight(step))
        self.numbers = self.fast.set_numbers(numbers)
        for i, (number, batch) in enumerate(batches.batches):
            seed_masks(self.seed, step, *number)
            self.run(self.add_gradient if i else self.begin_gradient, batch)
        self.world.add_up(gradients_of(self.model))
        self.run(self.apply_gradient)
        counts = batches.source_tokens, batches.target_tokens
        metrics = StepMetrics(1, 0.0, 0.0, *counts, learning_rate=rate)
        losses_and_norm = HostCopy(self.losses_and_norm)
        self.started.append(StartedUpdate(step, where, losses_and_norm, metrics, started))
        return self._read(leave=1 if self.compute.on_gpu else 0)

    def settings(self) -> dict[str, Setting]:
        """See `Updater.settings`."""
        tokens = "{} and {}".format(*self.most_tokens)
        return {"tokens at once": tokens, "compiled": self.compiled}

    def finish(self) -> StepMetrics:
        """Wait for all updates, and return the metrics that `update` has not returned yet."""
        return self._read(leave=0)

    def _read(self, leave: int) -> StepMetrics:
        """Wait for all started updates but the last `leave`; return the sums of their metrics."""
        known = StepMetrics()
        while len(self.started) > leave:
            update = self.started.popleft()
            *losses, norm = update.losses_and_norm.read().tolist()
            metrics, gathered = update.metrics, self.world.gather(*losses)
            metrics.smoothed, metrics.cross_entropy = map(sum, zip(*gathered, strict=True))
            metrics.gradient_norm = norm
            loss = metrics.smoothed / metrics.target_tokens
            check_finite(update.step, loss, norm, update.where)
            now = time.perf_counter()
            metrics.seconds = now - max(update.started, self.read_at)
            self.read_at = now
            known.add(metrics)
        return known

    # The parts of an update that the device does, each with its graph on a GPU.

    def begin_gradient(self, batch: rows.RowBatch) -> None:
        """Compute the losses of a step's first batch, and its share of the gradient."""
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.zero_()
        self.add_gradient(batch)

    def add_gradient(self, batch: rows.RowBatch) -> None:
        """Add the losses of a batch, and its share of the gradient, to those of the step."""
        with oom_as_user_error():
            with self.compute.autocast():
                loss = self.fast.loss(batch, self.config.label_smoothing)
            (loss.smoothed / self.numbers.target_tokens).backward()  # type: ignore[no-untyped-call]
        self.losses += torch.stack((loss.smoothed.detach(), loss.cross_entropy))

    def apply_gradient(self) -> None:
        """Update the weights, unless a loss or the gradient is not finite, and their mean."""
        norm = get_total_norm(gradients_of(self.model))
        self.losses_and_norm.copy_(torch.cat((self.losses, norm.view(1))))
        # Fused Adam skips the step if found_inf is exactly 1, as with GradScaler. The device
        # decides that by itself, so the host does not wait for it.
        self.diverged.logical_or_((~self.losses_and_norm.isfinite()).any())
        self.optimizer.found_inf = self.diverged  # type: ignore[attr-defined]
        for group in self.optimizer.param_groups:
            group["lr"] = self.numbers.rate
        self.optimizer.step()
        if self.running_mean is None:
            return
        weight = self.numbers.mean_weight
        if not isinstance(weight, Tensor):
            self.running_mean.update(self.model, weight)
            return
        # On a GPU, the weight is a tensor, and all parameters are updated in few kernels.
        means, new = list(self.running_mean.weights.values()), list[Tensor](self.model.parameters())
        with torch.no_grad():
            changes = torch._foreach_sub(new, means)
            torch._foreach_mul_(changes, weight)
            torch._foreach_add_(means, changes)

    def run(self, function: Callable[..., None], *batch: rows.HostBatch) -> None:
        """Call one of these functions, with a batch or without one, on the device."""
        if self.graphs is None:
            function(*(x.to(self.compute.device) for x in batch))
            return
        inputs = list(map(self._in_place, batch))
        # Adding is recorded once beginning is a graph: then the gradients stay where they are.
        if function == self.add_gradient and self.begin_gradient not in self.graphs.replays:
            function(*inputs)
        else:
            self.graphs.run(function, partial(function, *inputs))

    def _in_place(self, on_host: rows.HostBatch) -> rows.RowBatch:
        """Copy a batch to where the graphs find it."""
        if self.recorded is None:
            ids = torch.zeros(len(on_host.ids), dtype=torch.long, device=self.compute.device)
            self.recorded = ids, on_host.divide(ids)
        ids, batch = self.recorded
        ids.copy_(on_host.ids, non_blocking=True)
        return batch


class StartedUpdate(NamedTuple):
    """An update whose metrics have not been read."""

    step: int
    where: str
    """Where its last micro-batch is in the training data, for messages."""
    losses_and_norm: HostCopy
    """The two losses, summed over the tokens of this process, then the norm of the gradient."""
    metrics: StepMetrics
    """The metrics that need no waiting."""
    started: float


_REPEATED = ("update.Updater", "update.RunningMean")
"""The beginnings of the names of functions that `FastUpdater` computes in its own way."""


def make_updater(
    model: Transformer, *given: Any, compute: Compute, compiled: bool = True, **chosen: Any
) -> Updater:
    """Make a fast updater, or a plain one for changed code that the fast one would not obey."""
    edited = changed_functions("update")
    own_update = [name for name in edited if name.startswith(_REPEATED)]
    if "update.make_adam()" in edited and not update.make_adam(model).defaults.get("fused"):
        own_update.append("update.make_adam()")  # only fused optimizers read `found_inf`
    changed = own_update + changed_code(model)
    if own_update or (changed and not rows.computes_the_same_for_rows(model)):
        report_unused("fast training", changed)
        return Updater(model, *given, compute=compute, **chosen)
    return FastUpdater(model, *given, compute=compute, compiled=compiled, **chosen)


# Memory.


def fit_memory(updater: FastUpdater, epoch: int) -> float:
    """Halve `most_tokens` until the largest batch of an epoch fits: memory runs out here, or never.

    Returns the seconds that the largest micro-batch took.
    """
    started, corpus, before = time.perf_counter(), updater.batching.corpus, updater.most_tokens
    largest = max(updater.batching.epoch(epoch), key=corpus.padded_tokens)
    while not _fits(updater, largest):
        if updater.most_tokens == corpus.longest:
            source, target = corpus.longest
            raise OutOfMemoryError(
                f"out of memory with a single pair of {source} source and {target} target"
                " tokens: lower data.filter.max_tokens or take a smaller model"
            )
        _lower(updater, updater.most_tokens[0] // 2, updater.most_tokens[1] // 2)
    # Another process may have less memory.
    sources, targets = zip(*updater.world.gather(*updater.most_tokens), strict=True)
    _lower(updater, int(min(sources)), int(min(targets)))
    if updater.most_tokens != before:
        logger.info(
            "memory: {:,} source and {:,} target tokens at once don't fit, {:,} and {:,} do;"
            " the step is the same, but slower".format(*before, *updater.most_tokens)
        )
    return time.perf_counter() - started


def _fits(updater: FastUpdater, pairs: PairIndices) -> bool:
    """Return whether the gradient of the largest part of a micro-batch fits into memory."""
    corpus = updater.batching.corpus
    parts = cut(pairs, corpus.lengths(pairs), updater.most_tokens)
    try:
        with oom_as_user_error(), _memory_of_later_steps(updater):
            batch = updater.host_batch(max(parts, key=corpus.padded_tokens))
            updater.run(updater.begin_gradient, batch)
        fits = True
    except OutOfMemoryError:
        fits = False
    # The error is gone, and with it all that the attempt had in memory.
    if updater.compute.on_gpu:  # a graph has memory of its own
        torch.cuda.empty_cache()
    return fits


def _lower(updater: FastUpdater, source: int, target: int) -> None:
    """Compute fewer tokens at once, but at least those of the longest pair."""
    longest_source, longest_target = updater.batching.corpus.longest
    lowered = max(source, longest_source), max(target, longest_target)
    if lowered != updater.most_tokens:
        updater.set_most_tokens(lowered)


@contextmanager
def _memory_of_later_steps(updater: FastUpdater) -> Iterator[None]:
    """Reserve the memory of later steps; restore random state and gradients."""
    device, on_gpu = updater.compute.device, updater.compute.on_gpu
    with torch.random.fork_rng([device] if on_gpu else []):
        # The gradients of other batches, and Adam's two moments from the first update on. The
        # copy of the model that a validation makes takes the place of the gradients.
        copies = 1 if updater.optimizer.state else 3
        parameters = list(updater.model.parameters())
        reserved: Any = list(map(torch.empty_like, copies * parameters))
        try:
            yield
        finally:
            del reserved
            updater.optimizer.zero_grad(set_to_none=True)
