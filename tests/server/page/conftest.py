"""Chromium with the page in it."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from seq2seq.server.requests import Limits
from tests.server.live import FakeTranslator, serve_models

CHROMIUM = shutil.which("chromium")
PATIENCE = 60_000  # milliseconds; an answer takes a few
PAUSE = 3_600_000
"""Milliseconds without a key before the page of these tests sends the text: no test is so slow that
it pauses by chance."""


# Of a module: as long as it runs, no other test can run an event loop in this process.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    playwright.expect.set_options(timeout=PATIENCE)
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@contextmanager
def checked_page(browser: Any, origin: str, **options: Any) -> Iterator[Any]:
    """Open a page of which no script may fail, and that may ask nobody but its origin."""
    messages: list[str] = []
    requests: list[str] = []
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    context.on("console", lambda message: messages.append(message.text))
    context.on("weberror", lambda error: messages.append(str(error.error)))
    context.on("request", lambda request: requests.append(request.url))
    yield context.new_page()
    context.close()
    # Chromium itself reports answers with an error's status.
    assert [text for text in messages if not text.startswith("Failed to load resource")] == []
    assert [url for url in requests if not url.startswith(f"{origin}/")] == []


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open the page of a server of fakes, with options of Playwright's contexts."""
    with ExitStack() as opened:

        def show(
            *pairs: str, char_limit: int = 200, keys: Sequence[str] = (), **options: Any
        ) -> Any:
            fakes: Any = {tuple(pair.split("-")): FakeTranslator() for pair in pairs or ["en-de"]}
            limits = Limits(char_limit=char_limit)
            valid = (lambda: dict.fromkeys(keys, "a name")) if keys else None
            served = opened.enter_context(serve_models(fakes, limits, keys=valid))
            page = opened.enter_context(checked_page(browser, served.url, **options))
            page.route("**/frontend/settings", pause_long)
            page.goto(served.url)
            page.wait_for_selector("#count:not(:empty)")
            return page

        yield show


def pause_long(route: Any) -> None:
    """Answer with the server's settings and a pause of `PAUSE`."""
    answer = route.fetch()
    assert answer.json()["frontendTimeout"] == 400
    route.fulfill(response=answer, json=answer.json() | {"frontendTimeout": PAUSE})
