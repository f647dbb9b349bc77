"""Table 3 of the paper (section 6.2): its rows, its scores, and a page that compares others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Setting = int | float | str | None
WIDTHS = ("d_model", "d_ff", "d_k", "d_v")


class Scores(NamedTuple):
    """The scores of a row on a validation set."""

    perplexity: float
    """Per word piece."""
    bleu: float


@dataclass(frozen=True)
class PaperRow:
    """A row of the table: its settings, and its scores on newstest2013."""

    name: str
    """As in conf/experiment/table3/<name>.yaml."""
    settings: Mapping[str, Setting]
    """The settings that differ from base."""
    perplexity: float
    """Per word piece."""
    bleu: float
    millions: int | None = None
    """Parameters in millions, where the paper prints them."""

    @property
    def scores(self) -> Scores:
        """The scores that the paper prints."""
        return Scores(self.perplexity, self.bleu)

    def overrides(self, divisor: int = 1) -> list[str]:
        """Write the settings as overrides of `seq2seq train`, with all widths divided."""
        words = []
        for name, value in self.settings.items():
            section = "training" if name == "label_smoothing" else "model"
            if name in WIDTHS and isinstance(value, int):
                value //= divisor
            words.append(f"{section}.{name}={value}")
        return words


_BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3}

ROWS = (
    PaperRow("base", {}, 4.92, 25.8, 65),
    PaperRow("A_h1", {"num_heads": 1}, 5.29, 24.9),
    PaperRow("A_h4", {"num_heads": 4}, 5.00, 25.5),
    PaperRow("A_h16", {"num_heads": 16}, 4.91, 25.8),
    PaperRow("A_h32", {"num_heads": 32}, 5.01, 25.4),
    PaperRow("B_dk16", {"d_k": 16}, 5.16, 25.1, 58),
    PaperRow("B_dk32", {"d_k": 32}, 5.01, 25.4, 60),
    PaperRow("C_n2", {"num_layers": 2}, 6.11, 23.7, 36),
    PaperRow("C_n4", {"num_layers": 4}, 5.19, 25.3, 50),
    PaperRow("C_n8", {"num_layers": 8}, 4.88, 25.5, 80),
    PaperRow("C_dmodel256", {"d_model": 256}, 5.75, 24.5, 28),
    PaperRow("C_dmodel1024", {"d_model": 1024}, 4.66, 26.0, 168),
    PaperRow("C_dff1024", {"d_ff": 1024}, 5.12, 25.4, 53),
    PaperRow("C_dff4096", {"d_ff": 4096}, 4.75, 26.2, 90),
    PaperRow("D_dropout0", {"dropout": 0.0}, 5.77, 24.6),
    PaperRow("D_dropout02", {"dropout": 0.2}, 4.95, 25.5),
    PaperRow("D_eps0", {"label_smoothing": 0.0}, 4.67, 25.3),
    PaperRow("D_eps02", {"label_smoothing": 0.2}, 5.47, 25.7),
    PaperRow("E_learned_positions", {"positions": "learned"}, 4.92, 25.7),
    PaperRow("big", _BIG, 4.33, 26.4, 213),
)


class Conclusion(NamedTuple):
    """What the paper concludes of two rows."""

    text: str
    better: str
    """A row with the better scores; with `nearly`, one with nearly the same."""
    worse: str
    perplexity: bool = True
    """Whether it is about perplexity, and about BLEU."""
    bleu: bool = True
    nearly: bool = False

    def holds(self, scores: Mapping[str, Scores]) -> list[bool]:
        """Return whether it holds for perplexity and for BLEU, if it is about them."""
        better, worse = scores[self.better], scores[self.worse]
        gains = worse.perplexity / better.perplexity - 1, better.bleu - worse.bleu
        found = []
        for gain, most, concerned in zip(gains, _NEARLY, (self.perplexity, self.bleu), strict=True):
            if concerned:
                found.append(abs(gain) <= most if self.nearly else gain > 0)
        return found


_NEARLY = Scores(0.02, 0.5)
"""Scores are nearly the same with a perplexity within 2 %, and half a point of BLEU."""

CONCLUSIONS = (
    Conclusion("(A) one head is worse than eight", "base", "A_h1"),
    Conclusion("(A) too many heads are worse as well", "base", "A_h32"),
    Conclusion("(B) narrower keys are worse", "base", "B_dk32"),
    Conclusion("(B) the narrowest keys are the worst", "B_dk32", "B_dk16"),
    Conclusion("(C) four layers are better than two", "C_n4", "C_n2"),
    Conclusion("(C) six layers are better than four", "base", "C_n4"),
    Conclusion("(C) eight layers are better than six", "C_n8", "base"),
    Conclusion("(C) a model half as wide is worse", "base", "C_dmodel256"),
    Conclusion("(C) a model twice as wide is better", "C_dmodel1024", "base"),
    Conclusion("(C) a narrower inner layer is worse", "base", "C_dff1024"),
    Conclusion("(C) a wider inner layer is better", "C_dff4096", "base"),
    Conclusion("(D) dropout helps against overfitting", "base", "D_dropout0"),
    Conclusion("(D) label smoothing hurts perplexity", "D_eps0", "base", bleu=False),
    Conclusion("(D) label smoothing improves BLEU", "base", "D_eps0", perplexity=False),
    Conclusion(
        "(E) learned positions: nearly the same", "E_learned_positions", "base", nearly=True
    ),
    Conclusion("the big model is better than base", "big", "base"),
)


def compare(found: Mapping[str, Scores], divisor: int = 1) -> str:
    """Draw the rows that were run beside the paper's, and which of its conclusions hold.

    The difference from base is in parentheses. A row that was not run says so, and so does a
    conclusion of which a row is missing. All widths were divided by `divisor`.
    """
    return "\n".join((*_rows(found, divisor), "", *_conclusions(found), ""))


def _rows(found: Mapping[str, Scores], divisor: int) -> Iterator[str]:
    yield "| row | change | perplexity | the paper's | BLEU | the paper's |"
    yield "|---|---|---|---|---|---|"
    paper = ROWS[0].scores
    for row in ROWS:
        words = (word.partition(".")[2] for word in row.overrides(divisor))
        change = ", ".join(word.replace("=", " ") for word in words)
        perplexity, bleu = "not run", "not run"
        if row.name in found:
            scores = found[row.name]
            perplexity, bleu = f"{scores.perplexity:.2f}", f"{scores.bleu:.2f}"
            if base := found.get("base"):
                perplexity += f" ({scores.perplexity - base.perplexity:+.2f})"
                bleu += f" ({scores.bleu - base.bleu:+.2f})"
        papers = f"{row.perplexity:.2f} ({row.perplexity - paper.perplexity:+.2f})"
        yield (
            f"| {row.name} | {change} | {perplexity} | {papers} |"
            f" {bleu} | {row.bleu} ({row.bleu - paper.bleu:+.1f}) |"
        )


def _conclusions(found: Mapping[str, Scores]) -> Iterator[str]:
    paper = {row.name: row.scores for row in ROWS}
    yield "| conclusion | rows | holds here | in the paper's own numbers |"
    yield "|---|---|---|---|"
    for one in CONCLUSIONS:
        here = _verdict(one, found) if {one.better, one.worse} <= found.keys() else "not run"
        rows = f"{one.better}, {one.worse}"
        yield f"| {one.text} | {rows} | {here} | {_verdict(one, paper)} |"


def _verdict(conclusion: Conclusion, scores: Mapping[str, Scores]) -> str:
    holds = conclusion.holds(scores)
    if len(set(holds)) == 1:
        return "yes" if holds[0] else "no"
    return "by perplexity alone" if holds[0] else "by BLEU alone"
