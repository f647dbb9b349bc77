"""Folders from strangers: nothing in them is executed, and each is refused in one line, soon."""

import hashlib
import json
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from seq2seq.cli.main import main
from seq2seq.files import MANIFEST
from seq2seq.model_folder import checkpoints
from seq2seq.tokenizer import Tokenizer
from tests.models import SIZES, save_untrained
from tests.toy import data_words, reversing

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.model"
OPTIMIZER, PROGRESS = "optimizer.safetensors", "validated.json"
INNER = "encoder.layers.0.feed_forward.inner.weight"
OTHER_WEIGHTS = "not the weights of its configuration"
CONTROL = b"<s>\x15\x00\x00\x00\x00\x18\x03"
"""The piece <s> in a tokenizer, which ends with its type."""
CANARY = "canary"
"""A file that only executed code creates."""

Change = Callable[[Path], None]


class Executed:
    """Executes a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {CANARY}",))


def sign(folder: Path, name: str) -> None:
    """Let the manifest vouch for a file, as a stranger would."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))


def change(act: Callable[..., object]) -> Callable[..., Change]:
    """Let a function of a folder and more be given what is more, and then the folder."""
    return lambda *more: lambda folder: act(folder, *more)


@change
def replace(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    sign(folder, name)


@change
def edit(folder: Path, name: str, old: str | bytes, new: str | bytes) -> None:
    before, after = (text.encode() if isinstance(text, str) else text for text in (old, new))
    content = (folder / name).read_bytes()
    assert before in content
    replace(name, content.replace(before, after, 1))(folder)


@change
def change_tensors(folder: Path, name: str, how: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = safetensors.torch.load_file(folder / name)
    how(tensors)
    replace(name, safetensors.torch.save(tensors))(folder)


@change
def grow(folder: Path, name: str, size: int) -> None:
    """A sparse file: gigabytes that cost the stranger nothing."""
    os.truncate(folder / name, size)


def pipe(folder: Path) -> None:
    (folder / TOKENIZER).unlink()
    os.mkfifo(folder / TOKENIZER)


def link(folder: Path) -> None:
    (folder / CONFIG).rename(folder / "elsewhere")
    (folder / CONFIG).symlink_to("elsewhere")


def device(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).symlink_to("/dev/zero")


def varint(value: int) -> bytes:
    head, rest = value & 0x7F, value >> 7
    return bytes([head | 0x80]) + varint(rest) if rest else bytes([head])


@change
def set_field(folder: Path, message: int, field: int, text: bytes) -> None:
    """Add a text to a message within the tokenizer; what comes last is what holds."""

    def tagged(number: int, content: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(content)) + content

    content = (folder / TOKENIZER).read_bytes()
    replace(TOKENIZER, content + tagged(message, tagged(field, text)))(folder)


UNUSUAL = (pipe, link, device)
MODELS: dict[str, tuple[Change, str]] = {
    "a pickle as safetensors": (replace(WEIGHTS, pickle.dumps(Executed())), WEIGHTS),
    "a pickle as tokenizer": (replace(TOKENIZER, pickle.dumps(Executed())), TOKENIZER),
    "object tags in the configuration": (
        replace(CONFIG, f'!!python/object/apply:os.system ["touch {CANARY}"]'.encode()),
        CONFIG,
    ),
    "_target_ in the configuration": (
        edit(CONFIG, '"format"', f'"_target_": "os.system", "command": "touch {CANARY}", "format"'),
        "_target_",
    ),
    "NaN for a rate": (edit(CONFIG, '"dropout": 0.1', '"dropout": NaN'), "not valid JSON"),
    "nested 30,000 deep": (replace(CONFIG, b"[" * 30_000), "not valid JSON"),
    "a billion layers": (edit(CONFIG, '"num_layers": 1', '"num_layers": 1000000000'), "layers"),
    "a model of petabytes": (
        edit(CONFIG, '"d_ff": 8', '"d_ff": 1000000000000'),
        "this machine's memory",
    ),
    "gigabytes of configuration": (grow(CONFIG, 2**36), "can't hold more"),
    "terabytes of weights": (grow(WEIGHTS, 2**40), "can't hold more"),
    "weights that are NaN": (
        change_tensors(WEIGHTS, lambda tensors: tensors["embedding.weight"].fill_(float("nan"))),
        "embedding.weight holds values that are not finite",
    ),
    "a tensor too many": (
        change_tensors(WEIGHTS, lambda tensors: tensors.update({"a\nb": torch.ones(1)})),
        "'a\\nb'",
    ),
    "a tensor missing": (change_tensors(WEIGHTS, lambda w: w.pop(INNER)), OTHER_WEIGHTS),
    "a pipe for a file": (pipe, "not a regular file"),
    "a link for a file": (link, "a link"),
    "a device for the manifest": (device, "a link"),
    "an ordinary piece <s>": (edit(TOKENIZER, CONTROL, CONTROL[:-1] + b"\x04"), "<s>"),
    "an unknown piece that is written as 20 MB": (
        set_field(2, 44, b"?" * 20 * 2**20),
        "a piece of more than 1,000 characters",
    ),
    "a character that is read as 20 MB": (
        set_field(3, 2, (0).to_bytes(4) + b"?" * 20 * 2**20),
        "writes more than 1,000 bytes for a character",
    ),
    "a piece that is not UTF-8": (
        edit(TOKENIZER, "▁th", b"\xe2\x96\xffth"),
        "the tokenizer can't be read",
    ),
    "half a surrogate pair for a language": (
        edit(CONFIG, '"target_language": "de"', '"target_language": "\\ud800"'),
        "not valid JSON",
    ),
    "thirty million pieces": (replace(TOKENIZER, b"\x0a\x00" * 30_000_000), "1,000,000 pieces"),
}

STATES: dict[str, tuple[Change, str]] = {
    "a pickle as optimizer": (replace(OPTIMIZER, pickle.dumps(Executed())), OPTIMIZER),
    "moments of another shape": (
        change_tensors(OPTIMIZER, lambda t: t.update({"embedding.weight.exp_avg": torch.ones(3)})),
        "embedding.weight.exp_avg",
    ),
    "progress of another type": (edit(PROGRESS, '"step": 1', '"step": "1"'), "step"),
    "progress with more keys": (edit(PROGRESS, "{", '{"_target_": "os.system", '), "_target_"),
    "progress below 0": (edit(PROGRESS, '"step": 1', '"step": -1'), "Expected `int` >= 0"),
    "progress that is a list": (replace(PROGRESS, b"[]"), PROGRESS),
}


def refused(capfd: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    """One line and exit code 1, in little time of the processor, and in little memory."""
    capfd.readouterr()
    started, memory = time.process_time(), peak_megabytes()
    assert main(words) == 1
    assert time.process_time() - started < 20  # about 1 s
    assert peak_megabytes() - memory < 500
    out, err = capfd.readouterr()
    *_, line = err.splitlines()
    assert out == ""
    assert line.startswith("seq2seq: "), err
    assert says in line
    assert len(line) < 1000
    assert "Traceback" not in err
    if words[0] == "translate":
        assert err.count("\n") == 1


def peak_megabytes() -> float:
    resource = pytest.importorskip("resource")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


@pytest.fixture
def model(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return save_untrained(tmp_path / "model", tokenizer)


@pytest.fixture(autouse=True)
def nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not Path(CANARY).exists()


def test_the_canary_shows_executed_code() -> None:
    pickle.loads(pickle.dumps(Executed()))
    Path(CANARY).unlink()


def needs_posix(name: str) -> bool:
    """Windows has no such files, and doesn't tell how much memory there is."""
    damage, says = MODELS[name]
    return damage in UNUSUAL or "memory" in says


def test_the_folder_is_good_before_it_is_changed(model: Path) -> None:
    text = model.parent / "text"
    text.write_text("a man sees the sea.\n")
    assert main(["translate", "--model", str(model), "-i", str(text)]) == 0


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=pytest.mark.posix) if needs_posix(x) else x for x in MODELS],
)
def test_a_hostile_model_is_refused(
    model: Path, name: str, trial: Callable, capfd: pytest.CaptureFixture[str]
) -> None:
    damage, says = MODELS[name]
    damage(model)
    with trial("a model folder from a stranger"):
        refused(capfd, ["translate", "--model", str(model)], says)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, sentences: list[str]) -> Path:
    """A run of one step."""
    folder = tmp_path_factory.mktemp("strangers")
    for split in ("train", "valid"):
        reversing(folder, split, sentences)
    assert main(train(folder)) == 0
    return folder


