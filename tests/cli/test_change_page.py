"""Every change of `seq2seq/CHANGE.md` is made as it stands there; training and search obey it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import seq2seq.update
from seq2seq.batches import make_batching
from seq2seq.cli.model_class import import_class
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.device import Compute
from seq2seq.loss import Loss
from seq2seq.machine.processes import OneProcess
from seq2seq.model_folder import TrainedModel, load_model
from seq2seq.run.config import read_config
from seq2seq.run.training import TrainingRun
from seq2seq.trainer import Trainer
from seq2seq.transformer import Transformer
from tests.cli.conftest import overrides
from tests.conftest import MakeTrained
from tests.own_model import in_folder
from tests.test_readme import CHECKOUT, PACKAGE, fenced, section
from tests.toy import encoded_corpus, weights

PAGE = PACKAGE / "CHANGE.md"
FILE, KEY = "Edit the file", "A choice with a key"
EDITS = {FILE: [FILE, "The learning rate", "The loss"], KEY: [KEY]}
"""Sections whose commands are run, each with the sections whose changes are made."""
STEPS = ["training.max_steps=2", "training.checkpoint_steps=1", "training.log_steps=1"]


def commands(title: str, corpus: Path) -> list[list[str]]:
    """Return the commands of a section, on the toy language and for two steps, without dropout."""
    found = []
    text = section(PAGE, title)
    for line in "".join([*fenced(text), *fenced(text, "sh")]).splitlines():
        words = [{"<": "-i", ">": "-o"}.get(word, word) for word in shlex.split(line)[1:]]
        if words[0] == "train":
            words += [*overrides(corpus), *STEPS, "model.dropout=0"]
        found.append(words)
    return found


def apply(diff: str, folder: Path) -> None:
    """Replace the lines that begin with `-` by those with `+` after them, in the named files."""
    for name, changes in re.findall(r"^--- (\S+)\n((?:[-+].*\n)+?)(?=--- |\Z)", diff, re.M):
        path = folder / name
        for old, new in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)+)", changes, re.M):
            before, after = (re.sub("^[-+]", "", lines, flags=re.M) for lines in (old, new))
            text = path.read_text()
            assert text.count(before) == 1, before
            path.write_text(text.replace(before, after))


def run_edited(folder: Path, diffs: list[str], lists: list[list[str]]) -> None:
    """Run commands of a copy of the package with changes in its files."""
    shutil.copytree(PACKAGE, folder / "seq2seq", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(CHECKOUT / "conf", folder / "conf")
    shutil.copy(CHECKOUT / "pyproject.toml", folder)
    for diff in diffs:
        apply(diff, folder)
    program = (
        "import json, sys\nfrom seq2seq.cli import training\nfrom seq2seq.cli.main import main\n"
    )
    program += "training.write_report = lambda *_, **__: None\n"  # a third of the time
    program += "sys.exit(sum(main(words) for words in json.load(sys.stdin)))"
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        input=json.dumps(lists),
        text=True,
        check=True,
    )


@pytest.fixture(scope="module")
def edited(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder by each key of `EDITS`, with the run of a copy of the package with these changes."""
    folders = {}
    for title, titles in EDITS.items():
        folders[title] = folder = tmp_path_factory.mktemp("edited")
        shutil.copy(corpus / "test.source", folder / "test.en")
        diffs = [diff for each in titles for diff in fenced(section(PAGE, each), "diff")]
        assert len(diffs) == len(titles)
        run_edited(folder, diffs, commands(title, corpus))
    return folders


def square_relu(model: Transformer) -> None:
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.feed_forward.activation = lambda x: torch.relu(x).square()


def translations(model: Transformer, trained: TrainedModel, folder: Path) -> list[str]:
    """Translate by the plain code of this process."""
    lines = (folder / "test.en").read_text().splitlines()
    options = TranslationOptions(device="cpu", forms="plain")
    translator = Translator(replace(trained, model=model), options)
    return [each.text for each in translator.translate(lines)]


