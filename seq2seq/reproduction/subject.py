"""What is examined, and what an examination finds."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seq2seq.data.corpus import DataConfig
from seq2seq.decoding.beam_search import SearchConfig
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.storage.checkpoint import new_transformer
from seq2seq.training.config import TrainingConfig

# Rows of a fresh model's matrix: enough for statistics, and the width of nothing else.
_FEW_ROWS = 509


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A live model and the configuration of its training, its search and its data."""

    model: Transformer
    fresh: Transformer
    """The same model before its first update."""
    vocab_size: int
    training: TrainingConfig
    search: SearchConfig
    data: DataConfig
    run: Path | None = None
    """The run folder, where the model was trained."""

    @property
    def is_big(self) -> bool:
        """The paper's big model, whose recipe is not the base model's."""
        config = self.model.config
        return (config.d_model, config.d_ff, config.num_heads) == (1024, 4096, 16)

    @property
    def recipe(self) -> str:
        """The recipe of the paper that it is held against."""
        return "big" if self.is_big else "base"


def untrained(
    config: TransformerConfig, training: TrainingConfig, search: SearchConfig, data: DataConfig
) -> Subject:
    """What a training with this configuration would start from."""
    model = fresh_model(config)
    return Subject(
        model=model,
        fresh=model,
        vocab_size=data.tokenizer.vocab_size,
        training=training,
        search=search,
        data=data,
    )


def trained(
    model: Transformer,
    training: TrainingConfig,
    search: SearchConfig,
    data: DataConfig,
    run: Path,
) -> Subject:
    """A model that was trained in a run folder."""
    return Subject(
        model=model,
        fresh=fresh_model(replace(model.config, num_layers=1)),
        vocab_size=model.vocab_size,
        training=training,
        search=search,
        data=data,
        run=run,
    )


def fresh_model(config: TransformerConfig) -> Transformer:
    """A new model with a small vocabulary, the same at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return new_transformer(config, _FEW_ROWS)


@dataclass(frozen=True)
class Finding:
    """What was measured, and whose it is."""

    here: str
    """In words and numbers."""
    paper: bool | None
    """As the paper's text; None where it is silent."""
    authors: bool | None
    """As the authors' code of 2017; None where nothing is known of it."""

    @property
    def differs(self) -> bool:
        """Neither as the paper nor, or not known to be, as the authors' code."""
        return not self.paper and not self.authors

    @property
    def verdict(self) -> str:
        """One of four."""
        if self.differs:
            return "differs"
        if self.paper and self.authors:
            return "as the paper and the authors' code"
        return "as the paper" if self.paper else "as the authors' code"
