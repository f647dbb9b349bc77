"""The progress of a training."""

from dataclasses import dataclass, field

from seq2seq.errors import UserError
from seq2seq.training.metrics import RunningMetrics


@dataclass
class Progress:
    """The state of a training beside model and optimizer."""

    step: int = 0
    """Updates done."""
    epoch: int = 0
    batch: int = 0
    """Micro-batches of this epoch that are done."""
    seconds: float = 0.0
    """Time spent, validation included."""
    validated_seconds: float = 0.0
    """The time spent when the last validation was done."""
    best_bleu: float = -1.0
    best_step: int = 0
    validations_without_improvement: int = 0
    """Validations since the best one."""
    validation_pending: bool = False
    """Whether this step is saved, and still to be validated."""
    unrecorded: RunningMetrics = field(default_factory=RunningMetrics)
    """The updates since the last record."""
    changes: list[str] = field(default_factory=list)
    """Settings that were others when the training was resumed, one line each."""
    ended: str = ""
    """The reason for the end; empty until then."""

    def __post_init__(self) -> None:
        """Check values that may come from a file.

        Raises:
            UserError: if a count or a time is below 0.
        """
        counts = ("step", "epoch", "batch", "seconds", "validated_seconds", "best_step")
        for name in (*counts, "validations_without_improvement"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} is {getattr(self, name)}: must be 0 or above")

    def record_bleu(self, bleu: float) -> bool:
        """Record the BLEU of a validation, and return whether it is the best so far."""
        if bleu > self.best_bleu:
            self.best_bleu, self.best_step = bleu, self.step
            self.validations_without_improvement = 0
            return True
        self.validations_without_improvement += 1
        return False
