"""What Figure 1 of the paper draws.

One key to the shapes, used in every docstring and wherever a shape changes:

    B  sentences in a batch         D  d_model
    S  source tokens                H  heads
    T  target tokens                K  d_k (and d_v, where a comment says so)
    V  vocabulary                   F  d_ff
    N  rows of a beam search, B x beam_size, the beams of a sentence next to each other

`padding_mask` is True where there is padding; `attention_mask` is True where a position may be
attended to.
"""

from seq2seq.model.cache import DecoderCache
from seq2seq.model.config import TransformerConfig
from seq2seq.model.transformer import Memory, Transformer

__all__ = ["DecoderCache", "Memory", "Transformer", "TransformerConfig"]
