"""Measure what only a GPU can show, over as many calls and days as that takes.

    bash scripts/gpu_day.sh [--corpora DIR] [--wheels DIR] [--only NAME]... [--again] [FOLDER]
    bash scripts/gpu_day.sh --small [FOLDER]

A call takes less than ten minutes (--seconds). It does the parts below in their order, those that
matter most first, and each within its own limit. A part that is done is not done again; a training
that was stopped goes on. FOLDER (runs/gpu_day) keeps results.jsonl, a line for each try, which is
all that has to travel to the next machine, and made of it:

    table.md     each part with its figures, card, program, date and command
    table3.md    the rows of Table 3 beside the paper's, once one was run
    output/      what each part printed

Nothing is downloaded. --corpora names the folder of corpora that scripts/README.md describes;
quality and Table 3 need it. --wheels names a folder of wheels to install for this script alone.
--small does everything at tiny sizes on a CPU, to see beforehand that all is there.
"""

import argparse
import gzip
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from scripts.measurements import CHECKOUT, Figures, Measurements, Part, Result
from scripts.table3 import ROWS, PaperRow, Scores, compare

# Figures.


def figures_of_step(printed: str) -> Figures:
    """Read the first row of the benchmark's table."""
    row = first_line(printed, "| ours", "| torch")
    _, speed, _, seconds, gib, _, waiting, filled = (
        cell.strip() for cell in row.strip("|").split("|")
    )
    return {
        "tokens/s": float(speed.replace(",", "")),
        "ms": 1000 * float(seconds),
        "GiB": float(gib),
        "waiting": waiting,
        "filled up": filled,
    }


def figures_of_run(run: Path) -> Figures:
    """Read the speed of a training, its steps, and the scores of its best model."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    speeds = [r["train/tokens_per_second"] for r in records if "train/tokens_per_second" in r]
    figures: Figures = {"steps": max(r["step"] for r in records)}
    if speeds:
        figures["tokens/s"] = statistics.median(speeds)
    if validations := [r for r in records if "valid/bleu" in r]:
        best = max(validations, key=lambda r: (r["valid/bleu"], -r["valid/loss"]))
        figures["perplexity"], figures["BLEU"] = best["valid/perplexity"], best["valid/bleu"]
    with suppress(OSError):  # of the model with which the run ended, which may be a mean
        scores = json.loads((run / "scores.json").read_text())["sets"]["valid"]
        figures["BLEU"] = {score["name"]: score["value"] for score in scores}["BLEU"]
    return figures


def figures_of_recipe(printed: str) -> Figures:
    """Read the search and the BLEU of each test set from the rows of `results.py`."""
    lines = [
        line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("| ")
    ]
    rows = [dict(zip(lines[0], cells, strict=False)) for cells in lines[2:]]
    figures: Figures = {row["test set"]: row["BLEU"] for row in rows if "test set" in row}
    return {"search": rows[0]["search"], **figures}


def last_line(printed: str) -> Figures:
    """Take the last line, which sums up."""
    return {"": printed.strip().splitlines()[-1].strip("= ")}


def bleu_line(printed: str) -> Figures:
    """Read sacreBLEU's line."""
    return {"": first_line(printed, "BLEU")}


def first_line(printed: str, *beginnings: str) -> str:
    """Return the first line that begins in one of these ways."""
    for line in printed.splitlines():
        if line.startswith(beginnings):
            return line
    raise LookupError(f"no line begins with {' or '.join(beginnings)}")


# The parts.


