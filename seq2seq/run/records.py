"""The records of a run: progress bar, `metrics.jsonl`, TensorBoard events, log."""

import io
import json
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tqdm import tqdm

from seq2seq.config import TrainingConfig
from seq2seq.errors import UserError
from seq2seq.files import open_regular_file, write_file
from seq2seq.run.folder import RunFolder
from seq2seq.trainer import Metrics, Progress, Recorder

if TYPE_CHECKING:  # imported when it writes
    from torch.utils.tensorboard import SummaryWriter

T = TypeVar("T")
logger = logging.getLogger("seq2seq")


_HUGE = 1e6  # a perplexity that is written with an exponent


def describe_validation(metrics: Metrics) -> str:
    """Describe the metrics of a validation."""
    perplexity = metrics["valid/perplexity"]
    described = (
        f"validation loss {metrics['valid/loss']:.3f}, perplexity"
        f" {perplexity:{'.2f' if perplexity < _HUGE else '.1e'}}, BLEU {metrics['valid/bleu']:.2f}"
    )
    if "valid/chrf" in metrics:
        described += f", chrF {metrics['valid/chrf']:.2f}"
    bleus = bleu_by_set(metrics)
    del bleus["valid"]
    of_sets = ", ".join(f"{name} {bleu:.2f}" for name, bleu in bleus.items())
    return f"{described} ({of_sets})" if of_sets else described


def bleu_by_set(metrics: Mapping[str, T]) -> dict[str, T]:
    """Return what is known of the BLEU of each validation set, and of their mean, by name."""
    return {set_name(name): value for name, value in metrics.items() if name.endswith("/bleu")}


def set_name(metric: str) -> str:
    """Return the validation set of `valid/bleu` or `valid/NAME/bleu`."""
    first, *middle, _ = metric.split("/")
    return middle[0] if middle else first


_MAX_BYTES = 2**29  # a run of 300,000 steps, recorded at each, writes 100 MB
_MAX_RECORD_BYTES = 64 * 1024


class FileRecorder(Recorder):
    """Shows the progress, and the time left until a limit, if there is one; records a run.

    It drops records of steps to be repeated. If recording fails, it warns once.
    """

    def __init__(self, run: Path, log_file: "DeferredFileHandler | None" = None) -> None:
        self.folder, self.log_file = RunFolder(run), log_file
        self.path = self.folder.metrics
        self.failed: set[Path] = set()
        self.bar = tqdm(disable=True)
        self.events: SummaryWriter | None = None
        self.logged = time.monotonic()

    def start_log(self) -> None:
        """Write the log so far, and each line from now on."""
        if self.log_file is not None:
            with self._or_warn(self.folder.log):
                self.log_file.write_to(self.folder.log)

    def open(self, progress: Progress, config: TrainingConfig) -> None:
        """Read the records of the steps before, and show the bar."""
        with self._or_warn(self.path):
            self._keep_earlier(progress.step)
        with self._or_warn(self.folder.events), warnings.catch_warnings():
            # TensorBoard imports what it doesn't need, some of it deprecated.
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter

            # It drops what earlier files have from this step on.
            self.events = SummaryWriter(str(self.folder.events), purge_step=progress.step + 1)
        self.max_steps, self.max_minutes = config.max_steps, config.max_minutes
        self.first_step, self.first_second = progress.step, progress.seconds
        limited = bool(self.max_steps or self.max_minutes)
        self.bar = tqdm(
            total=1.0,
            disable=not sys.stderr.isatty(),
            miniters=0,
            bar_format="{percentage:3.0f}%|{bar:10}| {desc}" if limited else "{desc}",
        )
        self.newest: Metrics = {}
        self.updated = progress.seconds
        """When the last update was done, in seconds of training."""

    def _keep_earlier(self, step: int) -> None:
        """Drop the records of later steps than this one."""
        if not self.path.exists():
            return
        records = list(read_metrics(self.path))
        if corrupt := len(self.path.read_bytes().splitlines()) - len(records):
            logger.warning(f"{self.path}: {corrupt:,} lines are not records and are skipped")
        earlier = (record for record in records if record["step"] <= step)
        write_file(self.path, "".join(json.dumps(record) + "\n" for record in earlier).encode())

    def show_progress(self, progress: Progress) -> None:
        """Update the bar."""
        self.updated = progress.seconds
        if self.bar.disable:
            return
        if progress.unrecorded.steps:  # those of a GPU's newest update may not be read yet
            self.newest = progress.unrecorded.summary()
        loss, details = _describe(self.newest) if self.newest else ("", "")
        step = f"{progress.step}/{self.max_steps}" if self.max_steps else f"step {progress.step}"
        # A narrow terminal cuts the end of the line, where the least important figures are.
        columns = (step, loss, self._left(progress), f"epoch {progress.epoch + 1}", details)
        self.bar.set_description_str(", ".join(filter(None, columns)), refresh=False)
        steps = progress.step / self.max_steps if self.max_steps else 0.0
        minutes = progress.seconds / (60 * self.max_minutes) if self.max_minutes else 0.0
        self.bar.n = min(1.0, max(steps, minutes))
        self.bar.update(0)

    def show_validation(self, done: int, lines: int) -> None:
        """Show how many lines are translated: in the bar or, without one, in a line a minute."""
        text = f"validating: {done:,} of {lines:,} lines translated"
        if not self.bar.disable:
            self.bar.set_description_str(text)
        elif done < lines and time.monotonic() > self.logged + 60:
            self.logged = time.monotonic()
            logger.info(text)

    def record_metrics(self, progress: Progress, metrics: Metrics) -> None:
        """Write metrics, with names such as `train/loss`; log a line if there is no bar."""
        self._write(progress.step, metrics)
        if self.bar.disable:
            self.logged = time.monotonic()
            logger.info(
                f"step {progress.step}, epoch {progress.epoch + 1},"
                f" {', '.join(_describe(metrics))}, {self._left(progress)}"
            )

    def record_validation(self, progress: Progress, metrics: Metrics, *, is_best: bool) -> None:
        """Log and write a validation's metrics."""
        mark = "the best so far" if is_best else f"best at step {progress.best_step}"
        self.bar.clear()
        logger.info(
            f"step {progress.step}, {progress.seconds / 60:.1f} min:"
            f" {describe_validation(metrics)} ({mark}),"
            f" validated in {progress.seconds - self.updated:.0f} s"
        )
        self._write(progress.step, metrics)

    def close(self) -> None:
        """Close the bar and the event file."""
        self.bar.close()
        if self.events is not None:
            with self._or_warn(self.folder.events):
                self.events.close()

    def _left(self, progress: Progress) -> str:
        """Describe the time left until the first limit."""
        limits = []
        steps = progress.step - self.first_step
        if self.max_steps is not None and steps:
            pace = (progress.seconds - self.first_second) / steps
            limits.append((self.max_steps - progress.step) * pace)
        if self.max_minutes is not None:
            limits.append(60 * self.max_minutes - progress.seconds)
        if not limits:
            return "until patience ends it"
        return f"{tqdm.format_interval(max(0.0, min(limits)))} left"

    def _write(self, step: int, metrics: Metrics) -> None:
        with self._or_warn(self.path), self.path.open("ab") as file:
            file.write(json.dumps({"step": step, **metrics}).encode() + b"\n")
        if self.events is None:
            return
        with self._or_warn(self.folder.events):
            for name, value in metrics.items():
                self.events.add_scalar(name, value, step)
            self.events.flush()

    @contextmanager
    def _or_warn(self, path: Path) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # TensorBoard raises whatever a setting leads to
            if path not in self.failed:
                self.failed.add(path)
                reason = str(UserError(error)).removeprefix(f"{path}: ")[:300]
                logger.warning(f"{path}: not written: {reason}; training continues without it")


