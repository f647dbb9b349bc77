"""The gradient of a step: the sum over its micro-batches, joined or in slices as memory allows."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seq2seq.data.batching import Batch, Batching, Indices
from seq2seq.device import Compute, HostCopy, oom_as_user_error
from seq2seq.errors import UserError
from seq2seq.fast.joined import JoinedBatch, join
from seq2seq.fast.loss import can_compile, compiled_loss
from seq2seq.fast.training import TrainingKernels
from seq2seq.model import Transformer
from seq2seq.training.distributed import World
from seq2seq.training.loss import BatchLoss, Loss
from seq2seq.training.memory import find_joined, find_slices, preserve_state, split
from seq2seq.training.state import StepMetrics


class StepGradient:
    """Accumulates the gradient of a step in this process.

    Args:
        model: on its device, with the fast forms in it.
        batching: makes the batches.
        label_smoothing: eps in the paper.
        compute: the model's device, and the precision of the matmuls.
        seed: seed of dropout, whose masks are a function of the seed, the step and the micro-batch.
        world: the processes that share the work.
        kernels: the fast forms to use.
        clock: returns seconds, from any start.
    """

    def __init__(
        self,
        model: Transformer,
        batching: Batching,
        *,
        label_smoothing: float,
        compute: Compute,
        seed: int,
        world: World,
        kernels: TrainingKernels,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.model = model
        self.batching = batching
        self.compute = compute
        self.seed = seed
        self.world = world
        self.clock = clock
        of_chunk = compiled_loss() if kernels.compiled and can_compile(compute.device) else None
        self.loss = BatchLoss(model, label_smoothing, in_chunks=kernels.loss, of_chunk=of_chunk)
        self.ddp_loss = world.wrap_ddp(self.loss)
        self.joins = kernels.join_on(compute)
        self.packs = kernels.pack_on(compute, model.config)
        self.joined = 1
        """Micro-batches computed at once; more than one only where they are joined."""
        self.slices = 1
        """Slices in which a micro-batch is computed, one after the other."""

    def groups(self, micro_batches: Sequence[Indices]) -> list[tuple[int, int, list[Indices]]]:
        """Divide this process's share of a step into what is computed at once.

        Returns:
            For each group: the numbers of its first micro-batch and slice, and the pairs of each
            of its micro-batches or slices.
        """
        slices = [
            (number, index, pairs)
            for number, micro_batch in self.world.share(micro_batches)
            for index, pairs in enumerate(split(micro_batch, self.slices))
        ]
        groups = [slices[i : i + self.joined] for i in range(0, len(slices), self.joined)]
        return [(*group[0][:2], [pairs for _, _, pairs in group]) for group in groups]

    def collate(self, parts: Sequence[Indices]) -> Batch | JoinedBatch:
        """Make the batch of a group, on the device."""
        batches = [self.batching.collate(pairs) for pairs in parts]
        batch = join(batches, packed=self.packs) if self.joins else batches[0]
        return batch.to(self.compute.device)

    def accumulate(
        self, groups: Sequence[tuple[int, int, list[Indices]]], *, step: int, target_tokens: int
    ) -> tuple[list[Tensor], float]:
        """Accumulate the gradient of a step, group by group.

        Args:
            groups: this process's share, divided by `groups`.
            step: the number of the update.
            target_tokens: those of the whole step.

        Returns:
            The two losses of each group, (2,), and the seconds spent waiting for batches.
        """
        losses, waited = [], 0.0
        for position, (number, index, parts) in enumerate(groups, start=1):
            # The same masks for the same micro-batch in any process.
            entropy = [self.seed, step, number, *([index] if index else [])]
            torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
            requested = self.clock()
            batch = self.collate(parts)
            waited += self.clock() - requested
            with self.world.accumulating(self.ddp_loss, last=position == len(groups)):
                # DistributedDataParallel averages over processes; the divisor makes it a sum.
                loss = self._backward(self.ddp_loss, batch, target_tokens / self.world.size)
            losses.append(torch.stack((loss.smoothed.detach(), loss.cross_entropy)))
        return losses, waited

    def _backward(self, loss_module: nn.Module, batch: Batch | JoinedBatch, divisor: float) -> Loss:
        """Add the gradient of a batch's summed loss, divided by the tokens of the whole step.

        Micro-batches and their slices then add up to the gradient of the step's mean loss.
        """
        with oom_as_user_error():
            with self.compute.autocast():
                loss: Loss = loss_module(batch)
            (loss.smoothed / divisor).backward()  # type: ignore[no-untyped-call]
        return loss

    def fit_memory(self, optimizer: Optimizer, epoch: Sequence[Indices], most: int) -> None:
        """Find how many micro-batches, or in how many slices one, are computed at once.

        Memory runs out here or not at all; weights and random state do not change.

        Args:
            optimizer: the one that updates the model.
            epoch: all micro-batches of an epoch.
            most: micro-batches of a step, on all devices together.

        Raises:
            UserError: if not even a single pair fits, or too few positions are learned.
        """

        def attempt(parts: Sequence[Indices]) -> None:
            with oom_as_user_error(), preserve_state(self.model, optimizer, self.compute.device):
                # Not through DistributedDataParallel: another process may have memory enough.
                self._backward(self.loss, self.collate(parts), 1.0)

        corpus = self.batching.corpus
        # The table of positions, which a GPU is waited for to extend, is made for all sentences.
        longest = int(max(corpus.source_lengths.max(), corpus.target_lengths.max()))
        self.model.positions(
            self.model.embedding.weight.new_empty(1, longest, self.model.config.d_model)
        )
        most = most // self.world.size if self.joins else 1
        joined = find_joined(attempt, epoch, corpus, most)
        slices = find_slices(lambda pairs: attempt([pairs]), epoch, corpus) if joined == 1 else 1
        rows = self.world.gather(joined, slices)
        self.joined = int(min(row[0] for row in rows))
        self.slices = int(max(row[1] for row in rows))


class DivergenceError(UserError):
    """A loss or a gradient is not finite; the weights are those of the step before."""


@dataclass(frozen=True, kw_only=True)
class RunningUpdate:
    """An update that has been started."""

    step: int
    """Its number, from 1."""
    place: str
    """Where its last micro-batch stands in the training data, for messages."""
    groups: list[list[Indices]]
    """The pairs of this process, in the groups that are computed at once."""
    corpus_size: int
    """Pairs of the corpus; the rows of one that is sampled anew go on beyond it."""
    losses_and_norm: HostCopy
    """The two losses of each group, summed over its tokens, then the norm of the gradient."""
    source_tokens: int
    target_tokens: int
    learning_rate: float
    started: float
    """The clock's time."""
    waited: float
    """Seconds spent waiting for batches."""

    def metrics(self, world: World) -> StepMetrics:
        """Wait for losses and norm, and sum the losses over all processes; `seconds` is left at 0.

        Raises:
            DivergenceError: if the loss or the norm is not finite.
        """
        *losses, norm = self.losses_and_norm.read().tolist()
        of_groups = list(zip(losses[::2], losses[1::2], strict=True))
        rows = world.gather(*map(sum, zip(*of_groups, strict=True)))
        smoothed, cross_entropy = (sum(column) for column in zip(*rows, strict=True))
        if not (math.isfinite(smoothed) and math.isfinite(norm)):
            odd = [
                group
                for group, pair in zip(self.groups, of_groups, strict=True)
                if not all(map(math.isfinite, pair))
            ]
            raise self._divergence(smoothed / self.target_tokens, norm, odd or self.groups)
        return StepMetrics(
            smoothed=smoothed,
            cross_entropy=cross_entropy,
            source_tokens=self.source_tokens,
            target_tokens=self.target_tokens,
            gradient_norm=norm,
            learning_rate=self.learning_rate,
            seconds=0.0,
            waited=self.waited,
        )

    def _divergence(
        self, loss: float, norm: float, odd: Sequence[Sequence[Indices]]
    ) -> DivergenceError:
        pairs = np.sort(
            np.concatenate([part for group in odd for part in group]) % self.corpus_size
        )
        first = ", ".join(map(str, pairs[:5])) + (", ..." if len(pairs) > 5 else "")
        return DivergenceError(
            f"step {self.step}: the loss ({loss:g}) or the gradient's norm ({norm:g}) is not"
            f" finite, in {self.place}, pairs {first} of the encoded corpus; the weights are not"
            " updated. Lower training.learning_rate_scale or raise training.warmup_steps"
        )
