"""Hugging Face's Marian: a folder for `MarianMTModel` and `MarianTokenizer`."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import safetensors.torch
import torch
from torch import Tensor, nn

from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID, UNKNOWN_ID
from seq2seq.errors import UserError
from seq2seq.export import LONGEST
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.config import Positions, Start
from seq2seq.model.layers import DecoderLayer, EncoderLayer
from seq2seq.storage.atomic import write_folder
from seq2seq.storage.checkpoint import TrainedModel

MARIAN_LAYER_NORM_EPSILON = 1e-5
"""Fixed in `MarianMTModel`; ours is 1e-6 by default, which moves logits by less than 1e-4."""


def write_marian(folder: Path, trained: TrainedModel) -> None:
    """Write a folder for `MarianMTModel.from_pretrained` and `MarianTokenizer.from_pretrained`.

    Its `generate` divides a hypothesis' log-probability by length^length_penalty, ours by
    ((5 + length) / 6)^alpha: with beam search the two may choose differently.

    Raises:
        UserError: the model has what Marian has not, or the folder can't be written.
    """
    config, pieces = trained.model.config, trained.tokenizer.pieces
    _check_expressible(config)
    vocabulary = {
        piece: number
        for number, piece in enumerate(pieces(list(range(trained.tokenizer.vocab_size))))
    }
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": trained.source_language,
        "target_lang": trained.target_language,
        "unk_token": pieces([UNKNOWN_ID])[0],
        "eos_token": pieces([END_ID])[0],
        "pad_token": pieces([PADDING_ID])[0],
    }
    write_folder(
        folder,
        {
            "model.safetensors": safetensors.torch.save(marian_weights(trained.model)),
            "config.json": _json(_marian_config(config, trained.model.vocab_size)),
            "generation_config.json": _json(_generation()),
            "tokenizer_config.json": _json(tokenizer),
            "vocab.json": _json(vocabulary),
            "source.spm": trained.tokenizer.model_bytes,
            "target.spm": trained.tokenizer.model_bytes,
        },
    )


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Our weights under Marian's names.

    Marian's sinusoids are all sines, then all cosines, of the same angles as the paper's, which
    alternate: so its features are ours in another order, everywhere.
    """
    d_model = model.config.d_model
    order = torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))
    weights = {
        "model.shared.weight": model.embedding.weight[:, order],
        "final_logits_bias": model.embedding.weight.new_zeros(1, model.vocab_size),
    }

    def linear(name: str, weight: Tensor, bias: Tensor | None) -> None:
        weights[f"{name}.weight"] = weight
        weights[f"{name}.bias"] = weight.new_zeros(len(weight)) if bias is None else bias

    def norm(name: str, layer: nn.LayerNorm) -> None:
        linear(name, layer.weight[order], layer.bias[order])

    def attention(name: str, layer: MultiHeadAttention) -> None:
        weight, bias = layer.projection.weight, layer.projection.bias
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        for part, matrix, offset in zip("qkv", weight.chunk(3), biases, strict=True):
            linear(f"{name}.{part}_proj", matrix[:, order], offset)
        bias = layer.output.bias
        linear(
            f"{name}.out_proj", layer.output.weight[order], None if bias is None else bias[order]
        )

    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for index, layer in enumerate(cast(Iterable[EncoderLayer | DecoderLayer], layers)):
            name = f"model.{side}.layers.{index}"
            attention(f"{name}.self_attn", layer.self_attention)
            norm(f"{name}.self_attn_layer_norm", layer.after_self_attention.norm)
            if isinstance(layer, DecoderLayer):
                attention(f"{name}.encoder_attn", layer.cross_attention)
                norm(f"{name}.encoder_attn_layer_norm", layer.after_cross_attention.norm)
            inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
            linear(f"{name}.fc1", inner.weight[:, order], inner.bias)
            linear(f"{name}.fc2", outer.weight[order], outer.bias[order])
            norm(f"{name}.final_layer_norm", layer.after_feed_forward.norm)
    return {name: value.detach().clone().contiguous() for name, value in weights.items()}


def _check_expressible(config: TransformerConfig) -> None:
    """Refuse what Marian has no place for."""
    width = config.d_model // config.num_heads
    if (config.key_width, config.value_width) != (width, width):
        raise UserError("Marian's heads are d_model / num_heads wide: this model's are not")
    if config.positions is not Positions.sinusoidal:
        raise UserError(f"Marian has the paper's sinusoids: no {config.positions.value} positions")
    if config.start is not Start.symbol:
        raise UserError("Marian starts with a symbol's embedding: this model with zeros")


def _marian_config(config: TransformerConfig, vocab_size: int) -> dict[str, Any]:
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", config.num_layers),
            ("attention_heads", config.num_heads),
            ("ffn_dim", config.d_ff),
        )
    }
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": vocab_size,
        "decoder_vocab_size": vocab_size,
        "d_model": config.d_model,
        **sizes,
        "activation_function": "relu",
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.relu_dropout,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "max_position_embeddings": LONGEST,
        "pad_token_id": PADDING_ID,
        "bos_token_id": START_ID,
        "eos_token_id": END_ID,
        "decoder_start_token_id": START_ID,
        "forced_eos_token_id": None,
    }


def _generation() -> dict[str, Any]:
    return {
        "pad_token_id": PADDING_ID,
        "bos_token_id": START_ID,
        "eos_token_id": END_ID,
        "decoder_start_token_id": START_ID,
        "bad_words_ids": [[PADDING_ID], [START_ID]],
        "num_beams": 4,
        "length_penalty": 0.6,
        "max_length": 512,
    }


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False).encode()
