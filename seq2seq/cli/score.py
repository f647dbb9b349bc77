"""`seq2seq score`: score translations, from a file or by a model, against references."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from seq2seq import score
from seq2seq.cli.arguments import add_search_options, option
from seq2seq.cli.text import file_name, print_json, read_leniently, report
from seq2seq.errors import UsageError
from seq2seq.text import read_text_lines

if TYPE_CHECKING:
    from seq2seq.report.significance import Comparison


def run(arguments: argparse.Namespace) -> int:
    """Score translations and print the scores."""
    _check_usage(arguments)
    config = _scoring(arguments)
    systems, references = _read(arguments)
    hypotheses = next(iter(systems.values()))
    scores = score.score_all(hypotheses, references, config)
    if arguments.paper:
        from seq2seq.paper.table2 import WHY_IT_DIFFERS, paper_bleu

        scores.append(paper_bleu(hypotheses, references, arguments.language or "de"))
        report(WHY_IT_DIFFERS)
    comparisons = []
    if arguments.compare:
        from seq2seq.report.significance import compare

        comparisons = compare(systems, references, config)
    if arguments.json:
        results = {"scores": scores} | ({"comparisons": comparisons} if comparisons else {})
        print_json({name: list(map(asdict, values)) for name, values in results.items()})
    else:
        print(_as_text(scores, comparisons))
    signature = scores[0].signature
    too_long = score.too_long_for_ter([*systems.values(), *references])
    for remark in filter(None, (too_long, score.unsuited_tokenizer(signature, references))):
        report(remark)
    if "nrefs:var" in signature:
        report("where some references of a line are blank, the others count (nrefs:var)")
    return 0


def _check_usage(arguments: argparse.Namespace) -> None:
    """Check that the arguments go together, before anything is read."""
    if arguments.model and not arguments.source:
        raise UsageError("--model needs a text to translate: give -s")
    if arguments.paper and arguments.lowercase:
        raise UsageError("the paper's BLEU is cased: remove --lowercase or --paper")
    search = argparse.ArgumentParser()
    add_search_options(search)
    used_by = dict.fromkeys(["source", *vars(search.parse_args([]))], "model")
    used_by["language"] = "paper"
    for name, user in used_by.items():
        if not getattr(arguments, user) and getattr(arguments, name) is not None:
            raise UsageError(f"{option(name)} is for --{user}: add that, or remove it")


def _scoring(arguments: argparse.Namespace) -> score.ScoreConfig:
    """Make and check the options of the metrics, and the language of the paper's BLEU."""
    tokenizer = arguments.tokenize
    if tokenizer is None and arguments.model:
        from seq2seq.run.config import trained_bleu_tokenizer

        tokenizer = trained_bleu_tokenizer(arguments.model)
    config = score.ScoreConfig(tokenize=tokenizer, lowercase=arguments.lowercase)
    # What these refuse is refused now, before a model translates.
    score.bleu_metric(config)
    if arguments.language:
        from seq2seq.paper.table2 import tokenize

        tokenize("", arguments.language)
    return config


def _read(arguments: argparse.Namespace) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Read, or make, the translations of each system, by its name, and read the references."""
    first, paths = arguments.input or arguments.source, arguments.reference
    systems = {path: read_leniently(path) for path in (first, *arguments.compare)}
    references = [list(read_text_lines(path)) for path in paths]
    texts = systems | dict(zip(paths, references, strict=True))
    score.check_counts({file_name(path): len(lines) for path, lines in texts.items()})
    if arguments.model:
        from seq2seq.cli.translation_options import load_translator
        from seq2seq.report.sets import find_warnings

        sources = systems.pop(first)
        translations = load_translator(arguments).translate(sources)
        report(str(find_warnings(sources, translations)[0]))
        systems = {" + ".join(arguments.model): [one.text for one in translations], **systems}
    return systems, references


def _as_text(scores: list[score.Score], comparisons: "list[Comparison]") -> str:
    """Align the scores, then each system's differences, and list the signatures below them."""
    lines = _align([(s.name, f"{s.value:6.2f}", s.detail) for s in scores])
    signatures = {s.name: s.signature for s in scores}
    for system, against in groupby(comparisons, lambda comparison: comparison.system):
        rows = []
        for c in against:
            bounds = "95%: {:.2f} to {:.2f}".format(*c.interval)
            p_value = f"p = {c.p_value:.4f}"
            rows.append((c.metric, f"{c.value:6.2f}", f"{c.difference:+6.2f}", p_value, bounds))
            signatures[c.metric] = c.signature
            heading = f"{file_name(system)} against {file_name(c.baseline)}"
            heading += f" ({c.differing_lines} lines differ)"
        lines += ["", heading, *_align(rows)]
    return "\n".join([*lines, "", *map("|".join, signatures.items())])


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
