"""The configuration of a run: its schema and its checks."""

import math
from dataclasses import dataclass, field

from seq2seq.corpus import DataConfig
from seq2seq.errors import UsageError, check_number
from seq2seq.search import SearchConfig
from seq2seq.settings import fixed, free, place
from seq2seq.sizes import TransformerConfig
from seq2seq.train import TrainingConfig


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
