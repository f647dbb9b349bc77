"""The GPU of the tests in this folder, which isn't there."""

import contextlib
from collections.abc import Iterator

import pytest
import torch

from tests.cuda.accelerator import UnknownPyTorchError
from tests.cuda.device import Journal, journal
from tests.cuda.simulation import simulated


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[None]:
    if torch.backends.cuda.is_built():
        pytest.skip("tests/test_cuda.py does it on a real GPU")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(simulated())
        except UnknownPyTorchError as error:
            pytest.skip(f"this PyTorch is not the one that is known: {error}")
        yield


@pytest.fixture(name="journal")
def cleared_journal() -> Journal:
    journal.clear()
    return journal
