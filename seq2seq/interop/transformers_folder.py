"""A Hugging Face folder, as `MarianMTModel` and `MarianTokenizer` write it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.data.tokenizer import CONTROL_PIECES, END_ID, PADDING_ID
from seq2seq.errors import UserError
from seq2seq.files.strict import parse_json
from seq2seq.files.tensors import Descriptions, read_tensors
from seq2seq.interop.names import EMBEDDINGS, OUTPUT_BIAS, layer_names
from seq2seq.interop.raw_model import (
    MAX_SETTINGS_BYTES,
    RawModel,
    Table,
    check_file,
    make_table,
    read_file,
    read_vocabulary,
)
from seq2seq.interop.torch_file import read_torch_file
from seq2seq.model import TransformerConfig
from seq2seq.model.config import Activation
from seq2seq.model.size import meta_transformer

_ACTIVATIONS = {
    "relu": Activation.relu,
    "swish": Activation.swish,
    "silu": Activation.swish,
    "gelu": Activation.gelu,
    "quick_gelu": Activation.quick_gelu,
}

# Settings that change what a model computes, with the only value that is supported, and why.
_FIXED = {
    "is_encoder_decoder": (True, "the paper's model has an encoder and a decoder"),
    "normalize_before": (False, "this program's layers are Post-LN"),
    "normalize_embedding": (False, "there is no norm on the embeddings here"),
    "add_final_layer_norm": (False, "there is no norm after the last layer here"),
    "static_position_embeddings": (True, "positions that were learned can't be imported"),
    "scale_embedding": (True, "embeddings are multiplied by the root of d_model here"),
}


@dataclass(frozen=True, kw_only=True)
class MarianConfig:
    """The settings of a `MarianMTModel` that determine what it computes, with its defaults."""

    vocab_size: int = 58101
    decoder_vocab_size: int | None = None
    d_model: int = 1024
    encoder_layers: int = 12
    decoder_layers: int = 12
    encoder_attention_heads: int = 16
    decoder_attention_heads: int = 16
    encoder_ffn_dim: int = 4096
    decoder_ffn_dim: int = 4096
    activation_function: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 1024
    pad_token_id: int = 58100
    eos_token_id: int = 0
    decoder_start_token_id: int = 58100
    is_encoder_decoder: bool = True
    normalize_before: bool = False
    normalize_embedding: bool = False
    add_final_layer_norm: bool = False
    static_position_embeddings: bool = True

    def __post_init__(self) -> None:
        """Check that this program can express the model."""
        for name, (value, reason) in _FIXED.items():
            if getattr(self, name) is not value:
                raise UserError(f"{name} is {str(not value).lower()}: {reason}")
        if self.activation_function not in _ACTIVATIONS:
            raise UserError(
                f"activation_function is {self.activation_function[:100]!r}: only"
                f" {', '.join(_ACTIVATIONS)} can be read"
            )
        for name in ("attention_heads", "ffn_dim"):
            sizes = [getattr(self, f"{side}_{name}") for side in ("encoder", "decoder")]
            if sizes[0] != sizes[1]:
                raise UserError(
                    f"encoder_{name} is {sizes[0]} and decoder_{name} {sizes[1]}: they are equal in"
                    " this program's models"
                )
        if not 0 <= self.decoder_start_token_id < self.target_vocab_size:
            raise UserError(f"decoder_start_token_id is {self.decoder_start_token_id}: not a piece")

    @property
    def target_vocab_size(self) -> int:
        """Rows of the target's matrix."""
        if self.share_encoder_decoder_embeddings or self.decoder_vocab_size is None:
            return self.vocab_size
        return self.decoder_vocab_size

    def transformer(self) -> TransformerConfig:
        """Return this program's hyperparameters; matrices, bias and start are not known yet."""
        same_depth = self.encoder_layers == self.decoder_layers
        return TransformerConfig(
            num_layers=self.encoder_layers,
            num_decoder_layers=None if same_depth else self.decoder_layers,
            d_model=self.d_model,
            d_ff=self.encoder_ffn_dim,
            num_heads=self.encoder_attention_heads,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            relu_dropout=self.activation_dropout,
            activation=_ACTIVATIONS[self.activation_function],
            attention_bias=True,
            layer_norm_epsilon=1e-5,  # Hugging Face's; it is not in `config.json`
        )


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """The settings in `tokenizer_config.json` that matter here."""

    source_lang: str | None = None
    target_lang: str | None = None
    separate_vocabs: bool = False


def read_config(folder: Path) -> MarianConfig:
    """Read `config.json`; settings that don't change what the model computes are ignored."""
    path = folder / "config.json"
    content = read_file(path, MAX_SETTINGS_BYTES)
    # First, since in another model's configuration other settings have other types.
    found = parse_json(path, content, dict[str, Any]).get("model_type")
    if found != "marian":
        raise UserError(f"{path}: model_type is {found!r:.100}: only 'marian' can be imported")
    config: MarianConfig = parse_json(path, content, MarianConfig, extra="ignore")
    try:
        config.transformer()
    except UserError as error:
        raise UserError(f"{path}: {str(error).replace('model.', '')}") from None
    return config


SAFETENSORS, TORCH_FILE = "model.safetensors", "pytorch_model.bin"
_POSITIONS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_BYTES_PER_ENTRY = 1024  # of the description of a tensor
_MAX_COPIES = 4  # of one matrix of the vocabulary

Shapes = Mapping[str, tuple[int, ...]]


