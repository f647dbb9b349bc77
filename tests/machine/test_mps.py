"""A Mac's GPU, which isn't there: PyTorch says `mps`, and the CPU computes, without float64."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.sampling import SamplingConfig
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.machine.processes import Processes
from seq2seq.machine.resources import choose_device, choose_precision
from tests.conftest import MakeTrained
from tests.toy import toy_config, train, weights

MPS = torch.device("mps", 0)


def is_mps(x: object) -> bool:
    return (isinstance(x, torch.device) and x.type == "mps") or (
        isinstance(x, str) and x.partition(":")[0] == "mps"
    )


class Mac(TorchFunctionMode):
    """Knows the memory of the tensors that were made on `mps`, or of such ones."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[int, torch.UntypedStorage] = {}

    def has(self, x: object) -> bool:
        return isinstance(x, Tensor) and x.untyped_storage().data_ptr() in self.memory

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        if func == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            return MPS if self.has(args[0]) else func(*args)
        given = list(tree_iter((args, kwargs or {})))
        is_asked, is_there = any(map(is_mps, given)), any(map(self.has, given))
        is_left = func is Tensor.cpu or (func is Tensor.to and torch.device("cpu") in given)
        args, kwargs = tree_map(lambda x: "cpu" if is_mps(x) else x, (args, kwargs or {}))
        made = func(*args, **kwargs)
        if is_left:
            return made.clone()
        if is_asked and func is Tensor.to:
            made = made.clone()  # from the host to other memory
        if is_asked or is_there:
            for tensor in tree_iter(made):
                if isinstance(tensor, Tensor):
                    self.keep(tensor)
        return made

    def keep(self, tensor: Tensor) -> None:
        if tensor.dtype is torch.float64:
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as MPS doesn't support it"
            )
        storage = tensor.untyped_storage()
        if storage.data_ptr():
            self.memory[storage.data_ptr()] = storage


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mac]:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with Mac() as made:
        yield made


@pytest.mark.usefixtures("mac")
def test_the_gpu_of_a_mac_is_taken_if_it_is_named() -> None:
    assert choose_device("auto") == torch.device("cpu")
    assert choose_device("mps").type == "mps"
    assert choose_precision("auto", MPS) is torch.float32
    with pytest.raises(UserError, match="choose auto, cpu or mps"):
        choose_device("cuda")
    with pytest.raises(UserError, match="device=mps: one GPU for 2 processes"):
        Processes(rank=0, size=2).own_device(torch.device("mps"))


def test_float64_is_refused_as_on_a_mac(mac: Mac) -> None:
    x = torch.ones(2, device="mps")
    assert x.device == (x + 1).device == MPS
    assert x.cpu().device == torch.device("cpu")
    for make in (x.double, lambda: torch.ones(2, dtype=torch.float64).to("mps")):
        with pytest.raises(TypeError, match="float64"):
            make()


def test_a_training_on_the_gpu_of_a_mac_is_the_plain_one(
    tmp_path: Path, sentences: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seq2seq")
    config = replace(toy_config(tmp_path, sentences), forms="plain")
    expected = weights(train(config, tmp_path / "cpu") / "best")
    with Mac() as mac:
        run = train(replace(config, forms="fast", device="mps"), tmp_path / "mps")
        assert mac.memory
    found = weights(run / "best")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert "mps computes in the plain forms" in (run / "train.log").read_text("utf-8")


@pytest.mark.parametrize("search", [None, SamplingConfig(top_k=5), SamplingConfig(top_p=0.9)])
def test_a_translation_on_the_gpu_of_a_mac_is_that_of_the_cpu(
    make_trained: MakeTrained, sentences: list[str], search: SamplingConfig | None
) -> None:
    options = TranslationOptions(device="cpu", precision="fp32", forms="plain")
    if search is not None:
        options = replace(options, search=search)
    trained, lines = make_trained(), sentences[:9]
    expected = Translator(trained, options).translate(lines)
    with Mac() as mac:
        translator = Translator(trained, replace(options, forms="fast", device="mps"))
        assert [each.text for each in translator.translate(lines)] == [x.text for x in expected]
        assert mac.memory
        scores = translator.log_probabilities(lines, [each.text for each in expected])
    assert len(scores) == len(lines)
