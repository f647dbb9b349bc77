"""What to look at in a file of translations before trusting it."""

from dataclasses import dataclass

from seq2seq.decoding.translation import Translation

_MAX_LOOP_PIECES = 8
_LOOP_TURNS = 4


@dataclass
class Health:
    """Counts of the lines that look wrong."""

    lines: int = 0
    empty: int = 0
    """No output for a source that is not blank."""
    copied: int = 0
    """The output is the source."""
    repeating: int = 0
    """One to eight pieces occur four times in a row."""
    output_truncated: int = 0
    """The output was ended at the greatest length."""
    source_split: int = 0
    """Longer than a model can be given: translated in segments."""
    source_truncated: int = 0
    """A sentence longer than a model can be given: its end was left out."""
    unknown: int = 0
    """Source pieces that are unknown to the tokenizer."""

    def count(self, source: str, translation: Translation) -> None:
        """Add one line."""
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

    def __str__(self) -> str:
        """One line of all counts."""
        return (
            f"lines: {self.lines:,}; outputs: {self.empty:,} empty, {self.copied:,} equal to their"
            f" source, {self.repeating:,} repeating, {self.output_truncated:,} ended at the"
            f" greatest length; sources: {self.source_split:,} split at sentence ends,"
            f" {self.source_truncated:,} too long (their ends were left out), {self.unknown:,}"
            " unknown pieces"
        )


def repeats(pieces: list[str]) -> bool:
    """Whether the same one to eight pieces occur four times in a row."""
    for size in range(1, _MAX_LOOP_PIECES + 1):
        run = 0
        for i in range(size, len(pieces)):
            run = run + 1 if pieces[i] == pieces[i - size] else 0
            if run == size * (_LOOP_TURNS - 1):
                return True
    return False
