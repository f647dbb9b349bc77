"""A model with its tokenizer and languages: made, measured, saved and loaded.

A model folder holds weights (safetensors), `config.json`, `tokenizer.model` (or a SentencePiece
model for each side and a table of pieces, in imported models) and a manifest with each file's
sha256. Nothing in it is ever executed. The configuration is read first, then the tokenizer: they
determine the names, shapes and types that the tensors must have.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seq2seq.changes import is_own
from seq2seq.config import TransformerConfig
from seq2seq.controls import target_languages
from seq2seq.errors import UserError
from seq2seq.files import (
    MANIFEST,
    MAX_BYTES,
    Content,
    add_file,
    check_listed_file,
    check_replaceable,
    parse_json,
    present_name,
    read_listed_file,
    read_manifest,
    remove_leftovers,
    write_folder,
)
from seq2seq.settings import SettingKind, settings_of
from seq2seq.system import memory_bytes, readable_name
from seq2seq.tokenizer import (
    PADDING_ID,
    PAIR_FILES,
    START_ID,
    TOKENIZER_FILE,
    Tokenizer,
    tokenizer_errors,
)
from seq2seq.transformer import Transformer


def transformer_class(config: TransformerConfig) -> type[Transformer]:
    """Return the class that a configuration asks for: the paper's, or one of `seq2seq.zoo`."""
    variants = (item for item in fields(config) if "variant" in item.metadata)
    if all(getattr(config, item.name) == item.default for item in variants):
        return Transformer
    kind: type[Transformer] = import_module("seq2seq.zoo.modern").variant_class(config)
    return kind


def make_transformer(
    config: TransformerConfig,
    vocab_size: int,
    source_vocab_size: int | None = None,
    init_std: float | None = None,
    model_class: type[Transformer] | None = None,
) -> Transformer:
    """Make a model of `transformer_class(config)`, or of a subclass of it that is given."""
    base = transformer_class(config)
    kind = model_class or base
    if not issubclass(kind, base):
        raise UserError(
            f"the class {class_name(kind)} must be a subclass of {class_name(base)}, which these"
            " settings of the model ask for"
        )
    sizes = {"vocab_size": vocab_size, "padding_id": PADDING_ID, "start_id": START_ID}
    if kind is not Transformer:
        variants = import_module("seq2seq.zoo.variants")
        if issubclass(kind, variants.VariantTransformer):
            sizes["source_vocab_size"] = source_vocab_size or vocab_size
    return kind(config, **sizes, init_std=init_std)