def test_edited_files_train_and_translate_as_the_same_changes_made_from_outside(
    edited: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = edited[FILE]
    run = folder / "runs" / "squared"

    def loss(logits: torch.Tensor, target: torch.Tensor, *, smoothing: float, **_: int) -> Loss:
        args = {"ignore_index": 0, "reduction": "sum"}
        logits, target = logits.flatten(0, 1), target.flatten()
        smoothed = F.cross_entropy(logits, target, label_smoothing=smoothing, **args)
        return Loss(smoothed, F.cross_entropy(logits, target, **args))

    def rate(step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
        return scale * d_model**-0.5 * warmup_steps**-0.5 * min(1.0, step / warmup_steps)

    monkeypatch.setattr(seq2seq.update, "label_smoothed_loss", loss)
    monkeypatch.setattr(seq2seq.update, "learning_rate", rate)
    oracle = TrainingRun(replace(read_config(run), run_dir=None), tmp_path / "run", OneProcess())
    square_relu(oracle.trainer.model)
    steps = oracle.trainer.steps()
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for record in (record for record in records if "train/loss" in record):
        metrics = oracle.trainer.update(next(steps)).summary()
        for name in ("train/loss", "train/perplexity", "train/learning_rate"):
            assert record[name] == pytest.approx(metrics[name], rel=1e-5), name
    newest = run / "checkpoints" / "step_00000002"
    torch.testing.assert_close(weights(newest), oracle.trainer.model.state_dict())
    trained = load_model(run / "best")
    plain = translations(trained.model, trained, folder)
    square_relu(trained.model)
    expected = translations(trained.model, trained, folder)
    assert (folder / "test.out.de").read_text().splitlines() == expected != plain


def test_a_choice_with_a_key_is_trained_and_translates(edited: dict[str, Path]) -> None:
    folder = edited[KEY]
    trained = load_model(edited[FILE] / "runs" / "squared" / "best")  # with the same vocabulary
    tensors = weights(folder / "runs" / "normed" / "best")
    norm = nn.LayerNorm(len(tensors["embedding_norm.weight"]), eps=1e-6)

    class Normed(Transformer):
        def embed(self, *ids: torch.Tensor, **which: bool) -> torch.Tensor:
            return norm(super().embed(*ids, **which))

    model = Normed(trained.model.config, vocab_size=60, padding_id=0, start_id=2)
    own = {name: tensors.pop(f"embedding_norm.{name}") for name in ("weight", "bias")}
    norm.load_state_dict(own)
    model.load_state_dict(tensors)
    expected = translations(model, trained, folder)
    assert (folder / "test.out.de").read_text().splitlines() == expected


def test_a_class_of_one_s_own_is_trained_and_translates_by_the_commands_and_in_python(
    corpus: Path, tmp_path: Path, seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = "A class of your own"
    code, calls = fenced(section(PAGE, title), "python")
    assert len(code.splitlines()) <= 27
    in_folder(tmp_path, monkeypatch, "my_model", code)
    for name, side in (("test.en", "source"), ("test.de", "target")):
        shutil.copy(corpus / f"test.{side}", name)
    for words in commands(title, corpus):
        result = seq2seq(*words)
        assert result.code == 0, result.err
    kind = import_class("my_model.GatedTransformer")
    names = {"Translator": Translator, "load_model": load_model, "Path": Path}
    names["GatedTransformer"] = kind
    exec(calls, names)
    assert type(names["trained"].model) is kind
    outputs = names["translator"].translate(Path("test.en").read_text().splitlines())
    assert Path("test.out.de").read_text().splitlines() == [each.text for each in outputs]


def test_the_rate_of_a_subclass_is_that_of_an_update(tmp_path: Path) -> None:
    (code,) = fenced(section(PAGE, "The learning rate"), "python")
    names: dict[str, type] = {}
    exec(code, names)
    training = TrainingConfig(source_tokens=40, target_tokens=40, warmup_steps=2)
    batching = make_batching(training, encoded_corpus(tmp_path / "ids", 11, 50), seed=1)
    config = TransformerConfig(num_layers=1, d_model=8, d_ff=8, num_heads=2)
    model = Transformer(config, vocab_size=11, padding_id=0, start_id=2)
    updater = names["ConstantRate"](model, batching, training, compute=Compute(), seed=1)
    trainer = Trainer(updater)
    steps = trainer.steps()
    rates = [trainer.update(next(steps)).learning_rate for _ in range(3)]
    assert rates == pytest.approx([0.0005, 0.001, 0.001])


def test_a_search_of_one_s_own_writes_no_token_twice_in_a_row(
    tmp_path: Path, make_trained: MakeTrained, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = fenced(section(PAGE, "The search"), "python")
    translator = Translator(make_trained())
    monkeypatch.setattr(Translator, "load", lambda *_: translator)

    def repeats() -> int:
        outputs = translator.translate(sentences[:20])
        pieces = [translator.tokenizer.encode_target([each.text])[0] for each in outputs]
        return sum(a == b for ids in pieces for a, b in pairwise(ids))

    assert repeats() > 0
    exec(code, {})
    assert repeats() == 0
