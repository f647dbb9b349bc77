"""The page and the real server, with a model of random parameters."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seq2seq.cli.main import main
from tests.server.live import Served
from tests.server.page.conftest import checked_page
from tests.server.page.driver import cells, expect, open_attention, translate

TEXT = "Nobody paints. A man sees the sea.\n\nTwo dogs! The woman likes an apple."
LAST = "The woman likes an apple."  # the sentence at the caret


@pytest.fixture
def page(browser: Any, server: Served) -> Iterator[Any]:
    with checked_page(browser, server.url) as page:
        page.goto(server.url)
        yield page


def test_the_page_shows_what_the_server_answers(page: Any, server: Served) -> None:
    translate(page, TEXT)
    answer = server.translate(TEXT, alternatives=3, details=True).json
    assert page.locator("#output").evaluate("e => e.textContent") == answer["translatedText"]
    *_, last = answer["details"]
    assert last["source"] == LAST
    texts = [last["text"], *(other["text"] for other in last["alternatives"])]
    assert len(texts) == 4
    assert page.locator("#choices .text").all_text_contents() == texts


def test_the_cells_are_those_of_the_command(
    page: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_attention(page, TEXT)
    target = page.locator("#choices .text").first.text_content()
    for kind, layer, head in (("cross", "2", "2"), ("decoder", "1", "1"), ("encoder", "2", "0")):
        page.locator(f"[name=kind][value={kind}]").check()
        page.get_by_label("Layer").select_option(layer)
        page.get_by_label("Head").select_option(head)
        command = ["attention", "--model", str(folder), "--source", LAST, "--target", target]
        heads = "all" if head == "0" else head
        assert main([*command, "--kind", kind, "--layer", layer, "--head", heads, "--json"]) == 0
        ours = json.loads(capsys.readouterr().out)
        named = "mean of all heads" if head == "0" else f"head {head}"
        expect(page.locator("#weights caption")).to_have_text(f"Layer {layer}, {named}")
        expect(page.locator("#weights tbody tr")).to_have_count(len(ours["rows"]))
        mean = np.mean(ours["weights"][0], axis=0)
        np.testing.assert_allclose(cells(page), mean, rtol=1e-12)
