"""What Marian and CTranslate2 can't express, and how long their sentences may be."""

from seq2seq.errors import UserError
from seq2seq.model import TransformerConfig
from seq2seq.model.config import Start

MAX_POSITIONS = 1088
"""Positions that are written: enough for a source of 1,024 tokens and a somewhat longer output."""


def check_expressible(config: TransformerConfig, program: str) -> None:
    """Refuse a model whose heads or start symbol neither program can express.

    Args:
        config: of the model.
        program: its name, for the message.

    Raises:
        UserError: if heads are not d_model / num_heads wide, or the decoder starts with zeros.
    """
    width = config.d_model / config.num_heads
    if (config.key_width, config.value_width) != (width, width):
        raise UserError(
            f"{program}'s heads are d_model / num_heads wide: a model with another d_k or d_v can't"
            " be exported"
        )
    if config.start is not Start.symbol:
        raise UserError(
            f"{program} starts with the embedding of a symbol: a model that starts with zeros can't"
            " be exported"
        )
