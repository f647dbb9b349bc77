"""Models and checkpoints on disk: the same to the bit, or a refusal in one line."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq.config import Activation, Positions, Start
from seq2seq.errors import UserError
from seq2seq.files import MANIFEST
from seq2seq.model_folder import (
    TrainedModel,
    average,
    checkpoints,
    find_model,
    holds_model,
    load_model,
    save_model,
)
from seq2seq.run import checkpoint
from seq2seq.tokenizer import Tokenizer, TokenizerConfig
from seq2seq.transformer import Transformer
from seq2seq.update import make_adam
from tests.conftest import MakeTrained

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def assert_equal(one: Transformer, other: Transformer) -> None:
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"d_k": 3, "d_v": 5, "attention_bias": True, "start": Start.zero, "dropout": 0.3},
        {"positions": Positions.learned, "max_learned_positions": 9, "num_layers": 1},
        {"activation": Activation.swish, "num_decoder_layers": 1, "output_bias": True},
        {"shared_embedding": False, "tied_output": False, "start": Start.zero},
    ],
    ids=str,
)
def test_a_model_comes_back_to_the_bit(
    tmp_path: Path, make_trained: MakeTrained, choices: dict[str, Any]
) -> None:
    trained = make_trained(**choices)
    save_model(tmp_path / "model", trained)
    loaded = load_model(tmp_path / "model")
    assert_equal(loaded.model, trained.model)
    assert loaded.model.config == trained.model.config
    assert (loaded.source_language, loaded.target_language) == ("en", "de")
    assert loaded.tokenizer.model_bytes == trained.tokenizer.model_bytes
    assert not loaded.model.training
    source, target = torch.tensor([[4, 5, 3], [6, 3, 0]]), torch.tensor([[2, 7], [2, 8]])
    assert torch.equal(loaded.model(source, target), trained.model(source, target))
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())


def take_steps(
    model: Transformer, count: int, adam: torch.optim.Adam | None = None
) -> torch.optim.Adam:
    adam = adam or make_adam(model)
    adam.param_groups[0]["lr"] = 0.01
    for step in range(count):
        model(torch.tensor([[4 + step, 3]]), torch.tensor([[2, 7]])).logsumexp(-1).sum().backward()
        adam.step()
        adam.zero_grad()
    return adam


def test_a_frozen_parameter_does_not_keep_a_run_from_going_on(
    tmp_path: Path, make_trained: MakeTrained
) -> None:
    trained, resumed = make_trained(), make_trained(seed=2).model
    for model in (trained.model, resumed):
        model.encoder.get_parameter("layers.0.feed_forward.inner.bias").requires_grad_(False)
    adam, resumed_adam = take_steps(trained.model, 2), make_adam(resumed)
    folder = checkpoint.save_checkpoint(tmp_path, 2, trained, adam, {})
    checkpoint.restore_checkpoint(folder, resumed, resumed_adam)
    assert_equal(resumed, trained.model)
    take_steps(trained.model, 2, adam)
    take_steps(resumed, 2, resumed_adam)
    assert_equal(resumed, trained.model)


@pytest.mark.parametrize(
    "name",
    [WEIGHTS, CONFIG, "tokenizer.model", "optimizer.safetensors", "mean.safetensors"],
)
def test_damage_anywhere_is_detected(tmp_path: Path, make_trained: MakeTrained, name: str) -> None:
    trained = make_trained()
    adam, mean = take_steps(trained.model, 1), dict(make_trained(seed=2).model.named_parameters())
    folder = checkpoint.save_checkpoint(tmp_path, 1, trained, adam, {}, mean)
    content = (folder / name).read_bytes()

    def read() -> None:
        if name == "optimizer.safetensors":
            checkpoint.restore_checkpoint(folder, trained.model, make_adam(trained.model))
        elif name == "mean.safetensors":
            found = checkpoint.read_mean(folder, trained.model)
            torch.testing.assert_close(found, mean, rtol=0, atol=0, check_device=False)
        else:
            load_model(folder)

    for position in (0, 9, len(content) // 3, len(content) - 1):
        corrupt = bytearray(content)
        corrupt[position] ^= 0x10
        for wrong in (bytes(corrupt), content[:position], content + b"\n"):
            (folder / name).write_bytes(wrong)
            with pytest.raises(UserError, match=f"{name}: corrupt"):
                read()
            assert checkpoint.newest_good(tmp_path, lambda text: None) is None
    (folder / name).unlink()
    with pytest.raises(UserError, match=name):
        read()
    (folder / name).write_bytes(content)
    read()


def test_a_model_whose_replacement_was_killed_is_found(
    tmp_path: Path, make_trained: MakeTrained
) -> None:
    """The process was killed after it had renamed the old one, before the new one had its name."""
    trained, folder = make_trained(), tmp_path / "model"
    save_model(folder, trained)
    folder.rename(tmp_path / f".model.{'0' * 16}.old")
    assert holds_model(folder)
    assert find_model(folder) == folder
    assert_equal(load_model(folder).model, trained.model)
    assert not holds_model(tmp_path / "other")


@pytest.mark.parametrize("with_model", [False, True], ids=["alone", "beside a model"])
def test_a_model_replaces_no_other_files(
    tmp_path: Path, make_trained: MakeTrained, with_model: bool
) -> None:
    folder, trained = tmp_path / "model", make_trained()
    if with_model:
        save_model(folder, trained)
        save_model(folder, make_trained(seed=3))  # which may be replaced
    folder.mkdir(exist_ok=True)
    (folder / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError, match="model: "):
        save_model(folder, trained)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.fixture
def run(tmp_path: Path, make_trained: MakeTrained) -> Path:
    """Three checkpoints, of unequal weights."""
    for step in (5, 10, 100):
        trained = make_trained(seed=step)
        checkpoint.save_checkpoint(
            tmp_path, step, trained, take_steps(trained.model, 1), {"step": step}
        )
    return tmp_path


def test_the_newest_good_checkpoint_skips_the_corrupt_and_says_so(run: Path) -> None:
    messages: list[str] = []
    steps = checkpoints(run)
    assert [folder.name for folder in steps] == ["step_00000005", "step_00000010", "step_00000100"]
    assert checkpoint.newest_good(run, messages.append) == steps[2]
    assert messages == []
    with (steps[2] / WEIGHTS).open("r+b") as file:
        file.seek(2000)
        file.write(b"?")
    assert checkpoint.newest_good(run, messages.append) == steps[1]
    (steps[1] / "progress.json").unlink()
    messages.clear()
    assert checkpoint.newest_good(run, messages.append) == steps[0]
    assert ["step_00000100" in messages[0], "step_00000010" in messages[1]] == [True, True]
    shutil.rmtree(steps[0])
    assert checkpoint.newest_good(run, messages.append) is None
    assert checkpoint.newest_good(run / "nowhere", messages.append) is None


def test_old_checkpoints_are_removed_and_those_of_a_stop_that_was_resumed(run: Path) -> None:
    first, stopped, newest = checkpoints(run)
    checkpoint.save_validation(first, {})
    checkpoint.save_validation(stopped, {})
    checkpoint.remove_old(run, 5)
    assert checkpoints(run) == [first, stopped, newest]
    checkpoint.remove_old(run, 2)
    assert checkpoints(run) == [stopped, newest]
    (stopped / "validated.json").unlink()
    checkpoint.remove_old(run, 2)
    assert checkpoints(run) == [newest]


def test_checkpoints_after_the_newest_good_one_are_kept_under_another_name(run: Path) -> None:
    """They may merely be unreadable at the moment; they may not push the good ones out."""
    good, later = checkpoints(run)[1:]
    for number in range(2):
        reports: list[str] = []
        checkpoint.rename_newer(run, good, reports.append)
        assert checkpoints(run)[-1] == good
        aside = run / "checkpoints" / ("unread_step_00000100" + number * "_")
        assert reports == [f"{later} is kept as {aside.name}; remove it if you don't need it"]
        shutil.copytree(aside, later)
    checkpoint.rename_newer(run, later, pytest.fail)
    checkpoint.remove_old(run, 1)
    assert checkpoints(run) == [later]
    for number in range(2):
        load_model(run / "checkpoints" / ("unread_step_00000100" + number * "_"))


def test_the_model_of_a_run_is_the_averaged_the_best_or_the_last(
    run: Path, make_trained: MakeTrained
) -> None:
    last = checkpoints(run)[2]
    assert find_model(run) == last
    assert find_model(last) == last
    save_model(run / "best", make_trained())
    assert find_model(run) == run / "best"
    save_model(run / "averaged", make_trained())
    assert find_model(run) == run / "averaged"
    save_model(run / "alone", make_trained())
    assert find_model(run / "alone") == run / "alone"
    (run / "empty").mkdir()
    with pytest.raises(UserError, match="no model in it"):
        find_model(run / "empty")
    (run / "empty" / "vocab.json").touch()
    with pytest.raises(UserError, match="convert it with seq2seq import"):
        find_model(run / "empty")
    with pytest.raises(UserError, match="no folder of this name"):
        find_model(run / "nowhere")


def test_the_average_is_the_mean_of_each_weight(run: Path) -> None:
    folders = checkpoints(run)
    states = [load_model(folder).model.state_dict() for folder in folders]
    exact = {name: (sum(s[name].double() for s in states) / 3).float() for name in states[0]}
    mean = average(folders).model.state_dict()
    torch.testing.assert_close(mean, exact, rtol=0, atol=0)
    assert_equal(average(folders[:1]).model, load_model(folders[0]).model)


def test_only_checkpoints_of_one_model_are_averaged(
    run: Path, make_trained: MakeTrained, sentences: list[str]
) -> None:
    first = checkpoints(run)[0]
    save_model(run / "other", make_trained(layer_norm_epsilon=1e-5))
    with pytest.raises(UserError, match="another model"):
        average([first, run / "other"])
    tokenizer = Tokenizer.train([s[::-1] for s in sentences], TokenizerConfig(vocab_size=60))
    save_model(run / "words", TrainedModel(make_trained().model, tokenizer, "en", "de"))
    with pytest.raises(UserError, match="another tokenizer"):
        average([first, run / "words"])


def test_the_progress_after_a_validation_is_that_of_the_checkpoint(run: Path) -> None:
    newest = checkpoints(run)[-1]
    files = {path: path.read_bytes() for path in newest.iterdir() if path.name != MANIFEST}
    assert checkpoint.progress_file(newest) == newest / "progress.json"
    (newest / "validated.json").write_text("{")  # killed before it was whole
    (newest / ".validated.json.0123456789abcdef.new").write_text("{")
    assert checkpoint.newest_good(run, pytest.fail) == newest
    assert {path.name for path in newest.glob(".*")} == set()
    assert checkpoint.read_progress(newest) == {"step": 100}
    checkpoint.save_validation(newest, {"step": 100, "validated": True})
    assert checkpoint.newest_good(run, pytest.fail) == newest
    assert checkpoint.read_progress(newest) == {"step": 100, "validated": True}
    assert all(path.read_bytes() == content for path, content in files.items())
    (newest / "validated.json").unlink()
    assert checkpoint.newest_good(run, lambda text: None) == checkpoints(run)[1]
