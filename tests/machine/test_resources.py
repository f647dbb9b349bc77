"""Threads of the process: batches in parallel."""

from collections.abc import Iterator

import pytest
import torch

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
