"""Marian's own folder: an archive of matrices with their settings, and a vocabulary in YAML.

Its matrices have other names than Hugging Face's and are transposed. The names here are those of
`transformers`, so that both kinds of folders are arranged by the same code.
"""

import os
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml
from msgspec import Struct, ValidationError, convert
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.config import Activation, Positions, TransformerConfig
from seq2seq.errors import UserError
from seq2seq.interop import marian
from seq2seq.model_folder import check_finite

_SETTINGS, _BIAS = "special:model.yml", "decoder_ff_logit_out_b"
_MAX_SOURCE_TOKENS = 512  # Marian has no limit; OPUS-MT was trained on sentences up to 500 tokens
_MAX_DEPTH = 10
_ACTIVATIONS = {"relu": Activation.relu, "swish": Activation.swish, "gelu": Activation.quick_gelu}


class MarianSettings(Struct, rename="kebab", kw_only=True):
    """The settings that determine what a model computes; YAML's numbers and flags are texts.

    Those with a single word have the only value that this program's models can express.
    """

    enc_depth: int
    dec_depth: int
    dim_emb: int
    transformer_dim_ffn: int
    transformer_heads: int
    transformer_ffn_activation: Literal["relu", "swish", "gelu"] = "swish"
    type: Literal["transformer"] = "transformer"
    transformer_decoder_autoreg: Literal["self-attention"] = "self-attention"  # not SSRU cells
    transformer_preprocess: Literal[""] = ""
    transformer_postprocess: Literal["dan"] = "dan"  # dropout, add, norm
    transformer_postprocess_top: Literal[""] = ""
    transformer_train_position_embeddings: Literal["false"] = "false"
    transformer_no_projection: Literal["false"] = "false"
    transformer_tied_layers: Literal[""] | None = None  # as an empty list reads
    transformer_ffn_depth: Literal["2"] = "2"
    transformer_decoder_ffn_depth: Literal["0"] = "0"  # as in the encoder
    lemma_dim_emb: Literal["0"] = "0"


def read_marian_folder(folder: Path) -> marian.RawModel:
    """Read the settings, then the vocabulary, then the matrices that they imply."""
    vocabulary_path = _only(
        folder,
        "*vocab*.yml",
        "only one in YAML, which both sides share, can be imported from Marian's own folder;"
        " convert others to Hugging Face's first",
    )
    content = marian.read_file(vocabulary_path)
    vocabulary: dict[str, int] = parse_yaml(vocabulary_path, content, dict[str, int])
    table = marian.make_table(vocabulary_path, vocabulary, len(vocabulary))
    path = _only(folder, "*.npz", "leave one model in it")
    with marian.open_file(path, marian.MAX_WEIGHTS_BYTES) as file:
        archive = _Archive(path, file)
        config = _read_config(archive)
        shape = len(vocabulary), config.d_model
        return marian.RawModel(
            folder=folder,
            config=config,
            max_source_tokens=_MAX_SOURCE_TOKENS,
            languages=("", ""),
            tables=(table, table),
            weights=_layers(archive, config),
            matrices=_vocabulary_matrices(archive, shape),
            bias=archive.floats(_BIAS, (1, shape[0])) if _BIAS in archive.arrays else None,
        )


def _only(folder: Path, pattern: str, advice: str) -> Path:
    paths = sorted(folder.glob(pattern))
    if len(paths) != 1:
        raise UserError(f"{folder}: {len(paths)} files {pattern}: {advice}")
    return paths[0]


