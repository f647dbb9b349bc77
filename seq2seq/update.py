"""One update (section 5): losses, gradient, learning rate and Adam (5.3).

A step consists of micro-batches, which all processes share. Their summed losses are divided by the
target tokens of the whole step, so that their gradients add up to the gradient of the mean loss.
"""

import copy
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Adam

from seq2seq.batches import Batching, EncodedCorpus, Mixture, Rows, cut
from seq2seq.device import Compute, HostCopy, World, oom_as_user_error
from seq2seq.errors import UsageError, UserError, check_number
from seq2seq.loss import Loss, label_smoothed_loss
from seq2seq.settings import changeable, fixed, free
from seq2seq.transformer import Transformer

# A lower BLEU is chance: n-grams that a model that has learned nothing happens to write.
_MIN_SCORE = 1.0


@dataclass(kw_only=True)
class TrainingConfig:
    """Options of steps, learning rate, limits and checkpoints; the defaults are the paper's."""

    source_tokens: int = fixed(25_000)
    """Source tokens of a step, padding not counted, on all devices together."""
    target_tokens: int = fixed(25_000)
    """Target tokens of a step, padding not counted, on all devices together."""
    micro_batch_tokens: int = free(4096)
    """Most source tokens, and most target tokens, of a micro-batch; a step consists of as many of
    these as its tokens need. On a GPU, a process computes all of its own at once, if they fit
    into memory."""
    count_longer_side: bool = fixed(False)
    """Fill a micro-batch until its longer side, padding counted, is full, as tensor2tensor did;
    otherwise until both sides together are."""
    max_steps: int | None = free(100_000)
    """Updates after which training ends; no rate depends on it."""
    max_minutes: float | None = free(None)
    """Minutes, validation included, after which training ends."""
    patience: int | None = free(None)
    """Validations without a better one after which training ends."""
    select: str = fixed("valid")
    """The validation set that selects the best model: `valid`, a name in data.valid_sets, or
    `mean`, the mean over all sets."""
    select_by: str = fixed("bleu")
    """The measure by which it selects: bleu, chrf (chrF2, for pairs with little text) or loss."""
    init_std: float | None = free(None)
    """Standard deviation of the initial matrices and embeddings; None means tensor2tensor's, since
    the paper gives none."""
    warmup_steps: int = changeable(4000)
    """Updates over which the learning rate rises."""
    learning_rate_scale: float = changeable(1.0)
    """Factor on the paper's learning rate."""
    dropout_warmup_steps: int | None = changeable(None)
    """Updates over which dropout rises from 0 to the model's rates; None means constant rates. At
    first, dropout slows learning; later, it prevents overfitting."""
    label_smoothing: float = changeable(0.1)
    """Probability of all tokens but the reference together, in the target distribution."""
    checkpoint_steps: int | None = free(1500)
    """Most updates between two checkpoints, each validated: the paper's ten minutes."""
    checkpoint_minutes: float | None = free(10.0)
    """Most minutes between two checkpoints."""
    keep_checkpoints: int = free(5)
    """Number of newest checkpoints to keep, besides the best model."""
    average_checkpoints: int = free(5)
    """Number of newest checkpoints whose mean is the final model, unless the best checkpoint
    validates better; 1 means no mean."""
    validate_mean: bool = changeable(False)
    """Validate, and keep as the best model, a running mean of the weights: see `RunningMean`."""
    log_steps: int = free(50)
    """Updates between two records of the training loss."""

    def micro_batches(self, devices: int = 1) -> int:
        """Return the number of micro-batches of a step, a multiple of the number of devices."""
        count = math.ceil(max(self.source_tokens, self.target_tokens) / self.micro_batch_tokens)
        return math.ceil(count / devices) * devices

    @property
    def selecting_set(self) -> str:
        """The beginning of the names of the selecting set's metrics."""
        return "valid" if self.select == "valid" else f"valid/{self.select}"

    def rank(self, metrics: Mapping[str, float]) -> tuple[float, float]:
        """Rank a validation: the selecting score, rounded to 0.01, then the loss, negated.

        A score below 1 counts as 0, so that the loss decides.
        """
        name = self.selecting_set
        loss = metrics.get(f"{name}/loss", 0.0)  # means had none in earlier versions
        score = 0.0 if self.select_by == "loss" else metrics[f"{name}/{self.select_by}"]
        return round(score, 2) if score >= _MIN_SCORE else 0.0, -loss

    def batching(
        self,
        corpus: EncodedCorpus,
        *,
        seed: int,
        micro_batches: int | None = None,
        mixture: Mixture | None = None,
    ) -> Batching:
        """Divide a corpus into micro-batches, by default as many a step as one device needs."""
        micro_batches = micro_batches or self.micro_batches()
        return Batching(
            corpus,
            source_tokens=math.ceil(self.source_tokens / micro_batches),
            target_tokens=math.ceil(self.target_tokens / micro_batches),
            seed=seed,
            count_longer_side=self.count_longer_side,
            mixture=mixture,
        )

    def __post_init__(self) -> None:
        """Check the ranges, that something ends the training, and that what is averaged is kept."""
        check_number("training.label_smoothing", self.label_smoothing, at_least=0, below=1)
        for name, value in asdict(self).items():
            if type(value) in (int, float) and name != "label_smoothing":
                check_number(f"training.{name}", value, above=0, below=math.inf)
        if self.max_steps is None and self.max_minutes is None and self.patience is None:
            raise UsageError(
                "nothing ends the training: give training.max_steps, training.max_minutes or"
                " training.patience"
            )
        if self.patience and self.checkpoint_steps is self.checkpoint_minutes is None:
            raise UsageError(
                f"training.patience={self.patience} counts validations, and there are none: give"
                " training.checkpoint_steps or training.checkpoint_minutes"
            )
        if self.select_by not in ("bleu", "chrf", "loss"):
            raise UsageError(f"training.select_by={self.select_by}: must be bleu, chrf or loss")
        if self.average_checkpoints > self.keep_checkpoints:
            raise UsageError(
                f"training.average_checkpoints={self.average_checkpoints}: must be at most"
                f" training.keep_checkpoints={self.keep_checkpoints}"
            )


