"""`seq2seq score --forced`: how probable a model finds given translations."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seq2seq.decoding.scoring import TargetScore


def check_forced(arguments: argparse.Namespace) -> None:
    """Refuse what forced scoring has no use for, and what it lacks.

    Raises:
        UsageError: what is wrong.
    """
    from seq2seq.errors import UsageError

    for option, given in (
        ("-r", arguments.reference),
        ("-t", arguments.test_set),
        ("-l", arguments.language_pair),
        ("--compare", arguments.compare),
        ("--paper", arguments.paper),
        ("--tokenize", arguments.tokenize),
        ("--lowercase", arguments.lowercase),
        ("--language", arguments.language),
        ("--samples", arguments.samples is not None),
        ("--beam", arguments.beam is not None),
        ("--alpha", arguments.alpha is not None),
    ):
        if given:
            raise UsageError(f"--forced neither searches nor compares: leave out {option}")
    if not (arguments.model and arguments.source and arguments.input):
        raise UsageError(
            "--forced needs a model with --model, its sources with -s and translations with -i"
        )
    if arguments.input == arguments.source == "-":
        raise UsageError("standard input can't be both sources and translations")


def score_forced(arguments: argparse.Namespace, read: Callable[[str], list[str]]) -> int:
    """Score given translations and print the sum, or each line's score.

    Raises:
        UserError: a file that can't be read, unequal counts, no model, or a line that is too long.
    """
    from seq2seq.decoding.scoring import TargetScore
    from seq2seq.decoding.translator import Translator
    from seq2seq.errors import UserError
    from seq2seq.kernels.memory import retain_freed_memory

    sources, targets = read(arguments.source), read(arguments.input)
    if len(sources) != len(targets):
        raise UserError(
            f"{arguments.source} has {len(sources)} lines, {arguments.input} has {len(targets)}:"
            " give one translation a source"
        )
    if not sources:
        raise UserError(f"{arguments.source}: no lines, nothing to score")
    retain_freed_memory()
    translator = Translator.load(
        arguments.model, device=arguments.device, precision=arguments.precision
    )
    scores = translator.score(sources, targets)
    total = TargetScore.total(scores)
    if arguments.json:
        result = _as_dict(total)
        if arguments.per_line:
            result["lines"] = [_as_dict(score) for score in scores]
        print(json.dumps(result, indent=2))
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
