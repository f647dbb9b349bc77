"""Classes of models that the command line names, and the models that are read with them."""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from seq2seq.errors import UsageError
from seq2seq.model_folder import (
    TrainedModel,
    class_name,
    find_model,
    load_model,
    read_class_name,
)
from seq2seq.transformer import Transformer


def import_class(name: str, option: str = "--model-class ") -> type[Transformer]:
    """Import a class by the name that a user has typed after an option.

    Installed packages come before the current folder, whose files replace none of theirs.
    """
    module_name, _, attribute = name.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{option}{name}: write module and class, such as my_module.MyTransformer")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UsageError(
            f"{option}{name}: can't be imported from the installed packages or from {folder}:"
            f" {type(error).__name__}: {error}"
        ) from error
    kind = getattr(module, attribute, None)
    if not (isinstance(kind, type) and issubclass(kind, Transformer)):
        where = getattr(module, "__file__", None) or module_name  # a folder has no file
        raise UsageError(
            f"{option}{name}: {where} has no class {attribute} that is a subclass of"
            f" {class_name(Transformer)}"
        )
    return kind


def choose_classes(folders: Sequence[Path], names: Sequence[str]) -> list[type[Transformer] | None]:
    """Return the class with which each model folder is read, of those that the user has named.

    A folder says the name of its class, which is compared with theirs; if none of them has it, None
    is returned, and `load_model` refuses the folder.
    """
    classes = {class_name(kind): kind for kind in map(import_class, names)}
    saved = [read_class_name(folder) for folder in folders]
    unused = classes.keys() - set(saved)
    if unused and {*saved} <= {None, *classes}:
        raise UsageError(f"--model-class {min(unused)}: no model here is of this class: remove it")
    return [None if name is None else classes.get(name) for name in saved]


def load_models(runs: Sequence[str], names: Sequence[str]) -> list[TrainedModel]:
    """Load the models of runs or model folders, those of own classes with the classes named."""
    folders = [find_model(Path(run)) for run in runs]
    return list(map(load_model, folders, choose_classes(folders, names)))
