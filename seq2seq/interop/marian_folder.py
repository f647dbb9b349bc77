"""Marian's own folder: an archive of matrices with their settings, and a vocabulary in YAML.

Its matrices have other names than Hugging Face's and are transposed. The names here are those of
`transformers`, so that both kinds of folders are arranged by the same code.
"""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
import yaml
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.files.tensors import check_finite
from seq2seq.interop.names import layer_names
from seq2seq.interop.raw_model import (
    MAX_SETTINGS_BYTES,
    MAX_VOCABULARY_BYTES,
    RawModel,
    check_ids,
    make_table,
    read_file,
)
from seq2seq.model import TransformerConfig
from seq2seq.model.config import Activation

_SETTINGS = "special:model.yml"
_MAX_SOURCE_TOKENS = 512  # Marian has no limit; OPUS-MT was trained on sentences up to 500 tokens
_MAX_BYTES = 8 * 2**30
_MAX_DEPTH = 10
_ACTIVATIONS = {
    "relu": Activation.relu,
    "swish": Activation.swish,
    "gelu": Activation.quick_gelu,
}

# Settings with the only value that is supported, and why. A missing one has that value.
_FIXED = {
    "type": ("transformer", "only transformers can be imported"),
    "transformer-decoder-autoreg": (
        "self-attention",
        "a decoder of SSRU cells, as students of Bergamot or Firefox have: import its teacher",
    ),
    "transformer-preprocess": ("", "this program's layers are Post-LN"),
    "transformer-postprocess": ("dan", "this program's layers are Post-LN"),
    "transformer-postprocess-top": ("", "there is no norm after the last layer here"),
    "transformer-train-position-embeddings": ("false", "learned positions can't be imported"),
    "transformer-no-projection": ("false", "attention has a projection of its output here"),
    "transformer-tied-layers": ("", "each layer has parameters of its own here"),
    "transformer-ffn-depth": ("2", "feed-forward networks have two layers here"),
    "transformer-decoder-ffn-depth": ("0", "feed-forward networks have two layers here"),
    "lemma-dim-emb": ("0", "vocabularies of factors can't be imported"),
}

_NAMES = (
    (r"self_attn\.([qkv])_proj", r"_self_W\1", r"_self_b\1"),
    (r"self_attn\.out_proj", "_self_Wo", "_self_bo"),
    (r"self_attn_layer_norm", "_self_Wo_ln_scale", "_self_Wo_ln_bias"),
    (r"encoder_attn\.([qkv])_proj", r"_context_W\1", r"_context_b\1"),
    (r"encoder_attn\.out_proj", "_context_Wo", "_context_bo"),
    (r"encoder_attn_layer_norm", "_context_Wo_ln_scale", "_context_Wo_ln_bias"),
    (r"fc([12])", r"_ffn_W\1", r"_ffn_b\1"),
    (r"final_layer_norm", "_ffn_ffn_ln_scale", "_ffn_ffn_ln_bias"),
)


def read_marian_folder(folder: Path) -> RawModel:
    """Read the settings, then the vocabulary, then the matrices that they imply."""
    path = _only(folder, "*.npz", "leave one model in it")
    archive = _Archive(path)
    config, settings = _read_settings(path, archive)
    vocabulary_path = _only(
        folder,
        "*vocab*.yml",
        "only one in YAML, which both sides share, can be imported from Marian's own folder;"
        " convert others to Hugging Face's first",
    )
    vocabulary = parse_vocabulary(vocabulary_path, read_file(vocabulary_path, MAX_VOCABULARY_BYTES))
    size = len(vocabulary)
    check_ids(vocabulary_path, vocabulary, size)
    table = make_table(vocabulary_path, vocabulary)
    matrices, bias = _vocabulary_matrices(archive, settings, (size, config.d_model))
    return RawModel(
        folder=folder,
        config=config,
        max_source_tokens=_MAX_SOURCE_TOKENS,
        languages=("", ""),
        tables=(table, table),
        weights=_layers(archive, config),
        matrices=matrices,
        bias=bias,
    )


