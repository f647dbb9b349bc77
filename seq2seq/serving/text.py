"""Texts of several lines: split for the translator, and put together from its translations."""

from dataclasses import dataclass
from typing import Any, Protocol

from seq2seq.decoding.translation import Translation
from seq2seq.serving.service import suspicions


class Source(Protocol):
    """Something with lines to translate, and more around them."""

    @property
    def lines(self) -> list[str]:
        """The lines to translate."""

    def join(self, translated: list[str]) -> str:
        """Put translated lines in the place of these."""


@dataclass(frozen=True)
class Lines:
    """The lines of a text, and the line ends between them, which stay as they are."""

    lines: list[str]
    ends: list[str]

    @classmethod
    def of(cls, text: str) -> "Lines":
        """Split a text at its line feeds; a carriage return before one belongs to it."""
        parts = text.split("\n")
        ends = ["\r\n" if part.endswith("\r") else "\n" for part in parts[:-1]]
        bare = [part.removesuffix("\r") for part in parts[:-1]]
        return cls([*bare, parts[-1]], [*ends, ""])

    def join(self, translated: list[str]) -> str:
        """Put translated lines in the place of these."""
        return "".join(line + end for line, end in zip(translated, self.ends, strict=True))


@dataclass(frozen=True)
class TranslatedText:
    """A text's translation, as the interface shows it."""

    text: str
    alternatives: list[str]
    details: list[dict[str, Any]]

    @classmethod
    def of(cls, source: Source, translations: list[Translation]) -> "TranslatedText":
        """Join the translations of a text's lines.

        The alternatives are made of the second candidates of all lines, of the third ones, and so
        on; a line that has fewer gives its last. Equal ones are left out.
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
        return cls(text, others, details)


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
