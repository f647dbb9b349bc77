"""A toy language and a model of it, trained once through the command."""

import json
import random
from pathlib import Path
from typing import NamedTuple

import pytest
from torch import Tensor

from seq2seq.cli.main import main
from tests.toy import data_words, weights

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Corpus(NamedTuple):
    """Number words, and the same words backwards: a language that needs attention."""

    folder: Path

    def overrides(self) -> list[str]:
        return [
            *data_words(self.folder),
            "data.tokenizer.vocab_size=60",
            f"cache={self.folder / 'cache'}",
            "model.num_layers=1",
            "model.d_model=32",
            "model.d_ff=64",
            "model.num_heads=4",
            "training.source_tokens=256",
            "training.target_tokens=256",
            "training.warmup_steps=40",
            "training.checkpoint_minutes=null",
            "training.log_steps=5",
            "precision=fp32",
            "device=cpu",
        ]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(5)
    for split, count in (("train", 2000), ("valid", 20), ("test", 40)):
        sources = [generator.choices(WORDS, k=generator.randint(1, 6)) for _ in range(count)]
        for side, step in (("source", 1), ("target", -1)):
            lines = "".join(" ".join(words[::step]) + "\n" for words in sources)
            (folder / f"{split}.{side}").write_text(lines)
    return Corpus(folder)


@pytest.fixture(scope="session")
def trained(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model has learned the toy language, how well differs by processor."""
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    code = main(
        [
            "train",
            *corpus.overrides(),
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


def losses(run: Path) -> list[tuple[int, float]]:
    """Read the step and the loss of each record of a training."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(r["step"], r["train/loss"]) for r in records if "train/loss" in r]


def weights_at(run: Path, step: int) -> dict[str, Tensor]:
    """Read the weights of a checkpoint."""
    return weights(run / "checkpoints" / f"step_{step:08d}")
