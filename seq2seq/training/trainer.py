"""The training loop (section 5): updates, checkpoints, and when to stop."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from types import FrameType

import numpy as np
import torch
from torch.nn.utils import get_total_norm

from seq2seq.data.batching import Batching, BatchStatistics, Indices
from seq2seq.data.encoded import EncodedCorpus
from seq2seq.device import autocast, out_of_memory_told
from seq2seq.errors import UserError
from seq2seq.model import Transformer
from seq2seq.training.display import Display, StepFigures, Window
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
        """Parts that make a step."""
        return math.ceil(max(self.source_tokens, self.target_tokens) / self.micro_batch_tokens)

    @property
    def budget(self) -> dict[str, int]:
        """What decides how a corpus is cut into batches."""
        return {
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "micro_batch_tokens": self.micro_batch_tokens,
            "longer_side": int(self.longer_side),
        }

    def batching(self, corpus: EncodedCorpus, *, seed: int) -> Batching:
        """The corpus cut into micro-batches.

        Raises:
            UserError: a pair is longer than a micro-batch.
        """
        parts = self.micro_batches
        return Batching(
            corpus,
            source_tokens=-(-self.source_tokens // parts),
            target_tokens=-(-self.target_tokens // parts),
            seed=seed,
            longer_side=self.longer_side,
        )

    def check_budget(self, statistics: BatchStatistics) -> None:
        """Refuse a corpus too small for the tokens of a step.

        Raises:
            UserError: its batches hold less than four fifths of what was asked for.
        """
        source = self.micro_batches * statistics.source_tokens
        target = self.micro_batches * statistics.target_tokens
        # Counted by the longer side, pads and the shorter side take their share.
        least = 0.5 if self.longer_side else 0.8
        if source / self.source_tokens + target / self.target_tokens < 2 * least:
            raise UserError(
                f"a step of {self.source_tokens:,} source and {self.target_tokens:,} target tokens"
                f" can't be met: {self.micro_batches} micro-batches of this corpus hold"
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
            elif value is not None and not isinstance(value, bool) and value <= 0:
                raise UserError(f"training.{name}={value}: must be above 0")
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


class DivergenceError(UserError):
    """A loss or a gradient is not finite; the weights are those of the step before."""


class _Interrupted(BaseException):
    """A signal came while validating; raised from its handler."""


class Trainer:
    """Trains a model until its configuration, or a signal, ends it.

    Args:
        model: on its device.
        batching: the training pairs; its budgets are those of a micro-batch.
        config: what a person chooses.
        device: where the model is.
        precision: of the matrix products.
        seed: of dropout; each step's is a function of the seed and the step alone.
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
    ) -> None:
        self.model = model
        self.batching = batching
        self.config = config
        self.device = device
        self.precision = precision
        self.seed = seed
        self.optimizer = make_adam(model)
        self.progress = Progress()
        self.signal: int | None = None
        """The signal that asked for a stop, if one did."""
        self._validating = False

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
            DivergenceError: the loss or a gradient is not finite.
            UserError: a save failed.
        """
        progress, config = self.progress, self.config
        progress.ended = ""  # a training that had ended may be given more steps
        window = Window([StepFigures._make(figures) for figures in progress.unrecorded])
        progress.unrecorded = []
        started, seconds_before = time.perf_counter(), progress.seconds

        def check(ended: str = "") -> None:
            figures: dict[str, float] = {}
            progress.unchecked = True
            with suppress(_Interrupted), self._interruptible():
                figures = validate()
            progress.seconds = seconds_before + time.perf_counter() - started
            if not figures:
                save(False)
                return
            progress.unchecked = False
            metrics.write(progress.step, figures)
            metrics.draw()
            best = self._note_validation(figures["valid/bleu"])
            display.checkpoint(progress, figures, best)
            progress.ended = ended or self.limit_reached()
            save(best)
            window.restart_clock()

        self.model.train()
        with self._catch_signals():
            if progress.unchecked:
                check()
            checkpoint_seconds = progress.seconds
            if progress.ended or self.signal:
                return
            for batches in self._steps():
                window.add(self._update(batches))
                progress.seconds = seconds_before + time.perf_counter() - started
                display.show(progress, window)
                since = progress.seconds - checkpoint_seconds
                ended = self.limit_reached()
                due = bool(ended) or self._checkpoint_due(since)
                if due or progress.step % config.log_steps == 0:
                    metrics.write(progress.step, window.figures())
                    display.log(progress, window.figures())
                    window = Window()
                if due:
                    check(ended)
                    checkpoint_seconds = progress.seconds
                elif self.signal:
                    progress.unrecorded = [list(figures) for figures in window.steps]
                    save(False)
                if progress.ended or self.signal:
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

    def _steps(self) -> Iterator[list[Indices]]:
        """The micro-batches of one step after the other."""
        stream = self._micro_batches()
        while True:
            yield list(islice(stream, self.config.micro_batches))

    def _micro_batches(self) -> Iterator[Indices]:
        """All batches from the progress on, one epoch after the other."""
        progress = self.progress
        while True:
            for indices in self.batching.epoch(progress.epoch)[progress.batch :]:
                progress.batch += 1
                yield indices
            progress.epoch += 1
            progress.batch = 0

    def _update(self, batches: list[Indices]) -> StepFigures:
        """One update from all micro-batches of a step."""
        step = self.progress.step + 1
        torch.manual_seed(int(np.random.SeedSequence([self.seed, step]).generate_state(1)[0]))
        corpus = self.batching.corpus
        source_tokens = sum(int(corpus.source_lengths[indices].sum()) for indices in batches)
        target_tokens = sum(int(corpus.target_lengths[indices].sum()) for indices in batches)
        smoothed = cross_entropy = 0.0
        for indices in batches:
            loss = self._backward(indices, target_tokens)
            smoothed += loss.smoothed.item()
            cross_entropy += loss.cross_entropy.item()
            if not math.isfinite(smoothed):
                raise self._diverged(f"the loss ({smoothed / target_tokens:g})", [indices])
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = get_total_norm(gradients).item()
        if not math.isfinite(norm):
            raise self._diverged(f"the gradient's norm ({norm:g})", batches)
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
        return StepFigures(smoothed, cross_entropy, source_tokens, target_tokens, norm, rate)

    def _backward(self, indices: Indices, target_tokens: int) -> Loss:
        """Add a micro-batch's share to the gradient."""
        batch = self.batching.collate(indices).to(self.device)
        with out_of_memory_told():
            with autocast(self.device, self.precision):
                states = self.model.decode(batch.target_input, self.model.encode(batch.source))
                loss = projected_loss(
                    states,
                    self.model.embedding.weight,
                    batch.target_output,
                    smoothing=self.config.label_smoothing,
                    padding_id=self.model.padding_id,
                )
            # Divided by the tokens of the whole step: k micro-batches give the gradient of one.
            (loss.smoothed / target_tokens).backward()  # type: ignore[no-untyped-call]
        return loss

    def _diverged(self, what: str, batches: list[Indices]) -> DivergenceError:
        pairs = np.sort(np.concatenate(batches))
        first = ", ".join(map(str, pairs[:5])) + (", ..." if len(pairs) > 5 else "")
        return DivergenceError(
            f"step {self.progress.step + 1}: {what} is not finite, in epoch"
            f" {self.progress.epoch + 1}, micro-batch {self.progress.batch}, pairs {first} of the"
            " encoded corpus; the weights are not updated. Lower training.learning_rate_scale or"
            " raise training.warmup_steps"
        )

    def try_largest(self) -> None:
        """Take the epoch's largest micro-batch forward and backward, and forget it.

        Memory runs out here or never; weights, random numbers and results stay as they are.

        Raises:
            UserError: it does not fit.
        """
        source, target = self.batching.corpus.source_lengths, self.batching.corpus.target_lengths
        largest = max(
            self.batching.epoch(self.progress.epoch),
            key=lambda batch: len(batch) * int(source[batch].max() + target[batch].max()),
        )
        devices = [self.device] if self.device.type == "cuda" else []
        training = self.model.training
        self.model.train()
        with torch.random.fork_rng(devices), out_of_memory_told():
            # Adam's moments take this much from the first update on.
            moments = [
                torch.empty_like(parameter)
                for parameter in self.model.parameters()
                for _ in range(0 if self.optimizer.state else 2)
            ]
            self._backward(largest, int(target[largest].sum()))
            del moments
        self.optimizer.zero_grad(set_to_none=True)
        self.model.train(training)

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
    def _interruptible(self) -> Iterator[None]:
        """Where a signal need not wait: nothing in here changes what is saved."""
        training = self.model.training
        self._validating = True
        try:
            if self.signal:
                raise _Interrupted
            yield
        finally:
            self._validating = False
            self.model.train(training)

    @contextmanager
    def _catch_signals(self) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C end the training after a save; a second one ends it at once."""

        def note(number: int, _: FrameType | None) -> None:
            self.signal = number
            for caught, handler in before.items():
                signal.signal(caught, handler)
            if self._validating:
                raise _Interrupted

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
