"""Chromium with the page in it, and a stub as its server."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.serving.page.stub import ORIGIN, Stub

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def show(browser: Any, stub: Stub) -> Iterator[Callable[..., Any]]:
    """Open the page; at the end, no script has failed and nothing has left the origin."""
    contexts: list[Any] = []
    messages: list[str] = []

    def show(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.route("**/*", stub.handle)
        page.goto(ORIGIN + "/")
        page.wait_for_selector("#count:not(:empty)")
        return page

    yield show
    for context in contexts:
        context.close()
    # Chromium itself reports answers with an error's status.
    assert [text for text in messages if not text.startswith("Failed to load resource")] == []
    assert stub.elsewhere == []
