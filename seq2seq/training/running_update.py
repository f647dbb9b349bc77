"""An update that a GPU may still be computing, and its metrics, which are read later.

Reading a number waits for all that a GPU has been given to do. Read one update later, it costs
nothing: the GPU is busy with the update that follows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seq2seq.data.batching import Indices
from seq2seq.device import HostCopy
from seq2seq.errors import UserError
from seq2seq.training.distributed import World
from seq2seq.training.metrics import StepMetrics


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
