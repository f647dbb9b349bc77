"""Write the drawing of the packages and their imports into seq2seq/README.md.

python scripts/packages.py
"""

import argparse
import ast
import re
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "seq2seq"
PAGE = PACKAGE / "README.md"
DRAWING = re.compile(r"```mermaid\n.*?```\n", re.S)


def package_of(module: str) -> str:
    """Return the package's name, or `core` for the files directly in `seq2seq`."""
    name = module.split(".")[1] if "." in module else ""
    return name if (PACKAGE / name).is_dir() and name else "core"


def imports_of(path: Path) -> set[str]:
    """Return the modules of `seq2seq` that a file imports, also within functions."""
    nodes = ast.walk(ast.parse(path.read_text()))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {module for module in modules if module.startswith("seq2seq.")}


def draw() -> str:
    """Draw the packages with their sizes, and the imports from one to another.

    All import the core, and the command line imports all: one arrow stands for each of the two.
    """
    files: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    arrows: set[tuple[str, str]] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        package = package_of(module)
        if path.stem.startswith("__"):
            continue
        files[package] += 1
        lines[package] += len(path.read_text().splitlines())
        arrows |= {(package, package_of(other)) for other in imports_of(path)}
    boxes = {
        package: f'{package}["{package}<br/>{count} files, {round(lines[package], -2):,} lines"]'
        for package, count in sorted(files.items())
    }
    inner = [package for package in boxes if package not in ("core", "cli")]
    between = sorted((a, b) for a, b in arrows if a != b and a in inner and b in inner)
    return "\n".join(
        [
            "```mermaid",
            "flowchart TD",
            f"    {boxes['cli']} --> packages",
            '    subgraph packages[" "]',
            *(f"        {boxes[package]}" for package in inner),
            *(f"        {one} --> {other}" for one, other in between),
            "    end",
            f"    packages --> {boxes['core']}",
            "```",
            "",
        ]
    )


def main() -> None:
    """Write the drawing."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    PAGE.write_text(DRAWING.sub(lambda _: draw(), PAGE.read_text()))


if __name__ == "__main__":
    main()
