"""The READMEs are true: their links, names, trees, commands and Python examples."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from torch.distributed.run import get_args_parser

from seq2seq import __version__
from seq2seq.cli.main import main
from seq2seq.tokenizer import Tokenizer
from tests.models import save_untrained
from tests.paper.test_fidelity_page import names_in

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "seq2seq"
FRONT = CHECKOUT / "README.md"
TOUR = PACKAGE / "README.md"
PAPER_PAGE = runpy.run_path(str(CHECKOUT / "scripts" / "paper_page.py"))
READMES = [FRONT, CHECKOUT / "CONTRIBUTING.md"]
for folder in ("conf", "data", "scripts", "seq2seq", "tests"):
    READMES += sorted((CHECKOUT / folder).rglob("[A-Z]*.md"))
each_readme = pytest.mark.parametrize(
    "readme", READMES, ids=lambda path: str(path.relative_to(CHECKOUT))
)


def section(readme: Path, title: str) -> str:
    """The text below a heading of the second level."""
    return readme.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def fenced(text: str, language: str = "") -> list[str]:
    """The content of the code blocks of a language."""
    return [
        code for kind, code in re.findall(r"```(\w*)\n(.*?)```", text, re.S) if kind == language
    ]


def inline(text: str) -> list[str]:
    """The code spans outside code blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


def commands(start: str) -> list[list[str]]:
    """Every command of the READMEs that begins with a word, in blocks and in code spans."""
    found = []
    for readme in READMES:
        text = readme.read_text()
        lines = "\n".join(fenced(text)).replace("\\\n", " ").splitlines()
        for line in [*lines, *inline(text)]:
            if line.startswith(f"{start} "):
                words = shlex.split(line, comments=True)
                if words not in found:
                    found.append(words)
    return found


def anchors(text: str) -> set[str]:
    """GitHub's anchors of the headings."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


# Text


def test_the_front_page_is_short() -> None:
    assert len(re.sub(r"```.*?```", "", FRONT.read_text(), flags=re.S).split()) <= 900


def test_the_version_is_the_same_everywhere() -> None:
    changes, citation = (CHECKOUT / name for name in ("CHANGELOG.md", "CITATION.cff"))
    ((version, date), *_) = re.findall(r"^## \[(\d.+)\] - (.+)", changes.read_text(), re.M)
    cited = yaml.safe_load(citation.read_text())
    assert version == cited["version"] == __version__
    assert date == str(cited["date-released"])
    assert f"({date[:4]}): seq2seq, version {version}* ([CITATION.cff]" in FRONT.read_text()


@each_readme
def test_every_link_leads_somewhere(readme: Path) -> None:
    for name, link in re.findall(r"\[([^]]*)\]\((?!http)([^)]+)\)", readme.read_text()):
        path, _, anchor = link.partition("#")
        target = readme.parent / path if path else readme
        assert target.exists(), link
        if target.suffix == ".py" and anchor:
            lines = PAPER_PAGE["lines_of"](target, name.strip("`"))
            assert anchor == lines, f"{name}: run scripts/paper_page.py"
        elif anchor:
            assert anchor in anchors(target.read_text()), link


@each_readme
def test_every_file_that_is_named_exists(readme: Path) -> None:
    for name in inline(readme.read_text()):
        if re.fullmatch(r"[\w./-]+/[\w.-]+\.(py|sh|yaml|toml|md)", name):
            folders = (readme.parent, CHECKOUT, PACKAGE, CHECKOUT / "tests")
            assert any((folder / name).exists() for folder in folders), name


def test_the_paper_map_names_what_the_files_define() -> None:
    found = re.findall(
        r"((?:`\w+`(?:, | and )?)+) in \[[^\]]+\]\(([^)]+\.py)\)",
        section(TOUR, "The paper in the code"),
    )
    assert len(found) >= 7
    for quoted, path in found:
        missing = set(re.findall(r"`(\w+)`", quoted)) - names_in(PACKAGE / path)
        assert not missing, f"{path} does not define {missing}"


@pytest.mark.parametrize(
    "part",
    [
        "Figure 1", "Figure 2", "3.1", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "5.1", "5.2",
        "5.3", "5.4", "6.1", "6.2", "equation 1", "equation 2", "equation 3", "Table 1", "Table 2",
        "Table 3", "Table 4", "Figures 3 to 5", "section 4", "sections 1, 2 and 7",
    ],
)  # fmt: skip
def test_the_paper_map_has_every_part_of_the_paper(part: str) -> None:
    text = section(TOUR, "The paper in the code")
    assert re.search(rf"(?<![\d.]){re.escape(part)}(?![\d.]\d)", text)


def test_the_tour_names_every_file_of_the_core_and_every_package() -> None:
    text = section(TOUR, "A tour of the code")
    files = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert files <= set(inline(text))
    lines = sum(len((PACKAGE / name).read_text().splitlines()) for name in files)
    for page in (TOUR, FRONT):
        (core,) = re.findall(
            r"(\d+) files(?: directly in this folder,| and) ([\d,]+) lines", page.read_text()
        )
        assert int(core[0]) == len(files)
        assert abs(int(core[1].replace(",", "")) - lines) <= 100
    for inner in PACKAGE.glob("*/__init__.py"):
        assert f"[`{inner.parent.name}/`]" in text
    packages = runpy.run_path(str(CHECKOUT / "scripts" / "packages.py"))
    sizes = r"[\d,]+(?= lines)"
    (drawn,), (now,) = (fenced(page, "mermaid") for page in (text, packages["draw"]()))
    assert re.sub(sizes, "", drawn) == re.sub(sizes, "", now), "run scripts/packages.py"
    for pair in zip(re.findall(sizes, drawn), re.findall(sizes, now), strict=True):
        before, after = (int(size.replace(",", "")) for size in pair)
        assert abs(before - after) <= 100, "run scripts/packages.py"
    read: set[str] = set()
    for name in re.findall(r"`(\w+\.py)`", text.split("|---|---|")[1].split("\n\n")[0]):
        imports = {module.split(".")[1] for module in packages["imports_of"](PACKAGE / name)}
        assert imports <= read, f"{name} imports what is below it"
        read.add(name.removesuffix(".py"))


def test_the_table_of_a_package_names_every_module() -> None:
    for table in PACKAGE.glob("*/__init__.py"):
        inner = table.parent
        if inner.name != "cli":  # one module per command
            modules = {path.stem for path in inner.glob("*.py") if path != table}
            assert modules <= set(re.findall(r"`(\w+)`", table.read_text())), inner.name


# Commands

TRAIN = [
    pytest.param(words[2:], id=" ".join(words[2:]) or "nothing")
    for words in commands("seq2seq")
    if words[1] == "train"
]
OTHERS = [words[1:] for words in commands("seq2seq") if words[1] != "train"]


def accepted(words: list[str]) -> bool:
    """Whether `seq2seq train` accepts the words; it prints the configuration and doesn't train."""
    # The first value of a sweep stands for all, and one of the names that it matches for a glob.
    words = [re.sub(r"=glob\(\*\)$", "=base", word) for word in words if word != "--multirun"]
    words = [word.split(",")[0] for word in words if word != "--cfg" and word != "job"]
    return main(["train", *words, "--cfg", "job"]) == 0


