"""The model of the paper's Figure 1, its variants, and its decoder one token at a time."""

from seq2seq.model.config import Activation, Positions, Start, TransformerConfig
from seq2seq.model.incremental import DecoderCache, IncrementalDecoder
from seq2seq.model.modern import ModernTransformer
from seq2seq.model.transformer import Transformer
from seq2seq.model.variants import VariantTransformer

__all__ = [
    "DecoderCache",
    "IncrementalDecoder",
    "Transformer",
    "TransformerConfig",
    "make_transformer",
]


def make_transformer(
    config: TransformerConfig,
    *,
    vocab_size: int,
    padding_id: int = 0,
    start_id: int = 0,
    source_vocab_size: int | None = None,
    init_std: float | None = None,
) -> Transformer:
    """Make the paper's model, or a variant or a modern one if the configuration asks for it."""
    sizes = {"vocab_size": vocab_size, "padding_id": padding_id, "start_id": start_id}
    if all(getattr(config, name) == value for name, value in _PAPER.items()):
        return Transformer(config, **sizes, init_std=init_std)
    sizes["source_vocab_size"] = source_vocab_size or vocab_size
    kind = ModernTransformer if config.modern_choices else VariantTransformer
    return kind(config, **sizes, init_std=init_std)


_PAPER = {
    "positions": Positions.sinusoidal,
    "start": Start.symbol,
    "activation": Activation.relu,
    "shared_embedding": True,
    "tied_output": True,
    "output_bias": False,
    "modern_choices": [],
}
