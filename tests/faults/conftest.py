"""Faults are injected for real, a few in each test run, and in full by scripts/faults.sh."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import pytest

Trial = Callable[[str], AbstractContextManager[None]]
Trials = Callable[[int, int], int]


@dataclass
class Tally:
    """How often each fault was tried and survived; an error in a trial fails its test."""

    tried: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def trial(self, fault: str) -> Iterator[None]:
        """Count one trial; it is survived if the block ends without an error."""
        started = time.perf_counter()
        self.tried[fault] += 1
        try:
            yield
            self.survived[fault] += 1
        finally:
            self.seconds[fault] += time.perf_counter() - started


_tally = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_tally] = Tally()


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trial:
    """`with trial("a flipped bit"): ...`: one line of the table counts these."""
    return request.config.stash[_tally].trial


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> Trials:
    """`trials(few, all)`: how often to try in a run of the tests, and in `faults.sh --full`."""
    full = request.config.getoption("--full-faults")
    return lambda few, all_of_them: all_of_them if full else few


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tally = terminalreporter.config.stash[_tally]
    if not terminalreporter.config.getoption("--full-faults") or not tally.tried:
        return
    terminalreporter.section("faults")
    width = max(map(len, tally.tried))
    terminalreporter.write_line(f"{'fault':<{width}}  tried  survived  minutes")
    for fault, tried in tally.tried.items():
        survived, minutes = tally.survived[fault], tally.seconds[fault] / 60
        terminalreporter.write_line(f"{fault:<{width}}  {tried:5}  {survived:8}  {minutes:7.1f}")
