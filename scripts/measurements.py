"""Measurements that take several calls: each within a limit, and all results in one table."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
Figures = dict[str, float | str]


@dataclass(frozen=True)
class Part:
    """One measurement."""

    name: str
    command: Sequence[str]
    """The arguments of Python."""
    figures: Callable[[str], Figures] = lambda printed: {}
    """Reads its figures from what it printed, or from what it wrote elsewhere."""
    seconds: float = float("inf")
    """The most that it gets in one call."""
    least: float = 0.0
    """It is not started with less time: a training needs some before its first step."""
    variables: Mapping[str, str] = field(default_factory=dict)
    needs: Path | None = None
    """A folder without which it can't be done."""
    runs: Sequence[Path] = ()
    """The folders of its trainings, which it continues; removed before a part is done again."""


@dataclass(frozen=True)
class Result:
    """One try of a part."""

    part: str
    ended: str
    """`done`, or why it is not."""
    figures: Figures
    seconds: int
    card: str
    program: str
    date: str
    command: str

    @property
    def done(self) -> bool:
        """Whether all of the part was done."""
        return self.ended == "done"


@dataclass
class Measurements:
    """The results of all calls, in a folder, and the time that is left in this one."""

    folder: Path
    card: str
    program: str
    seconds: float
    """The length of this call."""
    grace: float = 20.0
    """Seconds in which a part that is stopped may save, or show what it has measured."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.started = self.clock()
        self.path = self.folder / "results.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.results = [Result(**json.loads(line)) for line in lines]

    def done(self, name: str) -> Result | None:
        """Return the newest result of a part that was done."""
        return next((r for r in reversed(self.results) if r.part == name and r.done), None)

    def _newest_is_done(self, name: str) -> bool:
        """Return whether the newest try of a part was done, so that nothing of it is left to do."""
        return next((r.done for r in reversed(self.results) if r.part == name), False)

    def measure(self, part: Part) -> Result:
        """Do a part in what is left of the time, and keep its result if it was started."""
        began, figures = self.clock(), Figures()
        left = self.seconds - self.grace - (began - self.started)
        was_started = False
        if part.needs is not None and not part.needs.is_dir():
            ended = f"not started: no folder {part.needs}"
        elif left <= part.least:
            ended = "not started, for want of time"
        else:
            was_started = True
            if self._newest_is_done(part.name):
                for folder in filter(Path.exists, part.runs):
                    shutil.rmtree(folder)
            printed, ended = self._run(part, min(left, part.seconds))
            try:
                figures = part.figures(printed)
            except (ArithmeticError, LookupError, ValueError, OSError) as error:
                if ended == "done":
                    ended = f"failed: its figures can't be read ({error!r:.150})"
        variables = (f"{name}={value}" for name, value in part.variables.items())
        result = Result(
            part.name,
            ended,
            figures,
            round(self.clock() - began),
            self.card,
            self.program,
            datetime.now().isoformat(" ", "minutes"),
            " ".join((*variables, "python", *part.command)),
        )
        if was_started:
            self.results.append(result)
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            (self.folder / "table.md").write_text(self.table() + self.commands())
        print(f"{part.name}: {result.seconds} s, {ended}", file=sys.stderr, flush=True)
        return result

    def _run(self, part: Part, limit: float) -> tuple[str, str]:
        """Run a part for `limit` seconds at most; return what it printed, and how it ended."""
        output = self.folder / "output" / f"{re.sub('[^A-Za-z0-9.]+', '_', part.name)}.txt"
        output.parent.mkdir(exist_ok=True)
        with output.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, *part.command],
                cwd=CHECKOUT,
                env=os.environ | dict(part.variables),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(self.grace)
            finally:  # it may have started others
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        printed = output.read_text(errors="replace")
        if code is None:
            return printed, "out of time"
        last = (["", *filter(str.strip, printed.splitlines())])[-1][:200]
        return printed, "done" if code == 0 else f"failed: {last}"

    def _shown(self) -> list[Result]:
        """Return all that was done, and the newest try of each part that was not."""
        done = {r.part for r in self.results if r.done}
        newest = {r.part: r for r in self.results}
        return [r for r in self.results if r.done or (r.part not in done and newest[r.part] is r)]

    def table(self) -> str:
        """Draw the results."""
        lines = ["| part | figures | seconds | ended | card | program | date |", "|---" * 7 + "|"]
        for r in self._shown():
            figures = ", ".join(
                f"{key} {_number(value)}".strip() for key, value in r.figures.items()
            )
            cells = (r.part, figures, str(r.seconds), r.ended, r.card, r.program, r.date)
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
        return "\n".join(lines) + "\n"

    def commands(self) -> str:
        """List the commands of the results."""
        lines = dict.fromkeys(f"- {r.part}: `{r.command}`" for r in self._shown())
        return "\n".join(("", *lines)) + "\n"


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
