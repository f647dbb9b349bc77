"""The floating-point operations of an update (Table 2)."""

from seq2seq.sizes import Activation, TransformerConfig


def step_flops(
    config: TransformerConfig,
    vocab_size: int,
    *,
    source_tokens: float,
    target_tokens: float,
    source_length: float,
    target_length: float,
) -> float:
    """Count the floating-point operations of one update: three times the forward matmuls.

    The backward pass has two matmuls for each of the forward pass. A matmul of (m, k) and (k, n)
    has 2mkn operations. Masked positions of attention are counted too.

    Tokens are counted per update, and lengths are means per sentence.
    """
    d_model, heads = config.d_model, config.num_heads
    # The multiplications of QK^T and of the weighted sum of V, per pair of positions. W^Q and W^O
    # have d_model times as many entries; so have W^K and W^V, unless several heads share them.
    width = heads * (config.key_width + config.value_width)
    kv_width = config.kv_heads * (config.key_width + config.value_width)
    matrices = 3 if config.activation is Activation.swiglu else 2
    feed_forward = matrices * d_model * config.inner_width
    # Multiplications per token.
    self_attention, cross = d_model * (width + kv_width), d_model * width
    encoder_layer = self_attention + feed_forward + width * source_length
    decoder_layer = self_attention + cross + feed_forward + width * (target_length + source_length)
    memory = d_model * kv_width  # keys and values of the memory, in each decoder layer
    source = config.num_layers * encoder_layer + config.decoder_depth * memory
    target = config.decoder_depth * decoder_layer + d_model * vocab_size
    return 3 * 2 * (source_tokens * source + target_tokens * target)
