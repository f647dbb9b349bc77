"""The benchmarks as they run on a GPU, on the simulated one: what is timed, beside which peers."""

import importlib.util
import logging
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
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
    monkeypatch.setattr(logging, "disable", lambda: None)
    return devices


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
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


class HuggingFace:
    """Takes the place of a `MarianMTModel`."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def eval(self) -> "HuggingFace":
        return self

    def to(self, device: str, dtype: torch.dtype) -> "HuggingFace":
        self.place = device, dtype
        return self

    def generate(self, **options: Any) -> torch.Tensor:
        self.calls.append(options)
        return torch.full((len(options["input_ids"]), 2), 5)


def test_hugging_face_is_run_in_its_fastest_way(
    decoding: ModuleType,
    trained: TrainedModel,
    sentences: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    on_gpu, on_cpu = models = [HuggingFace(), HuggingFace()]
    unused = iter(models)
    library = SimpleNamespace(from_pretrained=lambda _: next(unused))
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(MarianMTModel=library))
    systems = [system for system in decoding.ON_A_GPU if system.make == "hugging_face"]
    assert {(s.precision, s.batch > 100) for s in systems} == {
        (precision, large) for precision in ("fp32", "bf16") for large in (False, True)
    }
    system = decoding.System("in bf16", "hugging_face", "bf16", batch=8)
    for device in (DEVICE, "cpu"):
        work = work_on(device, decoding, tmp_path, sentences)
        decoding.hugging_face(work, system, trained)(sentences[:20])
    assert on_gpu.place == (DEVICE, torch.bfloat16)
    widths = [[call["input_ids"].size(1) for call in model.calls] for model in models]
    assert [len(call["input_ids"]) for call in on_gpu.calls] == [8, 8, 4]
    assert all(call["cache_implementation"] == "static" for call in on_gpu.calls)
    assert [-(-width // 16) * 16 for width in widths[1]] == widths[0]
    assert not any("cache_implementation" in call for call in on_cpu.calls)


def test_ctranslate2_is_run_on_the_gpu_that_was_named_with_several_sizes_of_batches(
    decoding: ModuleType,
    trained: TrainedModel,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    made: list[dict[str, Any]] = []

    class Library:
        """Takes the place of CTranslate2's `Translator`."""

        def __init__(self, path: str, **options: Any) -> None:
            made.append(options)

        def translate_batch(self, sources: list[list[str]], **options: Any) -> list[Any]:
            made[-1] |= options
            return [SimpleNamespace(hypotheses=[source]) for source in sources]

    monkeypatch.setitem(sys.modules, "ctranslate2", SimpleNamespace(Translator=Library))
    systems = [system for system in decoding.ON_A_GPU if system.make == "ctranslate2"]
    work = work_on(DEVICE, decoding, tmp_path, ["a man"])
    for system in systems:
        translated = decoding.ctranslate2(work, system, trained)(["a man"])
        assert translated == trained.tokenizer.encode(["a man"])
    places = {(options["device"], options["device_index"]) for options in made}
    assert places == {("cuda", 1)}
    assert [options["max_batch_size"] for options in made] == [system.batch for system in systems]
    assert len({system.batch for system in systems}) > 2
