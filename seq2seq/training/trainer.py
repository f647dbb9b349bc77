"""The training loop (section 5): update, save, validate, until the end."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from seq2seq.data.batching import Batching, Indices
from seq2seq.device import Compute, HostCopy
from seq2seq.fast.training import TrainingKernels, use_training_kernels
from seq2seq.model import Transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.distributed import World
from seq2seq.training.loss import target_entropy
from seq2seq.training.optimizer import RunningMean, dropout_share, learning_rate, make_adam
from seq2seq.training.recorder import Recorder
from seq2seq.training.signals import StopSignals
from seq2seq.training.state import Progress, RunningMetrics, StepMetrics
from seq2seq.training.step import DivergenceError, RunningUpdate, StepGradient

Validate = Callable[[], Mapping[str, float]]
Save = Callable[[], None]
SaveValidation = Callable[[bool], None]


class Trainer:
    """Trains a model until a limit of the configuration or a signal ends it.

    Args:
        model: on its device.
        batching: the training pairs; its budgets are those of a micro-batch.
        config: the options.
        compute: the model's device, and the precision of the matmuls.
        seed: seed of dropout, whose masks are a function of the seed, the step and the micro-batch.
        world: the processes that share the work, each with a trainer like this one.
        kernels: the fast forms to put into the model; all by default.
        clock: returns seconds, from any start.
    """

    def __init__(
        self,
        model: Transformer,
        batching: Batching,
        config: TrainingConfig,
        *,
        compute: Compute,
        seed: int,
        world: World | None = None,
        kernels: TrainingKernels | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        kernels = kernels or TrainingKernels()
        use_training_kernels(model, kernels, compute)
        self.model = model
        self.batching = batching
        self.config = config
        self.compute = compute
        self.kernels = kernels
        self.world = world or World()
        self.clock = clock
        self.gradient = StepGradient(
            model,
            batching,
            label_smoothing=config.label_smoothing,
            compute=compute,
            seed=seed,
            world=self.world,
            kernels=kernels,
            clock=clock,
        )
        self.optimizer = make_adam(model)
        self.dropouts = {m: m.p for m in model.modules() if isinstance(m, nn.Dropout)}
        """The modules of dropout, and their rates once these have risen."""
        self.mean = RunningMean(model) if config.validate_mean else None
        self.micro_batches = config.micro_batches_on(self.world.size)
        self.progress = Progress()
        self.running: deque[RunningUpdate] = deque()
        """Updates that were started and whose metrics were not read."""
        self.late = 1 if compute.on_gpu else 0
        """How many there may be, so that a GPU has work while metrics are read."""
        self.read_at = -math.inf
        """The time at which metrics were last read."""
        self.diverged = torch.zeros((), dtype=torch.bool, device=compute.device)
        self.signals = StopSignals(second_ends=self.world.size == 1)
        self.signal: int | None = None
        """A signal received by any of the processes."""

    def train(
        self,
        recorder: Recorder,
        *,
        validate: Validate,
        save: Save,
        save_validation: SaveValidation,
    ) -> None:
        """Train from `progress` until a limit or a signal; all updates are saved then.

        A checkpoint is written before it is validated: if the validation fails, no update is lost,
        and the resumed training begins with that validation.

        Args:
            recorder: receives metrics and progress; it must not raise.
            validate: returns the metrics of a validation, the BLEU of `training.select` among them.
            save: writes a checkpoint of model, optimizer and progress.
            save_validation: adds the progress after a validation to that checkpoint; its argument
                is whether the model is the best so far.

        Raises:
            DivergenceError: if the loss or a gradient is not finite.
            UserError: if a save or a validation fails.
        """
        progress = self.progress
        progress.ended = ""  # a finished training may be resumed with higher limits
        self.started = self.clock() - progress.seconds
        steps = self.steps()
        self.model.train()
        with self.signals:
            while not (progress.ended or self.signal):
                if not progress.validation_pending:  # a resumed training may begin with one
                    self.start_update(next(steps))
                    self._agree()
                    progress.validation_pending = self._checkpoint_is_due()
                    log = progress.validation_pending or progress.step % self.config.log_steps == 0
                    for metrics in self.read_updates(leave=0 if log or self.signal else self.late):
                        progress.unrecorded.add(metrics)
                    recorder.show_progress(progress)
                    if log:
                        recorder.record_metrics(progress, progress.unrecorded.summary())
                        progress.unrecorded = RunningMetrics()
                    if progress.validation_pending or self.signal:
                        self.world.on_main(save)
                if progress.validation_pending and not self.signal:
                    self._validate(recorder, validate, save_validation)

    def _validate(
        self, recorder: Recorder, validate: Validate, save_validation: SaveValidation
    ) -> None:
        """Validate, unless a signal comes first, which leaves the validation pending.

        The validation may end the training, by patience.
        """
        metrics = self.world.on_main(lambda: self.signals.interruptible(validate))
        self.model.train()
        self._agree()
        if metrics is None:
            return
        progress = self.progress
        progress.validation_pending = False
        progress.validated_seconds = progress.seconds
        is_best = progress.record_bleu(self.config.selecting_bleu(metrics))
        progress.ended = self.limit_reached()
        self.world.on_main(partial(save_validation, is_best))
        recorder.record_validation(progress, metrics, is_best=is_best)
        self._agree()

    def _checkpoint_is_due(self) -> bool:
        """Return whether to save and validate after this step: by count, by time, or at the end."""
        steps, minutes = self.config.checkpoint_steps, self.config.checkpoint_minutes
        by_steps = steps is not None and self.progress.step % steps == 0
        since = self.progress.seconds - self.progress.validated_seconds
        by_clock = minutes is not None and since >= 60 * minutes
        return by_steps or by_clock or self.limit_reached() != ""

    def limit_reached(self) -> str:
        """Describe the limit that is reached, or return the empty string."""
        progress, config = self.progress, self.config
        if config.max_steps is not None and progress.step >= config.max_steps:
            return f"at step {progress.step:,} of {config.max_steps:,}"
        if config.max_minutes is not None and progress.seconds >= 60 * config.max_minutes:
            return f"{progress.seconds / 60:.1f} of {config.max_minutes:g} minutes are over"
        without_improvement = progress.validations_without_improvement
        if config.patience is not None and without_improvement >= config.patience:
            return f"{without_improvement} validations without a better BLEU"
        return ""

    def _agree(self) -> None:
        """Agree with all processes on time and signals."""
        seconds = self.clock() - self.started
        self.progress.seconds, self.signal = self.world.agree(seconds, self.signals.received)

    def steps(self) -> Iterator[list[Indices]]:
        """Yield the micro-batches of each step, starting from the progress."""
        stream = self._stream()
        while True:
            yield list(islice(stream, self.micro_batches))

    def _stream(self) -> Iterator[Indices]:
        """Yield all micro-batches, epoch by epoch, starting from the progress."""
        progress = self.progress
        # The order of millions of pairs takes seconds: it is made beside the epoch before.
        with ThreadPoolExecutor(1) as thread:
            following = thread.submit(self.batching.epoch, progress.epoch)
            while True:
                batches = following.result()
                following = thread.submit(self.batching.epoch, progress.epoch + 1)
                for micro_batch in batches[progress.batch :]:
                    progress.batch += 1
                    yield micro_batch
                progress.epoch += 1
                progress.batch = 0

    def update(self, micro_batches: Sequence[Indices]) -> StepMetrics:
        """Do one update with the micro-batches of a step, and wait for its metrics.

        Raises:
            DivergenceError: if the loss or the gradient is not finite; nothing is updated.
        """
        self.start_update(micro_batches)
        return self.read_updates()[-1]

    def start_update(self, micro_batches: Sequence[Indices]) -> None:
        """Start one update.

        If a loss or the norm is not finite, neither it nor those after it are done.
        """
        started = self.clock()
        progress, step = self.progress, self.progress.step + 1
        corpus, pairs = self.batching.corpus, np.concatenate(micro_batches)
        source_tokens = int(corpus.source_lengths[pairs].sum())
        target_tokens = int(corpus.target_lengths[pairs].sum())
        share = dropout_share(step, self.config.dropout_warmup_steps)
        for dropout, dropout_rate in self.dropouts.items():
            dropout.p = share * dropout_rate
        groups = self.gradient.groups(micro_batches)
        losses, waited = self.gradient.accumulate(groups, step=step, target_tokens=target_tokens)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = get_total_norm(gradients).view(1)
        losses_and_norm = torch.cat((*losses, norm)).double()
        rate = self._update_weights(step, losses_and_norm)
        self.optimizer.zero_grad(set_to_none=True)
        if self.mean is not None:
            self.mean.update(self.model, step)
        progress.step = step
        running = RunningUpdate(
            step=step,
            place=f"epoch {progress.epoch + 1}, up to micro-batch {progress.batch}",
            groups=[parts for _, _, parts in groups],
            corpus_size=len(corpus),
            losses_and_norm=HostCopy(losses_and_norm),
            source_tokens=source_tokens,
            target_tokens=target_tokens,
            learning_rate=rate,
            started=started,
            waited=waited,
        )
        self.running.append(running)

    def read_updates(self, leave: int = 0) -> list[StepMetrics]:
        """Read the metrics of all updates that were started but the last `leave`.

        Raises:
            DivergenceError: if the loss or the gradient of one is not finite; neither this one nor
                those after it were done.
        """
        read = []
        while len(self.running) > leave:
            update = self.running.popleft()
            try:
                metrics = update.metrics(self.world)
            except DivergenceError:
                self.progress.step = update.step - 1
                raise
            if self.config.subtract_target_entropy:
                entropy = target_entropy(self.config.label_smoothing, self.model.vocab_size)
                lowest = metrics.target_tokens * entropy
                metrics = metrics._replace(smoothed=metrics.smoothed - lowest)
            now = self.clock()
            read.append(metrics._replace(seconds=now - max(update.started, self.read_at)))
            self.read_at = now
        return read

    def _update_weights(self, step: int, losses_and_norm: Tensor) -> float:
        """Let Adam update the weights, if losses and norms of all steps up to this one are finite.

        The device decides that, so that the host does not wait for it.

        Returns:
            The learning rate.
        """
        rate = learning_rate(
            step,
            d_model=self.model.config.d_model,
            warmup_steps=self.config.warmup_steps,
            scale=self.config.learning_rate_scale,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.diverged = self.diverged | (~losses_and_norm.isfinite()).any()
        # Read by fused Adam as that of a gradient scaler would be.
        self.optimizer.found_inf = self.diverged.float()  # type: ignore[attr-defined]
        self.optimizer.step()
        return rate

    def fit_memory(self) -> None:
        """Find how much of a step is computed at once: see `StepGradient.fit_memory`."""
        epoch = self.batching.epoch(self.progress.epoch)
        self.gradient.fit_memory(self.optimizer, epoch, self.micro_batches)
