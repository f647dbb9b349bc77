"""How `seq2seq translate` looks for translations: beam search or samples, prefixes."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.decoding.beam_search import SearchConfig
    from seq2seq.decoding.sampling import SamplingConfig

_SAMPLING = ("temperature", "top_k", "top_p", "seed")


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """The options of the search, those of beam search first."""
    parser.add_argument("--beam", type=int, help="beam size; 1 is greedy (default 4)")
    parser.add_argument(
        "--alpha", type=float, default=0.6, help="exponent of the length penalty (default 0.6)"
    )
    parser.add_argument(
        "--prefix",
        metavar="FILE",
        help="what each translation begins with, one a line; blank for nothing",
    )
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
        help="draw from the fewest tokens that have P of the probability",
    )
    sampling.add_argument(
        "--seed", type=int, help="a line's samples depend on it and the line alone (default 1)"
    )


def choose_search(arguments: argparse.Namespace) -> "SearchConfig | SamplingConfig":
    """The search that was asked for.

    Raises:
        UsageError: options that don't go together.
        UserError: a choice that can't be met.
    """
    from seq2seq.decoding.beam_search import SearchConfig
    from seq2seq.decoding.sampling import SamplingConfig
    from seq2seq.errors import UsageError

    given = {name: getattr(arguments, name) for name in _SAMPLING}
    given = {name: value for name, value in given.items() if value is not None}
    shared = {"alpha": arguments.alpha, "nbest": 1 if arguments.nbest is None else arguments.nbest}
    if arguments.sample:
        if arguments.beam is not None:
            raise UsageError("--beam is for beam search: leave it out, or --sample")
        return SamplingConfig(**shared, **given)
    if given:
        option = "--" + next(iter(given)).replace("_", "-")
        raise UsageError(f"{option} is for sampling: add --sample, or leave it out")
    if arguments.beam is not None:
        shared["beam_size"] = arguments.beam
    return SearchConfig(**shared)


def read_prefixes(arguments: argparse.Namespace) -> Iterable[str] | None:
    """The lines of --prefix, as they are asked for."""
    from seq2seq.data.lines import read_text_lines

    return None if arguments.prefix is None else read_text_lines(arguments.prefix)
