"""What a user does with the page."""

from typing import Any
from urllib.parse import urlsplit

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect


def posts(page: Any) -> list[tuple[str, Any]]:
    """The path and the fields of each POST from now on."""
    sent: list[tuple[str, Any]] = []

    def note(request: Any) -> None:
        if request.method == "POST":
            sent.append((urlsplit(request.url).path, request.post_data_json))

    page.on("request", note)
    return sent


def refuse_once(page: Any, status: int, error: str, **headers: str) -> None:
    """Let the next request to translate be refused."""
    answer = {"status": status, "json": {"error": error}, "headers": headers}
    page.route("**/translate", lambda route: route.fulfill(**answer), times=1)


def stop_the_clock(page: Any) -> None:
    """Let time pass only by `page.clock.run_for`."""
    page.clock.install(time=0)
    page.clock.pause_at(1000)


def send(page: Any, text: str) -> None:
    """Type a text and don't wait for the pause."""
    page.locator("#source").fill(text)
    page.keyboard.press("Control+Enter")


def translate(page: Any, text: str) -> None:
    """Type a text and wait for its translation."""
    with page.expect_response("**/translate"):
        send(page, text)
    expect(page.locator("#output")).to_have_attribute("aria-busy", "false")


def open_attention(page: Any, text: str = "a dog runs.") -> None:
    """Type a text and open the section of attention."""
    translate(page, text)
    page.locator("#attention summary").click()
    expect(page.locator("#map")).to_be_visible()


def cells(page: Any) -> list[list[float]]:
    """Return the weights by which the cells are coloured."""
    script = """rows => rows.map(row => [...row.querySelectorAll('td')].map(
        cell => Number(cell.style.getPropertyValue('--weight'))))"""
    found: list[list[float]] = page.locator("#weights tbody tr").evaluate_all(script)
    return found


def strengths(page: Any, side: str) -> list[float]:
    """Return how strongly the pieces of a side, `rows` or `columns`, are lit."""
    script = "all => all.map(piece => Number(piece.style.getPropertyValue('--weight')))"
    found: list[float] = page.locator(f"#{side} button").evaluate_all(script)
    return found


def focused(page: Any) -> str:
    """Name the element that the keyboard is at."""
    script = """() => {
        const {id, name, value, dataset, parentElement, tagName} = document.activeElement;
        if (id) return id;
        if (name) return `${name} ${value}`;
        if (dataset.index) return `${parentElement.id} ${dataset.index}`;
        if (dataset.sentence) return `sentence ${dataset.sentence}`;
        return tagName.toLowerCase();
    }"""
    return str(page.evaluate(script))
