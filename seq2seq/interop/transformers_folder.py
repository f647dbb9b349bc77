"""Hugging Face's folders, as `MarianMTModel` and `MarianTokenizer` read and write them."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from seq2seq.config import Activation, TransformerConfig
from seq2seq.errors import UserError
from seq2seq.files import parse_json
from seq2seq.interop import marian
from seq2seq.interop.marian import EMBEDDINGS, RawModel, Table
from seq2seq.model_folder import Descriptions, check_finite, meta_transformer, read_tensors
from seq2seq.system import readable_name

_WEIGHTS, _TORCH_WEIGHTS = "model.safetensors", "pytorch_model.bin"

_POSITIONS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


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
    activation_function: Literal["relu", "swish", "silu", "gelu", "quick_gelu"] = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 1024
    decoder_start_token_id: int = 58100

    def __post_init__(self) -> None:
        """Check that this program can express the model."""
        if not self.scale_embedding or self.encoder_attention_heads != self.decoder_attention_heads:
            raise UserError(
                "only a model with scale_embedding, and with as many attention heads in the decoder"
                " as in the encoder, can be imported"
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
            activation=Activation(self.activation_function.replace("silu", "swish")),
            attention_bias=True,
            layer_norm_epsilon=1e-5,  # Hugging Face's; it is not in `config.json`
        )


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """The settings in `tokenizer_config.json` that matter here."""

    source_lang: str | None = None
    target_lang: str | None = None
    separate_vocabs: bool = False


def read_transformers_folder(folder: Path) -> RawModel:
    """Read the configuration, then the vocabularies, then the weights that they imply."""
    config = _read_config(folder / "config.json")
    settings = TokenizerSettings()
    path = folder / "tokenizer_config.json"
    if path.exists():
        content = marian.read_file(path, marian.MAX_SETTINGS_BYTES)
        settings = parse_json(path, content, TokenizerSettings, extra="ignore")
    tables = _read_tables(folder, config, separate=settings.separate_vocabs)
    path = folder / _WEIGHTS
    if not path.exists():
        path = folder / _TORCH_WEIGHTS
        if not path.exists():
            raise UserError(f"{folder}: neither {_WEIGHTS} nor {_TORCH_WEIGHTS} in it")
    weights = _read_weights(path, config)
    return RawModel(
        folder=folder,
        config=config.transformer(),
        max_source_tokens=config.max_position_embeddings,
        languages=(settings.source_lang or "", settings.target_lang or ""),
        tables=tables,
        matrices=_vocabulary_matrices(path, weights, config),
        bias=weights.pop(marian.OUTPUT_BIAS, None),
        weights=weights,
    )


def _read_config(path: Path) -> MarianConfig:
    """Read the settings that change what the model computes; all others are ignored."""
    content = marian.read_file(path, marian.MAX_SETTINGS_BYTES)
    # First, since in another model's configuration other settings have other types.
    model_type = parse_json(path, content, dict[str, Any]).get("model_type")
    if model_type != "marian":
        raise UserError(f"{path}: model_type is {model_type!r:.100}: only 'marian' can be imported")
    config: MarianConfig = parse_json(path, content, MarianConfig, extra="ignore")
    try:
        _expected_shapes(config)
    except UserError as error:  # sizes that no model can have
        raise UserError(f"{path}: {str(error).replace('model.', '')}") from None
    return config


def _read_tables(folder: Path, config: MarianConfig, *, separate: bool) -> tuple[Table, Table]:
    """The vocabularies of source and target; the same one twice if they share it."""

    def read(name: str, size: int, start_row: int | None = None) -> Table:
        path = folder / name
        content = marian.read_file(path)
        return marian.make_table(path, parse_json(path, content, dict[str, int]), size, start_row)

    size, start_row = config.target_vocab_size, config.decoder_start_token_id
    if not separate:
        table = read("vocab.json", size, start_row)
        return table, table
    source = read("vocab.json", config.vocab_size)
    return source, read("target_vocab.json", size, start_row)


Shapes: TypeAlias = dict[str, tuple[int, ...]]


def _expected_shapes(config: MarianConfig) -> tuple[Shapes, Shapes]:
    """Return names and shapes of the layers' parameters, and of what may be there in addition."""
    transformer = config.transformer()
    parameters = meta_transformer(transformer, config.target_vocab_size).state_dict()
    layers: Shapes = {}
    for layer in marian.layer_names(transformer):
        for kind in ("weight", "bias"):
            layers[f"{layer.marian}.{kind}"] = tuple(parameters[f"{layer.name}.{kind}"].shape)
    source, target = config.vocab_size, config.target_vocab_size
    rows = {"shared": source, "source": source, "target": target, "output": target}
    optional: Shapes = {EMBEDDINGS[use]: (count, config.d_model) for use, count in rows.items()}
    optional[marian.OUTPUT_BIAS] = (1, target)
    optional |= dict.fromkeys(_POSITIONS, (config.max_position_embeddings, config.d_model))
    return layers, optional


def _read_weights(path: Path, config: MarianConfig) -> dict[str, Tensor]:
    required, optional = _expected_shapes(config)
    shapes = required | optional

    def check(descriptions: Descriptions) -> None:
        for name, (dtype, shape) in descriptions.items():
            if name not in shapes:
                raise UserError(f"{path}: {name[:100]!r} is not a parameter of such a model")
            if shape != shapes[name]:
                raise UserError(
                    f"{path}: {name} has the shape {list(shape)}, by config.json it is"
                    f" {list(shapes[name])}"
                )
            if dtype not in _DTYPES:
                raise UserError(f"{path}: {name} is not of a floating-point type of 16 or 32 bits")
        if missing := sorted(required.keys() - descriptions.keys()):
            raise UserError(f"{path}: has no {missing[0]} ({len(missing)} missing in all)")

    with marian.open_file(path, marian.MAX_WEIGHTS_BYTES):
        read = read_tensors if path.name == _WEIGHTS else read_torch_file
        return read(path, check)


def read_torch_file(path: Path, check: Callable[[Descriptions], None]) -> dict[str, Tensor]:
    """Map a dictionary of finite tensors that `torch.save` wrote; nothing in it is executed.

    They change if the file does. `check` raises an error if types or shapes are not those that are
    expected.
    """
    try:
        with path.open("rb") as file:
            # Archives are mapped, not read; PyTorch before 1.6 wrote none.
            is_archive, name = zipfile.is_zipfile(file), readable_name(file, path)
            loaded = torch.load(name, map_location="cpu", weights_only=True, mmap=is_archive)
        check({name: (value.dtype, tuple(value.shape)) for name, value in loaded.items()})
        if any(value.layout is not torch.strided for value in loaded.values()):
            raise TypeError
        tensors = {name: value.detach() for name, value in loaded.items()}
        check_finite(path, tensors)
    except UserError:
        raise
    except Exception as error:  # those of `torch.load` share no class
        raise UserError(
            f"{path}: not a dictionary of tensors that torch.save wrote ({type(error).__name__})"
        ) from None
    return tensors


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
    saved = {use: weights.pop(name) for use, name in EMBEDDINGS.items() if name in weights}
    matrices = {}
    for use, candidates in uses.items():
        present = [saved[name] for name in candidates if name in saved]
        if not present:
            raise UserError(f"{path}: has no {EMBEDDINGS[candidates[0]]}")
        matrices[use] = present[0]
    return matrices
