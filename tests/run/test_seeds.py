"""All that is drawn is a function of the seed, in any process.

As a script: test_seeds.py FOLDER SEED...
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from seq2seq.data.mixture import Mixture
from seq2seq.decoding.options import SamplingConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.machine.processes import OneProcess
from seq2seq.run.training import TrainingRun
from tests.toy import toy_config, update


def draw(folder: Path, seed: int) -> dict[str, object]:
    lines = [f"some words, {n} of {n * n}" for n in range(90)]
    config = replace(toy_config(folder, lines), seed=seed)
    config.data.tokenizer.max_training_sentences = 50
    run = TrainingRun(config, folder / "run", OneProcess())
    drawn: dict[str, object] = {"weights": run.trainer.model.embedding.weight.tolist()}
    drawn["pieces"] = run.data.tokenizer.encode_sampled(lines, 0.2, seed)
    drawn["batches"] = [batch.tolist() for batch in run.trainer.batching.epoch(3)]
    drawn["mixture"] = Mixture({"a": 120, "b": 80}, {"a": 0.5, "b": 1.5}).epoch(seed, 3).tolist()
    torch.manual_seed(0)  # what follows has the same weights and pairs with any seed
    for parameter in run.trainer.model.parameters():
        parameter.data.normal_(std=0.1)
    drawn["dropout"] = update(run.trainer, [np.arange(20)]).smoothed
    run.save()
    search = SamplingConfig(seed=seed)
    translator = Translator.load(run.folder, TranslationOptions(search=search, device="cpu"))
    drawn["samples"] = [one.text for one in translator.translate(["some words"] * 9)]
    return drawn


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """What this process drew with a seed, and what another drew with it and then with a second."""
    here = json.dumps(draw(tmp_path_factory.mktemp("here"), 7))
    words = [sys.executable, __file__, str(tmp_path_factory.mktemp("seeds")), "7", "8"]
    environment = os.environ | {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}
    return [json.loads(here), *json.loads(subprocess.check_output(words, env=environment))]


@pytest.mark.parametrize("what", ["weights", "pieces", "batches", "mixture", "dropout", "samples"])
def test_it_follows_the_seed_alone(printed: list[dict[str, object]], what: str) -> None:
    first, same, other = (drawn[what] for drawn in printed)
    assert first == same != other


if __name__ == "__main__":
    folder, *seeds = sys.argv[1:]
    for seed in seeds:
        (Path(folder) / seed).mkdir()
    print(json.dumps([draw(Path(folder) / seed, int(seed)) for seed in seeds]))
