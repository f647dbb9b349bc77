"""A SentencePiece model: read without trust, and asked for the pieces of texts and their spans."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, TypeAlias

from sentencepiece import SentencePieceProcessor

MAX_PIECES = 1_000_000
"""The largest vocabulary that is read; parsing takes memory before anything can be checked."""

MAX_PIECE = 1000
"""Characters of a piece, and bytes that a normalization writes for one character; SentencePiece
makes pieces of at most 16. Longer ones would make gigabytes of a short line."""

_VARINT, _LENGTH_DELIMITED = 0, 2  # the wire types of numbers, and of texts and messages
_NORMALIZERS = (3, 5)  # numbers in SentencePiece's ModelProto: normalizer_spec, denormalizer_spec
_CHARACTER_TABLE = 2  # in NormalizerSpec: precompiled_charsmap


def read_processor(model_bytes: bytes) -> SentencePieceProcessor:
    """Parse a model with pieces of bounded length; ValueError or RuntimeError if it can't be."""
    if not model_bytes:
        raise ValueError("it is empty")
    _check_sizes(model_bytes)
    processor = SentencePieceProcessor(model_proto=model_bytes)
    # A piece that is not UTF-8 is an error here rather than in a translation.
    written = processor.id_to_piece(list(range(processor.get_piece_size())))
    if max(map(len, [*written, processor.decode([processor.unk_id()])])) > MAX_PIECE:
        raise ValueError(f"it has a piece of more than {MAX_PIECE:,} characters")
    return processor


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
    value = 0
    for i in range(10):
        byte = content[position + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, position + i + 1
    raise ValueError("it can't be parsed")


# The pieces of texts.


threads = os.cpu_count() or 1
"""The threads of SentencePiece; 1 in each of several processes that encode."""

FEW_TEXTS = 64
"""The number of texts that are handled one by one: for a list, SentencePiece starts threads."""

PRIVATE = str.maketrans({"▁": "\U0010fffd", "▅": "\U0010fffc"})
"""Stand-ins for characters that SentencePiece reserves, in a vocabulary whose text has them."""


def encode_with(processor: SentencePieceProcessor, texts: list[str], out_type: type) -> Any:
    """Encode texts to lists of ids (int) or pieces (str); a lone surrogate reads as U+FFFD."""
    texts = readable(processor, texts)
    if len(texts) <= FEW_TEXTS:
        return [processor.encode(text, out_type=out_type) for text in texts]
    return processor.encode(texts, out_type=out_type, num_threads=threads)


def readable(processor: SentencePieceProcessor, texts: list[str]) -> list[str]:
    """Replace lone surrogates, and the characters of `PRIVATE` if the vocabulary has those."""
    escapes = processor.piece_to_id(PRIVATE[ord("▁")]) != processor.unk_id()
    whole = map(without_lone_surrogates, texts)
    return [text.translate(PRIVATE) for text in whole] if escapes else list(whole)


def without_lone_surrogates(text: str) -> str:
    """Replace each half of a surrogate pair that stands alone by U+FFFD."""
    # UTF-16 joins the two halves of a pair, which UTF-8 can't encode either.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# The spans of pieces in their text.


Span: TypeAlias = tuple[int, int]
"""Where a piece stands in its text: its first character, and the one after its last."""


def spans_with(processor: SentencePieceProcessor, text: str) -> list[Span]:
    """Return the spans of the pieces of a text, with the spaces before them.

    Of the pieces of one character, such as its bytes, the last has the character.
    """
    (text,) = readable(processor, [text])
    spans: list[Span] = processor.encode(text, return_type="offset_mapping")["offsets"]
    return spans


_WORD = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")  # with the spaces before it


def move_spans(spans: Sequence[Span], normalized: str, text: str) -> Sequence[Span]:
    """Move spans from a normalized text to the text itself, as a whole in words that changed."""
    if normalized == text:
        return spans
    words, originals = (_WORD.findall(each.rstrip()) for each in (normalized, text))
    moved: list[Span] = []  # of each character, and of the end
    end = 0
    for first, last, first_original, last_original in _pairs(words, originals):
        word = "".join(words[first:last])
        original = "".join(originals[first_original:last_original])
        start, end = end, end + len(original)
        bare, bare_original = word.lstrip(), original.lstrip()
        begin = end - len(bare_original)
        moved += [(start, begin)] * (len(word) - len(bare))
        if bare == bare_original:
            moved += [(i, i + 1) for i in range(begin, end)]
        else:
            moved += [(begin, end)] * len(bare)
    moved += [(end, len(text))] * (len(normalized) - len(moved))
    moved.append((len(text), len(text)))
    return [(moved[i][0], moved[j - 1][1] if i < j else moved[i][0]) for i, j in spans]


def _pairs(words: list[str], originals: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield which words were made of which original ones: one by one if as many changed."""
    bare, bare_originals = ([word.strip() for word in each] for each in (words, originals))
    for first, last, first_original, last_original in _blocks(bare, bare_originals):
        if last - first == last_original - first_original:
            for i, j in zip(range(first, last), range(first_original, last_original), strict=True):
                yield i, i + 1, j, j + 1
        else:
            yield first, last, first_original, last_original


_MOST_COMPARED = 100  # words; the time to compare them grows with their cube


def _blocks(words: list[str], originals: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the blocks of `SequenceMatcher`, between words that each text has only once.

    If there are many words between two of these, all of them are one block.
    """
    counts, original_counts = Counter(words), Counter(originals)
    places = {word: j for j, word in enumerate(originals) if original_counts[word] == 1}
    anchors = [
        (i, places[word]) for i, word in enumerate(words) if word in places and counts[word] == 1
    ]
    start = original_start = 0
    for i, j in (*anchors, (len(words), len(originals))):
        if j < original_start:  # the word has moved
            continue
        if max(i - start, j - original_start) > _MOST_COMPARED:
            yield start, i, original_start, j
        else:
            between = words[start:i], originals[original_start:j]
            for _, a, b, c, d in SequenceMatcher(None, *between, autojunk=False).get_opcodes():
                yield start + a, start + b, original_start + c, original_start + d
        if i < len(words):
            yield i, i + 1, j, j + 1
        start, original_start = i + 1, j + 1
