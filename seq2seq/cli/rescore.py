"""`seq2seq rescore`: the log-probability of given translations under a model."""

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from seq2seq.cli.options import add_options
from seq2seq.cli.text import print_json, read_parallel
from seq2seq.cli.translation_options import (
    add_control_options,
    add_device_options,
    load_translator,
)

if TYPE_CHECKING:
    from seq2seq.decoding.ensemble import TargetScore


EXAMPLES = """\
examples:
  seq2seq rescore --model runs/captions -s test.en -i test.de
  seq2seq rescore --model runs/captions -s test.en -i test.out.de --per-line > log_probabilities.tsv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq rescore`."""
    texts = {
        "--model RUN ...": "run or model folder; repeat it for an ensemble",
        "-s --source FILE": "sources; - is stdin",
        "-i --input FILE": "their translations; - is stdin",
    }
    add_options(parser, texts, required=True)
    outputs = {
        "--per-line": "write each line's log-probability and number of tokens, separated by a tab",
        "--json": "write one JSON object",
    }
    add_options(parser, outputs)
    add_control_options(parser)
    add_device_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score given translations and print the total, or the score of each line."""
    sources, targets = read_parallel(arguments.source, arguments.input)

    from seq2seq.decoding.ensemble import TargetScore

    scores = load_translator(arguments).log_probabilities(sources, targets)
    total = TargetScore.total(scores)
    if arguments.json:
        lines = {"lines": list(map(_as_dict, scores))} if arguments.per_line else {}
        print_json(_as_dict(total) | lines)
        return 0
    if arguments.per_line:
        for score in scores:
            print(f"{score.log_probability:.6f}\t{score.tokens}")
    print(
        f"log-probability {total.log_probability:.4f}, {total.tokens} tokens,"
        f" perplexity {total.perplexity:.4f}",
        file=sys.stderr if arguments.per_line else sys.stdout,
    )
    return 0


def _as_dict(score: "TargetScore") -> dict[str, Any]:
    return {**asdict(score), "perplexity": score.perplexity}
