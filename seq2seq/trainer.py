"""The training loop (section 5): when to update, save and validate, until the end."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from itertools import count, islice, repeat
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Meta

from seq2seq.config import TrainingConfig
from seq2seq.device import Signals, oom_as_user_error
from seq2seq.encoded_corpus import EncodedCorpus, PairIndices
from seq2seq.update import DivergenceError, StepBatches, StepMetrics, Updater

NonNegativeInt = Annotated[int, Meta(ge=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]


@dataclass
class Progress:
    """The state of training in addition to model and optimizer."""

    step: NonNegativeInt = 0
    """Updates done."""
    epoch: NonNegativeInt = 0
    batch: NonNegativeInt = 0
    """Micro-batches of this epoch that are done."""
    seconds: NonNegativeFloat = 0.0
    """Time spent, validation included."""
    validated_step: NonNegativeInt = 0
    """The updates done when the last validation was."""
    validated_seconds: NonNegativeFloat = 0.0
    """The time spent when the last validation was done."""
    best_score: float = -1.0
    """The best validation's rounded BLEU or chrF, whichever selects; 0 if the loss does."""
    best_loss: float = 0.0
    best_step: NonNegativeInt = 0
    validations_without_improvement: int = 0
    """Validations since the best one."""
    validation_pending: bool = False
    """Whether this step is saved, and still to be validated."""
    unrecorded: StepMetrics = field(default_factory=StepMetrics)
    """The updates since the last record."""
    train_loss: NonNegativeFloat = 0.0
    """The mean cross-entropy of the updates of the last record, in nats per target token."""
    changes: list[str] = field(default_factory=list)
    """Settings that changed when the run was resumed, one line each."""
    ended: str = ""
    """The reason for the end; empty until then."""

    def is_better(self, rank: tuple[float, float]) -> bool:
        """Return whether a validation of this rank is better than the best one."""
        return rank > (self.best_score, -self.best_loss)

    def record_rank(self, rank: tuple[float, float]) -> bool:
        """Record the rank of a validation, and return whether it is the best so far."""
        if self.is_better(rank):
            self.best_score, self.best_loss, self.best_step = rank[0], -rank[1], self.step
            self.validations_without_improvement = 0
            return True
        self.validations_without_improvement += 1
        return False


Metrics: TypeAlias = Mapping[str, float]
T = TypeVar("T")


# The collaborators of a training.


class Recorder:
    """Records a run, in the main process; this class records nothing. It must not raise."""

    def start_log(self) -> None:
        """Called when the run folder may be written to."""

    def open(self, progress: Progress, config: TrainingConfig) -> None:
        """Called before training, which goes on from this progress."""

    def show_progress(self, progress: Progress) -> None:
        """Called after each update, before its metrics are recorded."""

    def record_metrics(self, progress: Progress, metrics: Metrics) -> None:
        """Called every `log_steps` updates, and before each validation."""

    def show_validation(self, done: int, lines: int) -> None:
        """Called after each batch that a validation translates."""

    def record_validation(self, progress: Progress, metrics: Metrics, *, is_best: bool) -> None:
        """Called after each validation."""

    def close(self) -> None:
        """Called after training."""


class Run(Protocol):
    """A run validates and saves the model that a trainer trains."""

    recorder: Recorder

    def validate(self) -> Any:
        """Validate this process's share of the text, and return what `summarize` needs of it."""

    def summarize(self, shares: list[Any]) -> Metrics:
        """Compute the metrics of a validation from the shares of all processes."""

    def save(self) -> None:
        """Write a checkpoint, before it is validated."""

    def save_validation(self, is_best: bool) -> None:
        """Add the progress after the validation to the checkpoint, and keep the best model."""


# The loop.


