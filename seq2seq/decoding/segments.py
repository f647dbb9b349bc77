"""Segments: the model's inputs, each a line, or a column, a sentence or another part of it.

`make_batches` puts those of similar lengths together, so that little is padded.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, filterfalse
from typing import TYPE_CHECKING

from seq2seq.config import Positions
from seq2seq.decoding.capitals import known_case
from seq2seq.decoding.options import TranslationOptions
from seq2seq.tokenizer import END_ID, UNKNOWN_ID, Tokenizer
from seq2seq.transformer import Transformer
from seq2seq.translate import SearchInput

if TYPE_CHECKING:  # imported when there is one
    from seq2seq.decoding.glossary import Glossary, Term

COLUMN = re.compile(r"\s*[^\t]+(?:\t\s*)?|\s+")
# Text in Chinese or Japanese may follow a URL without a space.
ADDRESS = re.compile(
    r"\W*+ (?: (?i: [a-z][a-z\d+.-]*+:// | www\. )"
    r" | (?> [^@\u2e80-\uffff]+@[^@\u2e80-\uffff]+\.\w ) ) [^\u2e80-\uffff]*",
    re.VERBOSE,
)
_UNITS = (
    "[kmcdµn]?m[²³23]? [kmµ]?g [kmcdµ]?[lL] [mµn]?s [kMGT]?Hz [kMGT]?Wh? [kMm]?V m?A [kM]?J k?cal"
    " [hk]?Pa m?bar dB [kKMGTP]?i?[bB] px pt em °?[CF] K ha km/h m/s mph lbs? oz ft rpm EUR USD"
)
# A number with its unit, or several: 12.5 kg, 20 °C, 12 cm x 30 cm
_MEASURE = rf"[-+±~<>≤≥]?\d[\d.,'’\u00a0\u202f]*+(?:\s?(?:{_UNITS.replace(' ', '|')})(?!\w))?"
MEASURES = re.compile(rf"\s*+{_MEASURE}(?:\s{{0,2}}[x×/–-]\s?{_MEASURE})*\s*")
_NUMBER = r"\d{1,3}(?:\.\d{1,3})*[a-z]?"
_TIME = r"\d{1,2}(?::\d\d){1,2}(?:[.,]\d{1,3})?"
_ROMAN = r"(?=[IVX]{2})X{0,3}(?:I[XV]|V?I{0,3})"
# Labels before a text: marks of a list, numbers of headings, letters of speakers, times.
LABEL = re.compile(
    rf"""
    (?: [-+*•‣◦▪●○■□–—·>\#]+ | [\u2460-\u24ff\u2776-\u2793]
      | \(?(?: {_NUMBER} | {_TIME} | [a-zA-Z] | {_ROMAN} | {_ROMAN.lower()} )\)
      | \[(?: {_NUMBER} | {_TIME} )\] | (?: {_NUMBER} | [A-Z]\d{{0,2}} ):
      | (?:\d{{1,2}}|[A-Z])(?: (?:\.\d{{1,2}})+\. | (?:\.\d{{1,2}}){{2,}} ) | {_ROMAN.lower()}\.
      # No abbreviation, as in "z. B." and "p. 12"
      | (?: [a-z] | (?P<initial>[A-Z]) )\.(?!\s+(?:\w{{1,3}}\.|\d))
      | (?P<ordinal> (?: \d{{1,3}} | {_ROMAN} )\. )
      # No part of a sentence, as in "1.5 million" and "12:30 Uhr"
      | (?P<unclear> (?:\d{{1,3}}|[A-Z])\.\d{{1,2}}(?!\s*[%‰€$£°]) | §+\s?\d+[a-z]?\.?
          | {_TIME}(?:\s?[-–—](?:\s?{_TIME})?)?:?(?!\s*(?:Uhr|[AP]M)\b) )
    )(?: (?<=\])\s* | \s+ | \Z )
    """,
    re.VERBOSE,
)
# Emoji, arrows, notes, boxes and the like, with what changes their looks, and keys such as 1️⃣
_SIGNS = r"\u2190-\u21ff\u2300-\u23ff\u2500-\u27bf\u27f0-\u27ff\u2900-\u297f\u2b00-\u2bff"
_SIGNS += r"\U0001f000-\U0001faff"
_LOOKS = r"\u200d\ufe0e\ufe0f\U000e0020-\U000e007f"
SIGNS = re.compile(rf"(?:(?:[{_SIGNS}][{_LOOKS}]*+|[0-9*#]\ufe0f?\u20e3)\s*+)++")
END_OF_LINE = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Where a sentence that is too long is split, the best first: stops, semicolons, commas, spaces.
_BREAKS = (
    r"[.!?…؟۔।။።][^\w\s]{0,9}\s+|[。！？｡][」』）”’]*\s*",
    r"[;؛]\s+|；\s*",
    r"[,،]\s+|[，、]\s*",
    r"\s+",
)
PARTS = tuple(re.compile(rf"(?s).+?(?:{end}|\Z)") for end in _BREAKS)


@dataclass(frozen=True)
class LengthLimits:
    """The most tokens of a source and of its translation, without control symbols and `</s>`."""

    source: int
    target: int
    extra: int  # how many tokens longer than its source a translation may be: 50 in 6.1


def length_limits(
    models: Sequence[Transformer],
    tokenizer: Tokenizer,
    options: TranslationOptions,
    controls: int,
    max_positions: int | None = None,
) -> LengthLimits:
    """Compute how long the texts of models that translate together may be.

    `max_positions` is the limit of their engine, if it has one.
    """
    added, extra = 1 + controls, options.search.max_extra_tokens
    longest = tokenizer.max_source_tokens or options.max_source_tokens
    source = max(1, min(longest, options.max_source_tokens) - added)
    target = source + extra
    if max_positions is not None:
        source = min(source, max_positions - added)
        target = min(target, max_positions - 1)
    for model in models:
        if model.config.positions is Positions.learned:
            # The table bounds the source with its `</s>` and the target with its start symbol.
            positions = max(1 + added, model.config.max_learned_positions)
            source = min(source, positions - added)
            target = min(target, positions - 1)
    return LengthLimits(source, target, extra)


@dataclass(frozen=True)
class Segment(SearchInput):
    """One input of the model, and what is copied around its translation."""

    separator: str = ""  # what stands between it and the next: white space, signs such as emoji
    unknown: int = 0  # number of pieces that are unknown to the tokenizer
    source: str = ""  # its text, without what is copied
    terms: "Sequence[Term]" = ()  # the terms that its translation must contain
    copied: str = ""  # what stands before it: indentation, labels, signs, text without words
    capitals: bool = False  # whether the model reads it in another case: see `known_case`


def make_segments(
    lines: Sequence[str],
    tokenizer: Tokenizer,
    *,
    limits: LengthLimits,
    by_sentence: bool = False,
    language: str = "",
    controls: Sequence[int] = (),
    glossary: "Glossary | None" = None,
) -> list[list[Segment]]:
    """Divide each line into segments, at least one.

    It is divided at tabs, at the ends of sentences if `by_sentence`, and where it is too long. A
    segment in capitals is encoded in the case that the vocabulary knows.
    """
    with_words = has_letters(tokenizer)
    pieces: list[tuple[int, str, str]] = []  # the index of a line, what is copied, and a text
    signs: dict[int, str] = {}  # what is copied after a piece, by its index
    for line_index, line in enumerate(lines):
        texts = COLUMN.findall(line.rstrip("\r\n"))
        if by_sentence:
            from seq2seq.decoding.sentences import split_sentences

            texts = [part for text in texts for part in split_sentences(text, language)]
        for text in texts or [""]:
            start, end = _translated_part(text, tokenizer, language, with_words)
            copied = text[:start]
            for piece in split_text(text[start:end], tokenizer, limits.source, language):
                pieces.append((line_index, copied, piece))
                copied = ""  # it stands before the first piece alone
            signs[len(pieces) - 1] = text[end:]
    sources = [text.strip() for _, _, text in pieces]
    cased = [known_case(source, tokenizer.encode_source, language) for source in sources]
    encoded = tokenizer.encode_source(
        [read.text if read else source for read, source in zip(cased, sources, strict=True)]
    )
    segments_of_lines: list[list[Segment]] = [[] for _ in lines]
    for i, (line_index, copied, text) in enumerate(pieces):
        source, token_ids = sources[i], encoded[i]
        ids = token_ids[: limits.source]  # longer only if a character has more pieces
        segment = Segment(
            source_ids=[*(controls if ids else ()), *ids, END_ID],
            max_length=min(len(ids) + limits.extra, limits.target),
            separator=END_OF_LINE.sub(" ", text[len(text.rstrip()) :] + signs.get(i, "")),
            unknown=token_ids.count(UNKNOWN_ID),
            source=source,
            terms=glossary.find(source) if glossary else (),
            copied=END_OF_LINE.sub(" ", copied),
            capitals=cased[i] is not None,
        )
        segments_of_lines[line_index].append(segment)
    return segments_of_lines


def _translated_part(
    text: str, tokenizer: Tokenizer, language: str, with_words: bool
) -> tuple[int, int]:
    """Return where the words of a text begin and end; what is around them is copied.

    A text without words is copied as a whole, signs only if the vocabulary lacks them. If it is not
    `with_words`, whatever is between white space and signs is translated.
    """
    if with_words and (not has_words(text) or MEASURES.fullmatch(text)):
        return len(text), len(text)
    start, end = len(text) - len(text.lstrip()), len(text)
    found = () if text.isascii() else SIGNS.finditer(text)
    signs = {match.start(): match for match in found if _lacks(tokenizer, match[0])}
    if signs and signs[last := max(signs)].end() == end:
        end = last
    while label := signs.get(start) or (LABEL.match(text, start) if with_words else None):
        if not _is_label(label, language):
            break
        start = label.end()
    return start, max(start, end)


def _lacks(tokenizer: Tokenizer, signs: str) -> bool:
    """Return whether a vocabulary has no pieces for signs, other than single bytes."""
    (ids,) = tokenizer.encode_source([signs])
    return UNKNOWN_ID in ids or any(x.startswith("<0x") for x in tokenizer.source_pieces(ids))


def _is_label(label: re.Match[str], language: str) -> bool:
    from seq2seq.decoding.sentences import abbreviations_of, writes_ordinals

    after = label.string[label.end() : label.end() + 100]  # a word, but not all that follows
    if label.lastgroup == "ordinal" and after:
        return not writes_ordinals(language)
    if label.lastgroup == "initial" and after:  # "A. The dog", but "A. Smith"
        return after.split()[0].lower() in abbreviations_of(language).starters
    return label.lastgroup != "unclear" or not after[:1].islower()


def has_words(text: str) -> bool:
    """Return whether a text has a letter of any script outside URLs and e-mail addresses."""
    words = filterfalse(ADDRESS.fullmatch, text.split())
    letters = filter(str.isalpha, chain.from_iterable(words))
    return any(unicodedata.category(letter) != "Lm" for letter in letters)  # such as ー, 々


def has_letters(tokenizer: Tokenizer) -> bool:
    """Return whether a vocabulary has letters; without any, the texts are digits or signs."""
    controls = tokenizer.controls.values()
    ids = range(END_ID + 1, tokenizer.source_vocab_size)
    return any(i not in controls and has_words(tokenizer.source_pieces([i])[0]) for i in ids)


def split_text(text: str, tokenizer: Tokenizer, max_tokens: int, language: str = "") -> list[str]:
    """Split a text into as few parts of at most `max_tokens` as possible, which make up the text.

    It is split at the ends of sentences; what is still too long at the first of `PARTS` that
    suffices, and at last in halves.
    """

    def fits(piece: str) -> bool:
        # A character is four tokens at most, its bytes.
        few = len(piece) <= max(1, max_tokens // 4)
        return few or len(tokenizer.encode_source([piece])[0]) <= max_tokens

    def divide(piece: str, waiting: Sequence[Callable[[str], list[str]]]) -> Iterator[str]:
        if fits(piece):
            yield piece
            return
        split, *later = waiting
        for part in split(piece):
            yield from divide(part, later or waiting)  # the last of them as often as it takes

    if fits(text):
        return [text]
    from seq2seq.decoding.sentences import split_sentences

    splits: list[Callable[[str], list[str]]] = [
        partial(split_sentences, language=language),
        *(pattern.findall for pattern in PARTS),
        lambda part: [part[: len(part) // 2], part[len(part) // 2 :]],
    ]
    pieces = list(divide(text, splits))
    # Join them while they fit. What is joined may have more tokens than its parts.
    groups: list[str] = []
    start, sizes = 0, list(map(len, tokenizer.encode_source(pieces)))
    while start < len(pieces):
        end, tokens = start + 1, sizes[start]
        while end < len(pieces) and (tokens := tokens + sizes[end]) <= max_tokens:
            end += 1
        while end > start + 1 and not fits("".join(pieces[start:end])):
            end -= 1
        groups.append("".join(pieces[start:end]))
        start = end
    return groups


def make_batches(
    sizes: Sequence[int], batch_tokens: int, workers: int, rounded: Callable[[int], int] = int
) -> list[list[int]]:
    """Divide items into batches of similar size, at least one per worker if there are enough.

    A batch has at most `batch_tokens` tokens, padding counted, or one longer item; `rounded` rounds
    the number of items of a full batch down. Items of size 1, which are `</s>` alone, are skipped.
    """
    # The longest first, so that no worker begins a large batch when the others are done.
    order = sorted((i for i, size in enumerate(sizes) if size > 1), key=lambda i: -sizes[i])
    batches: list[list[int]] = []
    room = 0
    for i in order:
        if not room:  # a batch is as wide as its first item
            room = rounded(max(1, batch_tokens // sizes[i]))
            batches.append([])
        batches[-1].append(i)
        room -= 1
    # If there are few items, divide the batch with the most tokens until every worker has one.
    divisions = [1] * len(batches)

    def tokens(b: int) -> float:
        if divisions[b] == len(batches[b]):
            return 0.0
        return len(batches[b]) * sizes[batches[b][0]] / divisions[b]

    while sum(divisions) < min(workers, len(order)):
        divisions[max(range(len(batches)), key=tokens)] += 1
    divided = []
    for batch, count in zip(batches, divisions, strict=True):
        divided += [batch[start::count] for start in range(count)]
    return divided
