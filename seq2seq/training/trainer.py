"""The training loop (section 5): updates, checkpoints, and when to stop."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from types import FrameType

import numpy as np
import torch
from torch import nn
from torch.nn.utils import get_total_norm

from seq2seq.data.batching import Batch, Batching, BatchStatistics, Indices
from seq2seq.data.encoded import EncodedCorpus
from seq2seq.device import autocast
from seq2seq.errors import UserError
from seq2seq.model import Transformer
from seq2seq.training.display import Display, StepFigures, Window
from seq2seq.training.distributed import World
from seq2seq.training.loss import Loss, least_loss, projected_loss
from seq2seq.training.metrics import Metrics
from seq2seq.training.optimizer import learning_rate, make_adam
from seq2seq.training.progress import Progress


@dataclass(kw_only=True)
class TrainingConfig:
    """What a person chooses of the training; the defaults are the paper's base model."""

    source_tokens: int = 25_000
    """Source tokens of a step, padding not counted, on all devices together."""
    target_tokens: int = 25_000
    """Target tokens of a step, padding not counted, on all devices together."""
    micro_batch_tokens: int = 4096
    """Most source tokens, and most target tokens, that a device takes at once; a step is made of as
    many such parts as its tokens need. Padding comes on top of it, at most a quarter."""
    longer_side: bool = False
    """Fill a micro-batch until its longer side, padding counted, is full, as the authors' code did;
    otherwise until both sides together are."""
    max_steps: int | None = 100_000
    """Updates after which training ends."""
    max_minutes: float | None = None
    """Minutes, validation included, after which training ends."""
    patience: int | None = None
    """Training ends after so many validations without a better BLEU."""
    warmup_steps: int = 4000
    """Updates over which the learning rate rises."""
    learning_rate_scale: float = 1.0
    """Factor on the paper's learning rate."""
    label_smoothing: float = 0.1
    """Probability that the target distribution gives to all other tokens together."""
    loss_above_least: bool = False
    """Record the loss less the least that smoothing allows, as the authors' code did; training is
    the same."""
    checkpoint_steps: int | None = None
    """Updates between two checkpoints; each checkpoint is validated."""
    checkpoint_minutes: float | None = 10.0
    """Minutes between two checkpoints."""
    keep_checkpoints: int = 5
    """Newest checkpoints that are kept, besides the best."""
    average_checkpoints: int = 5
    """Newest checkpoints whose mean is the final model; 1: the last one."""
    log_steps: int = 50
    """Updates between two records of the training loss."""

    @property
    def micro_batches(self) -> int:
        """Parts that make a step on one device."""
        return self.micro_batches_on(1)

    def micro_batches_on(self, devices: int) -> int:
        """Parts that make a step, as many for each device."""
        parts = math.ceil(max(self.source_tokens, self.target_tokens) / self.micro_batch_tokens)
        return math.ceil(parts / devices) * devices

    def budget(self, devices: int) -> dict[str, int]:
        """What decides how a corpus is cut into batches."""
        return {
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "micro_batches": self.micro_batches_on(devices),
            "longer_side": int(self.longer_side),
        }

    def batching(self, corpus: EncodedCorpus, *, seed: int, devices: int = 1) -> Batching:
        """The corpus cut into micro-batches.

        Raises:
            UserError: a pair is longer than a micro-batch.
        """
        parts = self.micro_batches_on(devices)
        return Batching(
            corpus,
            source_tokens=-(-self.source_tokens // parts),
            target_tokens=-(-self.target_tokens // parts),
            seed=seed,
            longer_side=self.longer_side,
        )

    def check_budget(self, statistics: BatchStatistics, *, devices: int = 1) -> None:
        """Refuse a corpus too small for the tokens of a step.

        Raises:
            UserError: its batches hold less than four fifths of what was asked for.
        """
        parts = self.micro_batches_on(devices)
        source, target = parts * statistics.source_tokens, parts * statistics.target_tokens
        # Counted by the longer side, pads and the shorter side take their share.
        least = 0.5 if self.longer_side else 0.8
        if source / self.source_tokens + target / self.target_tokens < 2 * least:
            raise UserError(
                f"a step of {self.source_tokens:,} source and {self.target_tokens:,} target tokens"
                f" can't be met: {parts} micro-batches of this corpus hold"
                f" {source:,.0f} and {target:,.0f}; lower training.source_tokens,"
                " training.target_tokens or training.micro_batch_tokens, or give more text"
            )

    def __post_init__(self) -> None:
        """Refuse a training that can't be done.

        Raises:
            UserError: a count below 1, smoothing outside [0, 1), or nothing that ends it.
        """
        for name, value in asdict(self).items():
            if name == "label_smoothing":
                if not 0.0 <= value < 1.0:
                    raise UserError(f"training.{name}={value}: must be at least 0 and below 1")
            elif value is not None and not isinstance(value, bool) and not 0 < value < math.inf:
                raise UserError(f"training.{name}={value}: must be above 0 and finite")
        if self.max_steps is None and self.max_minutes is None and self.patience is None:
            raise UserError(
                "nothing ends the training: give training.max_steps, training.max_minutes or"
                " training.patience"
            )
        if self.average_checkpoints > self.keep_checkpoints:
            raise UserError(
                f"training.average_checkpoints={self.average_checkpoints} are more than"
                f" training.keep_checkpoints={self.keep_checkpoints}"
            )


class BatchLoss(nn.Module):
    """The loss of a batch as a module, so that its gradients can be summed over processes."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch) -> Loss:
        """Sums over the batch's target tokens."""
        states = self.model.decode(batch.target_input, self.model.encode(batch.source))
        return projected_loss(
            states,
            self.model.embedding.weight,
            batch.target_output,
            smoothing=self.smoothing,
            padding_id=self.model.padding_id,
        )


class Trainer:
    """Trains a model until its configuration, or a signal, ends it.

    Args:
        model: on its device.
        batching: the training pairs; its budgets are those of a micro-batch.
        config: what a person chooses.
        device: where the model is.
        precision: of the matrix products.
        seed: of dropout; each micro-batch's is a function of the seed, the step and its number.
        world: the processes that share the work, each with a trainer like this one.
    """

    def __init__(
        self,
        model: Transformer,
        batching: Batching,
        config: TrainingConfig,
        *,
        device: torch.device,
        precision: torch.dtype,
        seed: int,
        world: World | None = None,
    ) -> None:
        self.model = model
        self.batching = batching
        self.config = config
        self.device = device
        self.precision = precision
        self.seed = seed
        self.world = world or World()
        self.micro_batches = config.micro_batches_on(self.world.size)
        self.loss = self.world.averages_gradients(BatchLoss(model, config.label_smoothing))
        self.optimizer = make_adam(model)
        self.progress = Progress()
        self.signal: int | None = None
        """The signal that asked for a stop, if one did, of this process or another."""
        self.caught: int | None = None
        """The signal that came to this process, which the others may not know of yet."""

    def train(
        self,
        metrics: Metrics,
        display: Display,
        *,
        validate: Callable[[], dict[str, float]],
        save: Callable[[bool], None],
    ) -> None:
        """Go on from `progress` until the end or a signal; the last thing done is a save.

        Args:
            metrics: where figures are recorded.
            display: shows them.
            validate: returns the figures of a validation, `valid/bleu` among them.
            save: writes a checkpoint of model, optimizer and progress; told whether it is the best.

        Raises:
            UserError: the loss or a gradient is not finite, or a save failed.
        """
        progress, config = self.progress, self.config
        progress.ended = ""  # a training that had ended may be given more steps
        window = Window()
        self.started = time.perf_counter() - progress.seconds
        checkpoint_seconds = progress.seconds
        self.model.train()
        with self._catch_signals():
            for batches in self._steps():
                window.add(self.update(batches))
                self._agree()
                display.show(progress, window)
                since = progress.seconds - checkpoint_seconds
                ended = self.limit_reached()
                check = bool(ended) or self._checkpoint_due(since)
                if check or self.signal or progress.step % config.log_steps == 0:
                    metrics.write(progress.step, window.figures())
                    display.log(progress, window.figures())
                    window = Window()
                if check and not self.signal:
                    figures = self.world.on_first(validate)
                    metrics.write(progress.step, figures)
                    metrics.draw()
                    best = self._note_validation(figures["valid/bleu"])
                    self._agree()
                    display.checkpoint(progress, figures, best)
                    progress.ended = ended or self.limit_reached()
                    self.world.on_first(partial(save, best))
                    checkpoint_seconds = progress.seconds
                    self._agree()
                    window.restart_clock()
                    if progress.ended or self.signal:
                        return
                elif self.signal:
                    self.world.on_first(partial(save, False))
                    return

    def limit_reached(self) -> str:
        """Why there is nothing more to do, or the empty string."""
        progress, config = self.progress, self.config
        if config.max_steps is not None and progress.step >= config.max_steps:
            return f"at step {progress.step:,} of {config.max_steps:,}"
        if config.max_minutes is not None and progress.seconds >= 60 * config.max_minutes:
            return f"{progress.seconds / 60:.1f} of {config.max_minutes:g} minutes are over"
        if config.patience is not None and progress.checks_without_gain >= config.patience:
            return f"{progress.checks_without_gain} validations without a better BLEU"
        return ""

    def _agree(self) -> None:
        """Take the first process' clock and any process' signal, so that all decide the same."""
        seconds = time.perf_counter() - self.started
        known = self.world.gather(seconds, self.caught or 0)
        self.progress.seconds = known[0][0]
        self.signal = int(max(signal for _, signal in known)) or None

    def _steps(self) -> Iterator[list[Indices]]:
        """The micro-batches of one step after the other."""
        stream = self._micro_batches()
        while True:
            yield list(islice(stream, self.micro_batches))

    def _micro_batches(self) -> Iterator[Indices]:
        """All batches from the progress on, one epoch after the other."""
        progress = self.progress
        while True:
            for indices in self.batching.epoch(progress.epoch)[progress.batch :]:
                progress.batch += 1
                yield indices
            progress.epoch += 1
            progress.batch = 0

    def update(self, batches: list[Indices]) -> StepFigures:
        """One update from all micro-batches of a step."""
        step = self.progress.step + 1
        corpus = self.batching.corpus
        source_tokens = sum(int(corpus.source_lengths[indices].sum()) for indices in batches)
        target_tokens = sum(int(corpus.target_lengths[indices].sum()) for indices in batches)
        # Divided by the tokens of the whole step: k micro-batches give the gradient of one. What
        # is averaged over processes is their sum.
        divisor = target_tokens / self.world.size
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        waited = 0.0
        mine = self.world.share(batches)
        for number, indices in mine:
            # The same masks for the same micro-batch in whatever process.
            seed = np.random.SeedSequence([self.seed, step, number]).generate_state(1)[0]
            torch.manual_seed(int(seed))
            asked = time.perf_counter()
            batch = self.batching.collate(indices).to(self.device)
            waited += time.perf_counter() - asked
            with self.world.accumulating(self.loss, last=number == mine[-1][0]):
                with autocast(self.device, self.precision):
                    loss = self.loss(batch)
                (loss.smoothed / divisor).backward()
            sums += torch.stack((loss.smoothed.detach(), loss.cross_entropy))
        # Read only now: a GPU is not made to wait between two micro-batches.
        known = self.world.gather(*sums.tolist())
        smoothed, cross_entropy = (math.fsum(column) for column in zip(*known, strict=True))
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = get_total_norm(gradients).item()
        if not math.isfinite(smoothed) or not math.isfinite(norm):
            raise UserError(
                f"step {step}: the loss ({smoothed / target_tokens:g}) or the gradient's norm"
                f" ({norm:g}) is not finite; the weights are not updated. Lower"
                " training.learning_rate_scale or raise training.warmup_steps, then go on from the"
                " last checkpoint with resume=true"
            )
        rate = learning_rate(
            step,
            d_model=self.model.config.d_model,
            warmup_steps=self.config.warmup_steps,
            scale=self.config.learning_rate_scale,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.progress.step = step
        if self.config.loss_above_least:
            least = least_loss(self.config.label_smoothing, self.model.vocab_size)
            smoothed -= target_tokens * least
        return StepFigures(
            smoothed, cross_entropy, source_tokens, target_tokens, norm, rate, waited
        )

    def _checkpoint_due(self, seconds_since: float) -> bool:
        steps, minutes = self.config.checkpoint_steps, self.config.checkpoint_minutes
        by_steps = steps is not None and self.progress.step % steps == 0
        return by_steps or (minutes is not None and seconds_since >= 60 * minutes)

    def _note_validation(self, bleu: float) -> bool:
        progress = self.progress
        if bleu > progress.best_bleu:
            progress.best_bleu, progress.best_step = bleu, progress.step
            progress.checks_without_gain = 0
            return True
        progress.checks_without_gain += 1
        return False

    @contextmanager
    def _catch_signals(self) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C end the training after a save; a second one ends it at once."""

        def note(number: int, _: FrameType | None) -> None:
            self.caught = number
            # One for all processes reaches each several times: from torchrun, from the scheduler.
            if self.world.size > 1:
                return
            for caught, handler in before.items():
                signal.signal(caught, handler)

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
