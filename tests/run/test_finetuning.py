"""A run that starts from a model: what it takes over, what it begins with, where it ends."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from seq2seq.cli.training import start_training
from seq2seq.config import TransformerConfig
from seq2seq.decoding.ensemble import TargetScore
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.machine.processes import OneProcess
from seq2seq.model_folder import checkpoints, class_name, find_model
from seq2seq.run.config import Config, read_config
from seq2seq.run.training import TrainingRun
from seq2seq.score import bleu
from seq2seq.transformer import Transformer
from tests.toy import data_words, reversing, script_validation, train, validation, weights


@pytest.fixture(scope="module")
def initial(toy: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder."""
    folder = tmp_path_factory.mktemp("initial") / "run"
    train(replace(toy, training=replace(toy.training, learning_rate_scale=3.0)), folder)
    return folder


@pytest.fixture(scope="module")
def own(
    toy: Config,
    initial: Path,
    sentences: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Config:
    """A run on other text that starts from the model."""
    folder = tmp_path_factory.mktemp("own")
    data = replace(
        toy.data,
        train=reversing(folder, "train", [line.replace("a", "e") for line in sentences[20:]]),
        valid=reversing(folder, "valid", sentences[:12]),
    )
    return replace(toy, data=data, init_from=str(initial), cache=str(folder / "cache"))


def assert_equal(one: Path, other: Path) -> None:
    torch.testing.assert_close(weights(one), weights(other), rtol=0, atol=0)


def lines(path: str | None) -> list[str]:
    assert path is not None
    return Path(path).read_text().splitlines()


def test_step_0_is_the_initial_model_with_its_own_metrics(
    own: Config, initial: Path, tmp_path: Path
) -> None:
    train(own, tmp_path / "run", max_steps=1)
    first = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["step"] == 0
    sources, targets = lines(own.data.valid.source), lines(own.data.valid.target)
    translator = Translator.load(initial, TranslationOptions(search=own.search))
    total = TargetScore.total(translator.log_probabilities(sources, targets))
    assert first["valid/perplexity"] == pytest.approx(total.perplexity, rel=1e-5)
    outputs = [translation.text for translation in translator.translate(sources)]
    assert first["valid/bleu"] == bleu(outputs, [targets]).value
    assert_equal(tmp_path / "run" / "checkpoints" / "step_00000000", find_model(initial))


def test_a_training_that_only_gets_worse_ends_with_its_initial_model(
    own: Config, initial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([5.0, 4.0, 3.0, 2.0, 1.0, 4.9])
    script_validation(monkeypatch, lambda run, model: validation(next(scores)))
    run = tmp_path / "run"
    train(own, run)
    assert_equal(run / "best", find_model(initial))
    assert not (run / "averaged").exists()


def test_a_run_that_stops_before_its_first_update_is_resumed_from_there(
    own: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And needs the initial model no longer: all is in the run folder."""
    moved = replace(own, init_from=str(tmp_path / "moved"))
    shutil.copytree(str(own.init_from), str(moved.init_from))
    train(moved, tmp_path / "whole")

    def fail(run: TrainingRun, model: object) -> dict[str, float]:
        raise UserError("no memory")

    with monkeypatch.context() as failing:
        script_validation(failing, fail)
        with pytest.raises(UserError, match="no memory"):
            train(moved, tmp_path / "resumed")
    shutil.rmtree(str(moved.init_from))
    train(moved, tmp_path / "resumed", resume=True)
    folders = (checkpoints(tmp_path / name) for name in ("whole", "resumed"))
    for whole, resumed in zip(*folders, strict=True):
        for name in ("model.safetensors", "optimizer.safetensors"):
            assert (whole / name).read_bytes() == (resumed / name).read_bytes()


def test_a_resumed_run_that_is_given_another_start_is_refused_for_that(
    own: Config, toy: Config, tmp_path: Path
) -> None:
    run, cache = tmp_path / "run", str(tmp_path / "cache")
    alone = replace(own, init_from=None, data=replace(own.data, tokenizer=toy.data.tokenizer))
    start_training(alone, run, OmegaConf.to_yaml(alone), OneProcess())
    with pytest.raises(UserError, match=f"with init_from=None, now {own.init_from}: resume with"):
        train(replace(own, cache=cache), run, resume=True)


def test_text_in_characters_that_the_initial_model_does_not_know_is_refused(
    own: Config, sentences: list[str], tmp_path: Path
) -> None:
    foreign = reversing(tmp_path, "foreign", ["собака бежит"] * 40 + sentences)
    config = replace(own, data=replace(own.data, train=foreign))
    share = 2 * 11 * 40 / sum(2 * len(line) for line in lines(foreign.source))
    message = rf"{share:.2%} of the training text are characters that the model of init_from does"
    with pytest.raises(UserError, match=rf"{message} not know \(б, а, .*\): remove the lines"):
        TrainingRun(config, tmp_path, OneProcess())


Train = Callable[..., str]


@pytest.fixture
def command(own: Config, seq2seq: Callable) -> Train:
    """Run `seq2seq train` on the own text; return the last line of standard error."""

    def run(*words: str, code: int) -> str:
        tokens = ("training.source_tokens=200", "training.target_tokens=200")
        data = data_words(Path(str(own.cache)).parent)
        words = (*data, *tokens, "training.max_steps=1", f"cache={own.cache}", *words)
        result = seq2seq("train", "device=cpu", "precision=fp32", *words)
        assert result.code == code
        return result.err.splitlines()[-1]

    return run


def test_the_command_takes_sizes_and_vocabulary_from_the_initial_model(
    command: Train, toy: Config, initial: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["experiment=finetune", f"init_from={initial}", f"run_dir={run}", "model.dropout=0.2"]
    words.append("data.tokenizer.sampling=0.1")
    command(*words, code=0)
    found = read_config(run)
    assert found.model == replace(toy.model, dropout=0.2)
    assert found.data.tokenizer.vocab_size == toy.data.tokenizer.vocab_size
    assert found.data.tokenizer.sampling == 0.1
    assert found.training.warmup_steps == 200
    weights = find_model(initial) / "model.safetensors"
    assert found.init_sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
    command(*words, "resume=true", "training.max_steps=2", code=0)
    assert read_config(run) == replace(
        found, resume=True, training=replace(found.training, max_steps=2)
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.d_ff=128"], "model.d_ff=128 is not the model's 16: remove model.*"),
        (["data.tokenizer.vocab_size=80"], "the vocabulary is taken from init_from="),
        (["init_sha256=12"], "not init_sha256=12: give the model with that sum"),
        (["init_from=nowhere"], "nowhere: no folder of this name; give the run_dir of a run"),
        (["init_from=null", "experiment=finetune"], "needs a model: add init_from=MODEL"),
    ],
)  # fmt: skip
def test_what_contradicts_the_initial_model_is_refused_in_one_line(
    command: Train, initial: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    code = 2 if message.startswith(("the vocabulary", "needs a model")) else 1
    last = command(f"init_from={initial}", f"run_dir={tmp_path / 'run'}", *words, code=code)
    assert message in last
    assert not (tmp_path / "run").exists()


class Subclass(Transformer):
    """Has the same weights as the paper's model."""


class Deeper(Transformer):
    """Has one more weight."""

    def __init__(self, config: TransformerConfig, **sizes: int) -> None:
        super().__init__(config, **sizes)
        self.gain = torch.nn.Parameter(torch.ones(()))


def test_an_own_class_starts_from_a_model_with_the_same_weights(
    own: Config, initial: Path, tmp_path: Path
) -> None:
    def start(kind: type[Transformer], origin: Path, run: Path) -> Path:
        config = replace(own, init_from=str(origin), model_class=class_name(kind))
        start_training(config, run, "", OneProcess(), model_class=kind)
        return run

    with pytest.raises(UserError, match=r"its gain is absent, that of .*Deeper is \(\): only"):
        start(Deeper, initial, tmp_path / "deeper")
    run = start(Subclass, initial, tmp_path / "run")
    assert_equal(run / "checkpoints" / "step_00000000", find_model(initial))
    with pytest.raises(UserError, match=r"is a model of the class .*Subclass, not of .*Deeper"):
        start(Deeper, run, tmp_path / "deeper")
    with pytest.raises(UserError, match=r"model_class=None: the class that is given is .*Deeper"):
        start_training(own, tmp_path / "deeper", "", OneProcess(), model_class=Deeper)