@dataclass(frozen=True)
class Scale:
    """The sizes of all parts."""

    device: str
    precision: str
    """The precision of the steps that are timed."""
    tests: tuple[str, ...]
    training: tuple[str, ...]
    """Settings of the training whose speed is measured."""
    steps: Mapping[str, tuple[str, ...]]
    """The sizes of a step, with the options of the benchmark."""
    large: str
    """The size of the step that is profiled, and compared with others."""
    trials: tuple[str, ...]
    """Forms of a step that are timed, as SEQ2SEQ_TRIALS names them (seq2seq/fast/trials.py)."""
    published: Mapping[str, tuple[str, ...]]
    """Settings of Multi30k, of which the best on the validation set is trained with three seeds."""
    kftt: Mapping[str, tuple[str, ...]]
    rows: tuple[PaperRow, ...]
    divisor: int
    about_rows: str
    """How the rows of Table 3 are trained."""
    recipes: tuple[str, ...] = ()
    """Settings of all recipes."""
    least: float = 90.0
    """Seconds without which no training is started."""


_LARGE = (
    *("--vocab-size", "37000", "--tokens", "25000", "--steps", "12"),
    *("--micro-batch-tokens", "4096"),
)
FULL = Scale(
    device="cuda",
    precision="bf16",
    tests=("tests/test_cuda.py",),
    training=(
        *("model=small", "schedule=small_data", "data.tokenizer.vocab_size=8000"),
        "training.max_minutes=1.5",
    ),
    steps={
        "small": ("--vocab-size", "8000", "--tokens", "1024", "--steps", "300"),
        "base": _LARGE,
        "big": _LARGE,
    },
    large="base",
    trials=(
        *("", "contiguous_blocks", "rows_of_128", "autotune", "autotune,blocks_of_64"),
        *("hashed_dropout", "loss_by_sums", "sums_in_matmul", "relu_in_matmul"),
        "keys_and_values_at_once",
        "contiguous_blocks,rows_of_128,loss_by_sums",
    ),
    published={
        "as published": (),
        "dropout 0.2": ("model.dropout=0.2",),
        "dropout 0.4": ("model.dropout=0.4",),
        "BPE-dropout 0.03": ("data.tokenizer.sampling=0.03",),
        "BPE-dropout 0.1": ("data.tokenizer.sampling=0.1",),
        "12,000 steps": ("training.max_steps=12000",),
    },
    kftt={
        "dropout 0.1": ("model.dropout=0.1",),
        "dropout 0.2": ("model.dropout=0.2",),
    },
    rows=ROWS,
    divisor=1,
    about_rows=(
        "Each row was trained on KFTT, Japanese to English, with one seed, in 6,500 steps of 12,500"
        " + 12,500 tokens, and big in 19,500 (`experiment=table3_kftt`)."
    ),
)
# The base model on KFTT until it stops growing, in steps half as large as the paper's.
KFTT_BASE = (
    *("model=base", "training.source_tokens=12500", "training.target_tokens=12500"),
    *("training.warmup_steps=2000", "training.learning_rate_scale=1"),
    *("training.dropout_warmup_steps=null", "training.checkpoint_steps=1500"),
    *("training.checkpoint_minutes=null", "training.max_steps=60000", "training.patience=5"),
)
_TINY = ("--vocab-size", "500", "--tokens", "256", "--steps", "1", "--pairs", "200")
SMALL = Scale(
    device="cpu",
    precision="fp32",
    # Most of the same ones on a simulated GPU.
    tests=("tests/cuda/test_gpu_tests.py", "-k", "not fast_steps"),
    training=(
        *("model=tiny", "schedule=demo", "training.max_steps=2"),
        *("training.source_tokens=200", "training.target_tokens=200"),
        *("data.tokenizer.vocab_size=200", "search.max_extra_tokens=2"),
    ),
    steps={"small": _TINY},
    large="small",
    trials=("loss_by_sums",),
    published={"as published": ()},
    kftt={"dropout 0.1": ("model.dropout=0.1",)},
    rows=ROWS[:2],
    divisor=16,
    about_rows="Tiny models after two steps: these numbers mean nothing.",
    recipes=(
        *("data.tokenizer.vocab_size=200", "model.num_layers=1", "model.d_model=32"),
        *("model.d_ff=64", "training.source_tokens=200", "training.target_tokens=200"),
        *("training.micro_batch_tokens=200", "training.warmup_steps=2", "training.max_steps=2"),
        *("training.checkpoint_steps=1", "search.max_extra_tokens=2", "precision=fp32"),
    ),
    least=0.0,
)


