"""`seq2seq/paper/README.md`: its code runs, prints what the page shows, and draws its pictures."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seq2seq.tokenizer import Tokenizer
from tests.models import save_untrained

CHECKOUT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(CHECKOUT / "scripts" / "paper_page.py"))
Run = list[tuple[Any, str, Path | None]]


@pytest.fixture(scope="module")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus, and a model that was never trained as that of the quickstart."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "data").symlink_to(CHECKOUT / "data")
    path = folder / "runs" / "quickstart" / "checkpoints" / "step_00000001"
    path.parent.mkdir(parents=True)
    save_untrained(path, tokenizer)
    return folder


@pytest.fixture(scope="module")
def ran(folder: Path) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = []
        for block, printed, picture in SCRIPT["run"](SCRIPT["PAGE"].read_text()):
            if picture:
                SCRIPT["save_figure"](folder / picture.name)
            done.append((block, printed, picture))
        yield done


@pytest.mark.posix
def test_each_block_prints_what_the_page_shows(ran: Run) -> None:
    assert len(ran) > 20
    for block, printed, _ in ran:
        if block["varies"]:  # of the reader's own model or machine
            assert printed
        else:
            assert printed == (block["output"] or ""), block["code"]


def test_the_notebook_is_the_page_without_what_running_it_shows() -> None:
    page = SCRIPT["PAGE"].read_text()
    written = SCRIPT["NOTEBOOK"].read_text()
    assert written == SCRIPT["notebook"](page), "run python scripts/paper_page.py --links"
    kinds: dict[str, list[str]] = {"markdown": [], "code": []}
    for cell in json.loads(written)["cells"]:
        kinds[cell["cell_type"]].append(cell["source"])
    blocks = [block["code"].strip() for block in SCRIPT["BLOCK"].finditer(page)]
    assert kinds["code"] == [SCRIPT["SETUP"], *blocks]
    for text in kinds["markdown"]:
        assert "```" not in text
        assert text.count("<details>") == text.count("</details>")
        assert all(target.startswith("http") for target in re.findall(r"\]\((.*?)\)", text))


@pytest.mark.posix
def test_each_picture_is_drawn_small_and_for_light_and_dark_pages(ran: Run, folder: Path) -> None:
    drawn = {picture.resolve() for _, _, picture in ran if picture}
    assert drawn == set((CHECKOUT / "data" / "pictures" / "paper").iterdir())
    for picture in drawn:
        for path in (picture, folder / picture.name):
            text = path.read_text()
            assert "prefers-color-scheme: dark" in text
            assert SCRIPT["INK"] not in text.replace(SCRIPT["CSS"], "")
        assert picture.stat().st_size < 60_000
