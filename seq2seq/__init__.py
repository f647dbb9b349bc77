"""The original Post-LN Transformer of Vaswani et al. (2017): train, translate, score."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.decoding.config import TranslationOptions as TranslationOptions
    from seq2seq.decoding.translation import Translation as Translation
    from seq2seq.decoding.translator import Translator as Translator


__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    # Late, so that a command that needs no PyTorch doesn't wait for it.
    if name == "Translation":
        from seq2seq.decoding.translation import Translation

        return Translation
    if name == "TranslationOptions":
        from seq2seq.decoding.config import TranslationOptions

        return TranslationOptions
    if name == "Translator":
        from seq2seq.decoding.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
