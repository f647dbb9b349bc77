"""Export to Hugging Face's Marian: a folder for `MarianMTModel` and `MarianTokenizer`."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID, UNKNOWN_ID
from seq2seq.errors import UserError
from seq2seq.export.limits import MAX_POSITIONS, check_expressible
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.config import Positions
from seq2seq.model.transformer import DecoderLayer, EncoderLayer, MultiHeadAttention
from seq2seq.storage.atomic import write_folder
from seq2seq.storage.checkpoint import TrainedModel


def write_marian(folder: Path, trained: TrainedModel) -> None:
    """Write a folder for `MarianMTModel.from_pretrained` and `MarianTokenizer.from_pretrained`.

    Beam search may choose differently, because `generate` divides a log-probability by
    length^length_penalty, and this package by ((5 + length) / 6)^alpha.

    Raises:
        UserError: if Marian can't express the model, or the folder can't be written.
    """
    config, pieces = trained.model.config, trained.tokenizer.pieces
    check_expressible(config, "Marian")
    if config.positions is not Positions.sinusoidal:
        raise UserError(
            f"Marian has sinusoidal positions only: a model with {config.positions.value} positions"
            " can't be exported"
        )
    all_pieces = pieces(list(range(trained.tokenizer.vocab_size)))
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
            "vocab.json": _json({piece: i for i, piece in enumerate(all_pieces)}),
            "source.spm": trained.tokenizer.model_bytes,
            "target.spm": trained.tokenizer.model_bytes,
        },
    )


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights under Marian's names.

    Marian's positions are all sines, then all cosines, where the paper's alternate, at the same
    angles. So the elements of every state are permuted. The epsilon of Marian's norms is always
    1e-5; for a model with 1e-6, logits differ by less than 1e-4.
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

    def reads_state(name: str, layer: nn.Linear) -> None:  # permute the columns
        linear(name, layer.weight[:, order], layer.bias)

    def writes_state(name: str, layer: nn.Linear | nn.LayerNorm) -> None:  # permute the rows
        linear(name, layer.weight[order], None if layer.bias is None else layer.bias[order])

    def attention(name: str, layer: MultiHeadAttention) -> None:
        reads_state(f"{name}.q_proj", layer.w_q)
        reads_state(f"{name}.k_proj", layer.w_k)
        reads_state(f"{name}.v_proj", layer.w_v)
        writes_state(f"{name}.out_proj", layer.w_o)

    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for index, layer in enumerate(stack.layers):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            name = f"model.{side}.layers.{index}"
            attention(f"{name}.self_attn", layer.self_attention)
            writes_state(f"{name}.self_attn_layer_norm", layer.self_attention_norm)
            if isinstance(layer, DecoderLayer):
                attention(f"{name}.encoder_attn", layer.cross_attention)
                writes_state(f"{name}.encoder_attn_layer_norm", layer.cross_attention_norm)
            reads_state(f"{name}.fc1", layer.feed_forward.inner)
            writes_state(f"{name}.fc2", layer.feed_forward.outer)
            writes_state(f"{name}.final_layer_norm", layer.feed_forward_norm)
    return {name: value.detach().clone().contiguous() for name, value in weights.items()}


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
        "max_position_embeddings": MAX_POSITIONS,
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
