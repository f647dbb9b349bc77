"""Translators with few words."""

from collections.abc import Sequence
from dataclasses import fields

from seq2seq.decoding.options import SamplingConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import TrainedModel
from seq2seq.search import SearchConfig

OPTIONS = {field.name for field in fields(TranslationOptions)}


def new_translator(trained: TrainedModel | Sequence[TrainedModel], **choices: object) -> Translator:
    """Make a translator; the choices are fields of the options and of the search: `nbest=2`."""
    options = {"device": "cpu", "batch_tokens": 64, "workers": 1, "max_extra_tokens": 4} | choices
    search = {name: options.pop(name) for name in options.keys() - OPTIONS}
    kind = SamplingConfig if "seed" in search else SearchConfig
    return Translator(trained, TranslationOptions(search=kind(**search), **options))
