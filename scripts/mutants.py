"""Change the package in one place after the other, and list the changes that no test notices.

python scripts/mutants.py [COUNT] [ARGUMENTS OF PYTEST]

COUNT changes ("mutants") are drawn, as many from each package; without it, all are tried, as many
at once as there are processors. Each is made in a copy of the checkout, in `mutants/`, where the
tests that execute its lines run until one fails, the shortest first. Which these are is found out
by coverage.py in one run of the tests. Started again with the same code, the script goes on where
it was stopped.
"""

import ast
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import chain, zip_longest
from pathlib import Path
from queue import SimpleQueue
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE, WORK = "seq2seq", CHECKOUT / "mutants"
COPIED = (PACKAGE, "tests", "conf", "data", "scripts", "pyproject.toml", "README.md")
SEED = 1
SECONDS = 60
"""The tests of a mutant are the shortest ones that execute it, up to this time together."""
ODD = re.compile(r"#x[0-9A-F]+|[^ -~]")
"""What JUnit's files write otherwise than pytest."""

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
MESSAGES = re.compile(r"(\w*Error|\w*Exit|(logger|warnings)\.\w+|log|print|Annotated|TypeVar)$")


@dataclass(frozen=True)
class Mutant:
    """A change of one place."""

    path: str
    first: int
    last: int
    """The lines of the statement or expression."""
    start: int
    end: int
    """Its bytes."""
    text: str
    """What takes their place."""

    @property
    def package(self) -> str:
        """Return the package of its file, or `core`."""
        parts = Path(self.path).parts
        return parts[1] if len(parts) > 2 else "core"

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.text.encode() + source[self.end :]


