"""What a trainer records, kept."""

from collections.abc import Callable, Mapping

from seq2seq.trainer import Progress, Recorder, Trainer


class Records(Recorder):
    """Keeps everything that is recorded."""

    def __init__(self) -> None:
        self.all: list[tuple[int, dict[str, float]]] = []

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        self.all.append((progress.step, dict(metrics)))

    def record_validation(
        self, progress: Progress, metrics: Mapping[str, float], *, is_best: bool
    ) -> None:
        self.all.append((progress.step, dict(metrics)))

    def of(self, name: str) -> list[float]:
        return [metrics[name] for _, metrics in self.all if name in metrics]


def train(
    trainer: Trainer,
    validate: Callable[[], dict[str, float]] = lambda: {"valid/bleu": 0.0},
    save: Callable[[], None] = lambda: None,
    save_validation: Callable[[bool], None] = lambda is_best: None,
) -> Records:
    records = Records()
    trainer.train(
        records,
        validate=validate,
        summarize=lambda shares: shares[0],
        save=save,
        save_validation=save_validation,
    )
    return records
