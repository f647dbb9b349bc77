"""What is read from another program's folder: its files, its vocabularies and its tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2seq.data.pair_tokenizer import check_pieces
from seq2seq.data.tokenizer import CONTROL_PIECES, PADDING_ID, START_ID
from seq2seq.errors import UserError
from seq2seq.files.strict import open_regular_file, parse_json, read_regular_file
from seq2seq.model import TransformerConfig

MAX_SETTINGS_BYTES = 2**20
"""The largest file of settings that is read."""
MAX_VOCABULARY_BYTES = 64 * 2**20
"""The largest vocabulary or SentencePiece model that is read; OPUS-MT's have one or two MB."""

_POINTER = b"version https://git-lfs"


def read_file(path: Path, max_bytes: int) -> bytes:
    """Read a regular file that `check_file` accepts."""
    check_file(path, max_bytes)
    return read_regular_file(path, max_bytes)


def check_file(path: Path, max_bytes: int) -> None:
    """Check that a file is regular, not too large, and not a pointer of Git LFS."""
    with open_regular_file(path, max_bytes) as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise UserError(
                f"{path}: a pointer of Git LFS, not the file itself: fetch it with git lfs pull"
            )


NO_ROW = -1


@dataclass(frozen=True)
class Table:
    """A vocabulary in this program's order: the control symbols first."""

    pieces: list[str]
    rows: list[int]  # of each piece in the other program's matrices; NO_ROW if there is none


def read_vocabulary(path: Path, size: int) -> dict[str, int]:
    """Read a JSON object from piece to id, of a matrix with `size` rows."""
    content = read_file(path, MAX_VOCABULARY_BYTES)
    vocabulary: dict[str, int] = parse_json(path, content, dict[str, int])
    check_ids(path, vocabulary, size)
    return vocabulary


def check_ids(path: Path, vocabulary: Mapping[str, int], size: int) -> None:
    """Check that the ids are integers, and that each row has exactly one piece."""
    if len(vocabulary) != size:
        raise UserError(
            f"{path}: {len(vocabulary):,} pieces, but the matrix has {size:,} rows by config.json"
        )
    for expected, row in enumerate(sorted(vocabulary.values())):
        if row != expected:
            raise UserError(f"{path}: the ids are not 0 to {size - 1}, each once: {row}")


def make_table(path: Path, vocabulary: Mapping[str, int], start_row: int | None = None) -> Table:
    """Order a vocabulary as this program does: padding, unknown, start, end, then all others.

    `start_row`, for a target's vocabulary, is the row of the decoder's first input.
    """
    for token_id, piece in CONTROL_PIECES.items():
        if piece not in vocabulary and token_id not in (PADDING_ID, START_ID):
            raise UserError(f"{path}: has no {piece}")
    rows = {piece: vocabulary.get(piece, NO_ROW) for piece in CONTROL_PIECES.values()}
    rows[CONTROL_PIECES[START_ID]] = NO_ROW if start_row is None else start_row
    others = sorted(vocabulary.keys() - rows.keys(), key=vocabulary.__getitem__)
    pieces = [*rows, *others]
    try:
        check_pieces(path.name, pieces)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    return Table(pieces, [*rows.values(), *(vocabulary[piece] for piece in others)])


@dataclass(frozen=True)
class RawModel:
    """What a folder holds, by Hugging Face's names, in the order of its own rows and features."""

    folder: Path
    config: TransformerConfig  # without the choices that the matrices of the vocabulary determine
    max_source_tokens: int
    languages: tuple[str, str]
    tables: tuple[Table, Table]  # of source and target; the same one twice if they share it
    weights: dict[str, Tensor]  # the parameters of all layers
    matrices: dict[str, Tensor]  # by use: source, target, output; a missing one is the one before
    bias: Tensor | None  # of the logits, (1, V)
