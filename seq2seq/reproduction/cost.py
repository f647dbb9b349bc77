"""The number of operations of a training, counted and as the paper estimates it (Table 2)."""

from seq2seq.model import TransformerConfig

PAPER_MODELS = {
    "base": TransformerConfig(),
    "big": TransformerConfig(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}

TENSOR2TENSOR_ROWS = 40_960
"""Rows of tensor2tensor's shared matrix; together with biases on the attention projections, they
give the parameter counts of Table 3."""

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
    has 2mkn operations. Masked positions of attention are counted too.

    Args:
        config: the hyperparameters of the model.
        vocab_size: rows of the shared matrix.
        source_tokens: source tokens per update.
        target_tokens: target tokens per update.
        source_length: mean source tokens per sentence.
        target_length: mean target tokens per sentence.
    """
    d_model, heads = config.d_model, config.num_heads
    # The multiplications of QK^T and of the weighted sum of V, per pair of positions. W^K and W^V
    # have d_model times as many entries, and so have W^Q and W^O.
    width = heads * config.key_width + heads * config.value_width
    feed_forward = 2 * d_model * config.d_ff
    # Multiplications per token.
    encoder_layer = 2 * d_model * width + feed_forward + width * source_length
    decoder_layer = 3 * d_model * width + feed_forward + width * (target_length + source_length)
    memory = d_model * width  # keys and values of the memory, in each decoder layer
    source = config.num_layers * encoder_layer + config.decoder_depth * memory
    target = config.decoder_depth * decoder_layer + d_model * vocab_size
    return 3 * 2 * (source_tokens * source + target_tokens * target)
