"""The page of `seq2seq export --to web` translates as the program does, in Node and in Chromium.

These tests need the libraries that the page loads; `tests/README.md` says how to have them.
"""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sacrebleu import corpus_bleu

pytest.importorskip("onnx", reason="an extra of the tests")
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.interop.marian_import import import_marian
from seq2seq.interop.web import LIBRARY, LibraryFile, integrity, write_web
from seq2seq.model_folder import TrainedModel, find_model, load_model
from seq2seq.search import SearchConfig
from seq2seq.text import read_text_lines
from seq2seq.tokenizer import Tokenizer, TokenizerConfig
from tests.interop.conftest import MakeFolder
from tests.interop.page import NODE, run_page
from tests.interop.texts import EMOJI, KINDS, SIX_SCRIPTS, TYPED, random_texts, train_tokenizer
from tests.server.page.conftest import browser, checked_page

__all__ = ["browser"]

BYTES = {f"<0x{byte:02X}>" for byte in range(256)}
NODE_MODULES = Path(os.environ.get("TRANSFORMERS_JS", ".")).resolve() / "node_modules"


def has_library(file: LibraryFile) -> bool:
    """Whether a file of the page's libraries is there, in the version that the page runs."""
    path = NODE_MODULES / file.package / file.path
    return path.exists() and integrity(path.read_bytes()) == file.integrity


WANTED = sorted({f"{file.package}@{file.version}" for file in LIBRARY.values()})
pytestmark = pytest.mark.skipif(
    NODE is None or not all(map(has_library, LIBRARY.values())),
    reason=f"needs Node and TRANSFORMERS_JS=FOLDER, with npm install {' '.join(WANTED)}",
)
MakeTrained = Callable[..., TrainedModel]


# In Node


def translated(folder: Path, lines: list[str], **options: Any) -> list[str]:
    """Translate lines by the modules of the page."""
    given = {"folder": str(folder), "nodeModules": str(NODE_MODULES)}
    texts: list[str] = run_page("translate", lines=lines, options=options, **given)
    return texts


def expected(trained: TrainedModel, lines: list[str], **options: Any) -> list[str]:
    chosen = TranslationOptions(device="cpu", **options)
    return [translation.text for translation in Translator(trained, chosen).translate(lines)]


