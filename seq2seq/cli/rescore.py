"""`seq2seq rescore`: the log-probability of given translations under a model."""

import argparse
import sys
from dataclasses import asdict
from typing import Any

from seq2seq.cli.text import print_json, read_parallel

_HUGE = 1e6  # a perplexity that is written with an exponent


def run(arguments: argparse.Namespace) -> int:
    """Score given translations and print the total, or the score of each line."""
    sources, targets = read_parallel(arguments.source, arguments.input)
    # PyTorch is not loaded for texts that can't be read.
    from seq2seq.cli.translation_options import load_translator
    from seq2seq.decoding.ensemble import TargetScore

    def as_dict(score: TargetScore) -> dict[str, Any]:
        return {**asdict(score), "perplexity": score.perplexity}

    scores = load_translator(arguments).log_probabilities(sources, targets)
    total = TargetScore.total(scores)
    if arguments.json:
        lines = {"lines": list(map(as_dict, scores))} if arguments.per_line else {}
        print_json(as_dict(total) | lines)
        return 0
    if arguments.per_line:
        for score in scores:
            print(f"{score.log_probability:.6f}\t{score.tokens}")
    style = ".4f" if total.perplexity < _HUGE else ".1e"
    print(
        f"log-probability {total.log_probability:.4f}, {total.tokens} tokens,"
        f" perplexity {total.perplexity:{style}}",
        file=sys.stderr if arguments.per_line else sys.stdout,
    )
    return 0
