"""Change the package in one place at a time and see whether the tests notice: `--help` shows how.

The changes are in `mutants.toml`. Each is made in a copy of the checkout, never in the checkout
itself, and the tests that ought to see it run there: they pass without the change, and one of them
must fail with it.
"""

import argparse
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "mutants.toml"
COPIED = ("seq2seq", "tests", "conf", "data", "scripts", "pyproject.toml", "README.md")
_SECONDS = 120  # a change may make an endless loop


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one file."""

    group: str
    name: str
    file: str
    """Below the root of the checkout."""
    old: str
    """Stands exactly once in the file."""
    new: str
    tests: str
    """Words for pytest: those that ought to see the change."""
    equivalent: str = ""
    """Why the change has no effect; empty if it has one."""


def read_list(path: Path, root: Path) -> list[Mutant]:
    """Read the list; leave with a message for each change that can't be made."""
    groups = tomllib.loads(path.read_text())
    mutants = [
        Mutant(group=group, **entry) for group, entries in groups.items() for entry in entries
    ]
    complaints = [
        f"{name}: {count} changes have this name"
        for name, count in Counter(mutant.name for mutant in mutants).items()
        if count > 1
    ]
    for mutant in mutants:
        file = root / mutant.file
        found = file.read_text().count(mutant.old) if file.is_file() else 0
        if found != 1:
            complaints.append(
                f"{mutant.name}: its old text stands {found} times in {mutant.file}, should once"
            )
        if mutant.old == mutant.new:
            complaints.append(f"{mutant.name}: changes nothing")
    if complaints:
        sys.exit("\n".join([f"{path.name} does not fit the code:", *complaints]))
    return mutants


class Copy:
    """A copy of the checkout in which changes are made and undone."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.passing: dict[str, float] = {}
        """Seconds of the tests that are known to pass without a change."""
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(
                    root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            elif (root / name).is_file():
                shutil.copy(root / name, folder / name)

    def examine(self, mutant: Mutant) -> str:
        """`killed`, `survived`, or why neither can be found out."""
        if mutant.tests not in self.passing:
            started = time.monotonic()
            if code := self._test(mutant.tests):
                return f"its tests fail without it, or there are none (pytest ends with {code})"
            self.passing[mutant.tests] = time.monotonic() - started
        path = self.folder / mutant.file
        before = path.read_text()
        _write(path, before.replace(mutant.old, mutant.new))
        try:
            return "killed" if self._test(mutant.tests) else "survived"
        finally:
            _write(path, before)

    def _test(self, tests: str) -> int:
        """The exit code of pytest; 1 as well if it takes too long."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [*command, *shlex.split(tests)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Second by second: time in which this script is suspended does not count.
        for _ in range(_SECONDS):
            with suppress(subprocess.TimeoutExpired):
                return process.wait(1)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return 1


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    # Python takes bytecode for that of another source of the same size and second.
    for bytecode in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        bytecode.unlink()


def examine_all(mutants: list[Mutant], jobs: int, root: Path) -> dict[Mutant, str]:
    """Examine changes, `jobs` at a time; one line for each as it is done."""
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(jobs) as pool:
        free: queue.Queue[Copy] = queue.Queue()
        for number in range(jobs):
            folder = Path(place) / str(number)
            folder.mkdir()
            free.put(Copy(folder, root))

        def examine(mutant: Mutant) -> str:
            copy, started = free.get(), time.monotonic()
            try:
                result = copy.examine(mutant)
            finally:
                free.put(copy)
            seconds = time.monotonic() - started
            print(f"{mutant.group:12} {mutant.name:44} {result} ({seconds:.0f} s)", flush=True)
            return result

        return dict(zip(mutants, pool.map(examine, mutants), strict=True))


def table(results: dict[Mutant, str]) -> str:
    """Counts for each group, and what needs a look."""
    groups = dict.fromkeys(mutant.group for mutant in results)
    lines = ["", f"{'':12} changes  killed  survived  without effect"]
    for group in [*groups, "all"]:
        of_group = {m: result for m, result in results.items() if group in (m.group, "all")}
        killed = sum(result == "killed" for m, result in of_group.items())
        without = sum(result == "survived" and m.equivalent != "" for m, result in of_group.items())
        survived = sum(result == "survived" for result in of_group.values()) - without
        lines.append(f"{group:12} {len(of_group):7} {killed:7} {survived:9} {without:15}")
    for mutant, result in results.items():
        if result == "survived" and mutant.equivalent:
            lines.append(f"\nwithout effect: {mutant.name}: {mutant.equivalent}")
    lines += [
        f"\n{mutant.name}: {result}"
        + (", though listed as without effect" if mutant.equivalent else "")
        + f"\n  {mutant.file}\n  - {mutant.old}\n  + {mutant.new}\n  pytest {mutant.tests}"
        for mutant, result in results.items()
        if is_unexpected(mutant, result)
    ]
    return "\n".join(lines)


def is_unexpected(mutant: Mutant, result: str) -> bool:
    """Whether a change was not seen though it has an effect, or seen though it has none."""
    return result != ("survived" if mutant.equivalent else "killed")


def main() -> int:
    """Examine the chosen changes.

    Returns:
        0 if the tests saw every change that has an effect, else 1.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="changes or groups; default: all")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="changes at a time")
    parser.add_argument("--list", action="store_true", help="print groups and names, run nothing")
    arguments = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, and then in the tests too
    mutants = read_list(LIST, ROOT)
    known = {word for mutant in mutants for word in (mutant.group, mutant.name)}
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"no such change or group: {', '.join(unknown)}; --list shows them")
    wanted = set(arguments.names) or known
    mutants = [mutant for mutant in mutants if wanted & {mutant.group, mutant.name}]
    if arguments.list:
        print("\n".join(f"{mutant.group:12} {mutant.name}" for mutant in mutants))
        return 0
    results = examine_all(mutants, max(1, arguments.jobs), ROOT)
    print(table(results))
    return int(any(is_unexpected(mutant, result) for mutant, result in results.items()))


if __name__ == "__main__":
    sys.exit(main())
