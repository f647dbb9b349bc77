"""Where a training stands."""

from dataclasses import dataclass, field

from seq2seq.errors import UserError
from seq2seq.training.metrics import RunningMetrics


@dataclass
class Progress:
    """Saved with each checkpoint: enough, with model and optimizer, to go on from."""

    step: int = 0
    """Updates done."""
    epoch: int = 0
    batch: int = 0
    """Micro-batches of this epoch that are done."""
    seconds: float = 0.0
    """Time spent, validation included."""
    best_bleu: float = -1.0
    best_step: int = 0
    validations_without_improvement: int = 0
    """Validations since the best one."""
    validation_pending: bool = False
    """Whether a validation that was due here was given up for a signal."""
    unrecorded: RunningMetrics = field(default_factory=RunningMetrics)
    """The updates since the last record."""
    ended: str = ""
    """Why it ended; empty while it goes on."""

    def __post_init__(self) -> None:
        """Take a window as it was saved; refuse what no training can have reached.

        Raises:
            UserError: a count or a time is below 0.
        """
        if isinstance(self.unrecorded, dict):
            self.unrecorded = RunningMetrics(**self.unrecorded)
        for name in (
            "step",
            "epoch",
            "batch",
            "seconds",
            "best_step",
            "validations_without_improvement",
        ):
            if getattr(self, name) < 0:
                raise UserError(
                    f"{name} is {getattr(self, name)} in the progress: must be 0 or above"
                )
