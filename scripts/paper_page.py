"""Run seq2seq/paper/README.md, and write its outputs, the lines of its links and its pictures.

python scripts/paper_page.py needs the run of `bash scripts/quickstart.sh` in runs/quickstart.
--links writes the lines of the links alone, which needs no run. Both write the page as a notebook.
"""

import argparse
import ast
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

PAGE = Path(__file__).resolve().parents[1] / "seq2seq" / "paper" / "README.md"
NOTEBOOK = PAGE.with_name("paper.ipynb")
BLOCK = re.compile(
    r"```python\n(?P<code>.*?)```\n(\n```text(?P<varies>.*?)\n(?P<output>.*?)```\n)?", re.S
)
LINK = re.compile(r"\[`([\w.]+)`\]\(([\w./]+\.py)#L\d+-L\d+\)")
INK, PAPER = "#1f2328", "#fffffe"
INKED = "text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"
LOOK = dict.fromkeys(INKED, INK) | dict.fromkeys(("figure.facecolor", "axes.facecolor"), PAPER)
LOOK |= {
    "figure.constrained_layout.use": True,
    "font.sans-serif": ["DejaVu Sans"],
    "image.interpolation": "none",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "paper",
    "xtick.bottom": False,
    "ytick.left": False,
}
CSS = """<style>svg { --ink: #1f2328; --paper: #ffffff }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --paper: #0d1117 } }</style>"""


def run(text: str) -> Iterator[tuple[re.Match[str], str, Path | None]]:
    """Run the page as one program; yield each block, what it prints, and its picture's file.

    The block has drawn the current figure, which is the picture that the page shows next.
    """
    plt.switch_backend("agg")
    namespace: dict[str, object] = {}
    with plt.rc_context(LOOK), np.printoptions():
        for block in BLOCK.finditer(text):
            with redirect_stdout(io.StringIO()) as printed:
                above = text.count("\n", 0, block.start("code"))
                exec(compile("\n" * above + block["code"], str(PAGE), "exec"), namespace)
            shown = plt.get_fignums() and re.search(r"!\[.*\]\((.+)\)", text[block.end() :])
            yield block, printed.getvalue(), PAGE.parent / shown[1] if shown else None
            plt.close("all")


def save_figure(path: Path) -> None:
    """Save the current figure as SVG for light and dark pages."""
    file = io.StringIO()
    plt.savefig(file, format="svg")
    svg = file.getvalue().replace(INK, "var(--ink)").replace(PAPER, "var(--paper)")
    path.write_text(re.sub("<metadata>.*?</metadata>", CSS, svg, flags=re.S))


def lines_of(path: Path, name: str) -> str:
    """Return the lines of a class, a function or a method as GitHub's links have them."""
    node: ast.AST = ast.parse(path.read_text())
    for part in name.split("."):
        node = next(n for n in ast.iter_child_nodes(node) if getattr(n, "name", "") == part)
    return f"L{node.lineno}-L{node.end_lineno}"


SETUP_TEXT = """\
The notebook runs in a copy of the project. In Colab, clone it in a cell of your own first
(`!git clone` and its address). The next cell finds the copy, installs the package if it is missing,
and trains the model of the quickstart, which takes three minutes on two cores; the second time it
is there already."""
SETUP = """\
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from IPython.display import SVG

folders = [Path.cwd(), *Path.cwd().parents, *Path.cwd().glob("*/")]
os.chdir(next(folder for folder in folders if (folder / "conf" / "train.yaml").exists()))
python = [sys.executable, "-m"]
if importlib.util.find_spec("sacrebleu") is None:
    subprocess.run([*python, "pip", "install", "--quiet", "."], check=True)
sys.path.insert(0, os.getcwd())
training = "seq2seq train model=tiny schedule=demo run_dir=runs/quickstart resume=auto".split()
subprocess.run([*python, *training], check=True)
SVG("data/pictures/architecture.svg")"""


def notebook(text: str) -> str:
    """Make a notebook of the page: its blocks without their outputs, and its text without links.

    The pictures are left out, too: running the blocks draws them.
    """
    how = r"To run it as a notebook, .*?:\n\n```\n.*?```\n"
    text = re.sub(how, "", text, flags=re.S)
    text = re.sub(r"<details><summary>([^<]*)</summary>\n(?=\n```)", r"\1:\n", text)
    text = re.sub(r"(```\n)\n</details>\n", r"\1", text)
    text = re.sub(r"!\[.*\]\(.*\)\n\n?", "", text)
    text = re.sub(r"\[([^]]*)\]\((?!http)[^)]*\)", r"\1", text)
    title, rest = text.split("\n\n", 1)
    sources = [("markdown", f"{title}\n\n{SETUP_TEXT}"), ("code", SETUP)]
    end = 0
    for block in BLOCK.finditer(rest):
        sources += [("markdown", rest[end : block.start()]), ("code", block["code"])]
        end = block.end()
    sources.append(("markdown", rest[end:]))
    outputs = {"execution_count": None, "outputs": []}
    cells = [
        {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source.strip()}
        | (outputs if kind == "code" else {})
        for number, (kind, source) in enumerate(sources)
        if source.strip()
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps({"cells": cells, **whole}, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the page, its pictures and its notebook."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--links", action="store_true", help="write the lines of the links alone")
    links_alone = parser.parse_args().links
    os.chdir(PAGE.parents[2])
    text = PAGE.read_text()
    written, end = "", 0
    for block, printed, picture in () if links_alone else run(text):
        if block["output"] is not None:
            written += text[end : block.start("output")] + printed
            end = block.end("output")
        if picture:
            save_figure(picture)

    def link(found: re.Match[str]) -> str:
        return f"[`{found[1]}`]({found[2]}#{lines_of(PAGE.parent / found[2], found[1])})"

    page = LINK.sub(link, written + text[end:])
    PAGE.write_text(page)
    NOTEBOOK.write_text(notebook(page))


if __name__ == "__main__":
    main()
