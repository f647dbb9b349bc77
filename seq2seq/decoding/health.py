"""What to look at in a file of translations before trusting it."""

from dataclasses import dataclass

from seq2seq.decoding.translation import Translation

_LONGEST_LOOP = 8
_TURNS = 4


@dataclass
class Health:
    """Counts of the lines that look wrong."""

    lines: int = 0
    empty: int = 0
    """Nothing came out, though something went in."""
    copied: int = 0
    """The output is the source."""
    repeating: int = 0
    """Up to eight pieces are said four times on end."""
    output_truncated: int = 0
    """The greatest length ended the output."""
    source_split: int = 0
    """Longer than a model can be given: translated sentence by sentence."""
    source_truncated: int = 0
    """A sentence longer than a model can be given lost its end."""
    unknown: int = 0
    """Source pieces that the tokenizer has no name for."""

    def count(self, source: str, translation: Translation) -> None:
        """Take in one line."""
        text = source.strip()
        self.lines += 1
        self.unknown += translation.unknown
        self.source_split += translation.source_parts > 1
        self.source_truncated += translation.source_truncated
        self.empty += bool(text) and not translation.text.strip()
        self.copied += bool(text) and text == translation.text.strip()
        if translation.candidates:
            self.repeating += repeats(translation.candidates[0].pieces)
            self.output_truncated += translation.candidates[0].cut

    def __str__(self) -> str:
        """One line of all counts."""
        return (
            f"lines: {self.lines:,}; outputs: {self.empty:,} empty, {self.copied:,} equal to their"
            f" source, {self.repeating:,} repeating, {self.output_truncated:,} ended at the greatest"
            f" length; sources: {self.source_split:,} split at sentence ends, {self.source_truncated:,}"
            f" too long (their ends were left out), {self.unknown:,} unknown pieces"
        )


def repeats(pieces: list[str]) -> bool:
    """Whether the same one to eight pieces stand four times on end."""
    for size in range(1, _LONGEST_LOOP + 1):
        run = 0
        for i in range(size, len(pieces)):
            run = run + 1 if pieces[i] == pieces[i - size] else 0
            if run == size * (_TURNS - 1):
                return True
    return False
