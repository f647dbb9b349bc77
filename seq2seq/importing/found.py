"""The content of another program's folder."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2seq.importing.vocabulary import Table
from seq2seq.model import TransformerConfig


@dataclass(frozen=True)
class Found:
    """What a folder holds, by Hugging Face's names, in the order of its own rows and features."""

    folder: Path
    config: TransformerConfig
    """Without the choices that the matrices of the vocabulary determine."""
    max_source_tokens: int
    languages: tuple[str, str]
    tables: tuple[Table, Table]
    """The vocabularies of source and target; the same one twice if they share it."""
    weights: dict[str, Tensor]
    """The parameters of all layers."""
    matrices: dict[str, Tensor]
    """By use: source, target and output; what is missing is shared with the one before."""
    bias: Tensor | None
    """Of the logits, (1, V)."""
