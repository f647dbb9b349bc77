"""What a person sees while a model trains: a bar on a terminal, lines in a log elsewhere."""

import logging
import sys
from collections.abc import Mapping

from tqdm import tqdm

from seq2seq.training.progress import Progress

logger = logging.getLogger("seq2seq")


class Display:
    """Shows a training's progress.

    Args:
        progress: where it starts.
        max_steps: where it ends, if by steps.
        max_minutes: when it ends, if by the clock.
        shown: whether there may be a bar.
    """

    def __init__(
        self,
        progress: Progress,
        max_steps: int | None,
        max_minutes: float | None,
        *,
        shown: bool = True,
    ) -> None:
        self.max_steps = max_steps
        self.max_minutes = max_minutes
        self.first_step, self.first_second = progress.step, progress.seconds
        self.bar = tqdm(
            total=max_steps,
            initial=progress.step,
            unit="step",
            disable=not shown or not sys.stderr.isatty(),
            bar_format="{percentage:3.0f}%|{bar:20}| {n_fmt}/{total_fmt} {postfix}"
            if max_steps
            else "step {n_fmt} {postfix}",
        )

    def show(self, progress: Progress) -> None:
        """Move the bar."""
        if self.bar.disable:
            return
        figures = progress.unrecorded.figures()
        self.bar.n = progress.step
        self.bar.set_postfix_str(
            f"epoch {progress.epoch + 1}, {_describe(figures)}, {self._left(progress)}",
            refresh=False,
        )
        self.bar.update(0)

    def log(self, progress: Progress, figures: Mapping[str, float]) -> None:
        """Write a line where there is no bar."""
        if self.bar.disable:
            logger.info(
                f"step {progress.step}, epoch {progress.epoch + 1}, {_describe(figures)},"
                f" {self._left(progress)}"
            )

    def checkpoint(self, progress: Progress, figures: Mapping[str, float], best: bool) -> None:
        """Tell of a validation."""
        mark = "the best so far" if best else f"best {progress.best_bleu:.2f}"
        self.bar.clear()
        logger.info(
            f"step {progress.step}, {progress.seconds / 60:.1f} min:"
            f" {describe_validation(figures)} ({mark})"
        )

    def close(self) -> None:
        """Leave the bar as it is."""
        self.bar.close()

    def _left(self, progress: Progress) -> str:
        """The time left, by steps or by the clock, whichever ends first."""
        limits = []
        done = progress.step - self.first_step
        if self.max_steps is not None and done:
            pace = (progress.seconds - self.first_second) / done
            limits.append((self.max_steps - progress.step) * pace)
        if self.max_minutes is not None:
            limits.append(60 * self.max_minutes - progress.seconds)
        if not limits:
            return "until it stalls"
        return f"{tqdm.format_interval(max(0.0, min(limits)))} left"


def describe_validation(figures: Mapping[str, float]) -> str:
    """The figures of a validation in words."""
    return (
        f"validation loss {figures['valid/loss']:.3f}, perplexity"
        f" {figures['valid/perplexity']:.2f}, BLEU {figures['valid/bleu']:.2f}"
    )


def _describe(figures: Mapping[str, float]) -> str:
    return (
        f"loss {figures['train/loss']:.3f}, rate {figures['train/learning_rate']:.2e},"
        f" {figures['train/tokens_per_second']:,.0f} tokens/s,"
        f" waiting for data {figures['train/waiting_for_data']:.1%}"
    )
