"""The training loop (section 5): update, save, validate, until the end."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from seq2seq.data.batching import Batch, Batching, Indices
from seq2seq.device import autocast, oom_as_user_error
from seq2seq.errors import UserError
from seq2seq.kernels.compiled import can_compile, compiled_loss
from seq2seq.kernels.joined import JoinedBatch, join
from seq2seq.kernels.training import TrainingKernels, use_training_kernels
from seq2seq.model import Transformer
from seq2seq.training.batch_loss import BatchLoss
from seq2seq.training.config import TrainingConfig
from seq2seq.training.distributed import World
from seq2seq.training.loss import Loss, target_entropy
from seq2seq.training.memory_probe import (
    find_joined,
    find_slices,
    preserve_state,
    split,
)
from seq2seq.training.metrics import RunningMetrics, StepMetrics
from seq2seq.training.optimizer import learning_rate, make_adam
from seq2seq.training.progress import Progress
from seq2seq.training.recorder import Recorder
from seq2seq.training.signals import StopSignals

Validate = Callable[[], Mapping[str, float]]
Save = Callable[[], None]
SaveValidation = Callable[[bool], None]


class DivergenceError(UserError):
    """A loss or a gradient is not finite; the weights are those of the step before."""


class Trainer:
    """Trains a model until a limit of the configuration or a signal ends it.

    Args:
        model: on its device.
        batching: the training pairs; its budgets are those of a micro-batch.
        config: the options.
        device: the model's device.
        dtype: the precision of the matrix products.
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
        device: torch.device,
        dtype: torch.dtype,
        seed: int,
        world: World | None = None,
        kernels: TrainingKernels | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        kernels = kernels or TrainingKernels()
        use_training_kernels(model, kernels, device)
        self.model = model
        self.batching = batching
        self.config = config
        self.device = device
        self.dtype = dtype
        self.seed = seed
        self.world = world or World()
        self.clock = clock
        of_chunk = compiled_loss() if kernels.compiled and can_compile(device) else None
        self.loss = BatchLoss(
            model, config.label_smoothing, in_chunks=kernels.loss, of_chunk=of_chunk
        )
        self.ddp_loss = self.world.wrap_ddp(self.loss)
        self.optimizer = make_adam(model)
        self.micro_batches = config.micro_batches_on(self.world.size)
        self.joins = kernels.join_on(device)
        self.joined = 1
        """Micro-batches computed at once; more than one only where this trainer joins them."""
        self.slices = 1
        """Slices in which a micro-batch is computed, one after the other."""
        self.progress = Progress()
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
        checkpoint_seconds = progress.seconds
        steps = self.steps()
        self.model.train()
        with self.signals:
            while not (progress.ended or self.signal):
                if not progress.validation_pending:  # a resumed training may begin with one
                    progress.unrecorded.add(self.update(next(steps)))
                    self._agree()
                    recorder.show_progress(progress)
                    progress.validation_pending = self._checkpoint_is_due(checkpoint_seconds)
                    if progress.validation_pending or progress.step % self.config.log_steps == 0:
                        recorder.record_metrics(progress, progress.unrecorded.summary())
                        progress.unrecorded = RunningMetrics()
                    if progress.validation_pending or self.signal:
                        self.world.on_main(save)
                if progress.validation_pending and not self.signal:
                    self._validate(recorder, validate, save_validation)
                    checkpoint_seconds = progress.seconds

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
        is_best = progress.record_bleu(self.config.selecting_bleu(metrics))
        progress.ended = self.limit_reached()
        self.world.on_main(partial(save_validation, is_best))
        recorder.record_validation(progress, metrics, is_best=is_best)
        self._agree()

    def _checkpoint_is_due(self, checkpoint_seconds: float) -> bool:
        """Return whether to save and validate after this step: by count, by time, or at the end."""
        steps, minutes = self.config.checkpoint_steps, self.config.checkpoint_minutes
        by_steps = steps is not None and self.progress.step % steps == 0
        since = self.progress.seconds - checkpoint_seconds
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
        """Do one update with the micro-batches of a step.

        Raises:
            DivergenceError: if the loss or the gradient is not finite; nothing is updated.
        """
        started = self.clock()
        step = self.progress.step + 1
        corpus, pairs = self.batching.corpus, np.concatenate(micro_batches)
        source_tokens = int(corpus.source_lengths[pairs].sum())
        target_tokens = int(corpus.target_lengths[pairs].sum())
        losses, waited = self._accumulate_gradients(micro_batches, target_tokens)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        figures = torch.cat((*losses, get_total_norm(gradients).view(1))).double()
        rate = self._update_weights(step, figures)
        # The one look of a step, after which a GPU has nothing more to do.
        *own_losses, norm = figures.tolist()
        own = torch.tensor(own_losses, dtype=torch.float64).view(-1, 2)
        rows = self.world.gather(*own.sum(dim=0).tolist())
        smoothed, cross_entropy = (sum(column) for column in zip(*rows, strict=True))
        if not (math.isfinite(smoothed) and math.isfinite(norm)):
            odd = [
                pairs
                for (_, _, parts), loss in zip(self._groups(micro_batches), own, strict=True)
                if not loss.isfinite().all()
                for pairs in parts
            ]
            raise self._divergence(smoothed / target_tokens, norm, odd or micro_batches)
        self.optimizer.zero_grad(set_to_none=True)
        self.progress.step = step
        if self.config.subtract_target_entropy:
            entropy = target_entropy(self.config.label_smoothing, self.model.vocab_size)
            smoothed -= target_tokens * entropy
        seconds = self.clock() - started
        return StepMetrics(
            smoothed, cross_entropy, source_tokens, target_tokens, norm, rate, seconds, waited
        )

    def _update_weights(self, step: int, figures: Tensor) -> float:
        """Let Adam update the weights, unless one of the figures is not finite.

        The device decides that, so that the host need not look before.

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
        # Read by fused Adam as that of a gradient scaler would be.
        self.optimizer.found_inf = (~figures.isfinite()).any().float()  # type: ignore[attr-defined]
        self.optimizer.step()
        return rate

    def _groups(self, micro_batches: Sequence[Indices]) -> list[tuple[int, int, list[Indices]]]:
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

    def _collate(self, parts: Sequence[Indices]) -> Batch | JoinedBatch:
        """Make the batch of a group, on the device."""
        batches = [self.batching.collate(pairs) for pairs in parts]
        return (join(batches) if self.joins else batches[0]).to(self.device)

    def _accumulate_gradients(
        self, micro_batches: Sequence[Indices], target_tokens: int
    ) -> tuple[list[Tensor], float]:
        """Accumulate the gradient of a step.

        Returns:
            The two losses of each group, (2,), and the seconds spent waiting for batches.
        """
        losses, waited = [], 0.0
        groups = self._groups(micro_batches)
        for position, (number, index, parts) in enumerate(groups, start=1):
            # The same masks for the same micro-batch in any process.
            entropy = [self.seed, self.progress.step + 1, number, *([index] if index else [])]
            torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
            requested = self.clock()
            batch = self._collate(parts)
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
            with autocast(self.device, self.dtype):
                loss: Loss = loss_module(batch)
            (loss.smoothed / divisor).backward()  # type: ignore[no-untyped-call]
        return loss

    def _divergence(self, loss: float, norm: float, odd: Sequence[Indices]) -> DivergenceError:
        pairs = np.sort(np.concatenate(odd) % len(self.batching.corpus))
        first = ", ".join(map(str, pairs[:5])) + (", ..." if len(pairs) > 5 else "")
        progress = self.progress
        return DivergenceError(
            f"step {progress.step + 1}: the loss ({loss:g}) or the gradient's norm ({norm:g}) is"
            f" not finite, in epoch {progress.epoch + 1}, up to micro-batch {progress.batch}, pairs"
            f" {first} of the encoded corpus; the weights are not updated. Lower"
            " training.learning_rate_scale or raise training.warmup_steps"
        )

    def fit_memory(self) -> None:
        """Find how many micro-batches, or in how many slices one, are computed at once.

        Memory runs out here or not at all; weights and random state do not change.

        Raises:
            UserError: if not even a single pair fits.
        """

        def attempt(parts: Sequence[Indices]) -> None:
            with oom_as_user_error(), preserve_state(self.model, self.optimizer, self.device):
                # Not through DistributedDataParallel: another process may have memory enough.
                self._backward(self.loss, self._collate(parts), 1.0)

        epoch, corpus = self.batching.epoch(self.progress.epoch), self.batching.corpus
        most = self.micro_batches // self.world.size if self.joins else 1
        joined = find_joined(attempt, epoch, corpus, most)
        slices = find_slices(lambda pairs: attempt([pairs]), epoch, corpus) if joined == 1 else 1
        rows = self.world.gather(joined, slices)
        self.joined = int(min(row[0] for row in rows))
        self.slices = int(max(row[1] for row in rows))
