"""The parts of a Marian model: named parameters, features in an order, vocabularies, files."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from seq2seq.config import TransformerConfig
from seq2seq.errors import UserError
from seq2seq.files import open_regular_file
from seq2seq.interop.pair_tokenizer import check_pieces
from seq2seq.tokenizer import CONTROL_PIECES, PADDING_ID, START_ID
from seq2seq.zoo.modern import modern_choices

EMBEDDINGS = {
    "shared": "model.shared.weight",
    "source": "model.encoder.embed_tokens.weight",
    "target": "model.decoder.embed_tokens.weight",
    "output": "lm_head.weight",
}
OUTPUT_BIAS = "final_logits_bias"

NEVER = -100.0
"""The bias of a piece that no output contains: it leaves nothing of its probability, and a label-
smoothed loss, to which every logit contributes, stays small."""

MAX_POSITIONS = 1088
"""Number of positions to write: enough for 1,024 source tokens and a somewhat longer output."""

MAX_SETTINGS_BYTES = 2**20
"""The largest file of settings that is read."""
MAX_VOCABULARY_BYTES = 64 * 2**20
"""The largest vocabulary or SentencePiece model that is read; OPUS-MT's have one or two MB."""
MAX_WEIGHTS_BYTES = 8 * 2**30

_POINTER = b"version https://git-lfs"


class LayerNames(NamedTuple):
    """A linear layer or a norm, whose parameters are `weight` and `bias`."""

    name: str  # its name in this package
    marian: str  # its name in `MarianMTModel`
    reads_state: bool  # whether its inputs are features of a state; otherwise its outputs are


def layer_names(config: TransformerConfig) -> Iterator[LayerNames]:
    """Yield the names of all linear layers and norms."""
    for side, depth in (("encoder", config.num_layers), ("decoder", config.decoder_depth)):
        modules = [
            ("feed_forward.inner", "fc1", True),
            ("feed_forward.outer", "fc2", False),
            ("feed_forward_norm", "final_layer_norm", False),
        ]
        attentions = {"self_attention": "self_attn"}
        if side == "decoder":
            attentions["cross_attention"] = "encoder_attn"
        for name, marian in attentions.items():
            modules += [(f"{name}.w_{x}", f"{marian}.{x}_proj", True) for x in "qkv"]
            modules.append((f"{name}.w_o", f"{marian}.out_proj", False))
            modules.append((f"{name}_norm", f"{marian}_layer_norm", False))
        for index in range(depth):
            layer = f"{side}.layers.{index}"
            for name, marian, reads_state in modules:
                yield LayerNames(f"{layer}.{name}", f"model.{layer}.{marian}", reads_state)


def features_of_marian(d_model: int) -> Tensor:
    """Return the feature here of each feature in Marian, (D,).

    Marian's positions are all sines, then all cosines, where the paper's alternate, at the same
    angles. So the elements of every state are permuted.
    """
    return torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))


def permute(value: Tensor, layer: LayerNames, order: Tensor) -> Tensor:
    """Put the features of the states that a parameter reads or writes into another order."""
    if not layer.reads_state:
        return value[order]
    return value[:, order] if value.dim() == 2 else value


def check_expressible(config: TransformerConfig, program: str) -> None:
    """Check that the other program, too, can express the model's layers and heads."""
    if choices := modern_choices(config):
        raise UserError(
            f"only models of the paper's layers can be exported to {program}: this one has"
            f" {', '.join(choices)}"
        )
    check_head_width(config, program)


def check_head_width(config: TransformerConfig, program: str) -> None:
    """Check that the heads are as wide as those of the other program."""
    width = config.d_model / config.num_heads
    if (config.key_width, config.value_width) != (width, width):
        raise UserError(
            f"{program}'s heads are d_model / num_heads wide: a model with another d_k or d_v can't"
            " be exported"
        )


NO_ROW = -1


Table: TypeAlias = dict[str, int]
"""A vocabulary in this program's order, the control symbols first: of each piece, its row in the
other program's matrices, or NO_ROW."""


def make_table(
    path: Path, vocabulary: Mapping[str, int], size: int, start_row: int | None = None
) -> Table:
    """Order a vocabulary as this program does: padding, unknown, start, end, then all others.

    Its matrix has `size` rows; `start_row` is the row of the decoder's first input.
    """
    if sorted(vocabulary.values()) != list(range(size)):
        raise UserError(
            f"{path}: the ids of {len(vocabulary):,} pieces are not 0 to {size - 1:,}, each once"
        )
    for token_id, piece in CONTROL_PIECES.items():
        if piece not in vocabulary and token_id not in (PADDING_ID, START_ID):
            raise UserError(f"{path}: has no {piece}")
    rows = {piece: vocabulary.get(piece, NO_ROW) for piece in CONTROL_PIECES.values()}
    rows[CONTROL_PIECES[START_ID]] = NO_ROW if start_row is None else start_row
    for piece in sorted(vocabulary.keys() - rows.keys(), key=vocabulary.__getitem__):
        rows[piece] = vocabulary[piece]
    check_pieces(str(path), list(rows))
    return rows


@dataclass(frozen=True)
class RawModel:
    """The content of a folder, by Hugging Face's names, with rows and features in its own order."""

    folder: Path
    config: TransformerConfig  # without the choices that the matrices of the vocabulary determine
    max_source_tokens: int
    languages: tuple[str, str]
    tables: tuple[Table, Table]  # of source and target; the same one twice if they share it
    weights: dict[str, Tensor]  # the parameters of all layers
    matrices: dict[str, Tensor]  # by use: source, target, output; a missing one is the one before
    bias: Tensor | None  # of the logits, (1, V)


@contextmanager
def open_file(path: Path, max_bytes: int) -> Iterator[BufferedReader]:
    """Open a regular file that is not too large, and not a pointer of Git LFS."""
    with open_regular_file(path, max_bytes) as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise UserError(
                f"{path}: a pointer of Git LFS, not the file itself: fetch it with git lfs pull"
            )
        file.seek(0)
        yield file


def read_file(path: Path, max_bytes: int = MAX_VOCABULARY_BYTES) -> bytes:
    """Read a file that `open_file` opens."""
    with open_file(path, max_bytes) as file:
        return file.read(max_bytes)
