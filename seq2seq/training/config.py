"""What a person chooses of the training (section 5)."""

import math
from dataclasses import asdict, dataclass

from seq2seq.data.batching import Batching, BatchStatistics
from seq2seq.data.encoded import EncodedCorpus
from seq2seq.errors import UserError


@dataclass(kw_only=True)
class TrainingConfig:
    """The step's size, its schedule, its end and its checkpoints; the defaults are the paper's."""

    source_tokens: int = 25_000
    """Source tokens of a step, padding not counted, on all devices together."""
    target_tokens: int = 25_000
    """Target tokens of a step, padding not counted, on all devices together."""
    micro_batch_tokens: int = 4096
    """Most source tokens, and most target tokens, that a device takes at once; a step is made of as
    many such parts as its tokens need. Padding comes on top of it, at most a quarter."""
    count_longer_side: bool = False
    """Fill a micro-batch until its longer side, padding counted, is full, as the authors' code did;
    otherwise until both sides together are."""
    max_steps: int | None = 100_000
    """Updates after which training ends."""
    max_minutes: float | None = None
    """Minutes, validation included, after which training ends."""
    patience: int | None = None
    """Training ends after so many validations without a better BLEU."""
    warmup_steps: int = 4000
    """Updates over which the learning rate rises."""
    learning_rate_scale: float = 1.0
    """Factor on the paper's learning rate."""
    label_smoothing: float = 0.1
    """Probability that the target distribution gives to all other tokens together."""
    subtract_target_entropy: bool = False
    """Record the loss less the least that smoothing allows, as the authors' code did; training is
    the same."""
    checkpoint_steps: int | None = None
    """Updates between two checkpoints; each checkpoint is validated."""
    checkpoint_minutes: float | None = 10.0
    """Minutes between two checkpoints."""
    keep_checkpoints: int = 5
    """Newest checkpoints that are kept, besides the best."""
    average_checkpoints: int = 5
    """Newest checkpoints whose mean is the final model; 1: the last one."""
    log_steps: int = 50
    """Updates between two records of the training loss."""

    @property
    def micro_batches(self) -> int:
        """Parts that make a step on one device."""
        return self.micro_batches_on(1)

    def micro_batches_on(self, devices: int) -> int:
        """Parts that make a step, as many for each device."""
        parts = math.ceil(max(self.source_tokens, self.target_tokens) / self.micro_batch_tokens)
        return math.ceil(parts / devices) * devices

    def budget(self, devices: int) -> dict[str, int]:
        """What decides how a corpus is cut into batches."""
        return {
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "micro_batches": self.micro_batches_on(devices),
            "count_longer_side": int(self.count_longer_side),
        }

    def batching(self, corpus: EncodedCorpus, *, seed: int, devices: int = 1) -> Batching:
        """The corpus cut into micro-batches.

        Raises:
            UserError: a pair is longer than a micro-batch.
        """
        parts = self.micro_batches_on(devices)
        return Batching(
            corpus,
            source_tokens=-(-self.source_tokens // parts),
            target_tokens=-(-self.target_tokens // parts),
            seed=seed,
            count_longer_side=self.count_longer_side,
        )

    def check_budget(self, statistics: BatchStatistics, *, devices: int = 1) -> None:
        """Refuse a corpus too small for the tokens of a step.

        Raises:
            UserError: its batches hold less than four fifths of what was asked for.
        """
        parts = self.micro_batches_on(devices)
        source, target = parts * statistics.source_tokens, parts * statistics.target_tokens
        # Counted by the longer side, pads and the shorter side take their share.
        least = 0.5 if self.count_longer_side else 0.8
        if source / self.source_tokens + target / self.target_tokens < 2 * least:
            raise UserError(
                f"a step of {self.source_tokens:,} source and {self.target_tokens:,} target tokens"
                f" can't be met: {parts} micro-batches of this corpus hold"
                f" {source:,.0f} and {target:,.0f}; lower training.source_tokens,"
                " training.target_tokens or training.micro_batch_tokens, or give more text"
            )

    def __post_init__(self) -> None:
        """Refuse a training that can't be done.

        Raises:
            UserError: a count below 1, smoothing outside [0, 1), or nothing that ends it.
        """
        for name, value in asdict(self).items():
            if name == "label_smoothing":
                if not 0.0 <= value < 1.0:
                    raise UserError(f"training.{name}={value}: must be at least 0 and below 1")
            elif value is not None and not isinstance(value, bool) and not 0 < value < math.inf:
                raise UserError(f"training.{name}={value}: must be above 0 and finite")
        if self.max_steps is None and self.max_minutes is None and self.patience is None:
            raise UserError(
                "nothing ends the training: give training.max_steps, training.max_minutes or"
                " training.patience"
            )
        if self.average_checkpoints > self.keep_checkpoints:
            raise UserError(
                f"training.average_checkpoints={self.average_checkpoints} are more than"
                f" training.keep_checkpoints={self.keep_checkpoints}"
            )
