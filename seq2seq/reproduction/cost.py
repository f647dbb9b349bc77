"""What a training costs: the paper's estimate, and the operations of ours (Table 2)."""

from seq2seq.model import TransformerConfig

PAPER_MODELS = {
    "base": TransformerConfig(),
    "big": TransformerConfig(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}

TENSOR2TENSOR_ROWS = 40_960
"""Rows of tensor2tensor's shared matrix: with them, and with biases on the attention projections,
the counts of Table 3 come out."""

_P100_FLOPS_PER_SECOND = 9.5e12  # sustained, in single precision (footnote 5)
_DAY = 24 * 3600
PAPER_FLOPS = {
    "base": 0.5 * _DAY * 8 * _P100_FLOPS_PER_SECOND,
    "big": 3.5 * _DAY * 8 * _P100_FLOPS_PER_SECOND,
}
"""Floating-point operations as section 6.1 estimates them: training time (12 hours and 3.5 days,
section 5.2) x number of GPUs x sustained rate."""


def step_flops(
    config: TransformerConfig,
    vocab_size: int,
    *,
    source_tokens: float,
    target_tokens: float,
    source_length: float,
    target_length: float,
) -> float:
    """Count the floating-point operations of one update: three times the forward matrix products.

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
    d_model, heads = config.d_model, config.num_heads
    # QK^T and the weighted sum of V; also the rows of W^K and W^V.
    both = heads * config.key_width + heads * config.value_width
    feed_forward = 2 * d_model * config.d_ff
    # Multiplications a token; W^Q and W^O together have as many entries as W^K and W^V.
    encoder_layer = 2 * d_model * both + feed_forward + both * source_length
    decoder_layer = 3 * d_model * both + feed_forward + both * (target_length + source_length)
    memory = d_model * both  # keys and values of the encoder's states, in each decoder layer
    source = config.num_layers * (encoder_layer + memory)
    target = config.num_layers * decoder_layer + d_model * vocab_size
    return 3 * 2 * (source_tokens * source + target_tokens * target)
