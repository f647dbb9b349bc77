"""Faults are injected for real, a few in each test run, and in full by scripts/faults.sh."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

Trial = Callable[[str], AbstractContextManager[None]]
Trials = Callable[[int, int], int]

_tried = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_tried] = Counter()


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trial:
    """`with trial("a flipped bit"): ...`: an error within it fails its test."""

    def count(fault: str) -> AbstractContextManager[None]:
        request.config.stash[_tried][fault] += 1
        return nullcontext()

    return count


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> Trials:
    """`trials(few, all)`: how often to try in a run of the tests, and in `faults.sh --full`."""
    full = request.config.getoption("--full-faults")
    return lambda few, all_of_them: all_of_them if full else few


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.getoption("--full-faults"):
        terminalreporter.section("faults that were tried")
        for fault, tried in terminalreporter.config.stash[_tried].items():
            terminalreporter.write_line(f"{tried:5}  {fault}")
