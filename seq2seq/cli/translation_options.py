"""The options of the commands that run a model, and the `TranslationOptions` made from them.

Each option is named after the field that it sets. An option that is not given is None, and the
field keeps its default.
"""

import argparse
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from seq2seq.cli.options import add_options
from seq2seq.errors import UsageError

if TYPE_CHECKING:
    from seq2seq.decoding.options import SamplingConfig, TranslationOptions
    from seq2seq.decoding.translator import Translator
    from seq2seq.search import SearchConfig


ENGINE = {
    "--engine ENGINE": "native (default), or ctranslate2 (pip install ctranslate2): often faster,"
    " also with --precision int8, but some outputs differ",
}
_SAMPLING = ("temperature", "top_k", "top_p", "seed")


def add_device_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for device and precision."""
    options = {
        "--device DEVICE": "auto, cpu, cuda, ... (default auto)",
        "--precision PRECISION": "fp32 (default on a CPU, where no output then depends on the"
        " batch), bf16, or auto (default on a GPU): bf16 where it is faster, else fp32",
    }
    add_options(parser, options)


def add_control_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for the control symbols before each source."""
    options = {
        "--to CODE": "target language, of a model that translates into several or names none",
        "--tag PIECE": "tag before each source, as in training, such as '<bt>'",
    }
    add_options(parser, options)


def add_beam_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of beam search, and of a file of terms."""
    parser.add_argument(
        "--beam",
        dest="beam_size",
        type=int,
        metavar="N",
        help="hypotheses kept at each step; 1 is greedy search (default 4)",
    )
    parser.add_argument("--alpha", type=float, help="exponent of the length penalty (default 0.6)")
    parser.add_argument(
        "--glossary",
        metavar="FILE",
        help="terms and the translations to use: on each line a term, a tab, and its translation",
    )


def add_search_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of commands that translate files."""
    add_beam_options(parser)
    add_control_options(parser)
    options = {
        "--sentences": "translate the sentences of a line one by one, keeping the spacing between"
        " them",
        "--source-language CODE": "language of the text, for documents and abbreviations, such as"
        " en (default: the model's)",
    }
    add_options(parser, options | ENGINE)
    parser.set_defaults(sentences=None)
    add_device_options(parser)


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of sampling."""
    options = {
        "--sample": "draw translations by their probability",
        "--temperature T": "below 1 sharpens, above 1 flattens",
        "--top-k K": "draw from the K most probable tokens",
        "--top-p P": "draw from the smallest set of tokens with probability P",
        "--seed SEED": "a line's samples depend only on the seed and the line (default 1)",
    }
    group = parser.add_argument_group("sampling instead of beam search")
    add_options(group, options, float, top_k=int, seed=int)


def translation_options(arguments: argparse.Namespace) -> "TranslationOptions":
    """Make the options of a translator from a command line."""
    from seq2seq.decoding.options import SamplingConfig, TranslationOptions
    from seq2seq.search import SearchConfig

    search: SearchConfig | SamplingConfig
    try:
        if "sample" in arguments and arguments.sample:
            if arguments.beam_size is not None:
                raise UsageError("--beam is for beam search: remove --beam or --sample")
            search = SamplingConfig(**_given(arguments, SamplingConfig))
        else:
            for name in _SAMPLING if "sample" in arguments else ():
                if getattr(arguments, name) is not None:
                    word = option(name)
                    raise UsageError(f"{word} is for sampling: add --sample, or remove {word}")
            search = SearchConfig(**_given(arguments, SearchConfig))
        return TranslationOptions(search=search, **_given(arguments, TranslationOptions))
    except UsageError as error:  # names fields, `beam_size=0`
        message = re.sub(r"(?<!\S)([a-z_]+)=", lambda name: option(name[1]) + " ", str(error))
        raise UsageError(message) from None


def load_translator(arguments: argparse.Namespace) -> "Translator":
    """Load the models that a command line names, which translate together."""
    from seq2seq.decoding.translator import Translator
    from seq2seq.machine.resources import retain_freed_memory

    retain_freed_memory()
    return Translator.load(arguments.model, translation_options(arguments))


def option(field: str) -> str:
    """Return the option that sets a field."""
    return "--beam" if field == "beam_size" else "--" + field.replace("_", "-")


def _given(
    arguments: argparse.Namespace,
    config: "type[SearchConfig | SamplingConfig | TranslationOptions]",
) -> dict[str, Any]:
    """Return the fields of a dataclass that the command line sets."""
    values = {field.name: getattr(arguments, field.name, None) for field in fields(config)}
    return {name: value for name, value in values.items() if value is not None}