LINES = [
    "A man sees the sea.",
    "  - ☀️ a child paints an apple. 🐕 Nobody likes the sea! ♪ ",
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


@pytest.mark.filterwarnings("ignore")  # the libraries' own
def test_an_imported_model_translates_into_each_of_its_languages(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    trained = import_marian(make_folder().path)
    write_web(tmp_path / "page", trained, "fp32")
    for code in ("por", "pob"):
        own = expected(trained, LINES[:3], sentences=True, to=code)
        assert translated(tmp_path / "page", LINES[:3], to=code) == own


@pytest.mark.parametrize("kind", KINDS)
def test_sources_of_all_scripts_have_the_programs_ids(
    kind: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    tokenizer = train_tokenizer(kind)
    model = make_model(vocab_size=tokenizer.vocab_size).float()
    write_web(tmp_path / "page", TrainedModel(model, tokenizer, "en", "de"))
    check_pieces(tmp_path / "page", tokenizer)


@pytest.mark.filterwarnings("ignore")  # the libraries' own
def test_sources_of_an_imported_model_have_the_programs_ids(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    trained = import_marian(make_folder().path)
    write_web(tmp_path / "page", trained)
    check_pieces(tmp_path / "page", trained.tokenizer)


def check_pieces(folder: Path, tokenizer: Tokenizer) -> None:
    """Compare the ids of texts, and the texts of ids, with the program's."""
    pieces = tokenizer.source_pieces(list(range(tokenizer.source_vocab_size)))
    texts = [*pieces, *SIX_SCRIPTS, *TYPED, *EMOJI, "½ ﬁ ☃\u00ad a\u200bb", *random_texts(1000, 5)]
    texts = [text.strip() for text in texts]
    expected = tokenizer.encode_source(texts)
    given = {"folder": str(folder), "nodeModules": str(NODE_MODULES)}
    found = run_page("pieces", texts=texts, outputs=expected, **given)
    assert found["ids"] == expected
    lacking = [{*tokenizer.pieces(ids)} & {"<unk>", *BYTES} != set() for ids in expected]
    assert found["lacking"] == lacking
    decoded = [text.strip() for text in found["decoded"]]
    assert decoded == [text.strip() for text in tokenizer.decode(expected)]


@pytest.fixture(scope="module")
def good_model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """A model that has learned something: that of `WEB_MODEL`, or one of 300 steps."""
    if (own := os.environ.get("WEB_MODEL")) is not None:
        return load_model(find_model(Path(own)))
    run = tmp_path_factory.mktemp("good") / "run"
    short = ["training.max_steps=300", "training.checkpoint_minutes=60"]
    words = ["model=tiny", "schedule=demo", *short, f"run_dir={run}"]
    subprocess.run([sys.executable, "-m", "seq2seq", "train", *words], check=True)
    return load_model(find_model(run))


@pytest.fixture(scope="module")
def text() -> tuple[list[str], list[str]]:
    """1,000 sources and their references: the first of `WEB_TEXT`, or of the embedded corpus."""
    corpus = Path(__file__).parents[2] / "data" / "everyday"
    names = os.environ.get("WEB_TEXT", f"{corpus}/test.en {corpus}/test.de").split()
    files = [list(read_text_lines(name)) for name in names]
    if "WEB_TEXT" not in os.environ:
        files = [
            [*side, *read_text_lines(name.replace("test", "valid"))]
            for side, name in zip(files, names, strict=True)
        ]
    sources, references = files
    return sources[:1000], references[:1000]


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
def test_200_lines_are_equal_in_fp32(
    good_model: TrainedModel, text: tuple[list[str], list[str]], tmp_path: Path, beam: int
) -> None:
    write_web(tmp_path / "page", good_model, "fp32")
    lines = text[0][:200]
    found = translated(tmp_path / "page", lines, beam=beam)
    own = expected(good_model, lines, sentences=True, search=SearchConfig(beam_size=beam))
    different = [pair for pair in zip(found, own, strict=True) if len({*pair}) == 2]
    assert different == []


@pytest.mark.slow
def test_int8_costs_less_than_three_tenths_of_a_bleu(
    good_model: TrainedModel, text: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    write_web(tmp_path / "page", good_model, "int8")
    sources, references = text
    found = translated(tmp_path / "page", sources)
    own = expected(good_model, sources, sentences=True)
    scores = [corpus_bleu(outputs, [references]).score for outputs in (found, own)]
    print(f"BLEU: int8 {scores[0]:.2f}, fp32 {scores[1]:.2f}; equal:", end=" ")
    print(sum(map(str.__eq__, found, own)), "of", len(own))
    assert scores[0] > scores[1] - 0.3
    assert scores[1] > 10


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
        try:
            yield f"http://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


THREE = LINES[:3]
CARD = b"""---
tags: x
---
# A name

From *here*,
and there.

| set | `|` |
|---|---|
| valid | `a\\|b` |
"""


def translate(page: Any, text: str) -> str:
    """Type a text and wait for its translation."""
    page.locator("#source").fill(text)
    page.locator("#output:not(.stale):not(:empty)").wait_for()
    return str(page.locator("#output").text_content())


def test_the_page_translates_offline_and_asks_no_other_host(
    make_trained: MakeTrained, tmp_path: Path, browser: Any
) -> None:
    trained, folder = make_trained(), tmp_path / "page"
    card = CARD.replace(b"\n", b"\r\n")
    write_web(folder, trained, "fp32", node_modules=NODE_MODULES, card=card)
    with served(folder) as address, checked_page(browser, address) as page:
        page.goto(address)
        page.locator("#loading").wait_for(state="hidden")
        assert page.title() == "Translate English to German"
        page.locator("#about summary").click()
        page.locator("#model-card p").wait_for()
        assert page.locator("#model-card p").all_text_contents() == ["From *here*,\nand there."]
        assert page.locator("#model-card td").all_text_contents() == ["valid", "a|b"]
        page.context.set_offline(True)
        own = expected(trained, THREE, sentences=True)
        assert [translate(page, line) for line in THREE] == own
        assert translate(page, "\n".join(THREE)) == "\n".join(own)


def test_the_page_is_for_everyone_and_translates_into_the_chosen_language(
    make_model: Callable[..., Any], sentences: list[str], tmp_path: Path, browser: Any
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-core")
    controls = [">>de<<", ">>he<<"]
    tokenizer = Tokenizer.train(sentences, TokenizerConfig(vocab_size=60), controls=controls)
    model = make_model(vocab_size=tokenizer.vocab_size).float()
    trained, folder = TrainedModel(model, tokenizer, "en", ""), tmp_path / "page"
    write_web(folder, trained, "fp32", node_modules=NODE_MODULES, card=CARD)
    narrow = {"width": 360, "height": 800}
    with served(folder) as address, checked_page(browser, address, viewport=narrow) as page:
        page.goto(address)
        page.locator("#loading").wait_for(state="hidden")
        for code in ("de", "he"):
            page.get_by_label("Translate to").select_option(code)
            own = expected(trained, THREE[:1], sentences=True, to=code)
            assert [translate(page, THREE[0])] == own
            assert page.locator("#output").get_attribute("lang") == code
        page.locator("#about summary").click()
        page.locator("#model-card p").wait_for()
        assert page.locator("#model-card td").all_text_contents() == ["valid", "a|b"]
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = axe.Axe().run(page)
            assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("changed", [None, *LIBRARY])
def test_a_library_that_was_changed_on_its_way_is_not_run(
    make_trained: MakeTrained, tmp_path: Path, browser: Any, changed: str | None
) -> None:
    write_web(tmp_path / "page", make_trained(), "fp32")
    asked = []

    def answer(route: Any) -> None:
        (name, file), *_ = (x for x in LIBRARY.items() if x[1].url == route.request.url)
        asked.append(name)
        content = (NODE_MODULES / file.package / file.path).read_bytes()
        kind = "application/wasm" if name == "wasm" else "text/javascript"
        headers = {"Access-Control-Allow-Origin": "*", "Content-Type": kind}
        route.fulfill(body=content + b"\n" * (name == changed), headers=headers)

    with served(tmp_path / "page") as address:
        page = browser.new_page()
        page.route("https://cdn.jsdelivr.net/**", answer)
        page.goto(address)
        page.locator("#loading").wait_for(state="hidden")
        error = page.locator("#error").text_content()
        page.close()
    assert set(asked) == set(LIBRARY) or changed in asked, error
    start = "The libraries can't be loaded from cdn.jsdelivr.net: "
    assert error.startswith(start) if changed else error == ""


def test_many_lines_without_words_leave_the_browser_its_turns(
    make_trained: MakeTrained, tmp_path: Path, browser: Any
) -> None:
    folder = tmp_path / "page"
    write_web(folder, make_trained(), node_modules=NODE_MODULES)
    text = "\n".join(map(str, range(10_000)))
    paste = """async (text) => {
        const [source, output] = ["source", "output"].map((id) => document.getElementById(id));
        source.value = text;
        source.dispatchEvent(new Event("input"));
        let wasBusy = false;
        while (output.classList.contains("stale")) {
            await new Promise((resolve) => setTimeout(resolve));
            wasBusy ||= output.ariaBusy === "true";
        }
        return [wasBusy, output.textContent];
    }"""
    with served(folder) as address, checked_page(browser, address) as page:
        page.goto(address)
        page.locator("#loading").wait_for(state="hidden")
        assert page.evaluate(paste, text) == [True, text]


@pytest.fixture(scope="module")
def whole_folder(make_trained: MakeTrained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "a page"
    write_web(folder, make_trained(), node_modules=NODE_MODULES)
    return folder


def error_of(browser: Any, address: str, script: str = "", **answers: dict[str, Any]) -> str:
    """The error on the page if a script runs before its own, and some files have other answers."""
    page = browser.new_page()
    if script:
        page.add_init_script(script)
    for name, answer in answers.items():
        page.route(f"**/{name}*", lambda route, _, answer=answer: route.fulfill(**answer))
    page.goto(address)
    page.locator("#error:not(:empty)").wait_for()
    assert not page.locator("#loading").is_visible()
    text: str = page.locator("#error").text_content()
    page.close()
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("name", "answer", "reason"),
    [
        ("tokenizer.json", {"status": 404}, "status 404"),
        ("tokenizer.json", {"body": "<!doctype html>"}, ".* is not valid JSON"),
        ("encoder_model", {"body": "version https://git-lfs.github.com/spec/v1"}, ".*session.*"),
    ],
)
def test_a_file_that_is_not_the_models_is_named(
    whole_folder: Path, browser: Any, name: str, answer: dict[str, Any], reason: str
) -> None:
    with served(whole_folder) as address:
        found = error_of(browser, address, **{name: answer})
    whole = rf"\S*{name}\S* can't be loaded \({reason}\): is the folder complete\?"
    assert re.fullmatch(whole, found), found


def test_a_page_whose_modules_do_not_start_says_so(whole_folder: Path, browser: Any) -> None:
    assert "python -m http.server" in error_of(browser, (whole_folder / "index.html").as_uri())
    plain = {"body": "export const drawCard = 0;", "content_type": "text/plain"}
    with served(whole_folder) as address:
        found = [
            error_of(browser, address, **{"card.js": plain}),
            error_of(browser, address, **{"page.js": {"status": 404}}),
            error_of(browser, address, "delete String.prototype.toWellFormed"),
        ]
        without_simd = error_of(browser, address, "WebAssembly.validate = () => false")
    start = "The page can't start: is the browser older than 2024, or a script missing"
    assert [text[: len(start)] for text in found] == [start] * 3
    assert "WebAssembly SIMD is not supported" in without_simd
