"""What the README says of files, names and commands is so."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from seq2seq.cli.main import main
from seq2seq.cli.overrides import GROUPS, choices, keys

CHECKOUT = Path(__file__).resolve().parent.parent
README = (CHECKOUT / "README.md").read_text()


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    targets = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return names | {node.id for node in targets}


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert len(links) > 15
    assert [link for link in links if not (CHECKOUT / link).exists()] == []


def test_the_paper_map_names_what_is_there() -> None:
    rows = [line for line in section("The paper in the code").splitlines() if "](" in line]
    assert len(rows) >= 15
    for row in rows:
        found = re.findall(r"((?:`\w+`(?:, | and )?)+) in \[[^\]]+\]\(([^)]+)\)", row)
        for quoted, path in found:
            for name in re.findall(r"`(\w+)`", quoted):
                assert name in names_in(CHECKOUT / path), f"{name} is not in {path}"


@pytest.mark.parametrize(
    "part",
    [
        "Figure 1", "Figure 2", "3.1", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "5.1", "5.2",
        "5.3", "5.4", "6.1", "6.2", "equation 1", "equation 2", "equation 3", "Table 1", "Table 2",
        "Table 3", "Table 4", "Figures 3 to 5", "section 4", "sections 1, 2 and 7",
    ],
)  # fmt: skip
def test_the_paper_map_has_every_part_of_the_paper(part: str) -> None:
    assert re.search(rf"(?<![\d.]){re.escape(part)}(?![\d.]\d)", section("The paper in the code"))


def test_the_tree_is_as_drawn() -> None:
    tree = section("Design notes").split("```")[1]
    top = {line.split()[0] for line in tree.splitlines() if line and not line.startswith(" ")}
    package = {line.split()[0] for line in tree.splitlines() if line.startswith("  ")}
    assert all((CHECKOUT / name).exists() for name in top)
    folders = {
        f"{path.name}/"
        for path in (CHECKOUT / "seq2seq").iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    assert folders <= package
    assert all((CHECKOUT / "seq2seq" / name).exists() for name in package)


def commands() -> list[list[str]]:
    blocks = re.findall(r"```\n(.*?)```", README, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines if line.startswith("seq2seq ")]
    return [words[1 : words.index("<") if "<" in words else None] for words in found]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_understood(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if words[0] != "train":
        # --help comes last: whatever stands before it has been parsed by then.
        with pytest.raises(SystemExit) as left:
            main([*words, "--help"])
        assert left.value.code == 0
        return
    known = {*keys(), *GROUPS}
    for word in words[1:]:
        if "=" in word and not word.startswith("hydra."):
            key, _, value = word.partition("=")
            assert key in known, key
            if key in GROUPS and "*" not in value:
                assert set(value.split(",")) <= set(choices(key)), word
