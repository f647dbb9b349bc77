"""Run one of conf/experiment/results, or Table 3 at a quarter of its widths, and print the outcome.

python scripts/results.py NAME FOLDER [KEY=VALUE...]: FOLDER has the corpora, and further words go
to `seq2seq train`. Each seed is trained, and scored by the search that is best on the validation
set; what is trained is kept, so that the same command continues where it stopped. With the name
`table3`, the rows of Table 3 are trained with two seeds, at a quarter of their widths, and compared
with the paper's.
"""

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from statistics import mean
from types import FrameType

from scripts.table3 import ROWS, Scores, compare
from seq2seq.data.corpus import Split
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import TrainedModel, checkpoints, find_model, load_model
from seq2seq.run.checkpoint import progress_file
from seq2seq.run.config import Config, read_config
from seq2seq.run.folder import RunFolder
from seq2seq.run.records import read_metrics
from seq2seq.score import Score, ScoreConfig, score_all
from seq2seq.search import SearchConfig
from seq2seq.system import signals
from seq2seq.text import read_text_lines


@dataclass(frozen=True)
class Result:
    """A recipe, what it is scored on, and how."""

    tests: dict[str, str]
    """Of each test set, its files in the folder of corpora, without the language and `.gz`."""
    seeds: tuple[int, ...] = (1,)
    target_bleu: float | None = None
    """The validation BLEU whose time is measured."""
    metrics: tuple[str, ...] = ("BLEU", "chrF2", "TER")


def _multi30k(middle: str = "") -> dict[str, str]:
    sets = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    return {name: f"multi30k/{name}{middle}" for name in sets}


_EVERYDAY = {"tatoeba": "tatoeba-en-de/test", "test_2016_flickr": "multi30k/test_2016_flickr"}
_KFTT = {"tune": "kftt/tune", "test": "kftt/test"}
RESULTS = {
    "multi30k_published": Result(_multi30k(".lc.norm.tok"), seeds=(1, 2, 3)),
    "multi30k_raw": Result(_multi30k()),
    "multi30k_34": Result({}, target_bleu=34.0),
    "everyday_en_de": Result(_EVERYDAY),
    "everyday_captions_en_de": Result(_EVERYDAY),
    "kftt_ja_en": Result(_KFTT),
    # sacreBLEU's TER takes a Japanese line for one word.
    "kftt_en_ja": Result(_KFTT, metrics=("BLEU", "chrF2")),
}


_TABLE_3 = "table3"
# Training saves and ends at these.
_SIGNALS = signals("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


@dataclass
class Outcome:
    """What one seed has reached."""

    minutes: float
    tokens: float
    machine: str
    search: str = ""
    scores: dict[str, dict[str, Score]] = field(default_factory=dict)
    """Of each test set, the scores by name."""
    minutes_to_target: float | None = None


def main() -> None:
    """Train and score every seed, and print the row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=[*RESULTS, _TABLE_3])
    parser.add_argument("folder", type=Path, help="has the corpora: see scripts/README.md")
    parser.add_argument("--runs", type=Path, default=Path("runs/results"), metavar="FOLDER")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    words = parser.parse_intermixed_args()
    for override in words.overrides:
        if override.partition("=")[0] in ("seed", "run_dir", "resume"):
            parser.error(f"{override}: set by this script; --runs names another folder")
    if words.name == _TABLE_3:
        print(table_3(words.runs / _TABLE_3, words.folder, words.overrides), end="")
        return
    result = RESULTS[words.name]
    outcomes = []
    for seed in result.seeds:
        run = words.runs / words.name / f"{words.name}_{seed}"
        train(words.name, run, seed, words.folder, words.overrides)
        outcome = measure(run, result.target_bleu)
        trained, config = load_model(find_model(run)), read_config(run)
        search = choose_search(trained, config)
        outcome.search = f"beam {search.beam_size}, alpha {search.alpha:g}"
        for name, (source, reference) in test_files(result, run, words.folder).items():
            texts = read_text_lines(source), read_text_lines(reference)
            outcome.scores[name] = score(trained, search, *texts, config.bleu_tokenizer)
        outcomes.append(outcome)
    print(table(words.name, result, outcomes))


def table_3(runs: Path, corpora: Path, overrides: list[str]) -> str:
    """Train every row of Table 3 but big with two seeds, and compare them with the paper's."""
    found = {}
    for row in ROWS[:-1]:
        folders = []
        for seed in (1, 2):
            run = runs / f"{row.name}_{seed}"
            words = ["experiment=table3_quarter", *row.overrides(4), f"seed={seed}"]
            words += [f"run_dir={run}", "resume=auto", *overrides]
            seq2seq("train", *words, CORPORA=str(corpora.absolute()))
            folders.append(str(run))
        of_seeds = json.loads(seq2seq("runs", "--format", "json", *folders))
        scores = ([one[name] for one in of_seeds] for name in ("perplexity", "BLEU"))
        found[row.name] = Scores(*map(mean, scores))
    return compare(found, divisor=4)


def train(name: str, run: Path, seed: int, corpora: Path, overrides: list[str]) -> None:
    """Train until the recipe ends it."""
    recipe = [f"experiment=results/{name}", f"seed={seed}", f"run_dir={run}", "resume=auto"]
    seq2seq("train", *recipe, *overrides, CORPORA=str(corpora.absolute()))


def choose_search(trained: TrainedModel, config: Config) -> SearchConfig:
    """Choose the beam size and the length penalty with the best BLEU on the validation set."""
    sources, references = zip(*Split(config.data, "valid").pairs(), strict=True)
    bleu = []
    for beam, alpha in itertools.product((4, 8), (0.6, 0.8, 1.0)):
        search = SearchConfig(beam_size=beam, alpha=alpha)
        scores = score(trained, search, sources, references, config.bleu_tokenizer)
        bleu.append((scores["BLEU"].value, search))
    return max(bleu, key=itemgetter(0))[1]


def score(
    trained: TrainedModel,
    search: SearchConfig,
    sources: Iterable[str],
    references: Iterable[str],
    tokenizer: str | None,
) -> dict[str, Score]:
    """Translate and score a test set; return the scores by name."""
    translator = Translator(trained, TranslationOptions(search=search))
    outputs = [translation.text for translation in translator.translate(list(sources))]
    scores = score_all(outputs, [list(references)], ScoreConfig(tokenize=tokenizer))
    return {score.name: score for score in scores}


def seq2seq(*words: str, **variables: str) -> str:
    """Run a command, which receives the signals to end, and return what it prints."""
    received: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        received.append(number)
        process.send_signal(number)

    with subprocess.Popen(
        [sys.executable, "-m", "seq2seq", *words],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # else a terminal's Ctrl-C would come twice
    ) as process:
        handled = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, pass_on) for number in handled}
        printed = process.communicate()[0]
    for number, handler in before.items():
        signal.signal(number, handler)
    if process.returncode or received:  # the command has said why
        code = process.returncode or 128 + received[0]
        sys.exit(code if code > 0 else 128 - code)
    return printed