def meta_transformer(
    config: TransformerConfig,
    vocab_size: int,
    source_vocab_size: int | None = None,
    model_class: type[Transformer] | None = None,
) -> Transformer:
    """Make a model on the meta device, in float32, unless it is too large for this machine."""
    if config.shared_embedding and source_vocab_size not in (None, vocab_size):
        raise UserError("shared_embedding is true, but each side has a vocabulary of its own")
    sizes = (vocab_size, source_vocab_size)
    try:
        with torch.device("meta"), _NothingDrawn():
            model = make_transformer(config, *sizes, model_class=model_class)
    except UserError:
        raise
    except Exception as error:
        if model_class is not None:
            raise UserError(
                f"the class {class_name(model_class)} can't be made on the meta device, which"
                f" tells its shapes: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(error, (RuntimeError, TypeError, OverflowError)):
            raise
        # There are more elements than PyTorch can count.
        raise UserError(
            "no matrix can be this large: lower model.d_model, model.d_ff, model.num_heads,"
            " model.d_k, model.d_v, model.max_learned_positions or the vocabulary"
        ) from None
    parameters = sum(map(Tensor.numel, model.parameters()))
    memory = memory_bytes()
    if memory is not None and parameters * torch.float32.itemsize > memory:
        raise UserError(
            f"a model of {parameters:,} parameters is too large for this machine's memory"
        )
    return model.float()  # whatever the caller's default is


def new_transformer(
    config: TransformerConfig,
    vocab_size: int,
    source_vocab_size: int | None = None,
    init_std: float | None = None,
    model_class: type[Transformer] | None = None,
) -> Transformer:
    """Make a model for this project's token ids; refuse one that is larger than the memory."""
    # A model that is too large is refused before it takes memory.
    meta_transformer(config, vocab_size, source_vocab_size, model_class)
    return make_transformer(config, vocab_size, source_vocab_size, init_std, model_class)


def class_name(kind: type) -> str:
    """Return the name by which a class can be imported, such as `my_module.MyTransformer`."""
    module, main = kind.__module__, sys.modules["__main__"]
    if module == "__main__":  # the program that was started, which others import by its name
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else module
    return f"{module}.{kind.__qualname__}"


def own_class(model: Transformer) -> type[Transformer] | None:
    """Return the class of a model; None for the class that its configuration makes by itself."""
    return None if type(model) is transformer_class(model.config) else type(model)


class _NothingDrawn(TorchFunctionMode):
    """Skip the initial weights.

    To draw on the meta device PyTorch imports its compiler, which takes a second and makes a folder
    in /tmp that another user may have taken.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Functions of `torch.nn.init`, and the methods of tensors with which it draws.
        if func.__name__ in ("uniform_", "normal_", "kaiming_uniform_"):
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


@dataclass(frozen=True)
class AlignmentStep:
    """Where a model aligns a piece of a translation."""

    layer: int
    """The layer of the decoder, counted from 1."""
    reads: bool
    """True for the step that reads the piece, False for the one that writes it."""


@dataclass(frozen=True)
class TrainedModel:
    """A model with its tokenizer and languages."""

    model: Transformer
    tokenizer: Tokenizer
    source_language: str
    target_language: str
    alignment: AlignmentStep | None = None
    """Where it aligns, if that was chosen at the end of its training."""

    @property
    def target_languages(self) -> list[str]:
        """The languages that it translates into; one of several is chosen by its code."""
        return target_languages(self.tokenizer.controls) or [self.target_language]


FORMAT = 2
WEIGHTS_FILE, _CONFIG = "model.safetensors", "config.json"
MODEL_FILES = (WEIGHTS_FILE, _CONFIG, TOKENIZER_FILE)
CARD_FILE = "README.md"
"""Describes a model; it is in a model folder once its run has ended."""
MAX_CARD_BYTES = 16 * 2**20
"""The largest card that is read; models of many languages have hundreds of KB of scores."""
ALIGNMENT_FILE = "alignment.json"
"""Says where a model aligns; it is in a model folder once its run has ended."""
_MAX_TOKENIZER_BYTES = 64 * 2**20  # some twenty times that of a vocabulary of 250,000 pieces


@dataclass
class SavedConfig:
    """The content of `config.json`."""

    format: int
    source_language: str
    target_language: str
    model: TransformerConfig
    tokenizer: dict[str, Any] | None = None  # options of the tokenizer, if each side has one
    model_class: str | None = None  # name of an own class: compared, never imported
    search: Any = None  # that an earlier version chose for the model; not read

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise UserError(f"written in format {self.format}, this version reads {FORMAT}")


def save_model(folder: Path, trained: TrainedModel, *, card: bytes | None = None) -> None:
    """Write a model folder."""
    check_model_path(folder)
    write_folder(folder, model_files(trained) | card_file(card))


def check_model_path(folder: Path) -> None:
    """Check that a model may have this name: nothing but a model may be there."""
    remove_leftovers(folder)
    check_replaceable(folder)
    names = set(os.listdir(folder)) if folder.is_dir() else set()
    if more := sorted(names - {*MODEL_FILES, *PAIR_FILES, ALIGNMENT_FILE, CARD_FILE, MANIFEST}):
        raise UserError(
            f"{folder}: holds more than a model ({more[0]}); choose another name, or move it away"
        )


def model_files(trained: TrainedModel) -> dict[str, Content]:
    """Return the content of each file of a model folder, by its name."""
    check_restorable(trained)
    config: dict[str, Any] = {
        "format": FORMAT,
        "source_language": trained.source_language,
        "target_language": trained.target_language,
        "model": asdict(trained.model.config),
    }
    if trained.tokenizer.options is not None:
        config["tokenizer"] = trained.tokenizer.options
    if (model_class := own_class(trained.model)) is not None:
        config["model_class"] = class_name(model_class)
    return {
        WEIGHTS_FILE: partial(save_tensors, trained.model.state_dict()),
        _CONFIG: json.dumps(config, indent=2, default=lambda choice: choice.value).encode(),
        **trained.tokenizer.files(),
    }


def card_file(card: bytes | None) -> dict[str, Content]:
    """Return the file of a model's card, if it has one."""
    return {} if card is None else {CARD_FILE: card}


def check_restorable(trained: TrainedModel) -> None:
    """Refuse a model that its folder would not give back, such as one with an exchanged layer.

    A folder gives back a new model of the same class and configuration, with the same weights.
    """
    model, tokenizer = trained.model, trained.tokenizer
    sizes = (tokenizer.vocab_size, tokenizer.source_vocab_size)
    made = meta_transformer(model.config, *sizes, own_class(model))
    for describe in (_module_types, _functions, _tensor_types, _parameter_shapes, _numbers):
        ours, theirs = describe(model), describe(made)
        for name in {**ours, **theirs}:
            if (found := ours.get(name, "absent")) != (expected := theirs.get(name, "absent")):
                raise UserError(
                    f"the model can't be saved, because loading would not give it back: its {name}"
                    f" is {found}, that of a new {class_name(type(model))} is {expected}: make the"
                    " change in the __init__ of a subclass, whose name the folder then has"
                )
    buffers = dict(model.named_buffers())
    for name, value in model.state_dict().items():
        if value.dtype not in _DTYPES.values() or (name in buffers and not value.isfinite().all()):
            raise UserError(
                f"the model can't be saved: its {name} holds other values than finite numbers with"
                " a fraction: register the buffer with persistent=False"
            )


def _module_types(model: Transformer) -> dict[str, str]:
    modules = model.named_modules(remove_duplicate=False)
    return {name: class_name(type(module)) for name, module in modules if name}


def _functions(model: Transformer) -> dict[str, str]:
    """Name the functions that modules have as attributes, such as an activation."""
    return {
        f"{name}.{key}": _function_name(value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if not key.startswith("_") and callable(value) and hasattr(value, "__qualname__")
    }


def _function_name(function: Any) -> str:
    module = function.__module__ or "builtins"
    return f"{module}.{function.__qualname__}" if is_own(module) else str(function.__name__)


def _numbers(model: Transformer) -> dict[str, str]:
    """Name the numbers with which known modules compute in evaluation mode, such as an epsilon."""
    return {
        f"{name}.{key}": str(value)
        for name, module in model.named_modules()
        if not (is_own(type(module).__module__) or isinstance(module, nn.Dropout))
        for key, value in vars(module).items()
        if key != "training" and isinstance(value, int | float)
    }


def _tensor_types(model: Transformer) -> dict[str, str]:
    return {n: f"{value.dtype} {tuple(value.shape)}" for n, value in model.state_dict().items()}


def _parameter_shapes(model: Transformer) -> dict[str, str]:
    """Describe each parameter once, also if two layers share it."""
    return {n: f"a parameter {tuple(p.shape)}" for n, p in model.named_parameters()}


def holds_model(folder: Path) -> bool:
    """Return whether there is a model in a folder, or in what its replacement left."""
    return (present_name(folder) / WEIGHTS_FILE).is_file()


AVERAGED, BEST, CHECKPOINTS = "averaged", "best", "checkpoints"
"""The folders of a run's models."""
_STEP_FOLDER = re.compile("step_([0-9]{1,18})")


def checkpoints(run: Path) -> list[Path]:
    """List the checkpoints of a run, the folders named by a step, oldest first."""
    folders: dict[int, Path] = {}
    for folder in (run / CHECKPOINTS).glob("step_*"):
        match = _STEP_FOLDER.fullmatch(folder.name)
        if match and folder.is_dir():
            folders[int(match[1])] = folder
    return [folder for _, folder in sorted(folders.items())]


def find_model(run: Path) -> Path:
    """Find a run's model: the folder itself, else `averaged`, `best` or the last checkpoint."""
    if not present_name(run).is_dir():
        raise UserError(f"{run}: no folder of this name; give the run_dir of a run")
    if (run / "vocab.json").exists():
        raise UserError(f"{run}: is a model of Marian's: convert it with seq2seq import")
    for folder in (run, run / AVERAGED, run / BEST, *reversed(checkpoints(run))):
        if holds_model(folder):
            return folder
    raise UserError(
        f"{run}: no model in it (no {WEIGHTS_FILE}, averaged, best or checkpoints): its training"
        " has saved none yet, or it is one of Marian's, which seq2seq import reads"
    )


def load_model(folder: Path, model_class: type[Transformer] | None = None) -> TrainedModel:
    """Read a model folder on the CPU, ready to translate.

    A folder of an own class is read with this class, whose name must be the one in the folder.
    """
    folder = present_name(folder)
    trained = read_description(folder, model_class)
    weights = read_weights(folder, trained.model)
    if model_class is not None:  # buffers that are not saved have their values from __init__
        sizes = (trained.tokenizer.vocab_size, trained.tokenizer.source_vocab_size)
        with torch.random.fork_rng(devices=[]):
            model = make_transformer(trained.model.config, *sizes, model_class=model_class)
        trained = replace(trained, model=model.float())
    trained.model.load_state_dict(weights, assign=model_class is None)
    trained.model.eval()
    return trained


def read_description(folder: Path, model_class: type[Transformer] | None = None) -> TrainedModel:
    """Read configuration and tokenizer; the model is on the meta device, without weights."""
    path, saved = folder / _CONFIG, _read_config(folder)
    _check_class(path, saved.model_class, None if model_class is None else class_name(model_class))
    tokenizer = _read_tokenizer(folder, saved)
    sizes = (tokenizer.vocab_size, tokenizer.source_vocab_size)
    try:
        model = meta_transformer(saved.model, *sizes, model_class)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    alignment = _read_alignment(folder, saved.model)
    return TrainedModel(model, tokenizer, saved.source_language, saved.target_language, alignment)


def read_class_name(folder: Path) -> str | None:
    """Read the name of the own class of a folder's model; None for the paper's and its variants."""
    return _read_config(present_name(folder)).model_class


def _read_config(folder: Path) -> SavedConfig:
    content = read_listed_file(folder, _CONFIG, MAX_BYTES)
    saved: SavedConfig = parse_json(folder / _CONFIG, content, SavedConfig)
    return saved


class ModelClassError(UserError):
    """A model is of another class than the one it was to be read with."""


def _check_class(path: Path, saved: str | None, given: str | None) -> None:
    if saved == given:
        return
    if saved is None:
        raise ModelClassError(
            f"{path}: is no model of the class {given}, but one that needs none: remove"
            " --model-class (of train, model_class)"
        )
    name = saved[:100]
    raise ModelClassError(
        f"{path}: is a model of the class {name}{f', not of {given}' if given else ''}: if you have"
        f" this class, give --model-class {name} (of train, model_class={name})"
    )


def save_alignment(folder: Path, step: AlignmentStep) -> None:
    """Write where the model of a folder aligns."""
    add_file(folder, ALIGNMENT_FILE, json.dumps(asdict(step)).encode())


def _read_alignment(folder: Path, config: TransformerConfig) -> AlignmentStep | None:
    if ALIGNMENT_FILE not in read_manifest(folder):  # of an earlier version, or imported
        return None
    path = folder / ALIGNMENT_FILE
    content = read_listed_file(folder, ALIGNMENT_FILE, MAX_BYTES)
    step: AlignmentStep = parse_json(path, content, AlignmentStep)
    if not 1 <= step.layer <= config.decoder_depth:
        raise UserError(f"{path}: layer {step.layer}: the model has {config.decoder_depth}")
    return step


def _read_tokenizer(folder: Path, saved: SavedConfig) -> Tokenizer:
    if saved.tokenizer is None:
        content = read_listed_file(folder, TOKENIZER_FILE, _MAX_TOKENIZER_BYTES)
        with tokenizer_errors(folder / TOKENIZER_FILE):
            return Tokenizer(content)
    interop = import_module("seq2seq.interop.pair_tokenizer")
    options = parse_json(folder / _CONFIG, json.dumps(saved.tokenizer).encode(), interop.PairConfig)
    files = {n: read_listed_file(folder, n, _MAX_TOKENIZER_BYTES) for n in options.files}
    languages = (saved.source_language, saved.target_language)
    with tokenizer_errors(folder):
        pair: Tokenizer = interop.PairTokenizer(files, options, languages)
        return pair


def read_weights(folder: Path, model: Transformer) -> dict[str, Tensor]:
    """Read the weights of a model folder, which must be those of this model."""
    return read_listed_tensors(folder, WEIGHTS_FILE, model.state_dict(), "weights")


def read_listed_tensors(
    folder: Path, name: str, expected: Mapping[str, Tensor], what: str
) -> dict[str, Tensor]:
    """Read a safetensors file that the manifest lists and that holds exactly these tensors."""
    check_listed_file(folder, name, max_bytes(expected))
    path = folder / name
    return read_tensors(path, lambda found: check_expected(path, found, expected, what))


def check_weights(folder: Path, model: Transformer) -> None:
    """Check that the weights are those that were written; they are not parsed."""
    check_listed_file(folder, WEIGHTS_FILE, max_bytes(model.state_dict()))


def average(folders: Sequence[Path], model_class: type[Transformer] | None = None) -> TrainedModel:
    """Compute the mean of several checkpoints' weights (section 6.1), in float64."""
    *earlier, last = folders
    mean = load_model(last, model_class)
    sizes = dict(settings_of(mean.model.config, SettingKind.fixed))
    sums = {name: value.double() for name, value in mean.model.state_dict().items()}
    for folder in earlier:
        checkpoint = load_model(folder, model_class)
        if checkpoint.tokenizer.files() != mean.tokenizer.files():
            raise UserError(f"{folder}: another tokenizer than {last}: they have no mean")
        if dict(settings_of(checkpoint.model.config, SettingKind.fixed)) != sizes:
            raise UserError(f"{folder}: another model than {last}: they have no mean")
        for name, value in checkpoint.model.state_dict().items():
            sums[name] += value
    mean.model.load_state_dict({name: value / len(folders) for name, value in sums.items()})
    return mean


Descriptions: TypeAlias = Mapping[str, tuple[torch.dtype | None, tuple[int, ...]]]
"""The type and the shape of each tensor by its name; None is a type that no weights have."""


# Files of safetensors, whose names, shapes and types are checked before a tensor is read.


_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors, on any device, with the mode that the user's umask gives to new files."""
    path.touch()
    mode = path.stat().st_mode
    copies: dict[str, Tensor] = {}
    memory: set[int] = set()
    for name, value in tensors.items():
        copy = value.detach().cpu().contiguous()
        address = copy.untyped_storage().data_ptr()
        copies[name] = copy.clone() if address in memory else copy  # a matrix may have two names
        memory.add(address)
    try:
        save_file(copies, path)
    except SafetensorError as error:  # such as a full disk
        raise OSError(str(error)) from None
    path.chmod(mode)  # the library lets only the user read it


def max_bytes(expected: Mapping[str, Tensor]) -> int:
    """Return the largest size of a file of these tensors (meta tensors suffice)."""
    # Type, shape and offsets are about 100 bytes of JSON in addition to the name.
    return 1024 + sum(256 + len(name) + value.nbytes for name, value in expected.items())


def read_tensors(path: Path, check: Callable[[Descriptions], None]) -> dict[str, Tensor]:
    """Read the finite tensors of a safetensors file on the CPU.

    `check` raises an error if types or shapes are not those that are expected.
    """
    try:
        with path.open("rb") as opened, safe_open(readable_name(opened, path), "pt") as file:
            descriptions = {}
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                descriptions[name] = _DTYPES.get(part.get_dtype()), tuple(part.get_shape())
            check(descriptions)
            # A copy: the file may be changed while the model is in use.
            tensors = {name: file.get_tensor(name).clone() for name in descriptions}
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a safetensors file: {error}") from None
    check_finite(path, tensors)
    return tensors


def check_expected(
    path: Path, descriptions: Descriptions, tensors: Mapping[str, Tensor], what: str
) -> None:
    """Check that a file has exactly the tensors that are expected, maybe on the meta device."""
    expected: Descriptions = {n: (value.dtype, tuple(value.shape)) for n, value in tensors.items()}
    names = {**expected, **descriptions}
    if odd := [name for name in names if descriptions.get(name) != expected.get(name)]:
        is_, should = descriptions.get(odd[0], "absent"), expected.get(odd[0], "absent")
        raise UserError(
            f"{path}: not the {what} of its configuration: {odd[0][:100]!r} is {str(is_)[:100]},"
            f" should be {should}; {len(odd)} differ in all"
        )


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Check that no value is NaN or infinite."""
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise UserError(f"{path}: {name} holds values that are not finite (NaN or infinity)")
