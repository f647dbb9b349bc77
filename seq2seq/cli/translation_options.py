"""The `TranslationOptions` of a command line, and the translator of the models that it names."""

import argparse
import re
from dataclasses import fields
from typing import Any

from seq2seq.cli.arguments import option
from seq2seq.cli.model_class import load_models
from seq2seq.decoding.options import SamplingConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UsageError
from seq2seq.machine.resources import retain_freed_memory
from seq2seq.search import SearchConfig

_SAMPLING = ("temperature", "top_k", "top_p", "seed")


def translation_options(arguments: argparse.Namespace) -> TranslationOptions:
    """Make the options of a translator from a command line."""
    is_sampling = getattr(arguments, "sample", None)  # None of a command without --sample
    if is_sampling and arguments.beam_size is not None:
        raise UsageError("--beam is for beam search: remove --beam or --sample")
    for name in _SAMPLING if is_sampling is False else ():
        if getattr(arguments, name) is not None:
            word = option(name)
            raise UsageError(f"{word} is for sampling: add --sample, or remove {word}")
    try:
        kind = SamplingConfig if is_sampling else SearchConfig
        search = kind(**_given(arguments, kind))
        return TranslationOptions(search=search, **_given(arguments, TranslationOptions))
    except UsageError as error:  # names fields, `beam_size=0`
        message = re.sub(r"(?<!\S)([a-z_]+)=", lambda name: option(name[1]) + " ", str(error))
        raise UsageError(message) from None


def load_translator(arguments: argparse.Namespace) -> Translator:
    """Load the models that a command line names, which translate together."""
    retain_freed_memory()
    models = load_models(arguments.model, arguments.model_class)
    return Translator(models, translation_options(arguments))


def _given(
    arguments: argparse.Namespace,
    config: type[SearchConfig | SamplingConfig | TranslationOptions],
) -> dict[str, Any]:
    """Return the fields of a dataclass that the command line sets; the others have defaults."""
    values = {field.name: getattr(arguments, field.name, None) for field in fields(config)}
    return {name: value for name, value in values.items() if value is not None}
