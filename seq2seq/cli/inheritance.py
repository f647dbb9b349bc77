"""What the configuration of `seq2seq train` takes over from the model of `init_from`."""

from collections.abc import Sequence
from dataclasses import asdict

from omegaconf import DictConfig

from seq2seq.data.config import DataConfig
from seq2seq.errors import UsageError
from seq2seq.model import TransformerConfig
from seq2seq.run.parent import Description

_VOCABULARY = "data.tokenizer."
_SAMPLING = "data.tokenizer.sampling"  # of any vocabulary


def inherit(chosen: DictConfig, parent: Description, overrides: Sequence[str]) -> None:
    """Set what nobody has chosen to what the parent has: sizes, dropout, vocabulary, languages.

    A size that was chosen stays as it is: the training refuses it if it is not the parent's.

    Args:
        chosen: the composed configuration, which is changed.
        parent: the model of `init_from`.
        overrides: the overrides on the command line.

    Raises:
        UsageError: if an override is about the vocabulary, which is the parent's.
    """
    keys = [override.partition("=")[0].lstrip("+") for override in overrides]
    refused = [key for key in keys if key.startswith(_VOCABULARY) and key != _SAMPLING]
    if refused:
        raise UsageError(
            f"{refused[0]}: the vocabulary is that of init_from={chosen.init_from}"
            f" ({parent.vocab_size:,} pieces): leave {_VOCABULARY}* out"
        )
    default, inherited = asdict(TransformerConfig()), asdict(parent.model)
    for name, value in default.items():
        if chosen.model[name] == value and not {"model", f"model.{name}"} & set(keys):
            chosen.model[name] = inherited[name]
    chosen.data.tokenizer.vocab_size = parent.vocab_size
    languages = (DataConfig.source_language, DataConfig.target_language)
    if (chosen.data.source_language, chosen.data.target_language) == languages:
        chosen.data.source_language = parent.source_language
        chosen.data.target_language = parent.target_language
    chosen.init_sha256 = parent.sha256