@dataclass(frozen=True)
class Parts:
    """The parts in their order, which depends on results: what is best is trained again."""

    folder: Path
    scale: Scale
    corpora: Path
    done: Callable[[str], Result | None]
    """Returns the result of a part that was done."""

    def __iter__(self) -> Iterator[Part]:
        """Yield each part when those before it are done, or have failed."""
        yield from self.speed()
        yield Part("tests", self._tests(), last_line, seconds=240)
        yield from self.profile()
        yield from self.trials()
        yield from self.chosen("KFTT", "kftt_ja_en", self.scale.kftt, KFTT_BASE)
        yield from self.chosen("Multi30k", "multi30k_published", self.scale.published)
        yield from self.table3()

    def speed(self) -> Iterator[Part]:
        """Train and translate Multi30k, or the embedded corpus; then time a step of each size."""
        folder, device = self.folder, self.scale.device
        run = folder / "runs/speed"
        text, reference = (f"data/everyday/test_unseen.{code}" for _, code in _SIDES)
        data: tuple[str, ...] = ()
        multi30k = self.corpora / "multi30k"
        if multi30k.is_dir():
            text, reference = (f"{multi30k}/test_2016_flickr.{code}.gz" for _, code in _SIDES)
            data = (
                *("data=files", "data.source_language=en", "data.target_language=de"),
                *(f"data.train.{s}={multi30k}/train.{code}.gz" for s, code in _SIDES),
                *(f"data.valid.{s}={multi30k}/val.{code}.gz" for s, code in _SIDES),
            )
        words = (*self.scale.training, *data)
        yield self.training("speed/train", run, words, seconds=150)
        for size in self.scale.steps:
            yield Part(f"speed/step of {size}", self._step(size), figures_of_step, seconds=100)
        translate = ("-m", "seq2seq", "translate", "--model", str(run), "--device", device)
        if data:
            many = ("-i", f"{multi30k}/train.en.gz", "-o", str(folder / "translated"))
            yield Part("speed/translate its training text", (*translate, *many), seconds=60)
        out = str(folder / "out")
        yield Part("speed/translate", (*translate, "-i", text, "-o", out), seconds=60)
        score = ("-m", "seq2seq", "score", "-i", out, "-r", reference)
        yield Part("speed/score", score, bleu_line, seconds=60)
        peer = self._step(self.scale.large, "torch.nn")
        yield Part(
            f"speed/step of {self.scale.large} by torch.nn", peer, figures_of_step, seconds=90
        )

    def profile(self) -> Iterator[Part]:
        """List the kernels of a step."""
        words = (*self._step(self.scale.large), "--profile", "60")
        yield Part(f"profile/step of {self.scale.large}", words, seconds=90)

    def trials(self) -> Iterator[Part]:
        """Time a step with each form that is on trial, and with none once more."""
        command = self._step(self.scale.large)
        for names in self.scale.trials:
            variables = {"SEQ2SEQ_TRIALS": names}
            name = f"trial/{names.replace(',', ' and ') or 'none'}"
            yield Part(name, command, figures_of_step, seconds=150, variables=variables)

    def chosen(
        self,
        title: str,
        recipe: str,
        settings: Mapping[str, tuple[str, ...]],
        words: tuple[str, ...] = (),
    ) -> Iterator[Part]:
        """Train with each of some settings, then score the recipe with the best on validation."""
        words, folder = (*words, *self.scale.recipes), self.folder / "runs"
        corpus = self.corpora / title.lower()
        for name, own in settings.items():
            run = folder / f"{title} {name}".replace(" ", "_") / recipe / f"{recipe}_1"
            overrides = (f"experiment=results/{recipe}", "seed=1", *words, *own)
            yield self.training(f"quality/{title}, {name}", run, overrides, needs=corpus)
        results = {name: self.done(f"quality/{title}, {name}") for name in settings}
        bleu = {
            name: float(result.figures["BLEU"])
            for name, result in results.items()
            if result is not None and "BLEU" in result.figures
        }
        if len(bleu) < len(settings):
            return
        best = max(bleu, key=lambda name: bleu[name])
        runs = folder / f"{title} {best}".replace(" ", "_")
        command = ("scripts/results.py", recipe, str(self.corpora), "--runs", str(runs), *words)
        command = (*command, *settings[best], *self._places())
        yield Part(
            f"quality/{title}, scored with {best}",
            command,
            figures_of_recipe,
            least=self.scale.least,
            needs=corpus,
            runs=[run for run in (runs / recipe).glob("*_*") if run.name != f"{recipe}_1"],
        )

    def table3(self) -> Iterator[Part]:
        """Train the rows of Table 3; the big model with three times the steps, as in the paper."""
        for row in self.scale.rows:
            words = [
                "experiment=table3_kftt",
                *self.scale.recipes,
                *row.overrides(self.scale.divisor),
            ]
            if row.name == "big":
                words.append("training.max_steps=19500")
            run = self.folder / "runs/table3" / row.name
            yield self.training(f"table3/{row.name}", run, words, needs=self.corpora / "kftt")

    def training(
        self,
        name: str,
        run: Path,
        words: Sequence[str],
        seconds: float = float("inf"),
        needs: Path | None = None,
    ) -> Part:
        """Make the part that trains a run, or goes on with it."""
        places = (f"run_dir={run}", "resume=auto", *self._places())
        command = ("-m", "seq2seq", "train", *words, *places)
        variables = {"CORPORA": str(self.corpora)} if needs else {}
        return Part(
            name,
            command,
            lambda _: figures_of_run(run),
            seconds,
            self.scale.least,
            variables,
            needs,
            [run],
        )

    def _places(self) -> tuple[str, ...]:
        return f"device={self.scale.device}", f"cache={self.folder / 'cache'}"

    def _step(self, size: str, system: str = "ours") -> tuple[str, ...]:
        start = ("scripts/benchmarks/training.py", "--device", self.scale.device, "--rounds", "1")
        name = f"{system}, {self.scale.precision}"
        return (*start, "--size", size, *self.scale.steps[size], "--only", name)

    def _tests(self) -> tuple[str, ...]:
        return "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *self.scale.tests


