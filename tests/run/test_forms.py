"""The core alone trains, validates and translates as the fast forms do."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from seq2seq.cli.guests import FastTranslator, start_training
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.device import Compute
from seq2seq.machine.processes import Processes
from seq2seq.model_folder import load_model
from seq2seq.run.config import Config
from seq2seq.run.folder import find_model
from seq2seq.run.records import read_metrics
from seq2seq.run.training import run_training
from seq2seq.search import SearchConfig
from seq2seq.translate import PlainTranslator
from tests.conftest import MakeTrained
from tests.models import perturb
from tests.toy import weights


def test_plain_and_fast_forms_train_the_same_model(toy: Config, tmp_path: Path) -> None:
    exact = replace(toy, model=replace(toy.model, dropout=0.0))
    plain, fast, alone = tmp_path / "plain", tmp_path / "fast", tmp_path / "alone"
    start_training(replace(exact, forms="plain"), plain, "", Processes())
    start_training(exact, fast, "", Processes())
    run_training(exact, alone, "", Processes())
    records = (read_metrics(run / "metrics.jsonl") for run in (plain, fast))
    for ours, theirs in zip(*records, strict=True):
        assert ours.keys() == theirs.keys()
        for name in {"train/loss", "train/gradient_norm", "valid/loss", "valid/bleu"} & ours.keys():
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4)
    ours, *others = (weights(find_model(run)) for run in (plain, fast, alone))
    torch.testing.assert_close(others, [ours, ours], rtol=1e-3, atol=1e-5)


def test_plain_and_fast_forms_translate_alike(
    toy: Config, sentences: list[str], tmp_path: Path
) -> None:
    run_training(toy, tmp_path, "", Processes())
    trained = load_model(find_model(tmp_path))
    torch.manual_seed(5)
    perturb(trained.model)  # outputs depend on the source
    lines = ["", *sentences[:12]]
    for beam_size in (1, 4):
        search = SearchConfig(beam_size=beam_size, max_extra_tokens=5)
        plain = PlainTranslator(trained, Compute(), search).translate(lines)
        fast = Translator(trained, TranslationOptions(device="cpu", search=search))
        assert plain == [translation.text for translation in fast.translate(lines)]
        assert plain[0] == ""
        assert len(set(plain)) > 5


@pytest.mark.parametrize(
    ("device", "dtype", "precision"),
    [
        ("cpu", torch.bfloat16, "fp32"),
        ("cuda", torch.float32, "fp32"),
        ("cuda", torch.bfloat16, "bf16"),
    ],
)
def test_a_gpu_validates_in_the_precision_of_its_training(
    make_trained: MakeTrained, device: str, dtype: torch.dtype, precision: str
) -> None:
    compute = Compute(torch.device(device), dtype)
    assert FastTranslator(make_trained(), compute, SearchConfig()).options.precision == precision
