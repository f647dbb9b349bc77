"""Parity with Hugging Face's MarianMTModel, weights copied over."""

import warnings

import pytest
import torch

from seq2seq.model import Transformer, TransformerConfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", reason="an extra of the tests")

D_MODEL, HEADS, LAYERS, D_FF, VOCAB, PADDING, START = 32, 4, 3, 48, 29, 0, 2


def ours() -> Transformer:
    config = TransformerConfig(
        num_layers=LAYERS,
        d_model=D_MODEL,
        d_ff=D_FF,
        num_heads=HEADS,
        attention_bias=True,
        layer_norm_epsilon=1e-5,
    )
    torch.manual_seed(3)
    model = Transformer(config, vocab_size=VOCAB, padding_id=PADDING, start_id=START)
    for parameter in model.parameters():  # no bias and no norm is trivial
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.double().eval()


def marian() -> torch.nn.Module:
    config = transformers.MarianConfig(
        vocab_size=VOCAB,
        d_model=D_MODEL,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=D_FF,
        decoder_ffn_dim=D_FF,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PADDING,
        decoder_start_token_id=START,
        eos_token_id=3,
        forced_eos_token_id=3,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    return transformers.MarianMTModel(config).double().eval()


def copied(model: Transformer) -> dict[str, torch.Tensor]:
    """Our weights under Marian's names.

    Marian's sinusoids are all sines, then all cosines, of the same angles as the paper's, which
    alternate: so its features are ours in another order, everywhere.
    """
    order = torch.cat((torch.arange(0, D_MODEL, 2), torch.arange(1, D_MODEL, 2)))
    weights = {"model.shared.weight": model.embedding.weight[:, order]}

    def norm(name: str, layer: torch.nn.LayerNorm) -> None:
        weights[f"{name}.weight"] = layer.weight[order]
        weights[f"{name}.bias"] = layer.bias[order]

    def attention(name: str, layer: torch.nn.Module) -> None:
        projection = layer.projection
        matrices, biases = projection.weight.chunk(3), projection.bias.chunk(3)
        for part, weight, bias in zip("qkv", matrices, biases, strict=True):
            weights[f"{name}.{part}_proj.weight"] = weight[:, order]
            weights[f"{name}.{part}_proj.bias"] = bias
        weights[f"{name}.out_proj.weight"] = layer.output.weight[order]
        weights[f"{name}.out_proj.bias"] = layer.output.bias[order]

    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for index, layer in enumerate(layers):
            name = f"model.{side}.layers.{index}"
            attention(f"{name}.self_attn", layer.self_attention)
            norm(f"{name}.self_attn_layer_norm", layer.after_self_attention.norm)
            if side == "decoder":
                attention(f"{name}.encoder_attn", layer.memory_attention)
                norm(f"{name}.encoder_attn_layer_norm", layer.after_memory_attention.norm)
            weights[f"{name}.fc1.weight"] = layer.feed_forward.inner.weight[:, order]
            weights[f"{name}.fc1.bias"] = layer.feed_forward.inner.bias
            weights[f"{name}.fc2.weight"] = layer.feed_forward.outer.weight[order]
            weights[f"{name}.fc2.bias"] = layer.feed_forward.outer.bias[order]
            norm(f"{name}.final_layer_norm", layer.after_feed_forward.norm)
    return {name: value.detach().clone() for name, value in weights.items()}


@pytest.mark.filterwarnings("ignore")
def test_the_same_weights_give_the_same_logits() -> None:
    model, other = ours(), marian()
    missing, unexpected = other.load_state_dict(copied(model), strict=False)
    assert not unexpected
    # The tied copies of the shared matrix, the constant sinusoids and a bias of zeros.
    tied = ("embed_tokens.weight", "embed_positions.weight", "lm_head.weight", "logits_bias")
    assert all(name.endswith(tied) for name in missing)
    other.tie_weights()
    # Loading in float64 left the sinusoids in float32's precision: the paper's, in Marian's order.
    for stack in (other.model.encoder, other.model.decoder):
        table = stack.embed_positions.weight
        position = torch.arange(len(table), dtype=torch.float64).unsqueeze(1)
        angle = position / 10000 ** (torch.arange(0, D_MODEL, 2, dtype=torch.float64) / D_MODEL)
        exact = torch.cat((angle.sin(), angle.cos()), dim=1)
        torch.testing.assert_close(table.double(), exact, rtol=0, atol=1e-6)
        stack.embed_positions.weight = torch.nn.Parameter(exact, requires_grad=False)

    generator = torch.Generator().manual_seed(4)
    source = torch.randint(4, VOCAB, (5, 9), generator=generator)
    source[1, 6:] = source[3, 2:] = PADDING
    target_input = torch.randint(4, VOCAB, (5, 7), generator=generator)
    target_input[:, 0] = START
    with torch.no_grad():
        expected = other(
            input_ids=source,
            attention_mask=(source != PADDING).long(),
            decoder_input_ids=target_input,
        ).logits
        found = model(source, target_input)
    assert (found - expected).abs().max() < 1e-9
