"""Where a training stands."""

from dataclasses import dataclass, field


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
    checks_without_gain: int = 0
    """Validations since the best one."""
    unchecked: bool = False
    """Whether a validation that was due here was given up for a signal."""
    unrecorded: list[list[float]] = field(default_factory=list)
    """The figures of the updates since the last record."""
    ended: str = ""
    """Why it ended; empty while it goes on."""
