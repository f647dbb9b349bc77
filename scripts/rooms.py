"""Write the drawing of the core and its guests into seq2seq/README.md, from the imports.

python scripts/rooms.py
"""

import argparse
import ast
import re
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "seq2seq"
PAGE = PACKAGE / "README.md"
DRAWING = re.compile(r"```mermaid\n.*?```\n", re.S)


def room_of(module: str) -> str:
    """Return the guest's name, or `core` for the files directly in the package."""
    name = module.split(".")[1] if "." in module else ""
    return name if (PACKAGE / name).is_dir() and name else "core"


def imports_of(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, also within functions."""
    nodes = ast.walk(ast.parse(path.read_text()))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {module for module in modules if module.startswith("seq2seq.")}


def draw() -> str:
    """Draw the rooms with their sizes; every guest imports the core, which imports no guest."""
    files: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    arrows: set[tuple[str, str]] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        room = room_of(module)
        if path.stem.startswith("__"):
            continue
        files[room] += 1
        lines[room] += len(path.read_text().splitlines())
        arrows |= {(room, room_of(other)) for other in imports_of(path)}
    boxes = [
        f'    {room}["{room}<br/>{files[room]} files, {round(lines[room], -2):,} lines"]'
        for room in sorted(files)
    ]
    between = sorted(
        (one, other)
        for one, other in arrows
        if one != other and "core" not in (one, other) and one != "cli"
    )
    links = [f"    {one} --> {other}" for one, other in between]
    links += [f"    {room} --> core" for room in sorted(files) if room not in ("core", "cli")]
    links += [f"    cli --> {room}" for room in sorted({a for a, _ in arrows} - {"cli", "core"})]
    return "\n".join(["```mermaid", "flowchart TD", *boxes, *links, "```", ""])


def main() -> None:
    """Write the drawing."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    PAGE.write_text(DRAWING.sub(lambda _: draw(), PAGE.read_text()))


if __name__ == "__main__":
    main()
