"""What a model weighs and what its training costs (Tables 2 and 3)."""

import torch

from seq2seq.model import TransformerConfig
from seq2seq.storage.checkpoint import new_transformer

P100_FLOPS = 9.5e12
"""The sustained rate of a P100 that the paper's footnote 5 assumes, in single precision."""

AUTHORS_ROWS = 40_960
"""Rows of the authors' shared matrix: with them, and with biases on the attention projections, the
counts of Table 3 come out."""

_SECONDS_A_DAY = 24 * 3600
# 12 hours and 3.5 days on 8 P100 (5.2).
PAPERS_ESTIMATE = {
    "base": 0.5 * _SECONDS_A_DAY * 8 * P100_FLOPS,
    "big": 3.5 * _SECONDS_A_DAY * 8 * P100_FLOPS,
}
"""Floating point operations by section 6.1: training time x number of GPUs x sustained rate."""


def count_parameters(config: TransformerConfig, vocab_size: int) -> int:
    """The numbers that a model would train, counted without making them."""
    with torch.device("meta"):
        model = new_transformer(config, vocab_size)
    return sum(parameter.numel() for parameter in model.parameters())


def step_flops(
    config: TransformerConfig,
    vocab_size: int,
    *,
    source_tokens: float,
    target_tokens: float,
    source_length: float,
    target_length: float,
) -> float:
    """Floating point operations of one update: three times those of the forward matrix products.

    The backward pass has two products for each of the forward pass. A product of (m, k) and (k, n)
    has 2mkn operations; attention is counted over whole sentences, masked or not.

    Args:
        config: of the model.
        vocab_size: rows of the shared matrix.
        source_tokens: of an update.
        target_tokens: of an update.
        source_length: tokens of a sentence.
        target_length: tokens of a sentence.
    """
    heads, width = config.num_heads, config.d_model
    queries, values = heads * config.key_width, heads * config.value_width
    both = queries + values  # QK^T and the weighted sum of V; also the columns of W^K and W^V
    feed_forward = 2 * width * config.d_ff
    # Multiplications a token; W^Q and W^O together have as many entries as W^K and W^V.
    source_layer = 2 * width * both + feed_forward + both * source_length
    target_layer = 3 * width * both + feed_forward + both * (target_length + source_length)
    memory = width * both  # keys and values of the encoder's states, in each decoder layer
    source = config.num_layers * (source_layer + memory)
    target = config.num_layers * target_layer + width * vocab_size
    return 3 * 2 * (source_tokens * source + target_tokens * target)