# The learning rate and Adam (5.3).


def learning_rate(step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Compute scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (equation 3).

    Steps count from 1. In the paper, the rate rises over 4000 steps, and the scale is 1.
    """
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def dropout_share(step: int, warmup_steps: int | None) -> float:
    """Compute dropout's share of its rates, min(1, step / warmup_steps); always 1 in the paper."""
    return 1.0 if warmup_steps is None else min(1.0, step / warmup_steps)


def make_adam(model: nn.Module) -> Adam:
    """Make Adam with beta_1 = 0.9, beta_2 = 0.98, epsilon = 1e-9; the rate is set in each step."""
    on_gpu = next(model.parameters()).is_cuda
    return Adam(
        model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True, capturable=on_gpu
    )


def start_moments(adam: Adam) -> None:
    """Set the moments to zero, as the first update would, so that they can be saved before it."""
    for group in adam.param_groups:
        for parameter in group["params"]:
            adam.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


Number: TypeAlias = float | Tensor
"""A number, or a tensor () on a GPU, where a graph finds it."""
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
    def update(self, model: Transformer, weight: Number) -> None:
        """Add the parameters after an update, with their weight."""
        new: list[Tensor] = list(model.parameters())
        means = list(self.weights.values())
        if isinstance(weight, Tensor):  # on a GPU, in few kernels
            changes = torch._foreach_sub(new, means)
            torch._foreach_mul_(changes, weight)
            torch._foreach_add_(means, changes)
        else:
            torch._foreach_lerp_(means, new, weight)


# How a step is computed: plainly, as the paper says it. `seq2seq/fast` has faster forms.


class Forms:
    """How a step's losses are computed: here plainly, one padded micro-batch after the other."""

    compiled = False
    """Whether layers are compiled, which changes dropout's masks."""
    joins = False
    """Whether all micro-batches of a process are computed at once, if they fit into memory."""

    def prepare(self, model: Transformer, batching: Batching, compute: Compute) -> None:
        """Make what is trained: a twin of the model, in training mode, that shares its parameters.

        The model itself stays as it is, to be validated and saved.
        """
        model.eval()
        self.batching, self.compute = batching, compute
        shared = {id(parameter): parameter for parameter in model.parameters()}
        self.model = copy.deepcopy(model, shared).train()
        self.dropouts = {m: m.p for m in self.model.modules() if isinstance(m, nn.Dropout)}
        """The modules of dropout, and their rates after the warm-up of dropout."""

    def reserve(self, most_tokens: tuple[int, int]) -> None:
        """Prepare for batches of at most as many source and target tokens."""

    def begin_step(self, numbers: "StepNumbers") -> "StepNumbers":
        """Set all dropout to its share of its rates, and return what the step computes with."""
        for dropout, full_rate in self.dropouts.items():
            dropout.p = float(numbers.dropout) * full_rate
        return numbers

    def collate(self, pairs: Rows) -> Any:
        """Make a batch on the host."""
        return self.batching.collate(pairs)

    def loss(self, batch: Any, smoothing: float) -> Loss:
        """Compute the sums over the batch's target tokens."""
        return label_smoothed_loss(
            self.model(batch.source, batch.target_input),
            batch.target_output,
            smoothing=smoothing,
            padding_id=self.model.padding_id,
        )

    def run(self, key: str, function: Callable[..., None], *batch: Any) -> None:
        """Call a function, with a batch or without one, on the device.

        The functions of one key do the same work, so that it can be recorded once.
        """
        function(*(x.to(self.compute.device) for x in batch))


# One update.


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
    """Of the last update."""
    seconds: float = 0.0
    data_wait_seconds: float = 0.0
    """Seconds spent waiting for batches."""

    def add(self, update: "StepMetrics") -> None:
        """Add an update."""
        for name, value in vars(update).items():
            setattr(self, name, getattr(self, name) + value)
        self.learning_rate = update.learning_rate

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


class StepNumbers(NamedTuple):
    """What a step computes with."""

    target_tokens: Number = 1.0
    """Of the whole step, in all processes."""
    rate: Number = 0.0
    """The learning rate (equation 3)."""
    dropout: Number = 1.0
    """Dropout's share of its rates."""
    mean_weight: Number = 0.0
    """The weight of the parameters in the running mean."""


class StepBatches(NamedTuple):
    """A step's batches of one process, on the host."""

    batches: list[tuple[tuple[int, int], Any]]
    """Each with the numbers of its first micro-batch and of its part of that one."""
    source_tokens: int
    """Of the whole step, in all processes."""
    target_tokens: int


@dataclass(eq=False, repr=False)
class Updater:
    """Updates a model; started updates are read later, so that a GPU always has work."""

    model: Transformer
    batching: Batching
    config: TrainingConfig
    compute: Compute
    seed: int
    micro_batches: int
    """Micro-batches of a step, on all devices together."""
    world: World
    forms: Forms
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        device, world, forms = self.compute.device, self.world, self.forms
        self.running_mean = RunningMean(self.model) if self.config.validate_mean else None
        forms.prepare(self.model, self.batching, self.compute)
        self.losses = torch.zeros(2, dtype=torch.float64, device=device)
        """Smoothed loss and cross-entropy, summed over the step so far."""
        self.losses_and_norm = torch.zeros(3, dtype=torch.float64, device=device)
        self.diverged = torch.zeros((), device=device)
        self.optimizer = make_adam(self.model)
        count = math.ceil(self.micro_batches / world.size) if forms.joins else 1
        source, target = self.batching.most_tokens
        self.most_tokens = count * source, count * target
        """The most source and target tokens that are computed at once."""
        forms.reserve(self.most_tokens)
        self.numbers = forms.begin_step(StepNumbers())
        self.in_flight: deque[PendingUpdate] = deque()
        self.max_in_flight = 1 if self.compute.on_gpu else 0
        self.read_at = -math.inf
        """The time at which metrics were last read."""

    def collate(self, micro_batches: Sequence[Rows]) -> StepBatches:
        """Make the batches of a step."""
        share = self.world.own_part(micro_batches)
        if self.forms.joins:
            numbers, rows = zip(*share, strict=True)
            share = [(numbers[0], np.concatenate(rows))]
        batches = []
        for number, pairs in share:
            pieces = cut(pairs, self.batching.corpus.lengths(pairs), self.most_tokens)
            batches += [((number, i), self.forms.collate(piece)) for i, piece in enumerate(pieces)]
        source, target = self.batching.corpus.lengths(np.concatenate(micro_batches))
        return StepBatches(batches, int(source.sum()), int(target.sum()))

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
        dropout = dropout_share(step, self.config.dropout_warmup_steps)
        numbers = StepNumbers(batches.target_tokens, rate, dropout, RunningMean.weight(step))
        self.numbers = self.forms.begin_step(numbers)

        # The gradient of the mean loss of the whole step.
        for i, (number, batch) in enumerate(batches.batches):
            self.seed_masks(step, *number)
            if i == 0:
                self.forms.run("begin", self.begin_gradient, batch)
            else:
                self.forms.run("add", self.add_gradient, batch)
        if self.world.size > 1:
            self.world.add_up(self.gradients())
        self.forms.run("update", self.apply_gradient)

        metrics = StepMetrics(
            steps=1,
            source_tokens=batches.source_tokens,
            target_tokens=batches.target_tokens,
            learning_rate=rate,
            data_wait_seconds=data_wait,
        )
        losses_and_norm = HostCopy(self.losses_and_norm)
        self.in_flight.append(PendingUpdate(step, where, losses_and_norm, metrics, started))

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
            (loss.smoothed / self.numbers.target_tokens).backward()  # type: ignore[no-untyped-call]
        self.losses += torch.stack((loss.smoothed.detach(), loss.cross_entropy))

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the parameters that have one."""
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def apply_gradient(self) -> None:
        """Update the weights, unless a loss or the gradient is not finite, and their mean."""
        norm = get_total_norm(self.gradients())
        self.losses_and_norm.copy_(torch.cat((self.losses, norm.view(1))))
        # Fused Adam skips the step if found_inf is exactly 1, as with GradScaler. The device
        # decides that by itself, so the host does not wait for it.
        self.diverged.logical_or_((~self.losses_and_norm.isfinite()).any())
        self.optimizer.found_inf = self.diverged  # type: ignore[attr-defined]
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = self.numbers.rate
        self.optimizer.step()
        if self.running_mean is not None:
            self.running_mean.update(self.model, self.numbers.mean_weight)

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

    def lower(self, source: int, target: int) -> None:
        """Compute fewer tokens at once, but at least those of the longest pair."""
        longest_source, longest_target = self.batching.corpus.longest
        lowered = max(source, longest_source), max(target, longest_target)
        if lowered != self.most_tokens:
            self.most_tokens = lowered
            self.forms.reserve(lowered)


class DivergenceError(UserError):
    """A loss or a gradient is not finite; `step` is the number of the update that was not done."""

    def __init__(self, step: int, message: str) -> None:
        super().__init__(f"step {step}: {message}")
        self.step = step


class PendingUpdate(NamedTuple):
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
        smoothed, cross_entropy = map(sum, zip(*rows, strict=True))
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