class Finder(ast.NodeVisitor):
    """Finds the places of a file that can be changed, docstrings, types and messages left out."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.found = path, list[Mutant]()
        self.lines = [0]
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.visit(ast.parse(source))

    def add(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Note that a text may take the place of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.lines[node.lineno - 1] + node.col_offset
        end = self.lines[node.end_lineno - 1] + node.end_col_offset
        self.found.append(Mutant(self.path, node.lineno, node.end_lineno, start, end, text))

    def visit_Compare(self, node: ast.Compare) -> None:
        """Change the first comparison."""
        if new := SWAPPED.get(type(node.ops[0])):
            changed = ast.Compare(node.left, [new(), *node.ops[1:]], node.comparators)
            self.add(node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Let `and` be `or`, and the other way round."""
        changed = ast.BoolOp(SWAPPED[type(node.op)](), node.values)
        self.add(node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Let a sum be a difference, and so on."""
        text = any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right))
        if not text and (new := SWAPPED.get(type(node.op))):
            self.add(node, f"({ast.unparse(ast.BinOp(node.left, new(), node.right))})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Leave out a `not` or a minus."""
        self.add(node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change a number or a truth value."""
        if isinstance(node.value, bool):
            self.add(node, str(not node.value))
        elif isinstance(node.value, int):
            self.add(node, f"({node.value} + 1)")
        elif isinstance(node.value, float):
            self.add(node, f"({node.value!r} * 1.5)")

    def visit_Call(self, node: ast.Call) -> None:
        """Leave out an argument that has a name; let `min` be `max`."""
        name = ast.unparse(node.func)
        if MESSAGES.search(name):
            return
        if name in FUNCTIONS:
            self.add(node.func, FUNCTIONS[name])
        for keyword in node.keywords:
            if keyword.arg is not None:
                others = [other for other in node.keywords if other is not keyword]
                self.add(node, ast.unparse(ast.Call(node.func, node.args, others)))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave out a call whose result nobody wants."""
        if isinstance(node.value, ast.Call):
            if not MESSAGES.search(ast.unparse(node.value.func)):
                self.add(node, "pass")
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Leave out what sets an attribute or an item."""
        if isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
            self.add(node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Leave out what adds to a value."""
        self.add(node, "pass")
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave out an error."""
        self.add(node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        """Leave it out."""
        self.add(node, "pass")

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        """Do the other thing."""
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.add(node.test, f"(not ({ast.unparse(node.test)}))")
            self.generic_visit(node)

    visit_IfExp = visit_If  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Change the value, not the type."""
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Change the body and the defaults."""
        for default in chain(node.args.defaults, node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave a text as it is."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave it as it is."""


def draw(count: int | None) -> list[Mutant]:
    """Draw mutants, as many of each package as there are; without a number, return all of them."""
    packages: dict[str, list[Mutant]] = defaultdict(list)
    for path in sorted((CHECKOUT / PACKAGE).rglob("*.py")):
        for mutant in Finder(str(path.relative_to(CHECKOUT)), path.read_bytes()).found:
            packages[mutant.package].append(mutant)
    for mutants in packages.values():
        random.Random(SEED).shuffle(mutants)
    in_turn = chain.from_iterable(zip_longest(*packages.values()))
    return [mutant for mutant in in_turn if mutant is not None][:count]


class Tests:
    """The tests by the lines that they execute, from one run of them."""

    def __init__(self, arguments: list[str]) -> None:
        self.file, self.times = WORK / "coverage", WORK / "times.xml"
        if not self.times.exists():
            self.record(arguments)
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        for case in ElementTree.parse(self.times).iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            self.seconds[ODD.sub("?", name)] = float(case.get("time", "0"))
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.add(ODD.sub("?", name))
        import coverage

        self.data = coverage.CoverageData(str(self.file))
        self.data.read()

    def record(self, arguments: list[str]) -> None:
        """Run them, in several processes, and record what each one executes."""
        marked = ["-m", "not slow"] if "-m" not in arguments else []
        words = ["-q", "-n", "auto", "--maxprocesses", "8", "--dist", "loadfile", *marked]
        words += [f"--cov={PACKAGE}", "--cov-context=test", "--cov-report=", *arguments]
        unfinished = self.times.with_suffix(".part")
        words.append(f"--junitxml={unfinished}")
        print("running the tests once, to find out which lines each one executes", flush=True)
        Copy(0).run(words, 24 * 3600, COVERAGE_FILE=str(self.file), COVERAGE_CORE="ctrace")
        unfinished.rename(self.times)

    def key(self, test: str) -> str:
        """Return how the file of times calls a test."""
        path, _, name = test.partition("::")
        return ODD.sub("?", f"{path.removesuffix('.py').replace('/', '.')}.{name}")

    def usual_seconds(self, test: str) -> float:
        """Return how long a test took."""
        return self.seconds.get(self.key(test), 1.0)

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute its lines in their own process, the shortest first."""
        path = str(WORK / "tree" / mutant.path)
        contexts = self.data.contexts_by_lineno(path)
        lines = range(mutant.first, mutant.last + 1)
        recorded = {context for line in lines for context in contexts.get(line, ())}
        if recorded == {""}:  # executed by the import: any test of the file may depend on it
            recorded = set(chain.from_iterable(contexts.values()))
        found = {context.rpartition("|")[0] for context in recorded} - {""}
        passed = (test for test in found if self.key(test) not in self.failed)
        times = {test: self.usual_seconds(test) for test in passed}
        total, chosen = 0.0, list[str]()
        for test in sorted(times, key=lambda test: (times[test], test)):
            total += times[test]
            if total > SECONDS and chosen:
                break
            chosen.append(test)
        return chosen


class Copy:
    """A copy of the checkout, in which pytest runs."""

    def __init__(self, number: int) -> None:
        self.tree = WORK / ("tree" if number == 0 else f"tree{number}")
        self.process: subprocess.Popen[str] | None = None
        self.tree.mkdir(exist_ok=True)
        for name in COPIED:  # again in each call: a file was changed if the script was killed
            source, copy = CHECKOUT / name, self.tree / name
            if source.is_dir():
                shutil.copytree(source, copy, dirs_exist_ok=True)
            else:
                shutil.copy(source, copy)

    def run(self, words: list[str], seconds: float, **environment: str) -> tuple[int | None, str]:
        """Run pytest; return its exit status, None after this time, and its output."""
        variables = {**os.environ, "PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
            cwd=self.tree,
            env=variables | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as self.process:
            try:
                output = self.process.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                self.stop()
        return self.process.returncode, output

    def stop(self) -> None:
        """End pytest and what it has started."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def outcome(self, mutant: Mutant, tests: Tests) -> str:
        """Try a mutant: `noticed`, `survived`, or `no test` if none executes it in its process."""
        chosen = tests.of(mutant)
        if not chosen:
            return "no test"
        path, arguments = self.tree / mutant.path, self.tree / "chosen.txt"
        arguments.write_text("\n".join(chosen))
        source = (CHECKOUT / mutant.path).read_bytes()
        path.write_bytes(mutant.apply(source))
        try:
            # What doesn't end in several times the usual time has been noticed.
            usual = sum(map(tests.usual_seconds, chosen))
            status, output = self.run(["-x", "-q", f"@{arguments}"], 120 + 5 * usual)
        finally:
            path.write_bytes(source)
        if status == 0:
            return "survived"
        if status == 5 or "ERROR: not found" in output:
            raise SystemExit(f"{mutant}: its tests can't be run:\n{output}")
        return "noticed"


def try_all(mutants: list[Mutant], tests: Tests) -> Iterator[tuple[Mutant, str]]:
    """Yield mutants, in their order, with their outcomes."""
    copies = [Copy(number) for number in range(os.cpu_count() or 1)]
    free = SimpleQueue[Copy]()
    for copy in copies:
        free.put(copy)

    def outcome(mutant: Mutant) -> str:
        copy = free.get()
        try:
            return copy.outcome(mutant, tests)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        try:
            yield from zip(mutants, pool.map(outcome, mutants), strict=True)
        finally:  # after an error or a signal, no other one is begun
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.stop()


def describe(mutant: Mutant) -> Iterator[str]:
    """Yield the lines of its difference."""
    source = (CHECKOUT / mutant.path).read_bytes()
    before, after = (text.decode().splitlines() for text in (source, mutant.apply(source)))
    yield from unified_diff(before, after, mutant.path, mutant.path, n=1, lineterm="")


def prepare(arguments: list[str]) -> Path:
    """Copy the checkout, unless the copy is the same already; return the file of outcomes."""
    digest = hashlib.sha256(json.dumps(arguments).encode())
    for name in (PACKAGE, "tests"):
        for path in sorted((CHECKOUT / name).rglob("*.py")):
            digest.update(path.read_bytes())
    mark = WORK / "digest"
    if not mark.exists() or mark.read_text() != digest.hexdigest():
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir()
        mark.write_text(digest.hexdigest())
    return WORK / "outcomes.jsonl"


def main(words: list[str]) -> None:
    """Draw, try, and report."""
    count = int(words.pop(0)) if words and words[0].isdigit() else None
    outcomes = prepare(words)
    tests = Tests(words)
    known: dict[Mutant, str] = {}
    if outcomes.exists():
        for line in outcomes.read_text().splitlines():
            entry = json.loads(line)
            known[Mutant(**entry["mutant"])] = entry["outcome"]
    drawn = draw(count)
    left = [mutant for mutant in drawn if mutant not in known]
    outcomes_of_left = try_all(left, tests)
    for number, (mutant, outcome) in enumerate(outcomes_of_left, len(drawn) - len(left) + 1):
        known[mutant] = outcome
        with outcomes.open("a") as file:
            file.write(json.dumps({"mutant": asdict(mutant), "outcome": outcome}) + "\n")
        print(f"{number} of {len(drawn)}: {outcome}: {mutant.path}:{mutant.first}", flush=True)
    for mutant in drawn:
        if known[mutant] == "survived":
            print("", *describe(mutant), sep="\n")
    print()
    for package, mutants in {
        m.package: [x for x in drawn if x.package == m.package] for m in drawn
    }.items():
        counts = Counter(known[mutant] for mutant in mutants)
        print(f"{package}: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends pytest, too
    main(sys.argv[1:])
