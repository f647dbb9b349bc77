"""Counts of suspicious translations."""

from dataclasses import asdict, dataclass

from seq2seq.decoding.translation import Translation

_MAX_LOOP_PIECES = 8
_LOOP_TURNS = 4


@dataclass
class Health:
    """Counts of the lines that need a look before the translations are used."""

    lines: int = 0
    empty: int = 0
    """Lines without output whose source is not blank."""
    copied: int = 0
    """Lines whose output is the source."""
    repeating: int = 0
    """Lines in whose output the same one to eight pieces occur four times in a row."""
    output_truncated: int = 0
    """Lines whose output was cut off at the maximum length."""
    source_split: int = 0
    """Lines translated in more than one segment."""
    source_truncated: int = 0
    """Lines with a sentence longer than the model accepts, whose end was left out."""
    unknown: int = 0
    """Source pieces that are unknown to the tokenizer, in all lines."""

    def count(self, source: str, translation: Translation) -> None:
        """Count one line and its translation."""
        text = source.strip()
        self.lines += 1
        self.unknown += translation.unknown
        self.source_split += translation.source_segments > 1
        self.source_truncated += translation.source_truncated
        self.empty += bool(text) and not translation.text.strip()
        self.copied += bool(text) and text == translation.text.strip()
        if translation.candidates:
            self.repeating += repeats(translation.candidates[0].pieces)
            self.output_truncated += translation.candidates[0].truncated

    def __add__(self, other: "Health") -> "Health":
        """Return the counts of two texts together."""
        theirs = asdict(other)
        return Health(**{name: count + theirs[name] for name, count in asdict(self).items()})

    def __str__(self) -> str:
        """Return all counts, on one line."""
        return (
            f"lines: {self.lines:,}; outputs: {self.empty:,} empty, {self.copied:,} equal to their"
            f" source, {self.repeating:,} repeating, {self.output_truncated:,} cut off at the"
            f" maximum length; sources: {self.source_split:,} split at sentence ends,"
            f" {self.source_truncated:,} too long (their ends were left out), {self.unknown:,}"
            " unknown pieces"
        )


def repeats(pieces: list[str]) -> bool:
    """Return whether the same one to eight pieces occur four times in a row."""
    for size in range(1, _MAX_LOOP_PIECES + 1):
        run = 0
        for i in range(size, len(pieces)):
            run = run + 1 if pieces[i] == pieces[i - size] else 0
            if run == size * (_LOOP_TURNS - 1):
                return True
    return False
