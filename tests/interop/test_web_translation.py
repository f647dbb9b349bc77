"""The page of `seq2seq export --to web` translates as the program does, in Node and in Chromium.

These tests need the libraries that the page loads; `tests/README.md` says how to have them.
"""

import functools
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="an extra of the tests")
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.interop.web import LIBRARY, write_web
from seq2seq.model_folder import TrainedModel
from seq2seq.search import SearchConfig
from tests.interop.test_web import NODE, run_page
from tests.server.page.conftest import browser, checked_page

__all__ = ["browser"]

NODE_MODULES = Path(os.environ.get("TRANSFORMERS_JS", ".")).resolve() / "node_modules"
WANTED = sorted({f"{file.package}@{file.version}" for file in LIBRARY.values()})
pytestmark = pytest.mark.skipif(
    NODE is None or not all((NODE_MODULES / f.package).exists() for f in LIBRARY.values()),
    reason=f"needs Node and TRANSFORMERS_JS=FOLDER, with npm install {' '.join(WANTED)}",
)
MakeTrained = Callable[..., TrainedModel]


# In Node


def translated(folder: Path, lines: list[str], **options: Any) -> list[str]:
    """Translate lines by the modules of the page."""
    given = {"folder": str(folder), "nodeModules": str(NODE_MODULES)}
    texts: list[str] = run_page("translate", lines=lines, options=options, **given)["texts"]
    return texts


def expected(trained: TrainedModel, lines: list[str], **options: Any) -> list[str]:
    chosen = TranslationOptions(device="cpu", **options)
    return [translation.text for translation in Translator(trained, chosen).translate(lines)]


LINES = [
    "A man sees the sea.",
    "  - a child paints an apple. Nobody likes the sea!  ",
    "THE WOMAN LIKES THE RED HOUSE.",
    "two small dogs\tthe woman ☃ ½ \u00ad a\u200bman <unk> </s> >>de<<",
    "",
    "12 kg",
]


@pytest.mark.parametrize("beam", [1, 4])
def test_lines_of_all_sorts_have_the_programs_translations(
    make_trained: MakeTrained, tmp_path: Path, beam: int
) -> None:
    trained = make_trained()
    write_web(tmp_path / "page", trained, "fp32")
    found = translated(tmp_path / "page", LINES, beam=beam)
    config = SearchConfig(beam_size=beam)
    assert found == expected(trained, LINES, sentences=True, search=config)


# In Chromium


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder as `python -m http.server` does; yield the address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


THREE = LINES[:3]


def translate(page: Any, text: str) -> str:
    """Type a text and wait for its translation."""
    page.locator("#source").fill(text)
    page.locator("#output:not(.stale):not(:empty)").wait_for()
    return str(page.locator("#output").text_content())


def test_the_page_translates_offline_and_asks_no_other_host(
    make_trained: MakeTrained, tmp_path: Path, browser: Any
) -> None:
    trained = make_trained()
    write_web(
        tmp_path / "page", trained, "fp32", node_modules=NODE_MODULES, card=b"# A\n\nFrom *here*.\n"
    )
    with served(tmp_path / "page") as address, checked_page(browser, address) as page:
        page.goto(address)
        page.locator("#loading").wait_for(state="hidden")
        assert page.title() == "Translate English to German"
        page.locator("#about summary").click()
        page.locator("#model-card p").wait_for()
        page.context.set_offline(True)
        own = expected(trained, THREE, sentences=True)
        assert [translate(page, line) for line in THREE] == own
        assert translate(page, "\n".join(THREE)) == "\n".join(own)
