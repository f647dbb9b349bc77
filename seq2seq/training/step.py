"""One update (section 5): dropout, losses, gradient, learning rate, Adam.

A step consists of micro-batches, which all processes share. Their summed losses are divided by the
target tokens of the whole step, so that their gradients add up to the gradient of the mean loss.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils import get_total_norm

from seq2seq.data.batching import Batching, cut
from seq2seq.data.encoded import Rows
from seq2seq.device import Compute, HostCopy, oom_as_user_error
from seq2seq.errors import OutOfMemoryError, UserError
from seq2seq.model import Transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.distributed import World
from seq2seq.training.forms import Forms
from seq2seq.training.optimizer import WeightAverage, dropout_share, learning_rate, make_adam
from seq2seq.training.state import StepMetrics

logger = logging.getLogger("seq2seq")


class StepBatches(NamedTuple):
    """A step's batches of one process, on the host."""

    batches: list[tuple[tuple[int, int], Any]]
    """Each with the numbers of its first micro-batch and of its part of that one."""
    source_tokens: int
    """Of the whole step, in all processes."""
    target_tokens: int


class Updater:
    """Updates a model; started updates are read later, so that a GPU always has work."""

    def __init__(
        self,
        model: Transformer,
        batching: Batching,
        config: TrainingConfig,
        compute: Compute,
        seed: int,
        world: World,
        forms: Forms,
        clock: Callable[[], float],
    ) -> None:
        self.average = WeightAverage(model) if config.validate_mean else None
        forms.prepare(model, batching, compute)
        self.model = model
        self.batching = batching
        self.config = config
        self.compute = compute
        self.seed = seed
        self.world = world
        self.forms = forms
        self.clock = clock
        # What a step computes with lies on the device, where a graph finds it.
        numbers = torch.zeros(4, device=compute.device)
        self.numbers = numbers if compute.on_gpu else numbers.double()
        self.target_tokens, self.rate, self.average_share, self.dropout_share = (
            self.numbers.unbind()
        )
        self.losses = torch.zeros(2, dtype=torch.float64, device=compute.device)
        """Smoothed loss and cross-entropy, summed over the step so far."""
        self.losses_and_norm = torch.zeros(3, dtype=torch.float64, device=compute.device)
        self.diverged = torch.zeros((), device=compute.device)
        self.optimizer = make_adam(model)
        count = config.micro_batches(world.size) // world.size if forms.joins else 1
        source, target = batching.most_tokens
        self.most_tokens = count * source, count * target
        """Of a batch: memory suffices for so many source and target tokens."""
        forms.reserve(self.most_tokens)
        self.set_numbers(1.0, 0.0, 0.0, 1.0)
        self.in_flight: deque[PendingUpdate] = deque()
        self.max_in_flight = 1 if compute.on_gpu else 0
        self.read_at = -math.inf
        """The time at which metrics were last read."""

    def collate(self, micro_batches: Sequence[Rows]) -> StepBatches:
        """Make the batches of a step."""
        share = self.world.share(micro_batches)
        if self.forms.joins:
            share = [(share[0][0], np.concatenate([pairs for _, pairs in share]))]
        batches = []
        for number, pairs in share:
            parts = cut(pairs, self.batching.corpus.lengths(pairs), self.most_tokens)
            batches += [((number, i), self.forms.collate(part)) for i, part in enumerate(parts)]
        lengths = self.batching.corpus.lengths(np.concatenate(micro_batches))
        return StepBatches(batches, *(int(side.sum()) for side in lengths))

    def start(self, batches: StepBatches, step: int, where: str, data_wait: float = 0.0) -> None:
        """Start update number `step`, from 1.

        If a loss or the norm is not finite, neither this update nor any after it is done, and
        `read` raises DivergenceError, which says `where` in the data the update is.
        """
        started = self.clock()
        # The learning rate: equation 3.
        rate = learning_rate(
            step,
            d_model=self.model.config.d_model,
            warmup_steps=self.config.warmup_steps,
            scale=self.config.learning_rate_scale,
        )
        # Dropout (5.4): constant rates, or rates that rise over the first updates.
        share = dropout_share(step, self.config.dropout_warmup_steps)
        self.set_numbers(batches.target_tokens, rate, WeightAverage.share(step), share)

        # The gradient of the mean loss of the whole step.
        for i, (number, batch) in enumerate(batches.batches):
            self.seed_masks(step, *number)
            if i == 0:
                self.forms.run("begin", self.begin_gradient, batch)
            else:
                self.forms.run("add", self.add_gradient, batch)
        if self.world.size > 1:
            self.world.add_up([p.grad for p in self.model.parameters() if p.grad is not None])
        self.forms.run("update", self.update)

        known = StepMetrics(
            steps=1,
            source_tokens=batches.source_tokens,
            target_tokens=batches.target_tokens,
            learning_rate=rate,
            data_wait_seconds=data_wait,
        )
        pending = PendingUpdate(
            step=step,
            where=where,
            losses_and_norm=HostCopy(self.losses_and_norm),
            known=known,
            started=started,
        )
        self.in_flight.append(pending)

    def set_numbers(self, *numbers: float) -> None:
        """Set what a step computes with, in one copy."""
        on_host = torch.tensor(numbers, dtype=self.numbers.dtype)
        if self.compute.on_gpu:  # which does not wait for a copy from pinned memory
            on_host = on_host.pin_memory()
        self.numbers.copy_(on_host, non_blocking=True)
        self.forms.set_dropout(self.dropout_share)

    def begin_gradient(self, batch: Any) -> None:
        """Compute the losses of a step's first batch, and its share of the gradient."""
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.zero_()
        self.add_gradient(batch)

    def add_gradient(self, batch: Any) -> None:
        """Add the losses of a batch, and its share of the gradient, to those of the step."""
        with oom_as_user_error():
            with self.compute.autocast():
                loss = self.forms.loss(batch, self.config.label_smoothing)
            (loss.smoothed / self.target_tokens).backward()  # type: ignore[no-untyped-call]
        self.losses += torch.stack((loss.smoothed.detach(), loss.cross_entropy))

    def update(self) -> None:
        """Update the weights and their average, unless a loss or the gradient is not finite."""
        norm = get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        self.losses_and_norm.copy_(torch.cat((self.losses, norm.view(1))))
        # Fused Adam skips the step if found_inf is set, as with GradScaler. The device decides that
        # by itself, so the host does not wait for it.
        self.diverged += (~self.losses_and_norm.isfinite()).any()
        self.optimizer.found_inf = self.diverged  # type: ignore[attr-defined]
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = self.rate
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, self.average_share)

    def read(self, leave: int = 0) -> list[StepMetrics]:
        """Wait for all started updates but the last `leave`, and return their metrics."""
        read = []
        while len(self.in_flight) > leave:
            update = self.in_flight.popleft()
            metrics = update.metrics(self.world)
            now = self.clock()
            read.append(replace(metrics, seconds=now - max(update.started, self.read_at)))
            self.read_at = now
        return read

    def seed_masks(self, step: int, micro_batch: int, part: int) -> None:
        """Seed dropout, so that a micro-batch has the same masks in any process."""
        entropy = [self.seed, step, micro_batch, *([part] if part else [])]
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))

    def fit_memory(self, epoch: Sequence[Rows]) -> None:
        """Halve `most_tokens` until the largest batch fits: memory runs out here, or never.

        `epoch` has the micro-batches of one.
        """
        corpus, before = self.batching.corpus, self.most_tokens

        def padded_tokens(pairs: Rows) -> int:
            return len(pairs) * sum(int(side.max()) for side in corpus.lengths(pairs))

        largest = max(epoch, key=padded_tokens)
        while True:
            parts = cut(largest, corpus.lengths(largest), self.most_tokens)
            try:
                with oom_as_user_error(), self._memory_of_later_steps():
                    batch = self.forms.collate(max(parts, key=padded_tokens))
                    self.forms.run("begin", self.begin_gradient, batch)
                break
            except OutOfMemoryError as error:
                if self.most_tokens == corpus.longest:
                    source, target = corpus.longest
                    raise OutOfMemoryError(
                        f"out of memory with a single pair of {source} source and {target} target"
                        " tokens: lower data.filter.max_tokens or take a smaller model"
                    ) from error
                self._lower(self.most_tokens[0] // 2, self.most_tokens[1] // 2)
        # Another process may have less memory.
        self._lower(
            *(int(min(side)) for side in zip(*self.world.gather(*self.most_tokens), strict=True))
        )
        if self.most_tokens != before:
            logger.info(
                "memory: {:,} source and {:,} target tokens at once don't fit, {:,} and {:,} do;"
                " the step is the same, but slower".format(*before, *self.most_tokens)
            )

    def _lower(self, source: int, target: int) -> None:
        """Compute fewer tokens at once, but at least those of the longest pair."""
        longest_source, longest_target = self.batching.corpus.longest
        lowered = max(source, longest_source), max(target, longest_target)
        if lowered != self.most_tokens:
            self.most_tokens = lowered
            self.forms.reserve(lowered)

    @contextmanager
    def _memory_of_later_steps(self) -> Iterator[None]:
        """Reserve the memory of later steps; restore random state and gradients."""
        with torch.random.fork_rng([self.compute.device] if self.compute.on_gpu else []):
            # The gradients of other batches, and Adam's two moments from the first update on. The
            # copy of the model that a validation makes takes the place of the gradients.
            copies = 1 if self.optimizer.state else 3
            reserved = [torch.empty_like(p) for p in self.model.parameters() for _ in range(copies)]
            try:
                yield
            finally:
                del reserved
                self.optimizer.zero_grad(set_to_none=True)
                if self.compute.on_gpu:  # a graph has memory of its own
                    torch.cuda.empty_cache()


class DivergenceError(UserError):
    """A loss or a gradient is not finite; `step` is the number of the update that was not done."""

    def __init__(self, step: int, message: str) -> None:
        super().__init__(f"step {step}: {message}")
        self.step = step


@dataclass(frozen=True, kw_only=True)
class PendingUpdate:
    """An update that has been started."""

    step: int
    where: str
    """Where its last micro-batch is in the training data, for messages."""
    losses_and_norm: HostCopy
    """The two losses, summed over the tokens of this process, then the norm of the gradient."""
    known: StepMetrics
    """The metrics that need no waiting."""
    started: float

    def metrics(self, world: World) -> StepMetrics:
        """Wait for losses and norm, and sum the losses over all processes; `seconds` stays 0."""
        *losses, norm = self.losses_and_norm.read().tolist()
        rows = world.gather(*losses)
        smoothed, cross_entropy = (sum(column) for column in zip(*rows, strict=True))
        if not (math.isfinite(smoothed) and math.isfinite(norm)):
            raise DivergenceError(
                self.step,
                f"the loss ({smoothed / self.known.target_tokens:g}) or the gradient's norm"
                f" ({norm:g}) is not finite, in {self.where}; the weights are not updated."
                " Lower training.learning_rate_scale or raise training.warmup_steps",
            )
        return replace(
            self.known, smoothed=smoothed, cross_entropy=cross_entropy, gradient_norm=norm
        )
