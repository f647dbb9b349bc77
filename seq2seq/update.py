"""One update (section 5): losses, gradient, learning rate and Adam (5.3).

A step consists of micro-batches, which all processes share. Their summed losses are divided by the
target tokens of the whole step, so that their gradients add up to the gradient of the mean loss.
`fast/updates.py` does the same in less time.
"""

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Adam

from seq2seq.batches import Batching
from seq2seq.config import TrainingConfig
from seq2seq.device import Compute, World, exact_dtype
from seq2seq.encoded_corpus import PairIndices
from seq2seq.errors import UserError
from seq2seq.loss import label_smoothed_loss
from seq2seq.settings import Setting
from seq2seq.transformer import Transformer

# The learning rate and Adam (5.3).


def learning_rate(step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Compute scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (equation 3).

    Steps count from 1. In the paper, the rate rises over 4000 steps, and the scale is 1.
    """
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def make_adam(model: nn.Module) -> Adam:
    """Make Adam with beta_1 = 0.9, beta_2 = 0.98, epsilon = 1e-9; the rate is set in each step."""
    return Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


def gradients_of(model: nn.Module) -> list[Tensor]:
    """Return the gradients of all parameters that are trained; zero if no loss depends on one.

    So all processes have the same, whatever part of the model their micro-batches use.
    """
    gradients = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
    return gradients


# Dropout (5.4).


def dropout_share(step: int, warmup_steps: int | None) -> float:
    """Compute dropout's share of its rates, min(1, step / warmup_steps); always 1 in the paper."""
    return 1.0 if warmup_steps is None else min(1.0, step / warmup_steps)


def seed_masks(*numbers: int) -> None:
    """Seed dropout's masks by the numbers of a run, of a step and of a micro-batch in it."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1)[0]))


# One update.


@dataclass(eq=False, repr=False)
class Updater:
    """Updates a model, in one of the processes that share the micro-batches of each step."""

    model: Transformer
    batching: Batching
    config: TrainingConfig
    _: KW_ONLY
    compute: Compute
    seed: int
    world: World = field(default_factory=World)
    micro_batches: int = 0
    """Micro-batches of a step; 0 stands for as many as the configuration gives the processes."""

    def __post_init__(self) -> None:
        self.micro_batches = self.micro_batches or self.config.micro_batches(self.world.size)
        self.running_mean = RunningMean(self.model) if self.config.validate_mean else None
        self.optimizer = make_adam(self.model)
        self.model.eval()  # between updates, it may be validated and saved
        dropouts = (module for module in self.model.modules() if isinstance(module, nn.Dropout))
        self.dropout_rates = {module: module.p for module in dropouts}

    def learning_rate(self, step: int) -> float:
        """Compute the learning rate of update number `step` (equation 3)."""
        config, d_model = self.config, self.model.config.d_model
        scale = config.learning_rate_scale
        return learning_rate(step, d_model=d_model, warmup_steps=config.warmup_steps, scale=scale)

    def collate(self, micro_batches: Sequence[PairIndices]) -> "StepBatches":
        """Read this process's share of the micro-batches of a step; count the tokens of all."""
        source, target = self.batching.corpus.lengths(np.concatenate(micro_batches))
        own = self.world.own_part(micro_batches)
        batches = [(number, self.batching.collate(pairs)) for number, pairs in own]
        return StepBatches(batches, int(source.sum()), int(target.sum()))

    def update(self, step: int, batches: "StepBatches", where: str = "") -> "StepMetrics":
        """Do update number `step`, from 1, and return its metrics.

        Raises:
            DivergenceError: A loss or the gradient's norm is not finite; it says `where` in the
                data. The weights are not updated.

        """
        started, config, model = time.perf_counter(), self.config, self.model.train()
        # The learning rate (5.3, equation 3), and dropout's rates (5.4).
        rate = self.learning_rate(step)
        share = dropout_share(step, config.dropout_warmup_steps)
        for dropout, full_rate in self.dropout_rates.items():
            dropout.p = share * full_rate

        # The gradient of the mean loss over the target tokens of the whole step: each micro-batch,
        # (B, S) and (B, T), adds its share.
        self.optimizer.zero_grad()
        device = self.compute.device
        losses = torch.zeros(2, dtype=exact_dtype(device), device=device)
        for number, batch in batches.batches:
            seed_masks(self.seed, step, number)
            batch = batch.to(device)
            with self.compute.autocast():
                loss = label_smoothed_loss(
                    model(batch.source, batch.target_input),
                    batch.target_output,
                    smoothing=config.label_smoothing,
                    padding_id=model.padding_id,
                )
            (loss.smoothed / batches.target_tokens).backward()  # type: ignore[no-untyped-call]
            losses += torch.stack(loss).detach()

        # The sums over all processes; what is not finite ends the training.
        gradients = gradients_of(model)
        self.world.add_up(gradients)
        smoothed, cross_entropy = map(sum, zip(*self.world.gather(*losses.tolist()), strict=True))
        norm = get_total_norm(gradients).item()
        check_finite(step, smoothed / batches.target_tokens, norm, where)

        # Adam (5.3).
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        if self.running_mean is not None:
            self.running_mean.update(model, RunningMean.weight(step))
        model.eval()
        seconds = time.perf_counter() - started
        counts = batches.source_tokens, batches.target_tokens
        return StepMetrics(1, smoothed, cross_entropy, *counts, norm, rate, seconds)

    def settings(self) -> dict[str, Setting]:
        """Return settings that a resumed run should keep, besides those of its configuration."""
        return {}

    def release_memory(self) -> bool:
        """Free what updates keep in memory between steps; return whether there was any."""
        return False

    def finish(self) -> "StepMetrics":
        """Return the metrics that `update` has not returned yet; here there are none."""
        return StepMetrics()


class StepBatches(NamedTuple):
    """A step's batches of one process, on the host."""

    batches: list[tuple[Any, Any]]
    """Each with the number of its micro-batch."""
    source_tokens: int
    """Source tokens of the whole step, in all processes."""
    target_tokens: int


class DivergenceError(UserError):
    """A loss or a gradient is not finite; `step` is the number of the update that was not done."""

    def __init__(self, step: int, message: str) -> None:
        super().__init__(f"step {step}: {message}")
        self.step = step


def check_finite(step: int, loss: float, norm: float, where: str) -> None:
    """Raise a DivergenceError if the loss or the gradient's norm is not finite."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise DivergenceError(
            step,
            f"the loss ({loss:g}) or the gradient's norm ({norm:g}) is not finite, in {where}; the"
            " weights are not updated. Lower training.learning_rate_scale or raise"
            " training.warmup_steps",
        )


@dataclass
class StepMetrics:
    """The metrics of one update, or their sums over several."""

    steps: int = 0
    smoothed: float = 0.0
    """Label-smoothed loss in nats, summed over the target tokens."""
    cross_entropy: float = 0.0
    """Loss without label smoothing, in nats, summed over the target tokens."""
    source_tokens: int = 0
    target_tokens: int = 0
    gradient_norm: float = 0.0
    learning_rate: float = 0.0
    """The rate of the last update."""
    seconds: float = 0.0
    data_wait_seconds: float = 0.0
    """Seconds spent waiting for batches."""

    def add(self, other: "StepMetrics") -> None:
        """Add the metrics of later updates."""
        rate = other.learning_rate if other.steps else self.learning_rate
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.learning_rate = rate

    def summary(self) -> dict[str, float]:
        """Return losses per target token, tokens per step and second, and the share of waiting."""
        seconds = max(self.seconds, 1e-9)  # a clock may stand still
        return {
            "train/loss": self.smoothed / self.target_tokens,
            "train/perplexity": math.exp(min(self.cross_entropy / self.target_tokens, 700.0)),
            "train/gradient_norm": self.gradient_norm / self.steps,
            "train/learning_rate": self.learning_rate,
            "train/source_tokens": self.source_tokens / self.steps,
            "train/target_tokens": self.target_tokens / self.steps,
            "train/tokens_per_second": (self.source_tokens + self.target_tokens) / seconds,
            "train/waiting_for_data": self.data_wait_seconds / seconds,
        }


_POWER = 16


class RunningMean:
    """The running mean of a model's weights over its updates; the newest have most weight.

    Update k has a weight proportional to k^16 (polynomial-decay averaging, Shamir and Zhang 2013),
    so that it reaches back over about a twentieth of the updates, however many there are. The mean
    of the last checkpoints (section 6.1) is coarser: of a short run, they are too old.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = copy.deepcopy(model).eval()
        """Has the mean as its weights, to be validated and saved."""
        self.weights = {name: p.detach() for name, p in self.model.named_parameters()}

    @staticmethod
    def weight(step: int) -> float:
        """Compute the weight of the parameters after update number `step`, from 1."""
        return 1.0 - (1.0 - 1.0 / step) ** (_POWER + 1)

    @torch.no_grad()
    def update(self, model: Transformer, weight: float) -> None:
        """Add the parameters after an update, with their weight."""
        for mean, new in zip(self.weights.values(), model.parameters(), strict=True):
            mean.lerp_(new, weight)
        newest = dict(model.named_buffers())
        for name, buffer in self.model.named_buffers():
            if name in newest and newest[name].shape == buffer.shape:  # a cache may grow in either
                buffer.copy_(newest[name])
