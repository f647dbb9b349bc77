"""The options of a model and of its training; the defaults are the paper's base model.

`TransformerConfig` has Table 3's letters and the details on which paper and code differ,
`TrainingConfig` the options of steps, learning rate, limits and checkpoints (section 5).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum

from seq2seq.errors import UsageError, check_number
from seq2seq.settings import changeable, fixed, free, variant

MAX_LAYERS = 1000
"""Maximum number of layers: a larger model would take time and memory before it is refused."""


class Positions(Enum):
    """The encoding of positions."""

    sinusoidal = "sinusoidal"
    """Sine and cosine interleaved, as section 3.5 writes them."""
    concatenated = "concatenated"
    """All sines, then all cosines, as in tensor2tensor."""
    learned = "learned"
    """A trained vector per position: row (E) of Table 3."""
    rotary = "rotary"
    """Nothing is added to embeddings; queries and keys are turned (`modern.py`)."""


class Start(Enum):
    """The decoder's first input ("outputs shifted right" in Figure 1)."""

    symbol = "symbol"
    """The embedding of `<s>`."""
    zero = "zero"
    """A vector of zeros, as in tensor2tensor."""


class Activation(Enum):
    """The function between the two matmuls of a feed-forward network."""

    relu = "relu"
    """max(0, x), as equation 2 writes it."""
    swish = "swish"
    """x sigmoid(x)."""
    gelu = "gelu"
    """x Phi(x), with the distribution function of the normal distribution."""
    quick_gelu = "quick_gelu"
    """x sigmoid(1.702 x), Marian's own approximation of it."""
    swiglu = "swiglu"
    """A gate of swish, with inner layers of two thirds of d_ff (`modern.py`)."""


class Norm(Enum):
    """The normalization of a state."""

    layer = "layer"
    """LayerNorm, as in the paper."""
    rms = "rms"
    """RMSNorm: without mean and bias."""


class NormPosition(Enum):
    """Where a sublayer has its norm."""

    post = "post"
    """After the residual sum, as in the paper."""
    pre = "pre"
    """Before the sublayer, with a norm after the last layer."""


