"""The choice of a GPU; the simulated one notices each wait."""

from unittest import mock

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.machine.resources import choose_device, choose_precision
from tests.cuda.device import Journal

CUDA = torch.device("cuda")


def test_every_wait_is_noted(journal: Journal) -> None:
    x = torch.ones(2, 4, device=CUDA)
    assert (x > 0).all()
    assert x[0, 0].item() == 1.0
    assert len(x.nonzero()) == 8
    assert len(x[x > 0]) == 8
    assert x.tolist() == [[1.0] * 4] * 2
    assert torch.equal(x.cpu(), torch.ones(2, 4))
    whys = [wait.why for wait in journal.waits]
    assert whys == ["item", "item", "nonzero", "index by a mask", "tolist", "copy to the host"]
    x.to("cpu", non_blocking=True)
    assert len(journal.waits) == 6


def test_a_gpu_is_taken_where_there_is_one() -> None:
    assert choose_device("auto").type == "cuda"
    assert choose_precision("auto", CUDA) is torch.bfloat16
    # Its plans for each new shape of attention would take most of the time.
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_a_gpu_without_kernels_is_left_for_the_cpu_by_one_process_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    error = RuntimeError("CUDA error: no kernel image is available\nCompile with ...")
    monkeypatch.setattr(torch, "zeros", mock.Mock(side_effect=error))
    assert choose_device("auto") == torch.device("cpu")
    message = "running on the CPU, because the GPU can't be used: CUDA error: no kernel image"
    assert message in warned[0]
    with pytest.raises(UserError, match="device 'cuda' can't be used here"):
        choose_device("cuda")
    with pytest.raises(UserError, match=r"the GPU can't be used: .* or choose device cpu"):
        choose_device("auto", processes=2)


def test_a_gpu_older_than_ampere_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert choose_precision("auto", CUDA) is torch.float32