def train(folder: Path) -> list[str]:
    return [
        "train",
        *data_words(folder),
        "data.tokenizer.vocab_size=60",
        *(f"model.{name}={size}" for name, size in SIZES.items()),
        "training.source_tokens=300",
        "training.target_tokens=300",
        "training.max_steps=1",
        "precision=fp32",
        "device=cpu",
        f"cache={folder / 'cache'}",
        f"run_dir={folder / 'run'}",
    ]


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


@pytest.mark.parametrize("name", STATES)
def test_a_hostile_state_is_not_resumed(
    copy: Path, name: str, trial: Callable, capfd: pytest.CaptureFixture[str]
) -> None:
    damage, says = STATES[name]
    damage(copy / "run" / "checkpoints" / "step_00000001")
    with trial("a resume state from a stranger"):
        refused(capfd, [*train(copy), "resume=true", "training.max_steps=2"], says)


@pytest.mark.posix
def test_a_link_in_a_hostile_run_is_never_written_through(
    copy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("train.log", "metrics.jsonl"):
        path = copy / "run" / name
        content = path.read_bytes()
        for make in (lambda path: path.symlink_to(mine), os.mkfifo):
            path.unlink()
            make(path)
            refused(capfd, [*train(copy), "resume=true", "training.max_steps=2"], name)
        path.unlink()
        path.write_bytes(content)
    assert mine.read_text() == "mine"


# Each key is thirty times the one before: 30^4 x 100 characters.
CHAIN = 'data:\n  name: "' + "x" * 100 + '"\n'
KEYS = ("name", "source_language", "target_language", "dataset", "dataset_config")
for before, key in pairwise(KEYS):
    CHAIN += f'  {key}: "' + 30 * f"\\x24{{data.{before}}}" + '"\n'


@pytest.mark.parametrize(
    "content",
    [
        f'!!python/object/apply:os.system ["touch {CANARY}"]',
        f"device: !!python/object/apply:os.system ['touch {CANARY}']",
        "device: ${oc.env:HOME}",
        'device: "\\u0024{oc.env:HOME}"',
        'device: "$\\\n  {oc.env:HOME}"',
        '"\\x24{oc.env:HOME}": 1',
        CHAIN,
        "model: {num_layers: 1000000000}",
        f"model: {{d_ff: 0x{'f' * 50_000}}}",
        "data: {tokenizer: {vocab_size: 100000000000}}",
        "distributed_timeout: .nan",
        "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nseed: *b",
        "[" * 30_000,
        "seed: many",
        "_target_: os.system",
        "seed: 1\n" + "#" * 300_000,
    ],
    ids=lambda content: content[:40],
)
def test_a_hostile_run_is_not_examined(
    model: Path, content: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (model / "config.yaml").write_text(content)
    for command in (["fidelity", "--model", str(model)], ["runs", str(model)]):
        refused(capfd, command, "config.yaml")


def test_what_a_terminal_obeys_is_shown_as_escapes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for value in ("mit", '"\\e[2J\\e]0;\\x9b"'):
        (tmp_path / value[1:3]).mkdir()
        (tmp_path / value[1:3] / "config.yaml").write_text(f"license: {value}\n")
    assert main(["runs", str(tmp_path)]) == 0
    shown = capfd.readouterr().out
    assert r"\x1b[2J\x1b]0;\x9b" in shown
    assert all(c.isprintable() or c == "\n" for c in shown)


def test_folders_that_are_no_checkpoints_are_none(model: Path) -> None:
    for name in ("step_", "step_x", "step_-1", "step_1e5", "step_٣", f"step_{'9' * 200}"):
        (model / "checkpoints" / name).mkdir(parents=True)
    (model / "checkpoints" / "step_7").write_text("no folder")
    for name in ("step_100000000", "step_99999999"):
        (model / "checkpoints" / name).mkdir()
    names = [folder.name for folder in checkpoints(model)]
    assert names == ["step_99999999", "step_100000000"]