_SIDES = (("source", "en"), ("target", "de"))


def write_corpora(folder: Path) -> Path:
    """Write some embedded sentences as if they were the corpora of the recipes.

    They are the same bytes in each call, so that trainings go on.
    """
    texts = {
        side: (CHECKOUT / f"data/everyday/train.{side}").read_bytes().splitlines(True)
        for side in ("en", "de")
    }
    sets = ("valid", "val", "tune", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    parts = {"train": slice(100), **dict.fromkeys(sets, slice(100, 104))}
    for corpus, middle, foreign in (
        ("kftt", "", "ja"),
        ("multi30k", "", "de"),
        ("multi30k", ".lc.norm.tok", "de"),
    ):
        (folder / corpus).mkdir(parents=True, exist_ok=True)
        for name, lines in parts.items():
            for language, side in (("en", "en"), (foreign, "de")):
                path = folder / corpus / f"{name}{middle}.{language}.gz"
                path.write_bytes(gzip.compress(b"".join(texts[side][lines]), mtime=0))
    return folder


# The call.

_ORIGIN = """
import json, sys, torch
from seq2seq.device import Compute
from seq2seq.run.sessions import this_session
compute = Compute(torch.device(sys.argv[1]), torch.bfloat16)
try:
    torch.zeros((), device=compute.device)
except (AssertionError, RuntimeError) as error:  # PyTorch without CUDA raises the first one
    reason = str(error).splitlines()[0]
    sys.exit(f"no GPU that PyTorch can use ({reason}): --small tries everything without one")
session = this_session("", compute, torch.nn.Module(), step=0, processes=1)
print(json.dumps([session.machine, session.program]))
"""


def origin(device: str) -> tuple[str, str]:
    """Return the names of the card and of the program; end the script if it can't be used."""
    done = subprocess.run(
        [sys.executable, "-c", _ORIGIN, device], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit((done.stderr.strip() or f"{device} can't be used: killed").splitlines()[-1])
    card, program = json.loads(done.stdout.splitlines()[-1])
    return card, program


def do_parts(parts: Iterable[Part], day: Measurements, only: Sequence[str], *, again: bool) -> bool:
    """Do the parts that are not done and whose names begin as chosen; return whether all are."""
    complete = True
    for part in parts:
        if only and not part.name.startswith(tuple(only)):
            continue
        if again or day.done(part.name) is None:
            complete &= day.measure(part).done
    return complete


def write_table3(day: Measurements, about: str) -> None:
    """Write the page that compares the rows of Table 3, if there are any."""
    results = [
        result
        for row in ROWS
        if (result := day.done(f"table3/{row.name}")) is not None
        and {"perplexity", "BLEU"} <= result.figures.keys()
    ]
    if not results:
        return
    found = {
        result.part.removeprefix("table3/"): Scores(
            float(result.figures["perplexity"]), float(result.figures["BLEU"])
        )
        for result in results
    }
    origins = dict.fromkeys(f"{result.card}, {result.program}" for result in results)
    dates = sorted(result.date.split()[0] for result in results)
    (day.folder / "table3.md").write_text(
        "# Table 3 at its full size\n\n"
        f"{about} Perplexity and BLEU are those of the validation set, with the difference from"
        " base in parentheses, beside the paper's on newstest2013. Measured from"
        f" {dates[0]} to {dates[-1]} on {'; '.join(origins)}:\n\n{compare(found)}"
    )


def install(wheels: Path, folder: Path) -> None:
    """Install wheels for this script alone."""
    options = ("--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(folder))
    pip = [sys.executable, "-m", "pip", "install", "-q", *options, *map(str, wheels.glob("*.whl"))]
    subprocess.run(pip, check=True)
    os.environ["PYTHONPATH"] += f"{os.pathsep}{folder}"


def _leave(*_: object) -> NoReturn:
    sys.exit("stopped")


def main() -> int:
    """Do what is left, and print the table."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=CHECKOUT / "runs/gpu_day")
    parser.add_argument("--small", action="store_true", help="tiny sizes on a CPU")
    parser.add_argument("--seconds", type=float, default=570.0, help="of this call")
    parser.add_argument("--corpora", type=Path, default=Path("corpora"), metavar="DIR")
    parser.add_argument("--wheels", type=Path, metavar="DIR")
    parser.add_argument("--only", action="append", metavar="NAME", help="parts that begin so")
    parser.add_argument("--again", action="store_true", help="do parts that are done once more")
    words = parser.parse_intermixed_args()
    signal.signal(signal.SIGTERM, _leave)  # what it has started ends, too
    folder, scale = words.folder.absolute(), SMALL if words.small else FULL
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = str(CHECKOUT)
    if words.small:  # tiny operations gain nothing from a second thread
        os.environ["OMP_NUM_THREADS"] = "1"
    if words.wheels:
        install(words.wheels, folder / "site")
    names = origin(scale.device)
    day = Measurements(folder, *names, words.seconds - (time.monotonic() - began))
    corpora = write_corpora(folder / "corpora") if words.small else words.corpora.absolute()
    parts = Parts(folder, scale, corpora, day.done)
    try:
        complete = do_parts(parts, day, words.only or (), again=words.again)
    finally:
        write_table3(day, scale.about_rows)
    print(day.table(), end="")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
