"""`seq2seq score`: score translations, from a file or by a model, against references."""

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from tabulate import tabulate

from seq2seq import score
from seq2seq.cli.arguments import add_search_options, option
from seq2seq.cli.messages import file_name, report
from seq2seq.cli.text import print_json, read_leniently
from seq2seq.errors import UsageError, UserError
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
    named = dict(zip(arguments.reference, references, strict=True))
    for remark in _remarks(systems, named, scores[0].signature):
        report(remark)
    return 0


def _check_usage(arguments: argparse.Namespace) -> None:
    """Check that the arguments go together, before anything is read."""
    if arguments.model and not arguments.source:
        raise UsageError("--model needs a text to translate: give -s")
    if arguments.paper and arguments.lowercase:
        raise UsageError("the paper's BLEU is cased: remove --lowercase or --paper")
    names = [_first_name(arguments), *arguments.compare]
    for name in arguments.compare:
        if names.count(name) > 1:
            raise UsageError(f"{file_name(name)}: is compared with itself; give two systems")
    if arguments.compare:
        from seq2seq.report.significance import check_seed

        check_seed()
    search = argparse.ArgumentParser()
    add_search_options(search)
    used_by = dict.fromkeys(["source", *vars(search.parse_args([]))], "model")
    used_by["language"] = "paper"
    if arguments.model_class and not arguments.model:
        raise UsageError("--model-class is for --model: add that, or remove it")
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
    # Their refusals come now, before a model translates.
    score.bleu_metric(config)
    if arguments.language:
        from seq2seq.paper.table2 import tokenize

        tokenize("", arguments.language)
    return config


def _first_name(arguments: argparse.Namespace) -> str:
    """Return the name of the system with which others are compared."""
    return arguments.input or " + ".join(arguments.model)


def _read(arguments: argparse.Namespace) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Read, or make, the translations of each system, by its name, and read the references."""
    first, paths = arguments.input or arguments.source, arguments.reference
    lines = read_leniently(first)
    others = {path: read_leniently(path) for path in arguments.compare}
    references = [list(read_text_lines(path)) for path in paths]
    texts = [(first, lines), *others.items(), *zip(paths, references, strict=True)]
    for path, text in texts:
        _refuse_columns(path, text)
    score.check_counts({file_name(path): len(text) for path, text in texts})
    if arguments.model:
        from seq2seq.cli.translation_options import load_translator
        from seq2seq.decoding.translation import OutputWarnings

        translations = load_translator(arguments).translate(lines)
        warnings = OutputWarnings()
        for line, translation in zip(lines, translations, strict=True):
            warnings.count(line, translation)
        report(str(warnings))
        lines = [one.text for one in translations]
    return {_first_name(arguments): lines, **others}, references


def _refuse_columns(path: str, lines: Sequence[str]) -> None:
    """Refuse a file of several columns, which would be scored as one long text."""
    if lines and all("\t" in line for line in lines):
        name = file_name(path)
        raise UserError(
            f"{name}: every line has a tab, so these are columns; give each as a file of its own:"
            f" cut -f 1 {shlex.quote(name)} > FILE"
        )


_PIECES = re.compile("@@( |$)|\u2581")


def _remarks(
    systems: dict[str, list[str]], named: dict[str, list[str]], signature: str
) -> Iterator[str]:
    """Say what makes the scores misleading, or is left out of them."""
    references, texts = list(named.values()), [*systems.items(), *named.items()]
    if too_long := score.too_long_for_ter([text for _, text in texts]):
        yield too_long
    if unsuited := score.unsuited_tokenizer(signature, references):
        yield unsuited
    if "nrefs:var" in signature:
        yield "where some references of a line are blank, the others count (nrefs:var)"
    missing = [not any(map(str.strip, row)) for row in zip(*references, strict=True)]
    for name, lines in systems.items():
        wrong = [
            bool(line.strip())
            for line, is_missing in zip(lines, missing, strict=True)
            if is_missing
        ]
        if any(wrong):
            yield (
                f"{file_name(name)}: {sum(wrong):,} of {len(lines):,} lines have no reference but a"
                " blank one, and their words count as wrong: remove these lines from all files"
            )
    for name, lines in texts:
        if "|tok:none|" not in signature and (count := score.tokenized_lines(lines)):
            yield (
                f"{file_name(name)}: {count:,} of {len(lines):,} lines end in ' .', as tokenized"
                " text does: score text that is not tokenized, or add --tokenize none to compare"
                " the tokens as they are"
            )
        if count := sum(bool(_PIECES.search(line)) for line in lines):
            yield (
                f"{file_name(name)}: {count:,} of {len(lines):,} lines have pieces of words in them"
                " (@@ or \u2581): join the pieces to words before you score"
            )


def _as_text(scores: list[score.Score], comparisons: "list[Comparison]") -> str:
    """Align the scores, then each system's differences, and list the signatures below them."""
    lines = _align([(s.name, f"{s.value:6.2f}", s.detail) for s in scores])
    signatures = {s.name: s.signature for s in scores}
    for (system, baseline), against in groupby(comparisons, lambda c: (c.system, c.baseline)):
        rows = []
        for c in against:
            bounds = "{:.2f} to {:.2f}".format(*c.interval)
            better = file_name(c.better) if c.better else "not significant"
            figures = (f"{c.value:.2f}", f"{c.difference:+.2f}", bounds, f"{c.p_value:.4f}")
            rows.append((c.metric, *figures, better))
            signatures[c.metric] = c.signature
            heading = f"{file_name(system)} against {file_name(baseline)}"
            heading += f" ({c.differing_lines} lines differ)"
        align = ("left", "right", "right", "right", "right", "left")
        table = tabulate(rows, _COLUMNS, "plain", colalign=align, disable_numparse=True)
        lines += ["", heading, *map(str.rstrip, table.splitlines())]
    return "\n".join([*lines, "", *map("|".join, signatures.items())])


_COLUMNS = ("metric", "score", "difference", "95 % interval of the score", "p", "better (p < 0.05)")


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
