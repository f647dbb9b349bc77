"""Texts of several lines: split for the translator, and put together from its translations."""

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from starlette.exceptions import HTTPException

from seq2seq.decoding.translation import Translation
from seq2seq.serving.html import Document
from seq2seq.serving.requests import invalid
from seq2seq.serving.service import suspicions


@dataclass(frozen=True)
class Lines:
    """The lines of a text, and the line ends between them, which stay as they are."""

    lines: list[str]
    ends: list[str]

    @classmethod
    def of(cls, text: str) -> "Lines":
        """Split a text at its line feeds; a carriage return before one belongs to it."""
        parts = re.split(r"(\r?\n)", text)
        return cls(parts[::2], [*parts[1::2], ""])

    def join(self, translated: list[str]) -> str:
        """Replace these lines by translated ones."""
        return "".join(line + end for line, end in zip(translated, self.ends, strict=True))


@dataclass(frozen=True)
class TranslatedText:
    """A text's translation, as the interface shows it."""

    text: str
    alternatives: list[str]
    details: list[dict[str, Any]]
    truncated: bool = False
    """Whether the model could not read or write a sentence to its end."""

    @classmethod
    def of(cls, source: "Source", translations: list[Translation]) -> "TranslatedText":
        """Join the translations of a text's lines.

        The alternatives are made of the second candidates of all lines, of the third ones, and so
        on; a line that has fewer gives its last. Equal ones are skipped.
        """
        most = max((len(translation.candidates) for translation in translations), default=0)
        texts = []
        for rank in range(max(most, 1)):
            line_texts = [
                translation.candidates[min(rank, len(translation.candidates) - 1)].text
                if translation.candidates
                else ""
                for translation in translations
            ]
            texts.append(source.join(line_texts))
        text, *others = dict.fromkeys(texts)
        details = [
            _details(*part)
            for line, translation in zip(source.lines, translations, strict=True)
            for part in translation.parts or [(line, translation)]
            if translation.candidates
        ]
        truncated = any(
            translation.source_truncated
            or any(best.truncated for best in translation.candidates[:1])
            for translation in translations
        )
        return cls(text, others, details, truncated)


def _details(source: str, translation: Translation) -> dict[str, Any]:
    """Describe the translation of a sentence, or of a line if lines are not split."""
    best, *others = translation.candidates
    return {
        "source": source,
        "text": best.text,
        "score": best.score,
        "pieces": best.pieces,
        "truncated": best.truncated,
        "unknown": translation.unknown,
        "suspect": suspicions(source, translation),
        "alternatives": [{"text": other.text, "score": other.score} for other in others],
    }


SUFFIXES = (".txt", ".srt")

_MAX_FILES = 100
_MAX_BYTES = 32 * 2**20
_KEPT_SECONDS = 600.0
# 00:00:01,000 --> 00:00:02,500, and coordinates perhaps, with the number of the subtitle before it
_HEAD = re.compile(
    r"(?<![^\r\n])(?:[ \t]*+\d++[ \t]*+[\r\n]\s*+)?"
    r"[ \t]*+[0-9:.,]++[ \t]*+-->[ \t]*+[0-9:.,]++[^\r\n]*+"
)
# <i>, </font>, {\an8}, {y:i}, a blank line, or the line end before another speaker's dash
_GAP = re.compile(
    r"</?[A-Za-z][^<>]*>|\{(?:\\|[A-Za-z]:)[^{}]*\}"
    r"|\n[ \t\r]*\n|\r[ \t]*\r|[\r\n](?=[ \t]*[-–—](?![-–—]))"
)


def decode_file(name: str, content: bytes) -> tuple[str, str]:
    """Return the suffix, one of SUFFIXES, and the text of an uploaded file."""
    suffix = name[-4:].lower()
    if suffix not in SUFFIXES:
        raise invalid(f"file format is not supported: choose {', '.join(SUFFIXES)}")
    try:
        return suffix, content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise invalid("the file is not UTF-8") from None


@dataclass(frozen=True)
class Subtitles:
    """A SubRip file: texts to translate, and all that stays between them."""

    lines: list[str]
    """The texts, each without tags and on one line."""
    rest: list[str]
    """What stands before each text, and after the last."""
    line_counts: list[int]
    """The number of lines that each text had."""

    @classmethod
    def of(cls, content: str) -> "Subtitles":
        """Find the texts of a file; whatever is not the text of a subtitle stays as it is."""
        texts: list[str] = []
        rest: list[str] = []
        line_counts: list[int] = []
        done = 0
        heads = list(_HEAD.finditer(content))
        if not heads:
            raise invalid(
                "no subtitle was recognised: write times as 00:00:01,000 --> 00:00:02,500"
            )
        for head, following in zip_longest(heads, heads[1:]):
            start, end = head.end(), following.start() if following else len(content)
            for gap in [*_GAP.finditer(content, start, end), None]:
                part = content[start : gap.start() if gap else end]
                if bare := part.strip():
                    begin = start + part.index(bare)
                    rest.append(content[done:begin])
                    done = begin + len(bare)
                    lines = bare.splitlines()
                    texts.append(" ".join(line.strip() for line in lines))
                    line_counts.append(len(lines))
                start = gap.end() if gap else end
        return cls(texts, [*rest, content[done:]], line_counts)

    def join(self, translated: list[str]) -> str:
        """Replace the texts by translations."""
        newline = next(end for end in ("\r\n", "\n", "\r", "") if end in "".join(self.rest))
        parts = [self.rest[0]]
        for text, count, rest in zip(translated, self.line_counts, self.rest[1:], strict=True):
            parts += [newline.join(break_lines(text, count)), rest]
        return "".join(parts)


Source = Document | Lines | Subtitles
"""A text with lines to translate, and more around them."""


def break_lines(text: str, count: int) -> list[str]:
    """Break a text at spaces into at most `count` lines of similar length."""
    lines: dict[int, list[str]] = {}
    start = 0
    for word in text.split(" "):
        middle = start + (len(word) - 1) / 2
        lines.setdefault(int(count * middle / max(len(text), 1)), []).append(word)
        start += len(word) + 1
    return [" ".join(words) for words in lines.values()]


class Downloads:
    """Translated files, kept in memory for ten minutes, under names that can't be guessed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def keep(self, content: bytes, suffix: str) -> str:
        """Keep a file, drop the oldest if there are too many, and return its name."""
        name = secrets.token_urlsafe(24) + suffix
        self._files[name] = (self._clock(), content)
        self._forget()
        return name

    def find(self, name: str) -> bytes:
        """Return the content of a file."""
        self._forget()
        if name not in self._files:
            raise HTTPException(404, "no such file; it may have expired: send it again")
        return self._files[name][1]

    def _forget(self) -> None:
        oldest = self._clock() - _KEPT_SECONDS
        total = sum(len(content) for _, content in self._files.values())
        for name, (begun, content) in list(self._files.items()):
            if begun >= oldest and total <= _MAX_BYTES and len(self._files) <= _MAX_FILES:
                break
            total -= len(content)
            del self._files[name]
