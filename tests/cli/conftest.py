"""A toy language and a model of it, trained once through the command."""

import json
import os
import random
import re
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from seq2seq.cli.main import main
from seq2seq.model_folder import save_model
from seq2seq.tokenizer import END_ID
from tests.conftest import MakeTrained, Result
from tests.toy import data_words, weights

SECONDS = 120  # far more than an answer takes
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def overrides(corpus: Path) -> list[str]:
    """What trains on the toy language, in seconds."""
    return [
        *data_words(corpus),
        "data.tokenizer.vocab_size=60",
        f"cache={corpus / 'cache'}",
        "model.num_layers=1",
        "model.d_model=32",
        "model.d_ff=64",
        "model.num_heads=4",
        "training.source_tokens=256",
        "training.target_tokens=256",
        "training.warmup_steps=40",
        "training.checkpoint_minutes=null",
        "training.log_steps=5",
        "search.max_extra_tokens=5",
        "precision=fp32",
        "device=cpu",
    ]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of number words, and the same words backwards: a language that needs attention."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(5)
    for split, count in (("train", 2000), ("valid", 20), ("test", 40)):
        sources = [generator.choices(WORDS, k=generator.randint(1, 6)) for _ in range(count)]
        for side, step in (("source", 1), ("target", -1)):
            lines = "".join(" ".join(words[::step]) + "\n" for words in sources)
            (folder / f"{split}.{side}").write_text(lines)
    return folder


@pytest.fixture
def train(corpus: Path, seq2seq: Callable[..., Result], no_report: None) -> Callable[..., Result]:
    """Train on the toy language, as further words say."""
    return partial(seq2seq, "train", *overrides(corpus))


@pytest.fixture(scope="session")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model has learned the toy language, how well differs by processor."""
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    code = main(
        [
            "train",
            *overrides(corpus),
            f"run_dir={run_dir}",
            "training.max_steps=450",
            "training.checkpoint_steps=150",
            "training.average_checkpoints=2",
            "model.d_model=64",
            "model.dropout=0.0",
            "training.warmup_steps=100",
        ]
    )
    assert code == 0
    return run_dir


@pytest.fixture(scope="session")
def model(make_trained: MakeTrained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was never trained, whose outputs depend on the source."""
    folder = tmp_path_factory.mktemp("untrained") / "model"
    save_model(folder, make_trained())
    return folder


@pytest.fixture(scope="session")
def quick(make_trained: MakeTrained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that outputs nothing but `</s>`, so that reading and writing is all its work."""
    trained = make_trained(num_layers=1)
    with torch.no_grad():
        bias = trained.model.decoder.layers[-1].feed_forward_norm.bias
        bias.copy_(1e4 * trained.model.embedding.weight[END_ID])
    folder = tmp_path_factory.mktemp("model") / "quick"
    save_model(folder, trained)
    return folder


def losses(run: Path) -> list[tuple[int, float]]:
    """Read the step and the loss of each record of a training."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(r["step"], r["train/loss"]) for r in records if "train/loss" in r]


def weights_at(run: Path, step: int) -> dict[str, Tensor]:
    """Read the weights of a checkpoint."""
    return weights(run / "checkpoints" / f"step_{step:08d}")


class Terminal:
    """The command at a terminal of its own, as a user starts it."""

    def __init__(self, *words: str | Path, columns: int = 100, cwd: Path | None = None) -> None:
        pty, termios = map(pytest.importorskip, ("pty", "termios"))
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, columns))
        command = [sys.executable, "-m", "seq2seq", *map(str, words)]
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            # The terminal sends Ctrl-C to the process whose terminal it is.
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, pattern: str) -> str:
        """Return what was shown up to a pattern, and forget it."""
        while not (found := re.search(pattern, self.shown)):
            assert select.select([self.master], [], [], SECONDS)[0], self.shown
            self.shown += os.read(self.master, 1 << 16).decode()
        text, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return text

    def read_to_the_end(self) -> str:
        """Return what is shown until the process ends, successfully."""
        chunks: list[bytes] = []
        with suppress(OSError):  # it has ended
            while chunk := os.read(self.master, 1 << 16):
                chunks.append(chunk)
        shown = b"".join(chunks).decode()
        assert self.process.wait(SECONDS) == 0, shown
        os.close(self.master)
        return shown

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
