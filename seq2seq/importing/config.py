"""`config.json` of a Hugging Face folder: what this program can express, and what it can't."""

from dataclasses import dataclass, fields
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.importing.files import MAX_SETTINGS_BYTES, read_file
from seq2seq.model import TransformerConfig
from seq2seq.model.config import Activation
from seq2seq.storage.strict import check_schema, parse_json, parse_settings

_ACTIVATIONS = {
    "relu": Activation.relu,
    "swish": Activation.swish,
    "silu": Activation.swish,
    "gelu": Activation.gelu,
    "quick_gelu": Activation.quick_gelu,
}
LAYER_NORM_EPSILON = 1e-5
"""Hugging Face's; it is not in `config.json`."""

# Settings that change what a model computes, of which this program supports one value, and why.
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
        """Check that this program can express the model.

        Raises:
            UserError: if it can't, or a size or a token id is out of range.
        """
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
        for name in ("vocab_size", "max_position_embeddings"):
            if getattr(self, name) < 2:
                raise UserError(f"{name} is {getattr(self, name)}: must be at least 2")
        for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
            if not 0 <= getattr(self, name) < self.target_vocab_size:
                raise UserError(f"{name} is {getattr(self, name)}: not the id of a piece")

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
            layer_norm_epsilon=LAYER_NORM_EPSILON,
        )


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """The settings in `tokenizer_config.json` that matter here."""

    source_lang: str | None = None
    target_lang: str | None = None
    separate_vocabs: bool = False


def read_config(folder: Path) -> MarianConfig:
    """Read `config.json`; settings that don't change what the model computes are ignored.

    Raises:
        UserError: if it is missing or damaged, or this program can't express the model.
    """
    path = folder / "config.json"
    saved = _read_settings(path)
    if saved.keys() >= {"format", "model"}:
        raise UserError(f"{folder}: a model of this program already: nothing to import")
    if (model_type := saved.get("model_type")) != "marian":
        raise UserError(
            f"{path}: model_type is {repr(model_type)[:100]}: only 'marian' can be imported"
        )
    names = {field.name: field.default for field in fields(MarianConfig)}
    known = {name: saved.get(name, default) for name, default in names.items()}
    config = parse_settings(path, known, MarianConfig)
    try:
        config.transformer()
    except UserError as error:
        raise UserError(f"{path}: {str(error).replace('model.', '')}") from None
    return config


def read_tokenizer_settings(folder: Path) -> TokenizerSettings:
    """Read `tokenizer_config.json`, if there is one.

    Raises:
        UserError: if it is damaged.
    """
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return TokenizerSettings()
    saved = _read_settings(path)
    known = {
        field.name: saved.get(field.name, field.default) for field in fields(TokenizerSettings)
    }
    return parse_settings(path, known, TokenizerSettings)


def _read_settings(path: Path) -> dict[str, object]:
    saved = parse_json(path, read_file(path, MAX_SETTINGS_BYTES))
    check_schema(path, {} if isinstance(saved, dict) else saved, {})
    assert isinstance(saved, dict)
    return saved
