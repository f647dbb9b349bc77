"""Train the paper's model on Multi30k, and each change of nine years, and print what each is worth.

python scripts/modern.py FOLDER [--runs FOLDER] [KEY=VALUE...]: FOLDER has the corpora
(scripts/README.md). The paper's model and the one with all changes are trained at three learning
rates and keep the one with the best validation BLEU; each change alone has that of the better of
the two. Then the warm-up is shortened, with the norm after and before the sublayer, in runs of
300 steps. Two runs at a time have a thread each; started again, it continues where it stopped.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median

from tabulate import tabulate

from seq2seq.model_folder import find_model, read_description
from seq2seq.run.folder import RunFolder
from seq2seq.run.records import read_metrics

CHANGES = ("norm_position", "norm", "positions", "activation", "num_kv_heads", "bias")
SCALES, SEEDS, WARM_UPS = (0.25, 0.5, 1.0), (1, 2), (300, 100, 30, 10, 3)
TEST = "multi30k/test_2016_flickr"


@dataclass(frozen=True)
class Run:
    """A run of conf/experiment/modern."""

    model: str
    scale: float
    seed: int = 1
    warm_up: int | None = None
    """Of a short run; other runs have the recipe's."""

    @property
    def overrides(self) -> list[str]:
        """What `seq2seq train` gets."""
        words = [f"experiment=modern/{self.model}", f"seed={self.seed}"]
        words += [f"training.learning_rate_scale={self.scale}"]
        if self.warm_up is not None:
            words += [f"training.warmup_steps={self.warm_up}", "training.max_steps=300"]
        return words

    @property
    def name(self) -> str:
        """The name of its folder."""
        return "_".join(map(str, (self.model, self.scale, self.seed, self.warm_up or "full")))


@dataclass(frozen=True)
class Outcome:
    """The last validation of a run, its speed and size; nothing of a run that diverged."""

    bleu: float = 0.0
    loss: float | None = None
    tokens_per_second: float = 0.0
    parameters: int = 0
    test_bleu: float | None = None


def main() -> None:
    """Train, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="has the corpora: see scripts/README.md")
    parser.add_argument("--runs", type=Path, default=Path("runs/modern"), metavar="FOLDER")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    words = parser.parse_intermixed_args()
    words.runs.mkdir(parents=True, exist_ok=True)
    train = partial(outcome, runs=words.runs, corpora=words.folder, overrides=words.overrides)
    with ThreadPoolExecutor(2) as pool:
        tried = [Run(model, scale) for model in ("paper", "all") for scale in SCALES]
        found = dict(zip(tried, pool.map(train, tried), strict=True))
        best = {run.model: run for run in sorted(tried, key=lambda run: found[run].bleu)}
        better = max(best.values(), key=lambda run: found[run].bleu)
        models = ("paper", *CHANGES, "all")
        runs = [Run(m, best.get(m, better).scale, seed) for m in models for seed in SEEDS]
        found |= zip(runs, pool.map(train, runs), strict=True)
        scale = best["paper"].scale
        short = [Run(m, scale, 1, w) for m in ("paper", "norm_position") for w in WARM_UPS]
        found |= zip(short, pool.map(train, short), strict=True)

    table = partial(tabulate, tablefmt="github", disable_numparse=True)
    titles = ("model", "rate", "test BLEU", "valid BLEU", "loss", "tokens/s", "parameters")
    seeds = {m: [(run, found[run]) for run in runs if run.model == m] for m in models}
    print(table([row(model, seeds[model]) for model in models], titles))
    losses = [
        [w, *(number(found[run].loss, 3) for run in short if run.warm_up == w)] for w in WARM_UPS
    ]
    print("\nValidation loss after 300 steps:\n")
    print(table(losses, ("warm-up", "norm after", "norm before")))


def outcome(run: Run, *, runs: Path, corpora: Path, overrides: Sequence[str]) -> Outcome:
    """Train a run to its end, score its model, and read what it has recorded."""
    folder, log = runs / run.name, runs / f"{run.name}.log"
    words = [*run.overrides, f"run_dir={folder}", "resume=auto", *overrides]
    environment = os.environ | {"CORPORA": str(corpora.absolute()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seq2seq"]
    with log.open("w") as file:
        ended = subprocess.run([*command, "train", *words], env=environment, stderr=file)
    if ended.returncode:
        if "is not finite" in log.read_text():
            return Outcome()
        raise SystemExit(f"{run.name}: ended with exit code {ended.returncode}; see {log}")
    records = list(read_metrics(RunFolder(folder).metrics))
    last = [record for record in records if "valid/bleu" in record][-1]
    speeds = [r["train/tokens_per_second"] for r in records if "train/tokens_per_second" in r]
    trained = read_description(find_model(folder))
    test_bleu = None
    if run.warm_up is None:
        languages = (trained.source_language, trained.target_language)
        source, reference = (str(corpora / f"{TEST}.{language}.gz") for language in languages)
        score = [*command, "score", "--model", folder, "-s", source, "-r", reference, "--json"]
        with log.open("a") as file:
            scored = subprocess.check_output(score, env=environment, stderr=file)
        scores = json.loads(scored)["scores"]
        test_bleu = next(score["value"] for score in scores if score["name"] == "BLEU")
    return Outcome(
        bleu=last["valid/bleu"],
        loss=last["valid/loss"],
        tokens_per_second=median(speeds),
        parameters=sum(parameter.numel() for parameter in trained.model.parameters()),
        test_bleu=test_bleu,
    )


def row(model: str, seeds: Sequence[tuple[Run, Outcome]]) -> list[str]:
    """Draw a row: the mean of the seeds, and of the test BLEU each one."""
    outcomes = [found for _, found in seeds]
    if any(found.loss is None for found in outcomes):
        return [model, f"{seeds[0][0].scale:g}", *["diverged"] * 5]
    tests = [found.test_bleu or 0.0 for found in outcomes]
    return [
        model,
        f"{seeds[0][0].scale:g}",
        f"{mean(tests):.2f} ({', '.join(f'{value:.2f}' for value in tests)})",
        f"{mean(found.bleu for found in outcomes):.2f}",
        number(mean(found.loss or 0.0 for found in outcomes), 3),
        f"{mean(found.tokens_per_second for found in outcomes):,.0f}",
        f"{outcomes[0].parameters:,}",
    ]


def number(value: float | None, digits: int) -> str:
    """Show a number, or that there is none."""
    return "diverged" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    main()
