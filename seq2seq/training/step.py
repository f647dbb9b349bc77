"""One update (section 5): dropout, losses, gradient, learning rate, Adam.

A step consists of micro-batches, which all processes share. Their summed losses are divided by the
target tokens of the whole step, so that their gradients add up to the gradient of the mean loss. A
group is what is computed at once: several micro-batches, one, or a slice of one, as memory allows.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.utils import get_total_norm

from seq2seq.data.batching import Batch, Batching
from seq2seq.data.encoded import Rows
from seq2seq.device import Compute, HostCopy, oom_as_user_error
from seq2seq.errors import UserError
from seq2seq.fast.joined import JoinedBatch, join
from seq2seq.fast.training import TrainingKernels, use_training_kernels
from seq2seq.model import Transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.distributed import World
from seq2seq.training.loss import BatchLoss, Loss
from seq2seq.training.memory import find_joined, find_slices, preserve_state, split
from seq2seq.training.optimizer import WeightAverage, dropout_share, learning_rate, make_adam
from seq2seq.training.state import StepMetrics


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
        kernels: TrainingKernels,
        clock: Callable[[], float],
    ) -> None:
        self.average = WeightAverage(model) if config.validate_mean else None
        use_training_kernels(model, kernels, compute)
        self.model = model
        self.batching = batching
        self.config = config
        self.compute = compute
        self.seed = seed
        self.world = world
        self.clock = clock
        self.joins = kernels.join_on(compute, model)
        rows = kernels.rows_on(compute, model)
        self.loss = BatchLoss(model, config.label_smoothing, chunked=kernels.loss, rows=rows)
        self.ddp_loss = world.wrap_ddp(self.loss)
        self.optimizer = make_adam(model)
        self.dropouts = {m: m.p for m in model.modules() if isinstance(m, nn.Dropout)}
        """The modules of dropout, and their rates after the warm-up of dropout."""
        self.joined = 1
        """Micro-batches computed at once; more than one only where they are joined."""
        self.slices = 1
        """Slices in which a micro-batch is computed, one after the other."""
        self.diverged = torch.zeros((), dtype=torch.bool, device=compute.device)
        self.in_flight: deque[PendingUpdate] = deque()
        self.max_in_flight = 1 if compute.on_gpu else 0
        self.read_at = -math.inf
        """The time at which metrics were last read."""

    def start(self, micro_batches: Sequence[Rows], step: int, where: str) -> None:
        """Start update number `step`, from 1.

        If a loss or the norm is not finite, neither this update nor any after it is done, and
        `read` raises DivergenceError, which says `where` in the data the update is.
        """
        started = self.clock()
        sides = zip(*map(self.batching.corpus.lengths, micro_batches), strict=True)
        source_tokens, target_tokens = (int(np.concatenate(side).sum()) for side in sides)

        # Dropout (5.4): constant rates, or rates that rise over the first updates.
        share = dropout_share(step, self.config.dropout_warmup_steps)
        for dropout, full_rate in self.dropouts.items():
            dropout.p = share * full_rate

        # The losses of each group, (2,), and the gradient of the mean loss of the whole step.
        groups = self.groups(micro_batches)
        losses, data_wait_seconds = [], 0.0
        for position, group in enumerate(groups, start=1):
            self.seed_masks(step, group)
            requested = self.clock()
            batch = self.collate(group.parts)
            data_wait_seconds += self.clock() - requested
            with self.world.accumulating(self.ddp_loss, last=position == len(groups)):
                # DistributedDataParallel averages over processes; the divisor makes it a sum.
                loss = self.backward(self.ddp_loss, batch, target_tokens / self.world.size)
            losses.append(torch.stack((loss.smoothed.detach(), loss.cross_entropy)))
        norm = get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        losses_and_norm = torch.cat((*losses, norm.view(1))).double()

        # The learning rate: equation 3.
        rate = learning_rate(
            step,
            d_model=self.model.config.d_model,
            warmup_steps=self.config.warmup_steps,
            scale=self.config.learning_rate_scale,
        )
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate

        # Fused Adam skips the step if found_inf is set, as with GradScaler. The device decides that
        # by itself, so the host does not wait for it.
        self.diverged = self.diverged | (~losses_and_norm.isfinite()).any()
        self.optimizer.found_inf = self.diverged.float()  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.model, step)

        known = StepMetrics(
            steps=1,
            source_tokens=source_tokens,
            target_tokens=target_tokens,
            learning_rate=rate,
            data_wait_seconds=data_wait_seconds,
        )
        pending = PendingUpdate(
            step=step,
            where=where,
            losses_and_norm=HostCopy(losses_and_norm),
            known=known,
            started=started,
        )
        self.in_flight.append(pending)

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

    def groups(self, micro_batches: Sequence[Rows]) -> list["Group"]:
        """Divide this process's share of a step into what is computed at once."""
        slices = [
            (number, index, pairs)
            for number, micro_batch in self.world.share(micro_batches)
            for index, pairs in enumerate(split(micro_batch, self.slices))
        ]
        groups = [slices[i : i + self.joined] for i in range(0, len(slices), self.joined)]
        return [Group(*group[0][:2], [pairs for _, _, pairs in group]) for group in groups]

    def seed_masks(self, step: int, group: "Group") -> None:
        """Seed dropout, so that a micro-batch has the same masks in any process."""
        entropy = [self.seed, step, group.micro_batch, *([group.slice] if group.slice else [])]
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))

    def collate(self, parts: Sequence[Rows]) -> Batch | JoinedBatch:
        """Make the batch of a group, on the device."""
        batches = [self.batching.collate(pairs) for pairs in parts]
        batch = join(batches) if self.joins else batches[0]
        return batch.to(self.compute.device)

    def backward(self, loss_module: nn.Module, batch: Batch | JoinedBatch, divisor: float) -> Loss:
        """Add the gradient of a batch's summed loss, divided by the tokens of the whole step."""
        with oom_as_user_error():
            with self.compute.autocast():
                loss: Loss = loss_module(batch)
            (loss.smoothed / divisor).backward()  # type: ignore[no-untyped-call]
        return loss

    def fit_memory(self, epoch: Sequence[Rows], micro_batches: int) -> None:
        """Find how much is computed at once: here, or never, memory runs out."""

        def attempt(parts: Sequence[Rows]) -> None:
            kept = preserve_state(self.model, self.optimizer, self.compute.device)
            with oom_as_user_error(), kept:
                # Not through DistributedDataParallel: another process may have memory enough.
                self.backward(self.loss, self.collate(parts), 1.0)

        # Extend the table of positions, for which a GPU is waited, once for all sentences.
        corpus = self.batching.corpus
        d_model = self.model.config.d_model
        self.model.positions(self.model.embedding.weight.new_empty(1, max(corpus.longest), d_model))

        most = micro_batches // self.world.size
        joined = find_joined(attempt, epoch, corpus, most) if self.joins else 1
        slices = find_slices(lambda pairs: attempt([pairs]), epoch, corpus) if joined == 1 else 1
        rows = self.world.gather(joined, slices)
        self.joined = int(min(row[0] for row in rows))
        self.slices = int(max(row[1] for row in rows))


class Group(NamedTuple):
    """What is computed at once."""

    micro_batch: int
    """The number of its first micro-batch in the step."""
    slice: int
    """The number of its first slice in that micro-batch."""
    parts: list[Rows]
    """The pairs of each of its micro-batches or slices."""


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
    """The two losses of each group, summed over its tokens, then the norm of the gradient."""
    known: StepMetrics
    """The metrics that need no waiting."""
    started: float

    def metrics(self, world: World) -> StepMetrics:
        """Wait for losses and norm, and sum the losses over all processes; `seconds` stays 0."""
        *losses, norm = self.losses_and_norm.read().tolist()
        rows = world.gather(sum(losses[::2]), sum(losses[1::2]))
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