def _only(folder: Path, pattern: str, advice: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise UserError(f"{folder}: {len(found)} files {pattern}: {advice}")
    return found[0]


class _Archive:
    """Arrays by name, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        content = read_file(path, _MAX_BYTES)
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                total = sum(entry.file_size for entry in archive.infolist())
            if total > len(content):  # compressed, which Marian does not write
                raise ValueError(f"{total:,} bytes in {len(content):,}")
            self.arrays = np.load(io.BytesIO(content), allow_pickle=False)
        except Exception as error:  # zipfile and NumPy have no class of errors of their own
            reason = str(error)[:100]
            raise UserError(f"{path}: corrupt, not an archive of NumPy's: {reason}") from None

    def read(self, name: str, shape: tuple[int, ...] | None, dtypes: tuple[str, ...]) -> Tensor:
        """Read an array, of a known shape if one is given."""
        try:
            found = np.asarray(self.arrays[name])  # bytes, if it isn't an array
        except KeyError:
            raise UserError(f"{self.path}: has no {name[:100]}") from None
        except Exception as error:
            raise UserError(f"{self.path}: {name[:100]} is corrupt: {str(error)[:100]}") from None
        if found.dtype.str not in dtypes or shape not in (None, found.shape):
            expected = "a list of bytes" if shape is None else f"{list(shape)} of {dtypes[0]}"
            raise UserError(
                f"{self.path}: {name[:100]} is {list(found.shape)} of {found.dtype.str}, should be"
                f" {expected}"
            )
        return torch.from_numpy(found)

    def floats(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Read numbers in float32."""
        value = self.read(name, shape, ("<f4", "<f2")).float()
        check_finite(self.path, {name: value})
        return value


def _read_settings(path: Path, archive: _Archive) -> tuple[TransformerConfig, Mapping[str, str]]:
    if _SETTINGS not in archive.arrays:
        raise UserError(f"{path}: has no {_SETTINGS}: not a model of Marian")
    content = bytes(archive.read(_SETTINGS, None, ("|i1", "|u1")).numpy().tobytes())
    if len(content) > MAX_SETTINGS_BYTES:
        raise UserError(f"{path}: {_SETTINGS} is too large")
    text = content.rstrip(b"\0").decode(errors="replace")
    settings = {key: value for key, value in _yaml_items(path, text) if value is not None}
    for name, (value, reason) in _FIXED.items():
        if settings.get(name, value) != value:
            raise UserError(f"{path}: {name} is {settings[name][:100]!r}: {reason}")
    activation = settings.get("transformer-ffn-activation", "swish")
    if activation not in _ACTIVATIONS:
        raise UserError(f"{path}: transformer-ffn-activation is {activation[:100]!r}")

    def number(name: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text := settings.get(name, "")):
            raise UserError(f"{path}: {name} in {_SETTINGS} is {text[:100]!r}, not a number")
        return int(text)

    depths = number("enc-depth"), number("dec-depth")
    own = settings.get("transformer-decoder-dim-ffn", "0")
    if own not in ("0", settings.get("transformer-dim-ffn")):
        raise UserError(
            f"{path}: transformer-decoder-dim-ffn is {own[:100]!r}: the layers of both"
            " sides are equally wide here"
        )
    try:
        config = TransformerConfig(
            num_layers=depths[0],
            num_decoder_layers=None if depths[0] == depths[1] else depths[1],
            d_model=number("dim-emb"),
            d_ff=number("transformer-dim-ffn"),
            num_heads=number("transformer-heads"),
            activation=_ACTIVATIONS[activation],
            attention_bias=True,
            layer_norm_epsilon=1e-9,
        )
    except UserError as error:
        raise UserError(f"{path}: {str(error).replace('model.', '')}") from None
    return config, settings


def _layers(archive: _Archive, config: TransformerConfig) -> dict[str, Tensor]:
    """The parameters of all layers under Hugging Face's names."""
    d_model, d_ff = config.d_model, config.d_ff
    weights = {}
    for layer in layer_names(config):
        side, index, rest = layer.marian.removeprefix("model.").replace(".layers", "").split(".", 2)
        for pattern, weight, bias in _NAMES:
            if matched := re.fullmatch(pattern, rest):
                prefix = f"{side}_l{int(index) + 1}"
                names = [prefix + matched.expand(name) for name in (weight, bias)]
        inner = {"fc1": (d_model, d_ff), "fc2": (d_ff, d_model)}.get(rest, (d_model, d_model))
        shape = (1, d_model) if "norm" in rest else inner
        found = archive.floats(names[0], shape)
        weights[f"{layer.marian}.weight"] = found[0] if "norm" in rest else found.t()
        weights[f"{layer.marian}.bias"] = archive.floats(names[1], (1, shape[1]))[0]
    return weights


def _vocabulary_matrices(
    archive: _Archive, settings: Mapping[str, str], shape: tuple[int, int]
) -> tuple[dict[str, Tensor], Tensor | None]:
    """The matrices that are not tied, by use, and the bias of the logits."""
    names = {"source": "encoder_Wemb", "target": "decoder_Wemb"}
    if "Wemb" in archive.arrays:
        names = {"source": "Wemb"}
    matrices = {use: archive.floats(name, shape) for use, name in names.items()}
    if "decoder_ff_logit_out_W" in archive.arrays:
        matrices["output"] = archive.floats("decoder_ff_logit_out_W", shape[::-1]).t()
    elif "decoder_ff_logit_out_Wt" in archive.arrays:
        matrices["output"] = archive.floats("decoder_ff_logit_out_Wt", shape)
    bias = "decoder_ff_logit_out_b"
    return matrices, archive.floats(bias, (1, shape[0])) if bias in archive.arrays else None


def parse_vocabulary(path: Path, content: bytes) -> dict[str, int]:
    """Read the pieces and ids of Marian's YAML."""
    vocabulary: dict[str, int] = {}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise UserError(f"{path}: not valid UTF-8") from None
    for piece, number in _yaml_items(path, text):
        if not re.fullmatch("[0-9]{1,9}", number or ""):
            raise UserError(f"{path}: {piece[:100]!r} has no id")
        vocabulary[piece] = int(number or "")
    return vocabulary


def _yaml_items(path: Path, text: str) -> Iterator[tuple[str, str | None]]:
    """Yield keys and values of YAML's first level as texts; None for a list or a mapping.

    They are taken from the parser's events: nothing is constructed, no alias is followed, and deep
    nesting is refused before the parser slows down.
    """
    nodes: list[str | None] = []
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CBaseLoader):
            if depth == 1 and isinstance(event, yaml.NodeEvent):
                nodes.append(getattr(event, "value", None))
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise UserError(f"{path}: corrupt, nested too deeply")
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())[:200]}") from None
    for key, value in zip(nodes[::2], nodes[1::2], strict=False):
        if key is not None:
            yield key, value
