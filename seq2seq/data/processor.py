"""SentencePiece models of any origin, read within bounds, and any text encoded by them."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TypeAlias

from sentencepiece import SentencePieceProcessor

from seq2seq.errors import UserError

MAX_PIECES = 1_000_000
"""The largest vocabulary that is read; parsing takes memory before anything can be checked."""

MAX_PIECE = 1000
"""Characters of a piece, and bytes that a normalization writes for one character; SentencePiece
makes pieces of at most 16. Longer ones would make gigabytes of a short line."""

threads = os.cpu_count() or 1
"""Of SentencePiece; one in each of several processes that encode."""

FEW_TEXTS = 64
"""Handled one by one: for a list, SentencePiece starts threads, even for one text."""

PRIVATE = str.maketrans({"▁": "\U0010fffd", "▅": "\U0010fffc"})
"""What stands for characters that SentencePiece reserves, in a vocabulary whose text has them."""

Span: TypeAlias = tuple[int, int]
"""Where a piece stands in its text: its first character, and the one after its last."""

_VARINT, _LENGTH_DELIMITED = 0, 2  # the wire types of numbers, and of texts and messages
_NORMALIZERS = (3, 5)  # numbers in SentencePiece's ModelProto: normalizer_spec, denormalizer_spec
_CHARACTER_TABLE = 2  # in NormalizerSpec: precompiled_charsmap


@contextmanager
def tokenizer_errors(path: Path) -> Iterator[None]:
    """Turn the errors of a tokenizer, from a file or folder of that path, into user errors."""
    try:
        yield
    except (ValueError, RuntimeError, IndexError, UserError) as error:
        known = isinstance(error, ValueError | UserError)
        reason = str(error) if known else "a SentencePiece model can't be parsed"
        raise UserError(
            f"{path}: the tokenizer can't be read: {reason}; copy the folder again"
        ) from None


def read_processor(model_bytes: bytes) -> SentencePieceProcessor:
    """Parse a model with pieces of bounded length; ValueError or RuntimeError if it can't be."""
    if not model_bytes:
        raise ValueError("it is empty")
    _check_sizes(model_bytes)
    processor = SentencePieceProcessor(model_proto=model_bytes)
    # A piece that is not UTF-8 is an error here rather than in a translation.
    written = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    if max(map(len, [*written, processor.decode([processor.unk_id()])])) > MAX_PIECE:
        raise ValueError(f"it has a piece of more than {MAX_PIECE:,} characters")
    return processor


def encode_with(processor: SentencePieceProcessor, texts: list[str], out_type: type) -> Any:
    """Encode texts to lists of ids (int) or pieces (str); a lone surrogate reads as U+FFFD."""
    texts = readable(processor, texts)
    if len(texts) <= FEW_TEXTS:
        return [processor.encode(text, out_type=out_type) for text in texts]
    return processor.encode(texts, out_type=out_type, num_threads=threads)


def spans_with(processor: SentencePieceProcessor, text: str) -> list[Span]:
    """Return the spans of the pieces of a text, with the spaces before them.

    Of the pieces of one character, such as its bytes, the last has the character.
    """
    (text,) = readable(processor, [text])
    spans: list[Span] = processor.encode(text, return_type="offset_mapping")["offsets"]
    return spans


def move_spans(spans: Sequence[Span], normalized: str, text: str) -> Sequence[Span]:
    """Move spans from a normalized text to the text itself, as a whole in words that changed."""
    if normalized == text:
        return spans
    words, originals = (re.findall(r"\w+|\W", either) for either in (normalized, text))
    moved: list[Span] = []  # of each character, and of the end
    end = 0
    matcher = SequenceMatcher(None, words, originals, autojunk=False)
    for tag, first, last, first_original, last_original in matcher.get_opcodes():
        start, end = end, end + sum(map(len, originals[first_original:last_original]))
        if tag == "equal":
            moved += [(i, i + 1) for i in range(start, end)]
        else:
            moved += [(start, end)] * sum(map(len, words[first:last]))
    moved.append((end, end))
    return [(moved[i][0], moved[j - 1][1] if i < j else moved[i][0]) for i, j in spans]


def readable(processor: SentencePieceProcessor, texts: list[str]) -> list[str]:
    """Replace lone surrogates, and the characters of `PRIVATE` if the vocabulary has those."""
    escapes = processor.piece_to_id(PRIVATE[ord("▁")]) != processor.unk_id()
    whole = map(without_lone_surrogates, texts)
    return [text.translate(PRIVATE) for text in whole] if escapes else list(whole)


def _check_sizes(model_bytes: bytes) -> None:
    """Refuse what takes memory beyond the size of the model, before SentencePiece parses it."""
    for count, (number, content) in enumerate(_fields(model_bytes), start=1):
        if count > MAX_PIECES:
            raise ValueError(f"it has more than {MAX_PIECES:,} pieces")
        if number in _NORMALIZERS:
            for inner, table in _fields(content):
                # The length of an index, the index, what is written for each match.
                written = table[4 + int.from_bytes(table[:4], "little") :]
                if inner == _CHARACTER_TABLE and re.search(rb"[^\0]{%d}" % MAX_PIECE, written):
                    raise ValueError(f"it writes more than {MAX_PIECE:,} bytes for a character")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the texts and messages within a message of Protocol Buffers, by their numbers."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        length = 0
        if tag & 7 == _LENGTH_DELIMITED:
            length, position = _read_varint(message, position)
            yield tag >> 3, message[position : position + length]
        elif tag & 7 == _VARINT:
            _, position = _read_varint(message, position)
        else:
            raise ValueError("it can't be parsed")
        position += length
    if position > len(message):
        raise ValueError("it is cut short")


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    """Read a Protocol Buffers varint; return it and the position after it."""
    value = shift = 0
    while shift < 64:
        byte = content[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ValueError("it can't be parsed")


def without_lone_surrogates(text: str) -> str:
    """Replace each half of a surrogate pair that stands alone by U+FFFD."""
    # UTF-16 joins the two halves of a pair, which UTF-8 can't encode either.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
