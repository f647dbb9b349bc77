"""The rows of Table 3 of the paper (section 6.2), as settings of `seq2seq train`."""

from collections.abc import Mapping
from dataclasses import dataclass

Setting = int | float | str | None
WIDTHS = ("d_model", "d_ff", "d_k", "d_v")


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
