"""The lengths of text that a model accepts."""

from collections.abc import Sequence

from seq2seq.data.tokenizer import END_ID, Tokenizer
from seq2seq.decoding.config import DecodingConfig, TranslationOptions
from seq2seq.errors import UserError
from seq2seq.export.limits import MAX_POSITIONS
from seq2seq.model import TransformerConfig
from seq2seq.model.config import Positions


def longest_texts(
    configs: Sequence[TransformerConfig],
    tokenizer: Tokenizer,
    options: TranslationOptions,
    search: DecodingConfig,
    *,
    control_symbols: int,
) -> tuple[int, int]:
    """Compute the most tokens of a source and of a translation.

    Neither counts `</s>` or the control symbols that stand before the source.
    """
    added = 1 + control_symbols
    longest = tokenizer.max_source_tokens or options.max_source_tokens
    source = max(1, min(longest, options.max_source_tokens) - added)
    target = source + search.max_extra_tokens
    for config in configs:
        if options.engine == "ctranslate2":
            source = min(source, MAX_POSITIONS - 1)
            target = min(target, MAX_POSITIONS - 1)
        if config.positions is Positions.learned:
            # The table bounds the source with its `</s>` and the target with its start symbol.
            positions = max(1 + added, config.max_learned_positions)
            source = min(source, positions - added)
            target = min(target, positions - 1)
    return source, target


def with_end_symbol(encoded: list[list[int]], name: str, longest: int) -> list[list[int]]:
    """Add `</s>` to each line.

    Raises:
        UserError: if a line has more than `longest` tokens.
    """
    for number, ids in enumerate(encoded, start=1):
        if len(ids) > longest:
            raise UserError(
                f"line {number}: the {name} has {len(ids)} tokens, at most {longest} can be"
                " scored; leave the pair out, or split it"
            )
    return [[*ids, END_ID] for ids in encoded]


def check_length(side: str, ids: Sequence[int], longest: int) -> None:
    """Check that there can be attention to a text.

    Raises:
        UserError: if it is blank or has more than `longest` tokens.
    """
    if not ids:
        raise UserError(f"the {side} is blank: attention needs text on both sides")
    if len(ids) > longest:
        raise UserError(f"the {side} has {len(ids)} tokens, at most {longest} are possible")
