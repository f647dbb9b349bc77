"""The benchmarks as they run on a GPU, on the simulated one: what is timed, beside which peers."""

import importlib.util
import logging
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from seq2seq.data.encoded import EncodedCorpusWriter
from seq2seq.data.tokenizer import Tokenizer
from seq2seq.model import TransformerConfig
from seq2seq.storage.model_folder import save_model
from seq2seq.storage.trained_model import TrainedModel, new_transformer
from tests.cuda.device import Journal

V, DEVICE = 50, "cuda:1"
TINY = {"num_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}


def script(name: str) -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The devices that were waited for, and whose memory was asked for."""
    devices: list[Any] = []
    for name in ("synchronize", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda device=None: devices.append(device) or 2**20)
    return devices


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(logging, "disable", lambda: None)  # for the rest of the process
    module = script("training")
    monkeypatch.setitem(module.SIZES, "tiny", TINY)
    return module


@pytest.fixture
def steps(training: ModuleType, tmp_path: Path) -> Any:
    path = tmp_path / "train.arrow"
    with EncodedCorpusWriter(path, V) as writer:
        sources = [[4 + (row + place) % 46 for place in range(3 + row % 5)] for row in range(200)]
        writer.write(sources, sources)
    return training.Work(
        corpus=str(path),
        size="tiny",
        vocab_size=V,
        tokens=96,
        micro_batch_tokens=48,
        steps=1,
        device=DEVICE,
    )


def test_a_step_is_timed_on_the_gpu_that_was_named(
    training: ModuleType, steps: Any, asked: list[Any]
) -> None:
    measured = training.measure(steps, training.System("ours", "ours", "bf16"))
    assert asked == [DEVICE] * 3  # at both ends, and for its memory
    assert measured["peak"] == 2**20


def test_each_fast_form_that_is_left_out_changes_what_a_gpu_does(
    training: ModuleType, steps: Any, journal: Journal
) -> None:
    def kernels_of(system: Any) -> Counter[str]:
        step = training.make_step(steps, system)
        _, batches = steps.steps_of_batches()
        step(batches[0])
        journal.clear()
        step(batches[1])
        return journal.kernels.copy()

    whole = kernels_of(training.ON_A_GPU[0])
    assert kernels_of(training.ON_A_GPU[0]) == whole
    rows = [system for system in training.KERNELS_ON_A_GPU if not system.compiled]
    assert rows
    for system in rows:
        assert kernels_of(system) != whole, system.name


@pytest.fixture
def decoding() -> ModuleType:
    return script("decoding")


@pytest.fixture
def trained(tokenizer: Tokenizer) -> TrainedModel:
    model = new_transformer(TransformerConfig(**TINY), tokenizer.vocab_size)
    return TrainedModel(model, tokenizer, "a", "b")


def work_on(device: str, module: ModuleType, folder: Path, lines: list[str]) -> Any:
    text = folder / "text"
    text.write_text("\n".join(lines))
    return module.Work(
        model=str(folder / "model"),
        marian="marian",
        ctranslate2="ctranslate2",
        source=str(text),
        sentences=len(lines),
        single=1,
        beam=4,
        device=device,
    )


def test_the_memory_of_a_search_is_that_of_the_gpu_that_was_named(
    decoding: ModuleType,
    trained: TrainedModel,
    asked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    save_model(tmp_path / "model", trained)
    monkeypatch.setitem(decoding.MAKERS, "ours", lambda *_: lambda lines: [[5]] * len(lines))
    work = work_on(DEVICE, decoding, tmp_path, ["a man", "the sea"])
    assert decoding.measure(work, decoding.System("ours", "ours", "bf16"))["peak"] == 1
    assert asked == [DEVICE]