@dataclass(kw_only=True)
class TransformerConfig:
    """The hyperparameters of Table 3, and the details on which the paper and its code differ."""

    num_layers: int = fixed(6)
    """Layers of the encoder, and of the decoder (N in the paper)."""
    num_decoder_layers: int | None = fixed(None)
    """Layers of the decoder, if not N; the paper's stacks are equally deep."""
    d_model: int = fixed(512)
    """Width of the embeddings and of every sublayer's output."""
    d_ff: int = fixed(2048)
    """Inner width of the feed-forward sublayer."""
    num_heads: int = fixed(8)
    """Attention heads (h in the paper)."""
    d_k: int | None = fixed(None)
    """Width of a head's queries and keys; d_model / num_heads if not given."""
    d_v: int | None = fixed(None)
    """Width of a head's values; d_model / num_heads if not given."""
    num_kv_heads: int | None = variant(None)
    """Heads of keys and values, each shared by several heads of queries; num_heads if not given."""
    dropout: float = changeable(0.1)
    """Dropout on each sublayer's output and on the sums of embedding and position (5.4)."""
    attention_dropout: float = changeable(0.0)
    """Dropout on the attention weights; not in the paper."""
    relu_dropout: float = changeable(0.0)
    """Dropout after the ReLU; not in the paper."""
    activation: Activation = variant(Activation.relu)
    """The function in the feed-forward sublayer (equation 2)."""
    attention_bias: bool = fixed(False)
    """Biases on the attention projections; section 3.2.2 has none, tensor2tensor had them."""
    bias: bool = variant(True)
    """Biases in feed-forward networks (3.3) and norms."""
    norm: Norm = variant(Norm.layer)
    norm_position: NormPosition = variant(NormPosition.post)
    layer_norm_epsilon: float = fixed(1e-6)
    """Added inside the root of a norm; tensor2tensor's value, since the paper gives none."""
    positions: Positions = variant(Positions.sinusoidal)
    start: Start = variant(Start.symbol)
    shared_embedding: bool = variant(True)
    """Whether one matrix embeds source and target (3.4)."""
    tied_output: bool = variant(True)
    """Whether the matrix that embeds the target also projects to the vocabulary (3.4)."""
    output_bias: bool = variant(False)
    """Whether the logits have a bias; neither the paper's nor tensor2tensor's have."""
    max_learned_positions: int = fixed(512)
    """Longest sequence, in tokens, that `positions: learned` can represent."""

    @property
    def decoder_depth(self) -> int:
        """Layers of the decoder, given or N."""
        return self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers

    @property
    def key_width(self) -> int:
        """d_k, given or derived."""
        return self.d_k if self.d_k is not None else self.d_model // self.num_heads

    @property
    def value_width(self) -> int:
        """d_v, given or derived."""
        return self.d_v if self.d_v is not None else self.d_model // self.num_heads

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values, given or all."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def inner_width(self) -> int:
        """Width of a feed-forward network's inner layers: d_ff, or for SwiGLU two thirds of it.

        With three matrices it then has as many parameters as with two, but for rounding to a
        multiple of 8.
        """
        swiglu = self.activation is Activation.swiglu
        return 8 * max(1, round(self.d_ff / 12)) if swiglu else self.d_ff

    def __post_init__(self) -> None:
        sizes = ("d_model", "d_ff", "num_heads", "num_kv_heads", "d_k", "d_v")
        depths = ("num_layers", "num_decoder_layers")
        for name in (*sizes, "max_learned_positions"):
            check_number(f"model.{name}", getattr(self, name), at_least=1)
        for name in depths:
            check_number(f"model.{name}", getattr(self, name), at_least=1, at_most=MAX_LAYERS)
        if self.d_model % 2:
            raise UsageError(f"model.d_model={self.d_model}: must be even, for sine-cosine pairs")
        if (self.d_k is None or self.d_v is None) and self.d_model % self.num_heads:
            raise UsageError(
                f"model.d_model={self.d_model} does not divide into {self.num_heads} heads:"
                " choose another number of heads, or give model.d_k and model.d_v"
            )
        if self.num_heads % self.kv_heads:
            raise UsageError(
                f"model.num_kv_heads={self.kv_heads}: must divide model.num_heads={self.num_heads}"
            )
        if self.positions is Positions.rotary and self.key_width % 2:
            raise UsageError(
                f"model.positions=rotary turns pairs of features: d_k={self.key_width} must be even"
            )
        for name in ("dropout", "attention_dropout", "relu_dropout"):
            check_number(f"model.{name}", getattr(self, name), at_least=0, below=1)
        check_number("model.layer_norm_epsilon", self.layer_norm_epsilon, above=0, below=math.inf)


# A lower BLEU is chance: n-grams that a model that has learned nothing happens to write.
_MIN_SCORE = 1.0


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
    """Updates after which training ends; no rate depends on it."""
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
    """Most updates between two checkpoints, each validated: the paper's ten minutes."""
    checkpoint_minutes: float | None = free(10.0)
    """Most minutes between two checkpoints."""
    keep_checkpoints: int = free(5)
    """Number of newest checkpoints to keep, besides the best model."""
    average_checkpoints: int = free(5)
    """Number of newest checkpoints whose mean is the final model, unless the best checkpoint
    validates better; 1 means no mean."""
    validate_mean: bool = changeable(False)
    """Validate, and keep as the best model, a running mean of the weights: see `RunningMean`."""
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
        name = self.selecting_set
        loss = metrics.get(f"{name}/loss", 0.0)  # means had none in earlier versions
        score = 0.0 if self.select_by == "loss" else metrics[f"{name}/{self.select_by}"]
        return round(score, 2) if score >= _MIN_SCORE else 0.0, -loss

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
        if self.patience and self.checkpoint_steps is self.checkpoint_minutes is None:
            raise UsageError(
                f"training.patience={self.patience} counts validations, and there are none: give"
                " training.checkpoint_steps or training.checkpoint_minutes"
            )
        if self.select_by not in ("bleu", "chrf", "loss"):
            raise UsageError(f"training.select_by={self.select_by}: must be bleu, chrf or loss")
        if self.average_checkpoints > self.keep_checkpoints:
            raise UsageError(
                f"training.average_checkpoints={self.average_checkpoints}: must be at most"
                f" training.keep_checkpoints={self.keep_checkpoints}"
            )