@dataclass(eq=False, repr=False)
class Trainer:
    """Trains a model until a limit of the configuration or a signal ends it.

    The updater is `update.Updater`, or another form of it. Each process of its world has a trainer
    like this one.
    """

    updater: Updater
    _: KW_ONLY
    signals: Signals = field(default_factory=Signals)
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        updater = self.updater
        self.model, self.optimizer, self.config = updater.model, updater.optimizer, updater.config
        self.batching, self.world = updater.batching, updater.world
        self.progress = Progress()
        self.started = 0.0
        self.signal: int | None = None
        """A signal received by any of the processes."""

    def train(self, run: Run) -> None:
        """Train from `progress` until a limit or a signal; all updates are saved then.

        A checkpoint is written before it is validated: if the validation fails, no update is lost,
        and the resumed run begins with it. Each process validates its share, and the main one
        summarizes what all have found, and saves.
        """
        progress = self.progress
        progress.ended = ""  # a finished run may be resumed with higher limits
        self.started = self.clock() - progress.seconds
        with self.signals, closing(self.steps()) as steps:
            while not (progress.ended or self.signal):
                if not progress.validation_pending:  # a resumed run may begin with a validation
                    self.update(next(steps))
                    self._agree()
                    progress.validation_pending = self._checkpoint_is_due()
                    self._record(run.recorder)
                    if progress.validation_pending or self.signal:
                        self.world.on_main(run.save)
                if progress.validation_pending and not self.signal:
                    self._validate(run)

    def _record(self, recorder: Recorder) -> None:
        """Show the progress, and record the metrics every `log_steps` and before a checkpoint."""
        progress = self.progress
        log = progress.validation_pending or progress.step % self.config.log_steps == 0
        if log or self.signal:
            self.finish_updates()
        recorder.show_progress(progress)
        if log:
            unrecorded = progress.unrecorded
            progress.train_loss = unrecorded.cross_entropy / unrecorded.target_tokens
            recorder.record_metrics(progress, unrecorded.summary())
            progress.unrecorded = StepMetrics()

    def _validate(self, run: Run) -> None:
        """Validate, unless a signal comes first, which leaves the validation pending."""
        outcomes = self.world.gather_objects(self.signals.interruptible(run.validate))
        shares = [share for share in outcomes if share is not None]
        if len(shares) < len(outcomes):
            self._agree()
            return
        metrics = self.world.on_main(lambda: run.summarize(shares))
        self._agree()
        progress = self.progress
        progress.validation_pending = False
        progress.validated_step, progress.validated_seconds = progress.step, progress.seconds
        is_best = progress.record_rank(self.config.rank(metrics))
        progress.ended = self.limit_reached()
        self.world.on_main(lambda: run.save_validation(is_best))
        run.recorder.record_validation(progress, metrics, is_best=is_best)
        self._agree()

    def _checkpoint_is_due(self) -> bool:
        """Return whether to save and validate after this step: by count, by time, or at the end."""
        progress, config = self.progress, self.config
        steps, minutes = config.checkpoint_steps, config.checkpoint_minutes
        by_steps = steps is not None and progress.step - progress.validated_step >= steps
        since = progress.seconds - progress.validated_seconds
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
            return f"{without_improvement} validations without a better one"
        return ""

    def _agree(self) -> None:
        """Agree with all processes on time and signals."""
        seconds = self.clock() - self.started
        self.progress.seconds, self.signal = self.world.agree(seconds, self.signals.received)

    def steps(self) -> Generator["ReadyStep"]:
        """Yield steps, starting from the progress; the next one is made ahead, in a thread."""
        progress, corpus = self.progress, self.batching.corpus
        with (
            closing(self._stream(progress.epoch, progress.batch)) as stream,
            closing(made_ahead(map(self._make_step, repeat(stream)), corpus)) as ready,
        ):
            while True:
                requested = self.clock()
                yield next(ready)._replace(waited=self.clock() - requested)

    def _make_step(self, stream: Iterator[tuple[PairIndices, int, int]]) -> "ReadyStep":
        count = self.updater.micro_batches
        micro_batches, epochs, positions = zip(*islice(stream, count), strict=True)
        batches = self.updater.collate(micro_batches)
        self.batching.corpus.release(before=epochs[-1])
        return ReadyStep(batches, epochs[-1], positions[-1])

    def _stream(self, epoch: int, position: int) -> Generator[tuple[PairIndices, int, int]]:
        """Yield all micro-batches from a position on, each with its epoch and the next position."""
        # The order of millions of pairs takes seconds: a thread makes it during the epoch before.
        orders, corpus = map(self.batching.epoch, count(epoch)), self.batching.corpus
        with closing(made_ahead(orders, corpus)) as epochs:
            for number, batches in enumerate(epochs, epoch):
                for place in range(position, len(batches)):
                    yield batches[place], number, place + 1
                position = 0

    def update(self, step: "ReadyStep") -> StepMetrics:
        """Do one update; return its metrics, or those of earlier ones that have ended by now."""
        progress = self.progress
        progress.epoch, progress.batch = step.epoch, step.batch
        where = f"epoch {step.epoch + 1}, up to micro-batch {step.batch}"
        with self._divergence(), oom_as_user_error():
            metrics = self.updater.update(progress.step + 1, step.batches, where)
        progress.step += 1
        metrics.data_wait_seconds += step.waited
        progress.unrecorded.add(metrics)
        return metrics

    def finish_updates(self) -> StepMetrics:
        """Wait for the updates that have not ended yet, and return their metrics."""
        with self._divergence():
            metrics = self.updater.finish()
        self.progress.unrecorded.add(metrics)
        return metrics

    @contextmanager
    def _divergence(self) -> Iterator[None]:
        """Set the progress back to the last update that was done if one is not finite."""
        try:
            yield
        except DivergenceError as error:
            self.progress.step = error.step - 1
            raise


def made_ahead(items: Iterator[T], corpus: EncodedCorpus) -> Generator[T]:
    """Yield endless items; a thread makes the next one while one is used.

    At the end, the corpus is closed, so that an epoch that is being encoded is abandoned instead of
    waited for.
    """
    with ThreadPoolExecutor(1) as thread, closing(corpus):
        following = thread.submit(next, items)
        while True:
            item = following.result()
            following = thread.submit(next, items)
            yield item


class ReadyStep(NamedTuple):
    """The batches of a step, and where it ends in the data."""

    batches: StepBatches
    epoch: int
    batch: int
    """Micro-batches of this epoch up to its end."""
    waited: float = 0.0
    """Seconds that the training waited for it."""
