"""`seq2seq tune`: choose beam size and length penalty on the validation set."""

import argparse
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli.options import add_options
from seq2seq.cli.text import print_json, read_parallel, report
from seq2seq.cli.translation_options import (
    add_control_options,
    add_device_options,
    translation_options,
)
from seq2seq.errors import UsageError, UserError

if TYPE_CHECKING:
    from seq2seq.decoding.options import TranslationOptions
    from seq2seq.model_folder import TrainedModel, TunedSearch
    from seq2seq.report.sets import TextSet
    from seq2seq.run.config import Config
    from seq2seq.score import ScoreConfig

BEAM_SIZES = (1, 2, 4, 8)
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""From 0 to 1, as Wu et al. (2016) tried them. A higher one can win on the validation set because
its references are long, and then make translations of other text repeat themselves."""
EXAMPLES = """\
The choice is written into the model folder: translate, score and serve search with it, unless
--beam or --alpha says otherwise.

examples:
  seq2seq tune --model runs/captions
  seq2seq tune --model runs/captions -s valid.en -r valid.de --beams 4 --alphas 0.6,0.8,1 --dry-run
"""


@dataclass(frozen=True)
class Trial:
    """The score of a search on the validation set."""

    beam_size: int
    alpha: float
    metric: str
    value: float
    length_ratio: float  # tokens of the translations per token of the references
    signature: str  # of the metric


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq tune`."""
    add_options(parser, {"--model RUN": "run or model folder"}, required=True)
    options = {
        "-s --source FILE": "text to use instead of the run's validation set",
        "-r --reference FILE": "its references",
        "--beams N,N,...": "beam sizes (default 1,2,4,8)",
        "--alphas A,A,...": "exponents of the length penalty (default 0,0.2,... to 1)",
        "--tokenize T": "BLEU's tokenizer (default: as in the run's validations)",
        "--select-by bleu|chrf": "choose by BLEU or by chrF2 (default: as the run chose its models,"
        " else BLEU)",
        "--dry-run": "write nothing into the model",
        "--json": "write one JSON object",
    }
    beams = partial(_values, int, "integers, such as 2,4,8")
    alphas = partial(_values, float, "numbers, such as 0.6,0.8,1")
    add_options(parser, options, beams=beams, alphas=alphas)
    add_control_options(parser)
    add_device_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table of scores, and write the choice into the model folder."""
    from seq2seq.files import manifest_sum
    from seq2seq.machine.resources import retain_freed_memory
    from seq2seq.model_folder import TunedSearch, check_model_path, load_model
    from seq2seq.run.config import trained_bleu_tokenizer
    from seq2seq.run.folder import RunFolder, find_model
    from seq2seq.score import ScoreConfig, unsuited_tokenizer
    from seq2seq.search import SearchConfig

    if (arguments.source is None) != (arguments.reference is None):
        raise UsageError("-s and -r go together")
    beam_sizes, alphas = arguments.beams or BEAM_SIZES, arguments.alphas or ALPHAS
    for values in product(beam_sizes, alphas):
        TunedSearch(*values)  # checks them
    folder = find_model(Path(arguments.model))
    parent = folder.absolute().parent
    if not arguments.dry_run:
        check_model_path(folder)
        if not os.access(parent, os.W_OK):
            raise UserError(f"{parent}: can't be written: change its mode, or add --dry-run")
    (text, config), options = _text(arguments), translation_options(arguments)
    options = replace(options, to=options.to or text.language)
    select_by = arguments.select_by or (config and config.training.select_by)
    tokenizer = arguments.tokenize or trained_bleu_tokenizer([arguments.model])
    scoring = ScoreConfig(tokenize=tokenizer)
    manifest = manifest_sum(folder)
    retain_freed_memory()
    model, by_chrf, trials = load_model(folder), select_by == "chrf", list[Trial]()
    for beam_size in beam_sizes:
        trials += _try_alphas(model, text, beam_size, alphas, options, scoring, by_chrf=by_chrf)
    # Of equals, the smallest beam, then the alpha nearest the paper's.
    paper = SearchConfig().alpha
    best = max(trials, key=lambda t: (t.value, -t.beam_size, -abs(t.alpha - paper)))
    if remark := unsuited_tokenizer(best.signature, [text.references]):
        report(remark)
    search, written = TunedSearch(best.beam_size, best.alpha), None
    try:
        if not arguments.dry_run:
            _write(folder, search, manifest, Path(arguments.model), config, options, scoring)
            written = str(folder)
    finally:  # the search has taken long
        if arguments.json:
            print_json(
                {"trials": list(map(asdict, trials)), "best": asdict(best), "written": written}
            )
        else:
            _print(trials, best, len(text.sources), written)
    if written and not arguments.json and RunFolder(Path(arguments.model)).page.exists():
        print(f"next: seq2seq report {shlex.quote(arguments.model)}, for a page with this search")
    return 0


def _text(arguments: argparse.Namespace) -> "tuple[TextSet, Config | None]":
    """Read the given text, or the validation set of a run with its configuration."""
    from seq2seq.report.run_report import validation_sets
    from seq2seq.report.sets import TextSet
    from seq2seq.run.config import read_config

    if arguments.source is not None:
        return TextSet("", *read_parallel(arguments.source, arguments.reference)), None
    try:
        config = read_config(Path(arguments.model))
        sets = validation_sets(Path(arguments.model), config)
    except UserError as error:
        raise UserError(f"{error}; or give text with -s SOURCE -r REFERENCE") from None
    fitting = [text for text in sets if arguments.to in (None, text.language) or not text.language]
    if not fitting:
        languages = ", ".join(sorted({text.language or "" for text in sets}))
        raise UsageError(
            f"--to {arguments.to}: the run was validated in {languages}; give text with -s SOURCE"
            " -r REFERENCE"
        )
    return fitting[0], config


def _try_alphas(
    model: "TrainedModel",
    text: "TextSet",
    beam_size: int,
    alphas: Sequence[float],
    options: "TranslationOptions",
    scoring: "ScoreConfig",
    *,
    by_chrf: bool,
) -> Iterator[Trial]:
    """Score a beam size with every alpha by BLEU or chrF2; all alphas share one search."""
    from seq2seq.decoding.options import SweepConfig
    from seq2seq.decoding.translator import Translator
    from seq2seq.score import all_metrics, signature

    metrics = all_metrics(scoring, [])[: 2 if by_chrf else 1]
    search = SweepConfig(beam_size=beam_size, alphas=tuple(alphas))
    translations = Translator(model, replace(options, search=search)).translate(text.sources)
    for number, alpha in enumerate(alphas):
        # A line without words has one candidate, an empty line none.
        of_alpha = (t.candidates[number:] or t.candidates for t in translations)
        outputs = [candidates[0].text if candidates else "" for candidates in of_alpha]
        results = [metric.corpus_score(outputs, [text.references]) for metric in metrics]
        best, ratio = results[-1], results[0].ratio
        mark = signature(metrics[-1].get_signature(), scoring)
        yield Trial(beam_size, alpha, best.name, best.score, ratio, mark)


def _write(
    folder: Path,
    search: "TunedSearch",
    manifest: str,
    run: Path,
    config: "Config | None",
    options: "TranslationOptions",
    scoring: "ScoreConfig",
) -> None:
    """Write the choice and, into the card of a run's model, the scores of its validation sets."""
    from seq2seq.decoding.translator import Translator
    from seq2seq.model_folder import CARD_FILE, save_search
    from seq2seq.report.card import replace_scores, score_for_card
    from seq2seq.report.run_report import validation_sets
    from seq2seq.search import SearchConfig

    if config is None or not (folder / CARD_FILE).exists():
        save_search(folder, search, manifest)
        return
    options = replace(options, search=SearchConfig(**asdict(search)))
    scored = score_for_card(
        Translator.load(folder, options),
        validation_sets(run, config),
        scoring,
        run=run.absolute().name,
        data=config.data.name,
    )
    save_search(folder, search, manifest, partial(replace_scores, scored=scored))


def _print(trials: Sequence[Trial], best: Trial, lines: int, written: str | None) -> None:
    print(
        f"{lines:,} lines, {best.metric} {best.signature}\n"
        f"{best.metric} and length ratio by alpha and beam:"
    )
    header, rows = "alpha", dict[float, str]()
    for trial in trials:
        if trial.alpha == trials[0].alpha:
            header += f"{f'beam {trial.beam_size}':>16}"
        mark = "*" if trial == best else " "
        cell = f"{f'{trial.value:.2f} ({trial.length_ratio:.3f}){mark}':>16}"
        rows[trial.alpha] = rows.get(trial.alpha, f"{trial.alpha:<5g}") + cell
    print(header, *rows.values(), sep="\n")
    print(f"best: beam {best.beam_size}, alpha {best.alpha:g}, {best.value:.2f} {best.metric}")
    print("nothing written" if written is None else f"written: {written}")


def _values(kind: Callable[[str], float], form: str, text: str) -> list[float]:
    """Read the values of an option that are separated by commas, each once."""
    try:
        return list(dict.fromkeys(map(kind, text.split(","))))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: write {form}") from None
