"""The configuration of a run: its schema, and how it is read from a run folder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
from yaml import CollectionEndEvent, CollectionStartEvent, YAMLError

from seq2seq.data.config import DataConfig
from seq2seq.decoding.config import SearchConfig
from seq2seq.errors import UsageError, UserError, check_number
from seq2seq.files.strict import MAX_BYTES, read_regular_file
from seq2seq.model import TransformerConfig
from seq2seq.settings import fixed, free, place
from seq2seq.storage.run_folder import RunFolder
from seq2seq.training.config import TrainingConfig

_MAX_DEPTH = 10


@dataclass(kw_only=True)
class Config:
    """The configuration of a run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: TransformerConfig = field(default_factory=TransformerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
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


def read_config(run: Path) -> Config:
    """Read the configuration of a run; keys added since then have their defaults."""
    path = RunFolder(run).config
    if not path.exists():
        raise UserError(f"{path}: no such file; give the folder of a run")
    try:
        text = read_regular_file(path, MAX_BYTES).decode()
        _check_syntax(text)
        saved = OmegaConf.create(text)
        _check_values(OmegaConf.to_container(saved))
        merged = OmegaConf.merge(OmegaConf.structured(Config), saved)
        _check_values(OmegaConf.to_container(merged))
        config = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, YAMLError, ValueError, RecursionError, UserError) as error:
        if isinstance(error, ConfigKeyError):
            raise UserError(
                f"{path}: this version has no key {error.full_key}: remove the line, or use the"
                " version that wrote it"
            ) from error
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{path}: not a configuration of this program: {reason}") from error
    assert isinstance(config, Config)
    return config


def trained_bleu_tokenizer(models: Sequence[str]) -> str | None:
    """Return the tokenizer of the BLEU by which all these models were validated, or None."""
    found: set[str | None] = set()
    for model in models:
        try:
            found.add(read_config(Path(model)).bleu_tokenizer)
        except UserError:  # a model folder has no configuration
            found.add(None)
    return found.pop() if len(found) == 1 else None


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
