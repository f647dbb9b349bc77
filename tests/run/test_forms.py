"""The core alone trains, validates and translates as the fast forms do."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from seq2seq.cli.training import start_training
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.device import Compute
from seq2seq.machine.processes import OneProcess
from seq2seq.model_folder import TrainedModel, find_model, load_model
from seq2seq.run.config import Config
from seq2seq.run.records import read_metrics
from seq2seq.run.training import run_training
from seq2seq.run.validation import translation_options
from seq2seq.search import Hypothesis, SearchConfig
from seq2seq.tokenizer import END_ID, Tokenizer, TokenizerConfig
from seq2seq.translate import PlainTranslator, SearchInput
from tests.conftest import MakeModel
from tests.models import perturb
from tests.toy import weights


def test_plain_and_fast_forms_train_the_same_model(toy: Config, tmp_path: Path) -> None:
    exact = replace(toy, model=replace(toy.model, dropout=0.0))
    plain, fast, alone = tmp_path / "plain", tmp_path / "fast", tmp_path / "alone"
    start_training(replace(exact, forms="plain"), plain, "", OneProcess())
    start_training(exact, fast, "", OneProcess())
    run_training(exact, alone, "", OneProcess())
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
    run_training(toy, tmp_path, "", OneProcess())
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


class Echo:
    """An engine that finds each source again, and keeps what it was given."""

    def __init__(self, before: list[int]) -> None:
        self.before, self.batches = before, list[list[SearchInput]]()

    def search(self, inputs: Sequence[SearchInput], config: SearchConfig) -> list[list[Hypothesis]]:
        assert inputs
        self.batches.append(list(inputs))
        outputs = []
        for each in inputs:
            *source, end = each.source_ids
            assert (source[: len(self.before)], end) == (self.before, END_ID)
            source = source[len(self.before) :]
            assert each.max_length == len(source) + config.max_extra_tokens
            outputs.append([Hypothesis(source, 0.0, truncated=False)])
        return outputs


@pytest.mark.parametrize("controls", [[], [">>de<<"], [">>de<<", ">>fr<<"]], ids=len)
def test_the_plain_translator_gives_each_line_to_the_model_once_however_long_it_is(
    make_model: MakeModel, sentences: list[str], controls: list[str]
) -> None:
    """A batch has 2,048 pieces, or one line that has more."""
    config = TokenizerConfig(vocab_size=70)
    tokenizer = Tokenizer.train(sentences, config, controls=controls)
    model = make_model(vocab_size=tokenizer.vocab_size)
    trained = TrainedModel(model, tokenizer, "en", "de")
    translator = PlainTranslator(trained, Compute(), SearchConfig(max_extra_tokens=7))
    to = "fr" if len(controls) > 1 else None
    before = [tokenizer.controls[f">>{to or 'de'}<<"]] if controls else []
    translator.engine = engine = Echo(before)
    lines = [" ".join(3 * sentences[:n]) for n in (1, 90, 2, 0, 25, 3)] + ["  ", *sentences]
    told: list[tuple[int, int]] = []
    found = translator.translate(lines, to=to, on_batch=lambda *counts: told.append(counts))
    assert found == [line.strip() for line in lines]
    widths = [max(len(each.source_ids) for each in batch) for batch in engine.batches]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 2048
    for width, batch in zip(widths, engine.batches, strict=True):
        assert len(batch) == 1 or len(batch) * (width - 1 - len(before)) <= 2048
    translated = sum(map(bool, found))
    counts = list(itertools.accumulate(map(len, engine.batches)))
    assert told == [(count, translated) for count in counts]
    assert counts[-1] == translated


@pytest.mark.parametrize(
    ("device", "dtype", "precision"),
    [
        ("cpu", torch.bfloat16, "fp32"),
        ("cuda", torch.float32, "fp32"),
        ("cuda", torch.bfloat16, "bf16"),
    ],
)
def test_a_gpu_validates_in_the_precision_of_its_training(
    toy: Config, device: str, dtype: torch.dtype, precision: str
) -> None:
    compute = Compute(torch.device(device), dtype)
    assert translation_options(toy, compute, None).precision == precision
