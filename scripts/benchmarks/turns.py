"""Systems that benchmarks compare: each is measured in a process of its own, and they take turns.

A slow minute of the machine then affects all of them. A benchmark calls `measure_in_turn`, which
starts the benchmark again with `--measure`, in a new process for each measurement.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar


@dataclass(frozen=True)
class System:
    """One line of a table."""

    name: str
    make: str
    precision: str
    without: tuple[str, ...] = field(default=(), kw_only=True)
    """The fast forms that are turned off."""


W = TypeVar("W")
S = TypeVar("S", bound=System)
Results = dict[S, list[dict[str, Any]]]
"""What was measured in each round."""


def add_round_options(parser: argparse.ArgumentParser) -> None:
    """Add --rounds, and --only, which `select` reads."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="systems with these prefixes")


def add_kernel_options(parser: argparse.ArgumentParser) -> None:
    """Add --kernels, and --measure, which `measure_given` reads."""
    parser.add_argument(
        "--kernels", action="store_true", help="ours, ours without each fast form, the plain model"
    )
    parser.add_argument("--measure", help=argparse.SUPPRESS)


def select(
    parser: argparse.ArgumentParser, systems: Sequence[S], prefixes: list[str] | None
) -> list[S]:
    """Return the systems that --only names, all without it; end the script if there are none."""
    selected = [s for s in systems if not prefixes or s.name.startswith(tuple(prefixes))]
    if not selected:
        parser.error("--only names no system of this table")
    return selected


def peak_memory() -> int:
    """Return the most bytes that this process has had; getrusage would count its parent's, too."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def medians(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Return the median of each number over the rounds."""
    numbers = [name for name, value in rounds[0].items() if isinstance(value, int | float)]
    return {name: statistics.median(one[name] for one in rounds) for name in numbers}


def measure_in_turn(
    script: str, work: Any, systems: Sequence[S], rounds: int, show: Callable[[Results[S]], None]
) -> None:
    """Measure each system in each round, and show the results; after SIGTERM, what there is.

    `script` is the file of the benchmark, and `work` a dataclass that is the same for all systems.
    """
    signal.signal(signal.SIGTERM, _stop_early)
    results: Results[S] = {}
    try:
        for _ in range(rounds):
            for system in systems:
                if measured := _measure_apart(script, work, system):
                    results.setdefault(system, []).append(measured)
    finally:
        if results:
            show(results)


def _stop_early(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends two
    sys.exit("stopped early")


def _measure_apart(script: str, work: Any, system: System) -> dict[str, Any] | None:
    """Measure in a new process; return None, and print the reason, if it fails."""
    words = json.dumps({"work": asdict(work), "system": asdict(system)})
    done = subprocess.run(
        [sys.executable, script, "--measure", words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{system.name}: {(done.stderr.strip() or 'killed').splitlines()[-1]}")
        return None
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def given(words: str, work: type[W], system: type[S]) -> tuple[W, S]:
    """Read the work and the system that another process has written."""
    read = json.loads(words)
    choices = read["system"] | {"without": tuple(read["system"]["without"])}
    return work(**read["work"]), system(**choices)


def measure_given(
    words: str, work: type[W], system: type[S], measure: Callable[[W, S], dict[str, Any]]
) -> None:
    """Measure what `--measure` names, and print the result for the process that asked."""
    print(json.dumps(measure(*given(words, work, system))))