def expected_shapes(config: MarianConfig) -> tuple[dict[str, tuple[int, ...]], Shapes]:
    """Return names and shapes of the layers' parameters, and of what may be there in addition."""
    transformer = config.transformer()
    model = meta_transformer(transformer, vocab_size=config.target_vocab_size)
    parameters = model.state_dict()
    layers = {
        f"{layer.marian}.{kind}": tuple(parameters[f"{layer.name}.{kind}"].shape)
        for layer in layer_names(transformer)
        for kind in ("weight", "bias")
    }
    rows = dict.fromkeys(EMBEDDINGS, config.target_vocab_size)
    rows |= {"shared": config.vocab_size, "source": config.vocab_size}
    others = {EMBEDDINGS[use]: (count, config.d_model) for use, count in rows.items()}
    others[OUTPUT_BIAS] = (1, config.target_vocab_size)
    others |= dict.fromkeys(_POSITIONS, (config.max_position_embeddings, config.d_model))
    return layers, others


def read_weights(path: Path, config: MarianConfig) -> dict[str, Tensor]:
    """Read the weights of a configuration."""
    try:
        required, optional = expected_shapes(config)
    except UserError as error:  # sizes that no matrix can have
        raise UserError(f"{path.with_name('config.json')}: {error}") from None
    shapes = {**required, **optional}
    sizes = [4 * torch.Size(shape).numel() for shape in shapes.values()]
    max_bytes = sum(sizes) + _MAX_COPIES * max(sizes) + _BYTES_PER_ENTRY * len(sizes)

    def check(found: Descriptions) -> None:
        for name, (dtype, shape) in found.items():
            if name not in shapes:
                raise UserError(f"{path}: {name[:100]!r} is not a parameter of such a model")
            if shape != shapes[name]:
                raise UserError(
                    f"{path}: {name} has the shape {list(shape)}, by config.json it is"
                    f" {list(shapes[name])}"
                )
            if dtype not in _DTYPES:
                raise UserError(f"{path}: {name} is not of a floating-point type of 16 or 32 bits")
        if missing := sorted(required.keys() - found.keys()):
            raise UserError(f"{path}: has no {missing[0]} ({len(missing)} missing in all)")

    if path.name == TORCH_FILE:
        return read_torch_file(path, read_file(path, max_bytes), check)
    check_file(path, max_bytes)
    return read_tensors(path, check)


def read_transformers_folder(folder: Path) -> RawModel:
    """Read the configuration, then the vocabularies, then the weights that they imply."""
    config = read_config(folder)
    path = folder / SAFETENSORS
    if not os.path.lexists(path):
        path = folder / TORCH_FILE
    if not os.path.lexists(path):
        raise UserError(f"{folder}: neither {SAFETENSORS} nor {TORCH_FILE} in it")
    settings = TokenizerSettings()
    if (found := folder / "tokenizer_config.json").exists():
        content = read_file(found, MAX_SETTINGS_BYTES)
        settings = parse_json(found, content, TokenizerSettings, extra="ignore")
    tables = _read_tables(folder, config, separate=settings.separate_vocabs)
    weights = read_weights(path, config)
    return RawModel(
        folder=folder,
        config=config.transformer(),
        max_source_tokens=config.max_position_embeddings,
        languages=(settings.source_lang or "", settings.target_lang or ""),
        tables=tables,
        matrices=_vocabulary_matrices(path, weights, config),
        bias=weights.pop(OUTPUT_BIAS, None),
        weights=weights,
    )


def _read_tables(folder: Path, config: MarianConfig, *, separate: bool) -> tuple[Table, Table]:
    """The vocabularies of source and target; the same one twice if they share it."""
    if separate and config.share_encoder_decoder_embeddings:
        raise UserError(
            f"{folder}: separate_vocabs in tokenizer_config.json, but config.json has one matrix"
        )
    path = target_path = folder / "vocab.json"
    source = target = read_vocabulary(path, config.vocab_size)
    if separate:
        target_path = folder / "target_vocab.json"
        target = read_vocabulary(target_path, config.target_vocab_size)
    elif config.target_vocab_size != config.vocab_size:
        raise UserError(
            f"{folder}: vocabularies of {config.vocab_size:,} and {config.target_vocab_size:,}"
            " pieces, but no separate_vocabs in tokenizer_config.json"
        )
    for token_id, key in ((PADDING_ID, "pad_token_id"), (END_ID, "eos_token_id")):
        piece, row = CONTROL_PIECES[token_id], getattr(config, key)
        if target.get(piece) != row:
            raise UserError(
                f"{target_path}: {piece} has the id {target.get(piece)}, but {key} in config.json"
                f" is {row}"
            )
    table = make_table(target_path, target, config.decoder_start_token_id)
    return make_table(path, source) if separate else table, table


def _vocabulary_matrices(
    path: Path, weights: dict[str, Tensor], config: MarianConfig
) -> dict[str, Tensor]:
    """The matrices of source, target and output, of which `transformers` would make one storage."""
    uses = {use: [use] for use in ("source", "target", "output")}
    if config.share_encoder_decoder_embeddings:
        uses["source"].append("shared")
        uses["target"].append("shared")
    if config.tie_word_embeddings:
        uses["target"] += uses.pop("output")
        if config.share_encoder_decoder_embeddings:
            uses = {"source": ["shared", "source", "target", "output"]}
    found = {}
    for use, candidates in uses.items():
        present = [EMBEDDINGS[name] for name in candidates if EMBEDDINGS[name] in weights]
        if not present:
            raise UserError(f"{path}: has no {EMBEDDINGS[candidates[0]]}")
        found[use] = weights[present[0]]
    for name in EMBEDDINGS.values():
        weights.pop(name, None)
    return found
