"""The configuration of a run: its schema and checks; read from a run; what is likely to fail."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
from yaml import CollectionEndEvent, CollectionStartEvent, MarkedYAMLError, YAMLError

from seq2seq.batches import BatchStatistics
from seq2seq.config import NormPosition, TrainingConfig, TransformerConfig
from seq2seq.data.corpus import DataConfig
from seq2seq.errors import UsageError, UserError, check_number
from seq2seq.files import read_regular_file
from seq2seq.run.folder import RunFolder
from seq2seq.search import SearchConfig
from seq2seq.settings import fixed, free, place
from seq2seq.update import dropout_share, learning_rate


@dataclass(kw_only=True)
class Config:
    """The configuration of a run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: TransformerConfig = field(default_factory=TransformerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    model_class: str | None = fixed(None)
    """Class to train in place of the paper's, such as my_module.MyTransformer: a subclass of it,
    imported from the current folder or an installed package."""
    run_dir: str | None = place(None)
    """The folder of the run; made from data, model and date if not given."""
    resume: bool | str = place(False)
    """Whether to resume the run in run_dir: true, false, or auto: if it has a checkpoint."""
    init_from: str | None = free(None)
    """Run or model folder to start from: its weights, tokenizer and sizes are used."""
    init_sha256: str | None = free(None)
    """The sha256 of that model's weights; recorded by the run, and checked if given."""
    cache: str | None = place(None)
    """Folder of encoded corpora; seq2seq/ in the user's cache folder if not given."""
    seed: int = fixed(1)
    """Seed of weights, order and dropout."""
    device: str = free("auto")
    """auto (a GPU if there is one), cpu, cuda, cuda:1, ..."""
    precision: str = free("auto")
    """fp32, bf16, or auto: bf16 if it makes this machine's matmuls faster."""
    deterministic: bool = free(False)
    """On a GPU, use only kernels that give the same sums in every run, which are slower; those of a
    CPU always do."""
    forms: str = free("fast")
    """How a step is computed: fast, or plain, as the paper says it, which is slower."""
    compile: bool = free(True)
    """Compile layers and loss for a GPU, where PyTorch has a compiler: training starts later."""
    license: str | None = free(None)
    """License of the model, for its card, such as cc-by-4.0; the card names none if not given."""
    bleu_tokenizer: str | None = fixed(None)
    """sacreBLEU's tokenizer for the BLEU of validations, such as ja-mecab for Japanese or none for
    text that is tokenized already; 13a if not given."""
    distributed_timeout: float = free(600.0)
    """Seconds that one of several processes waits for another's gradients before it ends."""

    def __post_init__(self) -> None:
        """Check ranges and what excludes each other."""
        if self.resume not in (True, False, "auto"):
            raise UsageError(f"resume={self.resume}: must be true, false or auto")
        if self.forms not in ("fast", "plain"):
            raise UsageError(f"forms={self.forms}: must be fast or plain")
        check_number("seed", self.seed, at_least=0, below=2**63)
        check_number("distributed_timeout", self.distributed_timeout, above=0, below=math.inf)
        names = ["valid", *self.data.valid_sets, *(["mean"] if self.data.valid_sets else [])]
        if self.training.select not in names:
            more = "" if self.data.valid_sets else ", or add data.valid_sets.NAME.source=..."
            raise UsageError(
                f"training.select={self.training.select}: no such validation set; choose"
                f" {', '.join(names)}{more}"
            )


# Read from a run.


MAX_CONFIG_BYTES = 256 * 1024
"""The largest `config.yaml`: that of some 450 languages, each with text of its own."""
_MAX_DEPTH = 10  # of a config.yaml
# The last one is OmegaConf's of a number alone.
_NOT_A_CONFIG = (OmegaConfBaseException, YAMLError, ValueError, RecursionError, AssertionError)


def read_config(run: Path) -> Config:
    """Read the configuration of a run; keys added since then have their defaults."""
    path = RunFolder(run).config
    if not path.exists():
        raise UserError(f"{path}: no such file; give the folder of a run")
    try:
        text = read_regular_file(path, MAX_CONFIG_BYTES).decode()
        _check_syntax(text)
        saved = OmegaConf.create(text)
        if not saved:
            raise UserError("it is empty")
        _check_values(OmegaConf.to_container(saved))
        if OmegaConf.is_dict(training := OmegaConf.select(saved, "training")):
            training.pop("average_alternatives", None)  # a key of earlier versions
        merged = OmegaConf.merge(OmegaConf.structured(Config), saved)
        _check_values(OmegaConf.to_container(merged))
        config = OmegaConf.to_object(merged)
    except (*_NOT_A_CONFIG, UserError) as error:
        if isinstance(error, ConfigKeyError):
            raise UserError(
                f"{path}: this version has no key {error.full_key}: remove the line, or use the"
                " version that wrote it"
            ) from error
        reason = " ".join(str(error).split())[:300]
        if isinstance(error, MarkedYAMLError) and error.problem_mark:
            reason = f"line {error.problem_mark.line + 1}: {error.problem}"
        raise UserError(f"{path}: not a configuration of this program: {reason}") from error
    assert isinstance(config, Config)
    return config


def trained_bleu_tokenizer(models: Sequence[str]) -> str | None:
    """Return the tokenizer of the BLEU by which all these models were validated, or None."""
    tokenizers: set[str | None] = set()
    for model in models:
        try:
            tokenizers.add(read_config(Path(model)).bleu_tokenizer)
        except UserError:  # a model folder has no configuration
            tokenizers.add(None)
    return tokenizers.pop() if len(tokenizers) == 1 else None


def _check_syntax(text: str) -> None:
    """Reject YAML that we never write: a few lines can expand without bound."""
    depth = 0
    for event in yaml.parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _MAX_DEPTH or getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise ValueError("tags, aliases or deep nesting in it")


def _check_values(tree: object) -> None:
    """Reject references, however they are spelled in the file, and endless integers."""
    if isinstance(tree, dict):
        tree = [*tree.keys(), *tree.values()]
    if isinstance(tree, list):
        for value in tree:
            _check_values(value)
    elif isinstance(tree, str) and "${" in tree:
        raise ValueError("references (${...}) in it")
    elif isinstance(tree, int) and abs(tree) >= 2**63:
        raise ValueError("an integer of more than 63 bits in it")


# Warnings of settings that are likely to fail.


# The paper's 100,000 steps are about 20 epochs of its corpus.
_MAX_EPOCHS = 1000
_MAX_DAYS = 7  # of a training on a CPU
_SMALL_STEP = 1024  # tokens, of schedule=small_data


def check_budget(training: TrainingConfig, statistics: BatchStatistics, micro_batches: int) -> None:
    """Refuse a corpus whose batches hold too few of the tokens of a step."""
    source = micro_batches * statistics.source_tokens
    target = micro_batches * statistics.target_tokens
    # Counted by the longer side, padding and the shorter side take their share.
    min_share = 0.5 if training.count_longer_side else 0.8
    if source / training.source_tokens + target / training.target_tokens < 2 * min_share:
        larger = max(training.source_tokens, training.target_tokens) > _SMALL_STEP
        raise UserError(
            f"a step of {training.source_tokens:,} source and {training.target_tokens:,} target"
            f" tokens can't be filled: on average, its {micro_batches} micro-batches of this corpus"
            f" hold {source:,.0f} and {target:,.0f};"
            f" {'use schedule=small_data' if larger else 'add text'}, or lower"
            " training.source_tokens, training.target_tokens or training.micro_batch_tokens"
        )


def excessive_epochs(
    training: TrainingConfig, statistics: BatchStatistics, micro_batches: int
) -> str:
    """Explain why the schedule is too long for the corpus, or return the empty string."""
    if training.max_steps is None or training.max_minutes or training.patience:
        return ""
    epochs = training.max_steps * micro_batches / statistics.batches
    if epochs < _MAX_EPOCHS:
        return ""
    return (
        f"{training.max_steps:,} steps are {epochs:,.0f} epochs of this corpus:"
        " training.patience ends them in time, as in schedule=small_data"
    )


def unfinished_dropout(training: TrainingConfig, steps: int | None) -> str:
    """Explain that a run of `steps` updates ends before dropout reaches its rate, or return ""."""
    rise = training.dropout_warmup_steps
    if rise is None or steps is None or steps >= rise:
        return ""
    return (
        f"dropout reaches {dropout_share(steps, rise):.2g} of its rate in the {steps:,} updates of"
        f" this run: it rises over training.dropout_warmup_steps={rise}"
    )


def risky_start(model: TransformerConfig, training: TrainingConfig) -> str:
    """Explain why a Post-LN model is likely to fail in warm-up, or return the empty string.

    Xiong et al. (2020), "On Layer Normalization in the Transformer Architecture", show the reason.
    The thresholds are from runs of this code: with six layers on each side, a rise to 1.2e-3
    within 200 updates never got below the entropy of single words; slower and lower, it learned.
    """
    steps, scale = training.warmup_steps, training.learning_rate_scale
    peak = learning_rate(steps, d_model=model.d_model, warmup_steps=steps, scale=scale)
    pre_norm = model.norm_position is NormPosition.pre
    if pre_norm or model.num_layers < 6 or steps > 500 or peak < 1e-3:
        return ""
    return (
        f"a rate that rises to {peak:.2g} within {steps} updates is likely to make a Post-LN model"
        f" of {model.num_layers} layers fail: raise training.warmup_steps or lower"
        " training.learning_rate_scale"
    )


def cost_on_cpu(training: TrainingConfig, seconds: float) -> str:
    """Describe the time of a step, and of all steps if they take more than a week."""
    line = f"a step takes about {seconds:.2g} s here"
    ends_by_steps = not (training.max_minutes or training.patience)
    days = (training.max_steps or 0) * seconds / 86_400 if ends_by_steps else 0
    if days > _MAX_DAYS:
        line += f", and {training.max_steps:,} steps {days:,.0f} days; on a CPU, use model=small"
        line += " schedule=small_data"
    return line
