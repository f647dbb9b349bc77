"""The details in which implementations of the paper differ, and those of one configuration.

The paper is Vaswani et al. (2017), *Attention Is All You Need*; tensor2tensor is its authors' code
at publication, in June 2017. `FIDELITY.md` names the test of each detail. Here a configuration is
compared with the paper's settings.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass

from tabulate import tabulate

from seq2seq.changes import changed_functions
from seq2seq.run.config import Config
from seq2seq.settings import flat

PAPER, TENSOR2TENSOR = "the paper", "tensor2tensor"


@dataclass(frozen=True)
class Detail:
    """One thing that a reproduction can get wrong."""

    name: str
    """With the section of the paper."""
    form: str
    """The form that the default settings give."""
    settings: tuple[str, ...] = ()
    """The settings on which it depends."""
    source: str = PAPER
    """tensor2tensor where the paper is silent, and in the shares of label smoothing."""

    @property
    def is_of_model(self) -> bool:
        """Whether it is a model that has it, and a model of another class may not."""
        return self.name in _OF_MODEL or any(name.startswith("model.") for name in self.settings)

    @property
    def file(self) -> str:
        """The module whose functions compute it."""
        return "transformer" if self.is_of_model else _FILES.get(self.name, "")


_FILES = {
    "label smoothing (5.4)": "loss",
    "the loss is divided by": "update",
    "Adam (5.3)": "update",
    "learning rate (5.3)": "update",
    "beam (6.1)": "search",
    "length penalty (6.1)": "search",
    "longest output, early stop (6.1)": "search",
}
_OF_MODEL = ("initialization", "embedding scale (3.4)")
"""Details of a model that depend on none of its settings."""

DETAILS = (
    Detail(
        "residual, norm, dropout (3.1, 5.4)",
        "LayerNorm(x + Dropout(Sublayer(x)))",
        ("model.norm", "model.norm_position"),
    ),
    Detail("norm after the last layer (3.1)", "none", ("model.norm_position",)),
    Detail(
        "dropout on attention and ReLU (5.4)",
        "none",
        ("model.attention_dropout", "model.relu_dropout"),
    ),
    Detail("LayerNorm's epsilon", "1e-6", ("model.layer_norm_epsilon",), TENSOR2TENSOR),
    Detail("attention projections (3.2.2)", "no bias", ("model.attention_bias",)),
    Detail("attention (3.2.1)", "softmax(QK^T / sqrt(d_k)) V", ("model.num_kv_heads",)),
    Detail("feed-forward (3.3)", "max(0, xW1 + b1)W2 + b2", ("model.activation", "model.bias")),
    Detail(
        "initialization",
        "Glorot uniform, embeddings N(0, 1/d_model)",
        ("training.init_std",),
        TENSOR2TENSOR,
    ),
    Detail("positions (3.5)", "sine and cosine interleaved", ("model.positions",)),
    Detail("embedding scale (3.4)", "times sqrt(d_model)"),
    Detail(
        "shared matrix (3.4)",
        "source embedding = target embedding = pre-softmax matrix",
        ("model.shared_embedding", "model.tied_output", "model.output_bias"),
    ),
    Detail("decoder's start (3.1)", "outputs shifted right by one", ("model.start",)),
    Detail(
        "label smoothing (5.4)",
        "eps = 0.1, eps / (V - 1) to each other token",
        ("training.label_smoothing",),
        TENSOR2TENSOR,
    ),
    Detail("the loss is divided by", "target tokens without padding", source=TENSOR2TENSOR),
    Detail("Adam (5.3)", "0.9, 0.98, 1e-9"),
    Detail(
        "learning rate (5.3)",
        "d^-1/2 min(step^-1/2, step 4000^-3/2)",
        ("training.warmup_steps", "training.learning_rate_scale"),
    ),
    Detail(
        "batch (5.1)",
        "about 25,000 source and 25,000 target tokens",
        ("training.source_tokens", "training.target_tokens", "training.count_longer_side"),
    ),
    Detail(
        "steps (5.2)",
        "base 100,000, big 300,000",
        ("training.max_steps", "training.max_minutes", "training.patience"),
    ),
    Detail(
        "dropout rate (5.4, 6.1)",
        "base 0.1, big 0.3, big En-Fr 0.1",
        ("model.dropout", "training.dropout_warmup_steps"),
    ),
    Detail(
        "averaging (6.1)",
        "the last 5 (base) or 20 (big) checkpoints, one every 10 minutes",
        (
            "training.average_checkpoints",
            "training.checkpoint_minutes",
            "training.checkpoint_steps",
            "training.validate_mean",
        ),
    ),
    Detail("beam (6.1)", "beam 4, alpha 0.6", ("search.beam_size", "search.alpha")),
    Detail("length penalty (6.1)", "((5 + length) / 6)^alpha, </s> counted"),
    Detail(
        "longest output, early stop (6.1)",
        "input + 50; ends early when possible",
        ("search.max_extra_tokens",),
    ),
    Detail(
        "vocabulary (5.1)",
        "shared, 37,000 (En-De) or 32,000 (En-Fr) pieces",
        ("data.tokenizer.vocab_size",),
    ),
    Detail("development and test set (6)", "newstest2013, newstest2014", ("data.dataset",)),
    Detail("BLEU (6)", "cased Moses tokens, compounds split", source=TENSOR2TENSOR),
    Detail(
        "sizes (Table 3)",
        "base, or big",
        (
            "model.num_layers",
            "model.num_decoder_layers",
            "model.d_model",
            "model.d_ff",
            "model.num_heads",
            "model.d_k",
            "model.d_v",
        ),
    ),
)

_BIG_SIZES = {"model.d_model": 1024, "model.d_ff": 4096, "model.num_heads": 16}
_BIG = _BIG_SIZES | {"training.max_steps": 300_000, "training.average_checkpoints": 20}
_OF_TENSOR2TENSOR = {
    "model.positions": "concatenated",
    "model.start": "zero",
    "model.attention_bias": True,
    "training.count_longer_side": True,
    "training.source_tokens": 32_768,
    "training.target_tokens": 32_768,
    "data.tokenizer.vocab_size": 40_960,
}


@dataclass(frozen=True)
class Row:
    """A detail, and what a configuration has in its place."""

    number: int
    detail: str
    form: str
    here: str
    """The settings that make it differ; empty if none does."""
    verdict: str

    @property
    def differs(self) -> bool:
        """Whether it is neither the paper's nor tensor2tensor's."""
        return self.verdict == "differs"


def compare(config: Config, *, model_alone: bool = False) -> list[Row]:
    """Compare a configuration with the paper's; `model_alone`, by the details of a model."""
    values, expected = flat(asdict(config)), flat(asdict(Config()))
    expected["data.dataset"] = "wmt/wmt14"
    french = config.data.target_language == "fr"
    if french:
        expected["data.tokenizer.vocab_size"] = 32_000
    if all(values[name] == value for name, value in _BIG_SIZES.items()):
        expected |= _BIG | {"model.dropout": 0.1 if french else 0.3}
    rows = []
    for number, detail in enumerate(DETAILS, start=1):
        changes = {n: values[n] for n in detail.settings if values[n] != expected[n]}
        verdict = f"as {detail.source}"
        if changes:
            authors = changes.items() <= _OF_TENSOR2TENSOR.items()
            verdict = f"as {TENSOR2TENSOR}" if authors else "differs"
        differences = [f"{name}={value}" for name, value in changes.items()]
        if config.model_class is not None and detail.is_of_model:
            differences.append(f"own model class {config.model_class}")
            verdict = "not the paper's"
        elif edited := changed_functions(*filter(None, [detail.file])):
            differences.append(f"{', '.join(edited[:2])} changed")
            verdict = "not the paper's"
        of_model = detail.settings and all(n.startswith("model.") for n in detail.settings)
        if of_model or not model_alone:
            rows.append(Row(number, detail.name, detail.form, ", ".join(differences), verdict))
    return rows


def as_text(rows: Sequence[Row]) -> str:
    """Format rows as a table of at most 100 columns, and count the verdicts."""
    table = tabulate(
        map(astuple, rows),
        ("#", "detail", "the paper", "here", "verdict"),
        tablefmt="simple",
        disable_numparse=True,
        maxcolwidths=[2, 22, 28, 22, 13],
    )
    verdicts = Counter(row.verdict.replace("differs", "differ") for row in rows)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    return f"{table}\n\n{len(rows)} details: {counts}"
