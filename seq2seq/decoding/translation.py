"""What becomes of a line: its candidates, and those of a long line's parts joined."""

from dataclasses import dataclass

from seq2seq.decoding.segments import Part


@dataclass(frozen=True)
class Candidate:
    """One translation of a sentence."""

    text: str
    score: float
    """Log-probability divided by the length penalty."""
    pieces: list[str]
    """The subword pieces it is made of."""
    cut: bool
    """It was ended at the greatest length."""


@dataclass(frozen=True)
class Translation:
    """What became of one line."""

    candidates: list[Candidate]
    """The best first, samples as they were drawn; empty for a blank line."""
    source_parts: int = 1
    """A line longer than a model can be given is translated in so many parts, cut at the ends of
    its sentences."""
    source_truncated: bool = False
    """A sentence of the line was longer than a model can be given, and its end was left out."""
    unknown: int = 0
    """Pieces of the line that the tokenizer has no name for."""

    @property
    def text(self) -> str:
        """The best translation; "" for a blank line."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def score(self) -> float:
        """The best translation's score; 0 for a blank line."""
        return self.candidates[0].score if self.candidates else 0.0


def join(found: list[list[Candidate]], parts: list[Part]) -> list[Candidate]:
    """The candidates of a line from those of its parts: the best ones joined, and so on."""
    if len(parts) == 1:
        return found[0]
    told = [(best, part) for best, part in zip(found, parts, strict=True) if best]
    return [
        Candidate(
            "".join(
                candidate.text + part.separator
                for candidate, (_, part) in zip(row, told, strict=True)
            ).rstrip(),
            sum(candidate.score for candidate in row),
            [piece for candidate in row for piece in candidate.pieces],
            any(candidate.cut for candidate in row),
        )
        for row in zip(*(best for best, _ in told), strict=False)
    ]
