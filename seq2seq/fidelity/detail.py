"""A detail of the paper: the claims of text and tensor2tensor, and a measure to compare with them.

The paper is Vaswani et al. (2017), *Attention Is All You Need*; tensor2tensor is its authors' code
at publication, in June 2017. By default this project follows the paper, and tensor2tensor where the
paper is silent and in the shares of label smoothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias

import torch

from seq2seq.corpus import DataConfig
from seq2seq.model_folder import new_transformer
from seq2seq.search import SearchConfig
from seq2seq.sizes import TransformerConfig
from seq2seq.train import TrainingConfig
from seq2seq.transformer import Transformer

_VOCAB_SIZE = 509  # enough rows for statistics


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The model to examine, with the configuration of its training, search and data."""

    model: Transformer
    vocab_size: int
    """Rows of the shared matrix in training; an untrained model has fewer."""
    training: TrainingConfig
    search: SearchConfig
    data: DataConfig
    run: Path | None = None
    """The run folder, if the model was trained."""

    @property
    def recipe(self) -> str:
        """`base` or `big`: the recipe of the paper that applies to a model of this size."""
        config = self.model.config
        big = (config.d_model, config.d_ff, config.num_heads) == (1024, 4096, 16)
        return "big" if big else "base"


def new_model(config: TransformerConfig, init_std: float | None = None) -> Transformer:
    """Make an untrained model with a small vocabulary; every call gives the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return new_transformer(config, _VOCAB_SIZE, init_std=init_std)


@dataclass(frozen=True)
class Finding:
    """What was measured, and whether it agrees with the paper and with tensor2tensor."""

    here: str
    paper: bool
    tensor2tensor: bool

    @classmethod
    def both(cls, here: str, right: bool) -> Self:
        """Make a finding for claims that agree, or of which only one is made."""
        return cls(here, right, right)

    @property
    def differs(self) -> bool:
        """Whether it agrees neither with the paper nor with tensor2tensor."""
        return not self.paper and not self.tensor2tensor


Measure: TypeAlias = Callable[[Subject], Finding]


@dataclass(frozen=True)
class Detail:
    """A row of the report: one thing that a reproduction can get wrong.

    The claim of the paper, or of tensor2tensor, is None where it is silent, or not known.
    """

    name: str
    """With the section of the paper."""
    paper: str | None
    tensor2tensor: str | None
    measure: Measure

    def __call__(self, subject: Subject) -> Finding:
        """Measure the subject."""
        return self.measure(subject)


def detail(
    name: str, *, paper: str | None, tensor2tensor: str | None
) -> Callable[[Measure], Detail]:
    """Decorate a measure with the claims to compare it with, which makes it a row of the report.

    The rows are in the order of the modules in `report.DETAILS` and of the definitions in each.
    """
    return lambda measure: Detail(name, paper, tensor2tensor, measure)
