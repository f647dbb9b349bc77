"""Threads of the process, batches in parallel, and the processor's name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from seq2seq.machine import resources
from seq2seq.machine.resources import parallel_map


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_results_come_in_order_from_operations_of_one_thread(workers: int) -> None:
    with parallel_map(workers) as run:
        found = list(run(lambda number: (number, torch.get_num_threads()), range(20)))
    assert found == [(number, 1) for number in range(20)]
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), parallel_map(workers) as run:
        list(run(lambda number: 1 / number, [1, 0]))
    assert torch.get_num_threads() == 2


def test_a_processor_has_the_name_that_linux_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(resources, "Path", lambda _: file)
    monkeypatch.setattr(resources.platform, "machine", lambda: "aarch64")
    assert resources.processor_name() == "aarch64"  # a system without the file
    file.write_text("processor\t: 0\nmodel name\t: Fast 9: 2 GHz\nmodel name\t: another\n")
    assert resources.processor_name() == "Fast 9: 2 GHz"
    file.write_text("processor\t: 0\n")
    assert resources.processor_name() == "aarch64"
