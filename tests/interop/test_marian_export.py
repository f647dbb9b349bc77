"""Logits of Hugging Face's MarianMTModel with the weights of a model of this package."""

import warnings

import pytest
import torch

from seq2seq.interop.marian_export import marian_weights
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.variants import make_transformer

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
    model = make_transformer(config, vocab_size=VOCAB, padding_id=PADDING, start_id=START)
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


@pytest.mark.filterwarnings("ignore")
def test_the_same_weights_give_the_same_logits() -> None:
    model, other = ours(), marian()
    missing, unexpected = other.load_state_dict(marian_weights(model), strict=False)
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
