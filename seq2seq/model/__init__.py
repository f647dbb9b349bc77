"""The model of the paper's Figure 1, and its decoder one token at a time."""

from dataclasses import fields
from importlib import import_module

from seq2seq.model.config import TransformerConfig
from seq2seq.model.incremental import DecoderCache, IncrementalDecoder
from seq2seq.model.transformer import Transformer

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
    """Make the paper's model, or one of `seq2seq.zoo` if the configuration asks for it."""
    sizes = {"vocab_size": vocab_size, "padding_id": padding_id, "start_id": start_id}
    variants = (item for item in fields(config) if "variant" in item.metadata)
    if all(getattr(config, item.name) == item.default for item in variants):
        return Transformer(config, **sizes, init_std=init_std)
    sizes["source_vocab_size"] = source_vocab_size or vocab_size
    zoo = import_module("seq2seq.zoo.modern")
    model: Transformer = zoo.make_variant(config, init_std, **sizes)
    return model
