"""The options of training (section 5)."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from seq2seq.data.batching import Batching, BatchStatistics, Mixture
from seq2seq.data.encoded import EncodedCorpus
from seq2seq.errors import UsageError, UserError, check_number
from seq2seq.settings import changeable, fixed, free

# The paper's 100,000 steps are about 20 epochs of its corpus.
_MAX_EPOCHS = 1000
# A lower BLEU is chance: n-grams that a model that has learned nothing happens to write.
_MIN_SCORE = 1.0
_SMALL_STEP = 1024  # tokens, of schedule=small_data


@dataclass(kw_only=True)
class TrainingConfig:
    """Options of steps, learning rate, limits and checkpoints; the defaults are the paper's."""

    source_tokens: int = fixed(25_000)
    """Source tokens of a step, padding not counted, on all devices together."""
    target_tokens: int = fixed(25_000)
    """Target tokens of a step, padding not counted, on all devices together."""
    micro_batch_tokens: int = free(4096)
    """Most source tokens, and most target tokens, of a micro-batch; a step consists of as many of
    these as its tokens need. On a GPU, a process computes all of its own at once, if they fit
    into memory."""
    count_longer_side: bool = fixed(False)
    """Fill a micro-batch until its longer side, padding counted, is full, as tensor2tensor did;
    otherwise until both sides together are."""
    max_steps: int | None = free(100_000)
    """Updates after which training ends."""
    max_minutes: float | None = free(None)
    """Minutes, validation included, after which training ends."""
    patience: int | None = free(None)
    """Validations without a better one after which training ends."""
    select: str = fixed("valid")
    """The validation set that selects the best model: `valid`, a name in data.valid_sets, or
    `mean`, the mean over all sets."""
    select_by: str = fixed("bleu")
    """The measure by which it selects: bleu, chrf (chrF2, for pairs with little text) or loss."""
    init_std: float | None = free(None)
    """Standard deviation of the initial matrices and embeddings; None means tensor2tensor's, since
    the paper gives none."""
    warmup_steps: int = changeable(4000)
    """Updates over which the learning rate rises."""
    learning_rate_scale: float = changeable(1.0)
    """Factor on the paper's learning rate."""
    dropout_warmup_steps: int | None = changeable(None)
    """Updates over which dropout rises from 0 to the model's rates; None means constant rates. At
    first, dropout slows learning; later, it prevents overfitting."""
    label_smoothing: float = changeable(0.1)
    """Probability of all tokens but the reference together, in the target distribution."""
    checkpoint_steps: int | None = free(1500)
    """Most updates between two checkpoints, each of which is validated: those of the paper's ten
    minutes."""
    checkpoint_minutes: float | None = free(10.0)
    """Most minutes between two checkpoints."""
    keep_checkpoints: int = free(5)
    """Number of newest checkpoints to keep, besides the best model."""
    average_checkpoints: int = free(5)
    """Number of newest checkpoints whose mean is the final model, unless the best checkpoint
    validates better; 1 means no mean."""
    average_alternatives: list[int] = free([])
    """Other numbers of newest checkpoints; the mean that validates best is taken."""
    validate_mean: bool = changeable(False)
    """Validate, and keep as the best model, an average of the weights: see `WeightAverage`."""
    log_steps: int = free(50)
    """Updates between two records of the training loss."""

    def micro_batches(self, devices: int = 1) -> int:
        """Return the number of micro-batches of a step, a multiple of the number of devices."""
        count = math.ceil(max(self.source_tokens, self.target_tokens) / self.micro_batch_tokens)
        return math.ceil(count / devices) * devices

    @property
    def selecting_set(self) -> str:
        """The beginning of the names of the selecting set's metrics."""
        return "valid" if self.select == "valid" else f"valid/{self.select}"

    def rank(self, metrics: Mapping[str, float]) -> tuple[float, float]:
        """Rank a validation: the selecting score, rounded to 0.01, then the loss, negated.

        A score below 1 counts as 0, so that the loss decides.
        """
        chosen = self.selecting_set
        loss = metrics.get(f"{chosen}/loss", 0.0)  # means had none in earlier versions
        score = 0.0 if self.select_by == "loss" else metrics[f"{chosen}/{self.select_by}"]
        return round(score, 2) if score >= _MIN_SCORE else 0.0, -loss

    def batching(
        self,
        corpus: EncodedCorpus,
        *,
        seed: int,
        devices: int = 1,
        mixture: Mixture | None = None,
    ) -> Batching:
        """Divide a corpus into micro-batches."""
        micro_batches = self.micro_batches(devices)
        return Batching(
            corpus,
            source_tokens=math.ceil(self.source_tokens / micro_batches),
            target_tokens=math.ceil(self.target_tokens / micro_batches),
            seed=seed,
            count_longer_side=self.count_longer_side,
            mixture=mixture,
        )

    def check_budget(self, statistics: BatchStatistics, *, devices: int = 1) -> None:
        """Refuse a corpus whose batches hold too few of the tokens of a step."""
        micro_batches = self.micro_batches(devices)
        source = micro_batches * statistics.source_tokens
        target = micro_batches * statistics.target_tokens
        # Counted by the longer side, padding and the shorter side take their share.
        min_share = 0.5 if self.count_longer_side else 0.8
        if source / self.source_tokens + target / self.target_tokens < 2 * min_share:
            larger = max(self.source_tokens, self.target_tokens) > _SMALL_STEP
            raise UserError(
                f"a step of {self.source_tokens:,} source and {self.target_tokens:,} target tokens"
                f" can't be filled: on average, its {micro_batches} micro-batches of this corpus"
                f" hold {source:,.0f} and {target:,.0f};"
                f" {'use schedule=small_data' if larger else 'add text'}, or lower"
                " training.source_tokens, training.target_tokens or training.micro_batch_tokens"
            )

    def excessive_epochs(self, statistics: BatchStatistics, *, devices: int = 1) -> str:
        """Explain why the schedule is too long for the corpus, or return the empty string."""
        if self.max_steps is None or self.max_minutes is not None or self.patience is not None:
            return ""
        epochs = self.max_steps * self.micro_batches(devices) / statistics.batches
        if epochs < _MAX_EPOCHS:
            return ""
        return (
            f"{self.max_steps:,} steps are {epochs:,.0f} epochs of this corpus:"
            " training.patience ends them in time, as in schedule=small_data"
        )

    def __post_init__(self) -> None:
        """Check the ranges, that something ends the training, and that what is averaged is kept."""
        check_number("training.label_smoothing", self.label_smoothing, at_least=0, below=1)
        for name, value in asdict(self).items():
            if type(value) in (int, float) and name != "label_smoothing":
                check_number(f"training.{name}", value, above=0, below=math.inf)
        if self.max_steps is None and self.max_minutes is None and self.patience is None:
            raise UsageError(
                "nothing ends the training: give training.max_steps, training.max_minutes or"
                " training.patience"
            )
        limits = (self.max_steps, self.max_minutes, self.checkpoint_steps, self.checkpoint_minutes)
        if limits == (None,) * len(limits):
            raise UsageError(
                "training.patience counts validations, and there are none: give"
                " training.checkpoint_steps or training.checkpoint_minutes"
            )
        if self.select_by not in ("bleu", "chrf", "loss"):
            raise UsageError(f"training.select_by={self.select_by}: must be bleu, chrf or loss")
        for number in (self.average_checkpoints, *self.average_alternatives):
            if not 0 < number <= self.keep_checkpoints:
                raise UsageError(
                    f"a mean of {number} checkpoints: training.average_checkpoints and"
                    " training.average_alternatives must be from 1 to"
                    f" training.keep_checkpoints={self.keep_checkpoints}"
                )
