"""The original Post-LN Transformer of Vaswani et al. (2017): train, translate, score."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.decoding.options import TranslationOptions as TranslationOptions
    from seq2seq.decoding.translation import Translation as Translation
    from seq2seq.decoding.translator import Translator as Translator

__version__ = "0.3.0"

_MODULES = {
    "Translation": "translation",
    "TranslationOptions": "options",
    "Translator": "translator",
}


def __getattr__(name: str) -> object:
    # Late, so that a command that needs no PyTorch doesn't wait for it.
    if name in _MODULES:
        return getattr(import_module(f"seq2seq.decoding.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*_MODULES, "__version__"]
