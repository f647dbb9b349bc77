"""What is a function of (seed, ...) is the same in two processes, and another with another seed.

As a script it prints a digest of each: python test_seeds.py FOLDER SEED.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from seq2seq.data.config import CorpusConfig
from seq2seq.decoding.config import SamplingConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.run.training_run import TrainingRun
from seq2seq.training.distributed import World
from tests.toy import toy_config

PROMISES: dict[str, Callable[[TrainingRun, int], object]] = {
    "the initial weights": lambda run, _: run.trainer.model.embedding.weight.tolist(),
    "the pairs of an epoch": lambda run, seed: run.data.mixture.epoch(seed, 1).tolist(),
    "batches and their order": lambda run, _: list(map(list, run.trainer.batching.epoch(1))),
    "BPE-dropout": lambda run, _: run.trainer.batching.corpus.source_lengths.tolist(),
    "dropout": lambda run, _: dropout(run),
    "sampled translations": lambda run, seed: samples(run, seed),
}


def dropout(run: TrainingRun) -> float:
    """The loss of a batch by weights that no seed decides."""
    torch.manual_seed(0)
    for parameter in run.trainer.model.parameters():
        parameter.data.normal_(std=0.1)
    return run.trainer.update([run.trainer.batching.corpus.corpus.rows(0)[:20]]).smoothed


def samples(run: TrainingRun, seed: int) -> list[str]:
    """By the weights of `dropout`."""
    run.save()
    options = TranslationOptions(search=SamplingConfig(seed=seed), device="cpu")
    translated = Translator.load(run.folder, options).translate(["some words"] * 9)
    return [translation.text for translation in translated]


def digests(folder: Path, seed: int) -> dict[str, str]:
    folder.mkdir()
    toy = toy_config(folder, [f"some words, {n} of {n * n}" for n in range(90)])
    again = CorpusConfig(source=toy.data.train.source, target=toy.data.train.target, weight=0.5)
    tokenizer = replace(toy.data.tokenizer, sampling=0.3)
    data = replace(toy.data, corpora={"again": again}, tokenizer=tokenizer)
    run = TrainingRun(replace(toy, data=data, seed=seed), folder / "run", World())
    found = {name: json.dumps(f(run, seed), default=int) for name, f in PROMISES.items()}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in found.items()}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Of two processes with one seed, and of one with another."""
    found = []
    for number, seed in enumerate((7, 7, 8)):
        words = [sys.executable, __file__, str(tmp_path_factory.mktemp("seeds") / "run"), str(seed)]
        environment = os.environ | {"PYTHONHASHSEED": str(number), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    return found


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_holds_in_two_processes(printed: list[dict[str, str]], promise: str) -> None:
    first, same, other = (found[promise] for found in printed)
    assert first == same != other


if __name__ == "__main__":
    print(json.dumps(digests(Path(sys.argv[1]), int(sys.argv[2]))))
