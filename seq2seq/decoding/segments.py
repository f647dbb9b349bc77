"""Segments: what a model is given of a line, all of it or, if it is too long, some sentences."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from seq2seq.data.tokenizer import END_ID, UNKNOWN_ID, Tokenizer
from seq2seq.errors import UserError

# A full stop or the like, closing quotes and brackets, then a space; full stops of scripts that put
# no space there are enough by themselves. The possessive quantifiers (`++`) keep the time linear in
# the length of any line.
_SENTENCE = re.compile(
    r"""
    (?!\Z)
    (?: [^.!?…。！？]++ | [.!?…]++ (?! ["'”’»)\]]* (?: \s | \Z )) )*+
    (?: [.!?…]++ ["'”’»)\]]*+ | [。！？]++ [」』）]*+ | \Z )
    \s*
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Segment:
    """One input of the model."""

    source_ids: list[int]
    """Ends with `</s>`."""
    max_length: int
    """Most tokens of its translation, `</s>` not counted."""
    separator: str = ""
    """Between its translation and the next segment's: a space or nothing."""
    truncated: bool = False
    """A sentence longer than a model can be given, whose end was left out."""
    unknown: int = 0
    """Pieces that are unknown to the tokenizer."""
    prefix: str = ""
    """The forced beginning of its translation."""
    prefix_ids: Sequence[int] = ()
    """Token ids of the prefix."""


def make_segments(
    lines: Sequence[str],
    prefixes: Sequence[str],
    tokenizer: Tokenizer,
    *,
    max_tokens: int,
    max_output: Callable[[int], int],
    first_line: int = 1,
) -> list[list[Segment]]:
    """The segments of each line, at least one; a prefix belongs to its line's first segment.

    Args:
        lines: sources.
        prefixes: the forced beginning of each line's translation, "" for none.
        tokenizer: the model's.
        max_tokens: of a segment, `</s>` not counted.
        max_output: most tokens of the translation of that many tokens.
        first_line: the number of the first line, for messages.

    Raises:
        UserError: if there is not one prefix per line, or one is longer than max_output.
    """
    if len(prefixes) != len(lines):
        raise UserError(f"{len(prefixes)} prefixes for {len(lines)} lines: give one a line")
    encoded = zip(
        lines,
        tokenizer.encode(list(lines)),
        prefixes,
        tokenizer.encode(list(prefixes)),
        strict=True,
    )
    segments_of_lines: list[list[Segment]] = []
    for number, (line, line_ids, prefix, prefix_ids) in enumerate(encoded, first_line):
        texts = [(line, line_ids)]
        if len(line_ids) > max_tokens:
            texts = split_line(line, tokenizer, max_tokens)
        segments: list[Segment] = []
        for text, token_ids in texts:
            is_first = not segments
            segment = Segment(
                source_ids=[*token_ids[:max_tokens], END_ID],
                max_length=max_output(min(len(token_ids), max_tokens)),
                separator=" " if text[-1:].isspace() else "",
                truncated=len(token_ids) > max_tokens,
                unknown=token_ids.count(UNKNOWN_ID),
                prefix=prefix if is_first else "",
                prefix_ids=prefix_ids if is_first else (),
            )
            if len(segment.prefix_ids) > segment.max_length:
                raise UserError(
                    f"line {number}: the prefix has {len(prefix_ids)} tokens, more than the"
                    f" {segment.max_length} that the translation may have; shorten it"
                )
            segments.append(segment)
        segments_of_lines.append(segments)
    return segments_of_lines


def split_line(line: str, tokenizer: Tokenizer, max_tokens: int) -> list[tuple[str, list[int]]]:
    """Split a line at the ends of its sentences into the fewest texts of at most `max_tokens`.

    A sentence that is longer by itself stays whole.

    Returns:
        Texts that joined are the line, each with its token ids.
    """
    sentences = _SENTENCE.findall(line)
    groups: list[list[str]] = []
    room = 0
    for sentence, token_ids in zip(sentences, tokenizer.encode(sentences), strict=True):
        if len(token_ids) > room:
            groups.append([])
            room = max_tokens
        groups[-1].append(sentence)
        room -= len(token_ids)
    texts = ["".join(group) for group in groups]
    return list(zip(texts, tokenizer.encode(texts), strict=True))


def pair_prefixes(lines: Iterable[str], prefixes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line with its prefix, as they come.

    Raises:
        UserError: if one side ends before the other.
    """
    for count, (line, prefix) in enumerate(zip_longest(lines, prefixes)):
        if line is None or prefix is None:
            more, fewer = ("prefixes", "lines") if line is None else ("lines", "prefixes")
            raise UserError(f"there are {count} {fewer} and more {more}: give one prefix a line")
        yield line, prefix