def unknown_options(words: list[str], help_text: str) -> list[str]:
    """The options that a command's help does not list."""
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", help_text))
    return [word for word in words if word.startswith("-") and word not in known]


@pytest.mark.parametrize("words", TRAIN)
def test_every_training_is_accepted(words: list[str]) -> None:
    assert accepted(words)


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_every_command_is_understood(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = words[: words.index("<")] if "<" in words else words
    # --help comes last: by then the values of all options before it have been parsed.
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    assert left.value.code == 0
    assert unknown_options(words, capsys.readouterr().out) == []
    overrides = [word for word in words[1:] if re.match(r"[\w.]+=", word)]
    assert not overrides or accepted(overrides)


@pytest.mark.parametrize("start", ["torchrun", "srun torchrun"])
def test_every_launch_on_many_devices_is_understood(start: str) -> None:
    for words in commands(start):
        launch = get_args_parser().parse_args(words[len(start.split()) :])
        assert launch.module
        assert launch.training_script == "seq2seq"
        command, *overrides = launch.training_script_args
        assert command == "translate" or accepted(overrides)


@pytest.mark.parametrize("words", commands("python"), ids=" ".join)
def test_every_python_script_understands_its_options(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = CHECKOUT / words[1]
    monkeypatch.setattr(sys, "argv", [*words[1:], "--help"])
    monkeypatch.syspath_prepend(script.parent)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(script), run_name="__main__")
    assert left.value.code == 0
    assert unknown_options(words, capsys.readouterr().out) == []


@pytest.mark.posix
@pytest.mark.parametrize("words", commands("bash"), ids=" ".join)
def test_every_shell_script_parses_and_knows_its_options(words: list[str]) -> None:
    script = CHECKOUT / words[1]
    subprocess.run(["bash", "-n", script], check=True)
    options = [word for word in words[2:] if word.startswith("--")]
    assert [option for option in options if option not in script.read_text()] == []


EXAMPLES = [
    pytest.param(code, id=str(readme.relative_to(CHECKOUT)))
    for readme in READMES
    if readme != PAPER_PAGE["PAGE"]  # its blocks are one program: tests/scripts/test_paper_page.py
    for code in fenced(readme.read_text(), "python")
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_every_python_example_runs(
    code: str, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What imports nothing continues another program: tests/decoding/test_alignment.py. The core:
    # tests/core/test_core.py. Ray: tests/test_recipes.py
    if "runs/tour" in code or "import ray" in code or "import" not in code:
        compile(code, "example", "exec")
        return
    (tmp_path / "runs").mkdir()
    for run in ("captions", "second"):
        save_untrained(tmp_path / "runs" / run, tokenizer)
    monkeypatch.chdir(tmp_path)
    exec(code, {})


def test_the_commands_are_found() -> None:
    assert len(TRAIN) >= 8
    assert len(OTHERS) >= 15
    assert len(commands("torchrun")) == 2
    assert len(commands("srun torchrun")) == 1
    assert len(commands("python")) >= 7
    assert len(commands("bash")) >= 5
    assert len(EXAMPLES) == 9
