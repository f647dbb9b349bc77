"""Segments: the model's inputs, each a line, a sentence of it or, if it is too long, a part."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from seq2seq.data.tokenizer import END_ID, UNKNOWN_ID, Tokenizer
from seq2seq.decoding.config import DecodingConfig, TranslationOptions
from seq2seq.decoding.sentences import split_sentences
from seq2seq.errors import UserError
from seq2seq.interop.names import MAX_POSITIONS
from seq2seq.model import TransformerConfig
from seq2seq.model.config import Positions


@dataclass(frozen=True)
class Segment:
    """One input of the model."""

    source_ids: list[int]  # token ids, beginning with the control symbols and ending with `</s>`
    max_length: int  # the maximum length of its translation in tokens, `</s>` not counted
    separator: str = ""  # the white space between it and the next segment of the line
    truncated: bool = False  # whether it was too long for the model, and its end was skipped
    unknown: int = 0  # number of pieces that are unknown to the tokenizer
    prefix: str = ""  # the forced beginning of its translation
    prefix_ids: Sequence[int] = ()  # token ids of the prefix
    source: str = ""  # its text, without white space around it


def make_segments(
    lines: Sequence[str],
    prefixes: Sequence[str],
    tokenizer: Tokenizer,
    *,
    max_tokens: int,
    max_output: Callable[[int], int],
    by_sentence: bool = False,
    language: str = "",
    first_line: int = 1,
    controls: Sequence[int] = (),
) -> list[list[Segment]]:
    """Divide each line into segments, at least one; its prefix belongs to the first of them.

    Each has at most `max_tokens` tokens, `</s>` and the control symbols before it not counted.
    `max_output` gives the maximum length of its translation. Without `by_sentence`, only lines that
    are too long are split.
    """
    if len(prefixes) != len(lines):
        raise UserError(f"{len(prefixes)} prefixes for {len(lines)} lines: give one per line")
    encoded = zip(
        lines,
        tokenizer.encode(list(lines)),
        prefixes,
        tokenizer.encode_target(list(prefixes)),
        strict=True,
    )
    segments_of_lines: list[list[Segment]] = []
    for number, (line, line_ids, prefix, prefix_ids) in enumerate(encoded, first_line):
        texts = [(line, line_ids)]
        if line.strip() and (by_sentence or len(line_ids) > max_tokens):
            texts = split_line(line, tokenizer, max_tokens, language, by_sentence=by_sentence)
        segments: list[Segment] = []
        for text, token_ids in texts:
            is_first = not segments
            segment = Segment(
                source_ids=[*(controls if token_ids else ()), *token_ids[:max_tokens], END_ID],
                max_length=max_output(min(len(token_ids), max_tokens)),
                separator=_white_space_after(text),
                truncated=len(token_ids) > max_tokens,
                unknown=token_ids.count(UNKNOWN_ID),
                prefix=prefix if is_first else "",
                prefix_ids=prefix_ids if is_first else (),
                source=text.strip(),
            )
            if len(segment.prefix_ids) > segment.max_length:
                raise UserError(
                    f"line {number}: the prefix has {len(prefix_ids)} tokens, but the translation"
                    f" may have at most {segment.max_length}; shorten the prefix"
                )
            segments.append(segment)
        segments_of_lines.append(segments)
    return segments_of_lines


def split_line(
    line: str,
    tokenizer: Tokenizer,
    max_tokens: int,
    language: str = "",
    *,
    by_sentence: bool = False,
) -> list[tuple[str, list[int]]]:
    """Split a line at sentence ends into as few texts of at most `max_tokens` as possible.

    A sentence longer than that is split wherever a sentence could end; what is still longer stays
    whole. With `by_sentence`, no two sentences are put into one text. The concatenation of the
    texts is the line; each comes with its token ids, without `</s>`.
    """
    sentences = split_sentences(line, language)
    parts = [
        split_sentences(sentence, at_every_stop=True) if len(ids) > max_tokens else [sentence]
        for sentence, ids in zip(sentences, tokenizer.encode(sentences), strict=True)
    ]
    if not by_sentence:
        parts = [list(chain.from_iterable(parts))]
    texts = [text for some in parts for text in _join_while_they_fit(some, tokenizer, max_tokens)]
    return list(zip(texts, tokenizer.encode(texts), strict=True))


def _join_while_they_fit(parts: list[str], tokenizer: Tokenizer, max_tokens: int) -> list[str]:
    groups: list[list[str]] = []
    room = 0
    for part, token_ids in zip(parts, tokenizer.encode(parts), strict=True):
        if not groups or len(token_ids) > room:
            groups.append([])
            room = max_tokens
        groups[-1].append(part)
        room -= len(token_ids)
    return ["".join(group) for group in groups]


def _white_space_after(text: str) -> str:
    """Return the white space at the end of a text, with a space for each end of a line in it."""
    space = text[len(text.rstrip()) :]
    return "".join(" " if character.splitlines() == [""] else character for character in space)


def pair_prefixes(lines: Iterable[str], prefixes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each line with its prefix, as they come."""
    for count, (line, prefix) in enumerate(zip_longest(lines, prefixes)):
        if line is None or prefix is None:
            more, fewer = ("prefixes", "lines") if line is None else ("lines", "prefixes")
            raise UserError(f"there are {count} {fewer} but more {more}: give one prefix per line")
        yield line, prefix


def longest_texts(
    configs: Sequence[TransformerConfig],
    tokenizer: Tokenizer,
    options: TranslationOptions,
    search: DecodingConfig,
    *,
    control_symbols: int,
) -> tuple[int, int]:
    """Compute the most tokens of a source and of a translation, without controls and `</s>`."""
    added = 1 + control_symbols
    longest = tokenizer.max_source_tokens or options.max_source_tokens
    source = max(1, min(longest, options.max_source_tokens) - added)
    target = source + search.max_extra_tokens
    for config in configs:
        if options.engine == "ctranslate2":
            source = min(source, MAX_POSITIONS - 1)
            target = min(target, MAX_POSITIONS - 1)
        if config.positions is Positions.learned:
            # The table bounds the source with its `</s>` and the target with its start symbol.
            positions = max(1 + added, config.max_learned_positions)
            source = min(source, positions - added)
            target = min(target, positions - 1)
    return source, target


def with_end_symbol(encoded: list[list[int]], name: str, longest: int) -> list[list[int]]:
    """Add `</s>` to each line."""
    for number, ids in enumerate(encoded, start=1):
        if len(ids) > longest:
            raise UserError(
                f"line {number}: the {name} has {len(ids)} tokens, at most {longest} can be"
                " scored; skip the pair, or split it"
            )
    return [[*ids, END_ID] for ids in encoded]


def check_length(side: str, ids: Sequence[int], longest: int) -> None:
    """Check that there can be attention to a text."""
    if not ids:
        raise UserError(f"the {side} is blank: attention needs text on both sides")
    if len(ids) > longest:
        raise UserError(f"the {side} has {len(ids)} tokens, at most {longest} are possible")