def _describe(metrics: Metrics) -> tuple[str, str]:
    """Describe what matters most, and the rest."""
    return (
        f"loss {metrics['train/loss']:.3f}, {metrics['train/tokens_per_second']:,.0f} tokens/s",
        f"rate {metrics['train/learning_rate']:.2e},"
        f" waiting for data {metrics['train/waiting_for_data']:.1%}",
    )


def read_metrics(path: Path) -> Iterator[dict[str, float]]:
    """Read the records of a `metrics.jsonl`; skip corrupt lines, such as an incomplete one."""
    with open_regular_file(path, _MAX_BYTES) as file:
        for line in iter(partial(file.readline, _MAX_RECORD_BYTES), b""):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if (
                isinstance(record, dict)
                and all(type(value) in (int, float) for value in record.values())
                and all(abs(value) < 2**63 for value in record.values() if type(value) is int)
                and type(record.get("step")) is int
            ):
                yield record


class DeferredFileHandler(MemoryHandler):
    """Keeps log records until it has a file, so that a failed start leaves no run folder."""

    def write_to(self, path: Path) -> None:
        """Append all records so far to a file, and each one from now on."""
        if path.exists():  # so that a hard link to it, in a copy of the run, stays as it is
            write_file(path, path.read_bytes())
        file = _FileHandler(path)
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self.setTarget(file)
        self.flush()


class _FileHandler(logging.FileHandler):
    def _open(self) -> io.TextIOWrapper:
        """Open the file so that its bytes are the same on every system."""
        path = self.baseFilename
        return open(path, "a", encoding="utf-8", errors="backslashreplace", newline="\n")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore errors: on a full disk the training continues without its log."""


@contextmanager
def deferred_log_file(logger: logging.Logger) -> Iterator[DeferredFileHandler]:
    """Attach a `DeferredFileHandler` to a logger; an error that ends the run goes into its file."""
    handler = DeferredFileHandler(capacity=1)  # flushed at each record, once there is a file
    logger.addHandler(handler)
    try:
        yield handler
    except Exception as error:
        # Not to the logger: the command prints it.
        handler.handle(logging.makeLogRecord({"msg": f"ended by an error: {UserError(error)}"}))
        raise
    finally:
        logger.removeHandler(handler)
        if handler.target is not None:
            handler.target.close()
        handler.close()
