"""The weights of a Hugging Face folder: exactly those of its configuration, in float32."""

from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.export.marian_names import EMBEDDINGS, OUTPUT_BIAS, layer_places
from seq2seq.importing.config import MarianConfig
from seq2seq.importing.files import read_file
from seq2seq.importing.torch_file import read_torch_file
from seq2seq.model.size import empty_transformer
from seq2seq.storage.strict import describe_tensor, read_header

SAFETENSORS, TORCH_FILE = "model.safetensors", "pytorch_model.bin"
_OTHERS = ("model.safetensors.index.json", "pytorch_model.bin.index.json", "tf_model.h5")
_POSITIONS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_BYTES_PER_ENTRY = 1024  # of the description of a tensor
_MAX_COPIES = 4  # of one matrix of the vocabulary

Shapes = Mapping[str, tuple[int, ...]]


def expected_shapes(config: MarianConfig) -> tuple[dict[str, tuple[int, ...]], Shapes]:
    """Return names and shapes of the layers' parameters, and of what may be there beside them."""
    transformer = config.transformer()
    model = empty_transformer(transformer, vocab_size=config.target_vocab_size)
    parameters = model.state_dict()
    layers = {
        f"{place.marian}.{kind}": tuple(parameters[f"{place.name}.{kind}"].shape)
        for place in layer_places(transformer)
        for kind in ("weight", "bias")
    }
    rows = dict.fromkeys(EMBEDDINGS, config.target_vocab_size)
    rows |= {"shared": config.vocab_size, "source": config.vocab_size}
    others = {EMBEDDINGS[use]: (count, config.d_model) for use, count in rows.items()}
    others[OUTPUT_BIAS] = (1, config.target_vocab_size)
    others |= dict.fromkeys(_POSITIONS, (config.max_position_embeddings, config.d_model))
    return layers, others


def find_weights(folder: Path) -> Path:
    """Find the file of the weights: safetensors, else PyTorch's.

    Raises:
        UserError: if there is neither.
    """
    for name in (SAFETENSORS, TORCH_FILE):
        if (folder / name).exists() or (folder / name).is_symlink():
            return folder / name
    found = [name for name in _OTHERS if (folder / name).exists()]
    beside = f", only {found[0]}, which can't be read" if found else ""
    raise UserError(f"{folder}: no {SAFETENSORS} and no {TORCH_FILE} in it{beside}")


def read_weights(path: Path, config: MarianConfig) -> dict[str, Tensor]:
    """Read the weights of a configuration.

    Raises:
        UserError: if the file is missing or damaged, holds other names or shapes than those of the
            configuration, or a value that is not finite.
    """
    try:
        required, optional = expected_shapes(config)
    except UserError as error:  # sizes that no matrix can have
        raise UserError(f"{path.with_name('config.json')}: {error}") from None
    shapes = {**required, **optional}
    elements = [torch.Size(shape).numel() for shape in shapes.values()]
    limit = 4 * (sum(elements) + _MAX_COPIES * max(elements)) + _BYTES_PER_ENTRY * len(shapes)
    content = read_file(path, limit)

    def check(name: str, dtype: torch.dtype | None, shape: tuple[int, ...]) -> None:
        if name not in shapes:
            raise UserError(f"{path}: {name[:100]!r} is no parameter of such a model")
        if shape != shapes[name]:
            raise UserError(
                f"{path}: {name} has the shape {list(shape)}, by config.json it is"
                f" {list(shapes[name])}"
            )
        if dtype not in _DTYPES.values():
            raise UserError(f"{path}: {name} is not of a floating-point type of 16 or 32 bits")

    if path.name == SAFETENSORS:
        weights = _read_safetensors(path, content, _BYTES_PER_ENTRY * len(shapes), check)
    else:
        weights = read_torch_file(path, content, check)
    if missing := sorted(required.keys() - weights.keys()):
        raise UserError(f"{path}: has no {missing[0]} ({len(missing)} missing in all)")
    for name, value in weights.items():
        if not value.isfinite().all():
            raise UserError(f"{path}: {name} holds values that are not finite (NaN or infinity)")
    return weights


def _read_safetensors(
    path: Path,
    content: bytes,
    max_header: int,
    check: Callable[[str, torch.dtype | None, tuple[int, ...]], None],
) -> dict[str, Tensor]:
    header = read_header(path, content, max_header)
    header.pop("__metadata__", None)
    for name, entry in header.items():
        describe_tensor(path, name, entry)
        assert isinstance(entry, dict)
        shape = entry["shape"] if isinstance(entry["shape"], list) else [entry["shape"]]
        check(name, _DTYPES.get(str(entry["dtype"])), tuple(shape))
    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError) as error:
        raise UserError(f"{path}: not a safetensors file: {error}") from None