class _Archive:
    """Arrays by name, each read when it is asked for."""

    def __init__(self, path: Path, file: BufferedReader) -> None:
        self.path = path
        try:
            self.arrays = np.load(file, allow_pickle=False)
            total = sum(entry.file_size for entry in self.arrays.zip.infolist())
            if total > os.fstat(file.fileno()).st_size:  # compressed, which Marian does not write
                raise ValueError(f"{total:,} bytes in a smaller file")
        except Exception as error:  # zipfile and NumPy have no class of errors of their own
            reason = str(error)[:100]
            raise UserError(f"{path}: corrupt, not an archive of NumPy's: {reason}") from None

    def array(self, name: str) -> NDArray[Any]:
        """Read an array of any type and shape."""
        try:
            return np.asarray(self.arrays[name])  # bytes, if it isn't an array
        except KeyError:
            raise UserError(f"{self.path}: has no {name}") from None
        except Exception as error:
            raise UserError(f"{self.path}: {name} is corrupt: {str(error)[:100]}") from None

    def floats(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Read finite numbers of a known shape in float32."""
        array = self.array(name)
        if array.dtype.str not in ("<f4", "<f2") or array.shape != shape:
            raise UserError(
                f"{self.path}: {name} is {list(array.shape)} of {array.dtype.str}, should be"
                f" {list(shape)} of <f4"
            )
        tensor = torch.from_numpy(array).float()
        check_finite(self.path, {name: tensor})
        return tensor


def _read_config(archive: _Archive) -> TransformerConfig:
    path, content = archive.path, archive.array(_SETTINGS).tobytes()
    if len(content) > marian.MAX_SETTINGS_BYTES:
        raise UserError(f"{path}: {_SETTINGS} is too large")
    settings: MarianSettings = parse_yaml(path, content.rstrip(b"\0"), MarianSettings)
    same_depth = settings.enc_depth == settings.dec_depth
    try:
        return TransformerConfig(
            num_layers=settings.enc_depth,
            num_decoder_layers=None if same_depth else settings.dec_depth,
            d_model=settings.dim_emb,
            d_ff=settings.transformer_dim_ffn,
            num_heads=settings.transformer_heads,
            activation=_ACTIVATIONS[settings.transformer_ffn_activation],
            positions=Positions.concatenated,
            attention_bias=True,
            layer_norm_epsilon=1e-9,
        )
    except UserError as error:
        raise UserError(f"{path}: {str(error).replace('model.', '')}") from None


def _layers(archive: _Archive, config: TransformerConfig) -> dict[str, Tensor]:
    """The parameters of all layers under Hugging Face's names."""
    names = {
        "fc1": ("ffn_W1", "ffn_b1"),
        "fc2": ("ffn_W2", "ffn_b2"),
        "final_layer_norm": ("ffn_ffn_ln_scale", "ffn_ffn_ln_bias"),
    }
    for attention, own in (("self_attn", "self"), ("encoder_attn", "context")):
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            letter = projection[0]
            names[f"{attention}.{projection}"] = f"{own}_W{letter}", f"{own}_b{letter}"
        names[f"{attention}_layer_norm"] = f"{own}_Wo_ln_scale", f"{own}_Wo_ln_bias"
    weights = {}
    for layer in marian.layer_names(config):
        _, side, _, index, name = layer.marian.split(".", 4)
        weight, bias = (f"{side}_l{int(index) + 1}_{suffix}" for suffix in names[name])
        inputs = config.d_ff if name == "fc2" else config.d_model
        outputs = config.d_ff if name == "fc1" else config.d_model
        if name.endswith("norm"):
            weights[f"{layer.marian}.weight"] = archive.floats(weight, (1, outputs))[0]
        else:
            weights[f"{layer.marian}.weight"] = archive.floats(weight, (inputs, outputs)).t()
        weights[f"{layer.marian}.bias"] = archive.floats(bias, (1, outputs))[0]
    return weights


def _vocabulary_matrices(archive: _Archive, shape: tuple[int, int]) -> dict[str, Tensor]:
    """The matrices that are not tied, by use."""
    names = {"source": "encoder_Wemb", "target": "decoder_Wemb"}
    if "Wemb" in archive.arrays:
        names = {"source": "Wemb"}
    matrices = {use: archive.floats(name, shape) for use, name in names.items()}
    output = "decoder_ff_logit_out_W"
    if output in archive.arrays:
        matrices["output"] = archive.floats(output, shape[::-1]).t()
    elif f"{output}t" in archive.arrays:
        matrices["output"] = archive.floats(f"{output}t", shape)
    return matrices


def parse_yaml(path: Path, content: bytes, schema: Any) -> Any:
    """Read keys and values of YAML's first level, all of them texts, as a type of msgspec's.

    They are taken from the parser's events: nothing is constructed, no alias is followed, and deep
    nesting is refused before the parser slows down. A list or a mapping reads as null.
    """
    nodes: list[str | None] = []
    depth = 0
    try:
        for event in yaml.parse(content.decode(), Loader=yaml.CBaseLoader):
            if depth == 1 and isinstance(event, yaml.NodeEvent):
                nodes.append(getattr(event, "value", None))
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise UserError(f"{path}: corrupt, nested too deeply")
        return convert(dict(zip(nodes[::2], nodes[1::2], strict=False)), schema, strict=False)
    except UnicodeDecodeError:
        raise UserError(f"{path}: not valid UTF-8") from None
    except (yaml.YAMLError, ValidationError) as error:
        raise UserError(f"{path}: corrupt: {' '.join(str(error).split())[:200]}") from None
