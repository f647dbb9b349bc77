"""The model of the paper's Figure 1, and its decoder one token at a time."""

from seq2seq.model.config import TransformerConfig
from seq2seq.model.incremental import DecoderCache, IncrementalDecoder
from seq2seq.model.transformer import Transformer

__all__ = ["DecoderCache", "IncrementalDecoder", "Transformer", "TransformerConfig"]
