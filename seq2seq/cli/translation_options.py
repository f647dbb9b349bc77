"""The options of the commands that run a model, and the `TranslationOptions` made from them.

Each option is named after the field that it sets. An option that is not given is None, and the
field keeps its default.
"""

import argparse
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from seq2seq.errors import UsageError

if TYPE_CHECKING:
    from seq2seq.decoding.options import SamplingConfig, TranslationOptions
    from seq2seq.decoding.translator import Translator
    from seq2seq.search import SearchConfig


_SAMPLING = ("temperature", "top_k", "top_p", "seed")


def add_models_option(parser: argparse._ActionsContainer, **choices: Any) -> None:
    """Add `--model`, which may be repeated: `arguments.model` is a list, or None."""
    parser.add_argument("--model", action="append", metavar="RUN", **choices)


def add_device_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for device and precision."""
    parser.add_argument("--device", help="auto, cpu, cuda, ... (default auto)")
    parser.add_argument(
        "--precision",
        help="fp32 (default on a CPU, where no output then depends on the batch), bf16, or auto"
        " (default on a GPU): bf16 where it is faster, else fp32",
    )


def add_control_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for the control symbols before each source."""
    parser.add_argument(
        "--to",
        metavar="CODE",
        help="target language, of a model that translates into several or names none",
    )
    parser.add_argument(
        "--tag", metavar="PIECE", help="tag before each source, as in training, such as '<bt>'"
    )


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
    parser.add_argument(
        "--sentences",
        action="store_true",
        default=None,
        help="translate the sentences of a line one by one, keeping the spacing between them",
    )
    parser.add_argument(
        "--source-language",
        metavar="CODE",
        help="language of the text, for documents and abbreviations, such as en (default: the"
        " model's)",
    )
    parser.add_argument(
        "--engine",
        help="native (default), or ctranslate2 (pip install ctranslate2): often faster, also with"
        " --precision int8, but some outputs differ",
    )
    add_device_options(parser)


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of sampling."""
    sampling = parser.add_argument_group("sampling instead of beam search")
    sampling.add_argument(
        "--sample", action="store_true", help="draw translations by their probability"
    )
    sampling.add_argument(
        "--temperature", type=float, metavar="T", help="below 1 sharpens, above 1 flattens"
    )
    sampling.add_argument(
        "--top-k", type=int, metavar="K", help="draw from the K most probable tokens"
    )
    sampling.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="draw from the smallest set of tokens with probability P",
    )
    sampling.add_argument(
        "--seed", type=int, help="a line's samples depend only on the seed and the line (default 1)"
    )


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
