"""Texts and files of requests, their translations, and files to be fetched."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from seq2seq.decoding.alignment import Alignment
from seq2seq.decoding.translation import Translation
from seq2seq.documents.document import Document, File
from seq2seq.documents.translate import Plan
from seq2seq.server.service import Model, suspicions


@dataclass(frozen=True)
class Source:
    """A text or a file of a request, and what is to be translated of it."""

    document: Document | File
    plan: Plan
    model: Model | None
    """None if it stays as it is."""


@dataclass(frozen=True)
class TranslatedText:
    """A text's translation, as the interface shows it."""

    text: str | bytes
    alternatives: list[str | bytes]
    details: list[dict[str, Any]]
    truncated: bool = False
    """Whether the model could not read or write a sentence to its end."""

    @classmethod
    def of(cls, source: Source, alignments: Sequence[Sequence[Alignment]]) -> "TranslatedText":
        """Put the translations of a source together.

        The alternatives are made of the second candidates of all lines, of the third ones, and so
        on; a line that has fewer gives its last. Equal ones are skipped. For each of these ranks
        there are the alignments that the plan asks for.
        """
        document, plan = source.document, source.plan
        if source.model is None:
            return cls(document.join([None] * len(document.texts)), [], [])
        most = max((len(translation.candidates) for translation in plan.translations), default=0)
        texts = [
            document.join(plan.place(of_rank, rank))
            for rank, of_rank in enumerate(alignments[: max(most, 1)])
        ]
        text, *others = dict.fromkeys(texts)
        details = [
            _details(part, its)
            for line, translation in zip(plan.lines, plan.translations, strict=True)
            for _, part, its in (
                translation.parts if translation.source_segments > 1 else [("", line, translation)]
            )
            if its.candidates
        ]
        truncated = any(
            translation.source_truncated
            or any(best.truncated for best in translation.candidates[:1])
            for translation in plan.translations
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


_MAX_FILES = 100
_MAX_BYTES = 32 * 2**20
_KEPT_SECONDS = 600.0


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
