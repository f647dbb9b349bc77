"""The limits that Marian and CTranslate2 share."""

from seq2seq.errors import UserError
from seq2seq.model import TransformerConfig

MAX_POSITIONS = 1088
"""Number of positions to write: enough for 1,024 source tokens and a somewhat longer output."""


def check_expressible(config: TransformerConfig, program: str) -> None:
    """Check that both programs can express the model's heads.

    Args:
        config: the hyperparameters of the model.
        program: the name of the program, for the message.

    Raises:
        UserError: if heads are not d_model / num_heads wide.
    """
    width = config.d_model / config.num_heads
    if (config.key_width, config.value_width) != (width, width):
        raise UserError(
            f"{program}'s heads are d_model / num_heads wide: a model with another d_k or d_v can't"
            " be exported"
        )
