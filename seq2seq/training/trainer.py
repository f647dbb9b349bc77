"""The training loop (section 5): updates, checkpoints, and when to stop."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from types import FrameType

import numpy as np
import torch
from torch import nn
from torch.nn.utils import get_total_norm

from seq2seq.data.batching import Batch, Batching, Indices
from seq2seq.device import autocast, oom_as_user_error
from seq2seq.errors import UserError
from seq2seq.kernels.loss import projected_loss
from seq2seq.kernels.training import TrainingKernels, use_training_kernels
from seq2seq.model import Transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.display import Display
from seq2seq.training.distributed import World
from seq2seq.training.loss import Loss, label_smoothed_loss, target_entropy
from seq2seq.training.metrics import RunningMetrics, StepMetrics
from seq2seq.training.optimizer import learning_rate, make_adam
from seq2seq.training.progress import Progress
from seq2seq.training.recorder import Metrics


class DivergenceError(UserError):
    """A loss or a gradient is not finite; the weights are those of the step before."""


class _Interrupted(BaseException):
    """A signal came while validating; raised from its handler."""


class BatchLoss(nn.Module):
    """The loss of a batch as a module, so that its gradients can be summed over processes."""

    def __init__(self, model: Transformer, smoothing: float, *, in_chunks: bool) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.in_chunks = in_chunks

    def forward(self, batch: Batch) -> Loss:
        """Sums over the batch's target tokens."""
        states = self.model.decoder_states(batch.source, batch.target_input)
        if self.in_chunks:
            smoothed, cross_entropy = projected_loss(
                states,
                self.model.embedding.weight,
                batch.target_output,
                smoothing=self.smoothing,
                padding_id=self.model.padding_id,
            )
            return Loss(smoothed, cross_entropy)
        return label_smoothed_loss(
            self.model.project(states),
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
        kernels: the fast forms that are put into the model; all by default.
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
        kernels: TrainingKernels | None = None,
    ) -> None:
        kernels = kernels or TrainingKernels()
        use_training_kernels(model, kernels, device)
        self.model = model
        self.batching = batching
        self.config = config
        self.device = device
        self.precision = precision
        self.seed = seed
        self.world = world or World()
        self.micro_batches = config.micro_batches_on(self.world.size)
        self.loss = self.world.wrap_ddp(
            BatchLoss(model, config.label_smoothing, in_chunks=kernels.loss)
        )
        self.optimizer = make_adam(model)
        self.progress = Progress()
        self.signal: int | None = None
        """The signal that asked for a stop, if one did, of this process or another."""
        self.caught: int | None = None
        """The signal that came to this process, which the others may not know of yet."""
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
        self.started = time.perf_counter() - progress.seconds

        def check(ended: str = "") -> None:
            progress.validation_pending = True
            figures = self.world.on_main(partial(self._unless_interrupted, validate))
            self._agree()
            if not figures:
                self.world.on_main(partial(save, False))
                return
            progress.validation_pending = False
            metrics.write(progress.step, figures)
            metrics.draw()
            best = self._note_validation(figures["valid/bleu"])
            display.checkpoint(progress, figures, best)
            progress.ended = ended or self.limit_reached()
            self.world.on_main(partial(save, best))
            self._agree()

        self.model.train()
        with self._catch_signals():
            if progress.validation_pending:
                check()
            checkpoint_seconds = progress.seconds
            if progress.ended or self.signal:
                return
            for batches in self._steps():
                progress.unrecorded.add(self.update(batches))
                self._agree()
                display.show(progress)
                ended = self.limit_reached()
                due = bool(ended) or self._checkpoint_due(progress.seconds - checkpoint_seconds)
                if due or progress.step % config.log_steps == 0:
                    figures = progress.unrecorded.figures()
                    metrics.write(progress.step, figures)
                    display.log(progress, figures)
                    progress.unrecorded = RunningMetrics()
                if due:
                    check(ended)
                    checkpoint_seconds = progress.seconds
                elif self.signal:
                    self.world.on_main(partial(save, False))
                if progress.ended or self.signal:
                    return

    def limit_reached(self) -> str:
        """Why there is nothing more to do, or the empty string."""
        progress, config = self.progress, self.config
        if config.max_steps is not None and progress.step >= config.max_steps:
            return f"at step {progress.step:,} of {config.max_steps:,}"
        if config.max_minutes is not None and progress.seconds >= 60 * config.max_minutes:
            return f"{progress.seconds / 60:.1f} of {config.max_minutes:g} minutes are over"
        if (
            config.patience is not None
            and progress.validations_without_improvement >= config.patience
        ):
            return f"{progress.validations_without_improvement} validations without a better BLEU"
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

    def update(self, batches: list[Indices]) -> StepMetrics:
        """One update from all micro-batches of a step.

        Raises:
            DivergenceError: the loss or the gradient is not finite; nothing is updated.
        """
        started, waited = time.perf_counter(), 0.0
        step = self.progress.step + 1
        corpus = self.batching.corpus
        source_tokens = sum(int(corpus.source_lengths[indices].sum()) for indices in batches)
        target_tokens = sum(int(corpus.target_lengths[indices].sum()) for indices in batches)
        mine = self.world.share(batches)
        losses = []
        for number, indices in mine:
            # The same masks for the same micro-batch in whatever process.
            seed = np.random.SeedSequence([self.seed, step, number]).generate_state(1)[0]
            torch.manual_seed(int(seed))
            asked = time.perf_counter()
            batch = self.batching.collate(indices).to(self.device)
            waited += time.perf_counter() - asked
            loss = self._backward(batch, target_tokens, last=number == mine[-1][0])
            losses.append(torch.stack((loss.smoothed.detach(), loss.cross_entropy)))
        # Read only now: a GPU is not made to wait between two micro-batches.
        own = torch.stack(losses).double().cpu()
        known = self.world.gather(*own.sum(dim=0).tolist())
        smoothed, cross_entropy = (sum(column) for column in zip(*known, strict=True))
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = get_total_norm(gradients).item()
        if not (math.isfinite(smoothed) and math.isfinite(norm)):
            odd = [
                indices
                for (_, indices), figures in zip(mine, own, strict=True)
                if not figures.isfinite().all()
            ]
            raise self._diverged(smoothed / target_tokens, norm, odd or batches)
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
        if self.config.subtract_target_entropy:
            least = target_entropy(self.config.label_smoothing, self.model.vocab_size)
            smoothed -= target_tokens * least
        seconds = time.perf_counter() - started
        return StepMetrics(
            smoothed, cross_entropy, source_tokens, target_tokens, norm, rate, seconds, waited
        )

    def _backward(self, batch: Batch, target_tokens: int, *, last: bool) -> Loss:
        """Add a micro-batch's share to the gradient of a step of so many target tokens."""
        # Divided by the tokens of the whole step: k micro-batches give the gradient of one. What
        # is averaged over processes is their sum.
        divisor = target_tokens / self.world.size
        with oom_as_user_error(), self.world.accumulating(self.loss, last=last):
            with autocast(self.device, self.precision):
                loss: Loss = self.loss(batch)
            (loss.smoothed / divisor).backward()  # type: ignore[no-untyped-call]
        return loss

    def _diverged(self, loss: float, norm: float, batches: list[Indices]) -> DivergenceError:
        pairs = np.sort(np.concatenate(batches))
        first = ", ".join(map(str, pairs[:5])) + (", ..." if len(pairs) > 5 else "")
        progress = self.progress
        return DivergenceError(
            f"step {progress.step + 1}: the loss ({loss:g}) or the gradient's norm ({norm:g}) is"
            f" not finite, in epoch {progress.epoch + 1}, up to micro-batch {progress.batch}, pairs"
            f" {first} of the encoded corpus; the weights are not updated. Lower"
            " training.learning_rate_scale or raise training.warmup_steps"
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
        with torch.random.fork_rng(devices), oom_as_user_error():
            # Adam's moments take this much from the first update on.
            moments = [
                torch.empty_like(parameter)
                for parameter in self.model.parameters()
                for _ in range(0 if self.optimizer.state else 2)
            ]
            batch = self.batching.collate(largest).to(self.device)
            self._backward(batch, int(target[largest].sum()), last=True)
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
            progress.validations_without_improvement = 0
            return True
        progress.validations_without_improvement += 1
        return False

    def _unless_interrupted(self, validate: Callable[[], dict[str, float]]) -> dict[str, float]:
        """A validation's figures; none if a signal came, which need not wait for its end."""
        figures: dict[str, float] = {}
        training = self.model.training
        with suppress(_Interrupted):
            self._validating = True
            try:
                if not self.caught:
                    figures = validate()
            finally:
                self._validating = False
        self.model.train(training)
        return figures

    @contextmanager
    def _catch_signals(self) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C end the training after a save; a second one ends it at once."""

        def note(number: int, _: FrameType | None) -> None:
            self.caught = number
            # One for all processes reaches each several times: from torchrun, from the scheduler.
            if self.world.size == 1:
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
