"""The page for everyone: keyboard, screen readers, narrow screens, other scripts; its files."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="needs playwright")
from tests.server.page.driver import (
    cells,
    expect,
    focused,
    open_attention,
    refuse_once,
    send,
    strengths,
)

FILES = Path(__file__).parents[3] / "seq2seq" / "server" / "page"
Show = Callable[..., Any]


def test_the_keyboard_alone_reaches_everything(show: Show) -> None:
    page = show("en-de", "de-en")
    assert focused(page) == "source"
    page.keyboard.type("one dog. two cats.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#output")).to_have_text("ONE DOG. TWO CATS.")

    def tab_to(name: str) -> None:
        page.keyboard.press("Tab")
        assert focused(page) == name

    tab_to("clear")
    tab_to("sentence 1")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator("#output [aria-pressed=true]")).to_have_text("ONE DOG.")
    tab_to("copy")
    tab_to("choice 0")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#output")).to_have_text("ONE ONE. TWO CATS.")
    tab_to("summary")
    page.keyboard.press("Enter")
    expect(page.locator("#map")).to_be_visible()
    tab_to("kind cross")
    tab_to("layer")
    tab_to("head")
    tab_to("rows 0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    weights = cells(page)
    assert focused(page) == f"rows {len(weights) - 2}"
    assert strengths(page, "columns") == weights[-2]
    tab_to("columns 0")
    assert strengths(page, "rows") == [row[0] for row in weights]
    page.keyboard.press("Shift+Tab")
    assert focused(page) == f"rows {len(weights) - 2}"  # where the user left


def test_axe_finds_nothing_to_blame(show: Show) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-core")
    # Without motion: while a color changes, its contrast is too low.
    narrow = {"width": 360, "height": 800}
    page = show("en-de", "de-en", keys=["k"], viewport=narrow, reduced_motion="reduce")
    page.get_by_label("API key").fill("k")

    def check() -> None:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = axe.Axe().run(page)
            assert found.violations_count == 0, found.generate_report()

    open_attention(page, "one endless dog. two cats.")
    page.locator("#rows button").nth(1).focus()
    check()
    refuse_once(page, 400, "zz is not supported")
    send(page, "a cat.")
    expect(page.locator("#error")).not_to_be_empty()
    check()


def test_nothing_is_wider_than_a_narrow_screen(show: Show) -> None:
    page = show(viewport={"width": 360, "height": 700})
    open_attention(page, "one exceedinglylongwordthatfitsintonolineofanarrowscreenatall and more.")
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_hebrew_runs_from_right_to_left(show: Show) -> None:
    page = show("en-he")
    direction = "e => getComputedStyle(e).direction"
    assert page.locator("#output").evaluate(direction) == "ltr"
    open_attention(page, "שלום חבר.")
    assert page.locator("#output").evaluate(direction) == "rtl"
    assert page.locator("#output").get_attribute("lang") == "he"
    page.locator("#rows button").first.focus()
    page.keyboard.press("ArrowLeft")  # where the text goes on
    assert focused(page) == "rows 1"


def test_the_page_is_small_and_asks_nobody_else() -> None:
    files = sorted(FILES.iterdir())
    assert {file.suffix for file in files} == {".css", ".html", ".js"}
    assert sum(file.stat().st_size for file in files) < 40_000
    for file in files:
        text = file.read_text()
        assert not re.search(r"https?:|//[a-z]|@import|url\(", text.replace("// ", "")), file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|eval\(|localStorage|cookie", text)
    page = (FILES / "index.html").read_text()
    assert not re.search(r"<[^>]+\s(style|on\w+)\s*=|<style|<script(?![^>]*\ssrc=)", page)
