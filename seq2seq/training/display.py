"""The progress of a training: a bar on a terminal, else lines in the log."""

import logging
import sys
from collections.abc import Mapping

from tqdm import tqdm

from seq2seq.training.progress import Progress

logger = logging.getLogger("seq2seq")


class Display:
    """Shows a training's progress.

    Args:
        progress: the progress at the start.
        max_steps: the limit of steps, if any.
        max_minutes: the limit of minutes, if any.
    """

    def __init__(
        self, progress: Progress, max_steps: int | None, max_minutes: float | None
    ) -> None:
        self.max_steps = max_steps
        self.max_minutes = max_minutes
        self.first_step, self.first_second = progress.step, progress.seconds
        self.bar = tqdm(
            total=max_steps,
            initial=progress.step,
            unit="step",
            disable=not sys.stderr.isatty(),
            bar_format="{percentage:3.0f}%|{bar:20}| {n_fmt}/{total_fmt}{postfix}"
            if max_steps
            else "step {n_fmt}{postfix}",
        )
        self.described = ""
        """The newest metrics in words."""

    def show_progress(self, progress: Progress) -> None:
        """Update the bar."""
        if self.bar.disable:
            return
        if progress.unrecorded.steps:  # those of a GPU's newest update may not be read yet
            self.described = f", {_describe(progress.unrecorded.summary())}"
        self.bar.n = progress.step
        # What matters least stands last, where a narrow terminal cuts the line.
        self.bar.set_postfix_str(
            f"{self._left(progress)}, epoch {progress.epoch + 1}{self.described}", refresh=False
        )
        self.bar.update(0)

    def log_metrics(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Log a line if there is no bar."""
        if self.bar.disable:
            logger.info(
                f"step {progress.step}, epoch {progress.epoch + 1}, {_describe(metrics)},"
                f" {self._left(progress)}"
            )

    def log_validation(
        self, progress: Progress, metrics: Mapping[str, float], *, is_best: bool
    ) -> None:
        """Log a line about a validation."""
        mark = "the best so far" if is_best else f"best {progress.best_bleu:.2f}"
        self.bar.clear()
        logger.info(
            f"step {progress.step}, {progress.seconds / 60:.1f} min:"
            f" {describe_validation(metrics)} ({mark})"
        )

    def close(self) -> None:
        """Close the bar."""
        self.bar.close()

    def _left(self, progress: Progress) -> str:
        """Describe the time left until the first limit."""
        limits = []
        done = progress.step - self.first_step
        if self.max_steps is not None and done:
            pace = (progress.seconds - self.first_second) / done
            limits.append((self.max_steps - progress.step) * pace)
        if self.max_minutes is not None:
            limits.append(60 * self.max_minutes - progress.seconds)
        if not limits:
            return "until BLEU stops rising"
        return f"{tqdm.format_interval(max(0.0, min(limits)))} left"


def describe_validation(metrics: Mapping[str, float]) -> str:
    """Describe the metrics of a validation."""
    described = (
        f"validation loss {metrics['valid/loss']:.3f}, perplexity"
        f" {metrics['valid/perplexity']:.2f}, BLEU {metrics['valid/bleu']:.2f}"
    )
    others = [f"{name} {bleu:.2f}" for name, bleu in bleu_by_set(metrics).items() if name]
    return f"{described} ({', '.join(others)})" if others else described


def bleu_by_set(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the BLEU of each validation set, by name; the name of the main one is empty."""
    return {
        name.removeprefix("valid").removesuffix("bleu").strip("/"): value
        for name, value in metrics.items()
        if name.startswith("valid/") and name.endswith("/bleu")
    }


def _describe(metrics: Mapping[str, float]) -> str:
    return (
        f"loss {metrics['train/loss']:.3f}, rate {metrics['train/learning_rate']:.2e},"
        f" {metrics['train/tokens_per_second']:,.0f} tokens/s,"
        f" waiting for data {metrics['train/waiting_for_data']:.1%}"
    )