def measure(run: Path, target_bleu: float | None) -> Outcome:
    """Read time, tokens, machine and search of a run that has ended."""
    state = json.loads(progress_file(checkpoints(run)[-1]).read_bytes())
    tokens, step, reached = 0.0, 0, []
    for record in read_metrics(RunFolder(run).metrics):
        if "train/target_tokens" in record:
            of_a_step = record["train/source_tokens"] + record["train/target_tokens"]
            tokens += (record["step"] - step) * of_a_step
            step = int(record["step"])
        # The log rounds BLEU, so that it can't say which validation was the first to reach it.
        if target_bleu is not None and record.get("valid/bleu", 0.0) >= target_bleu:
            reached.append(record["step"])
    log = (run / "train.log").read_text()
    found = re.search(rf"step {reached[0]}, ([\d.]+) min: ", log) if reached else None
    finished = RunFolder(run).read_finished()
    return Outcome(
        minutes=state["progress"]["seconds"] / 60,
        tokens=tokens,
        machine=f"{finished['machine']}, {state['changeable']['threads']} threads",
        minutes_to_target=float(found[1]) if found else None,
    )


def test_files(result: Result, run: Path, corpora: Path) -> dict[str, tuple[Path, Path]]:
    """Name source and reference of each test set, in the run's languages.

    A test set of which a file is missing is skipped: not every language has all of them.
    """
    data = read_config(run).data
    found = {}
    for name, start in result.tests.items():
        languages = (data.source_language, data.target_language)
        source, reference = (corpora / f"{start}.{language}.gz" for language in languages)
        missing = [str(path) for path in (source, reference) if not path.exists()]
        if missing:
            print(f"{name} is skipped: no file {' and '.join(missing)}", file=sys.stderr)
        else:
            found[name] = (source, reference)
    return found


def table(name: str, result: Result, outcomes: list[Outcome]) -> str:
    """Draw the row, one for each test set, with its head and the signatures below."""
    row = {
        "result": name,
        "seeds": ", ".join(str(seed) for seed in result.seeds),
        "minutes": _spread([o.minutes for o in outcomes], 1),
        "tokens": f"{mean(o.tokens for o in outcomes) / 1e6:.1f} M",
        "search": "; ".join(dict.fromkeys(o.search for o in outcomes)),
    }
    if result.target_bleu is not None:
        times = [o.minutes_to_target for o in outcomes]
        known = [time for time in times if time is not None]
        title = f"minutes to validation BLEU {result.target_bleu:g}"
        row[title] = _spread(known, 1) if len(known) == len(times) else "not reached"
    rows: list[dict[str, str]] = []
    signatures: dict[str, str] = {}
    for test in outcomes[0].scores:
        rows.append(row | {"test set": test})
        for metric in result.metrics:
            scores = [o.scores[test][metric] for o in outcomes if metric in o.scores[test]]
            complete = len(scores) == len(outcomes)  # TER is not computed for very long lines
            rows[-1][metric] = _spread([s.value for s in scores], 2) if complete else ""
            if complete:
                signatures[metric] = scores[0].signature
    rows = rows or [row]
    titles = list(rows[0])
    drawn = [titles, ["---"] * len(titles), *([row[title] for title in titles] for row in rows)]
    lines = ["| " + " | ".join(cells) + " |" for cells in drawn]
    lines += ["", f"Machine: {'; '.join(dict.fromkeys(o.machine for o in outcomes))}."]
    lines += [f"- {metric}: `{signature}`" for metric, signature in signatures.items()]
    return "\n".join(lines)


def _spread(values: list[float], digits: int) -> str:
    """Show the mean and, of several values, the smallest and the largest."""
    text = f"{mean(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return text


if __name__ == "__main__":
    main()
