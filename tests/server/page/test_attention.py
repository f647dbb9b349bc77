"""The page: the attention of a sentence and its translation."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.server.live import FakeTranslator
from tests.server.page.driver import cells, expect, open_attention, strengths, translate

Show = Callable[..., Any]


def test_rows_of_cross_attention_are_named_by_the_piece_that_is_written(show: Show) -> None:
    page = show()
    open_attention(page, "a dog.")
    assert page.locator("#rows button").all_text_contents() == ["A", "DOG", ".", "</s>"]
    page.locator("[name=kind][value=decoder]").check()
    expect(page.locator("#rows button").first).to_have_text("<s>")


def test_the_cells_are_those_of_the_kind_the_layer_and_the_head(show: Show) -> None:
    page = show()
    open_attention(page, "a dog.")
    maps = FakeTranslator().attention("a dog.", "A DOG.")
    for kind, layer, head in (("cross", 2, 2), ("decoder", 1, 1), ("encoder", 2, 0)):
        page.locator(f"[name=kind][value={kind}]").check()
        page.get_by_label("Layer").select_option(str(layer))
        page.get_by_label("Head").select_option(str(head))
        named = f"head {head}" if head else "mean of all heads"
        expect(page.locator("#weights caption")).to_have_text(f"Layer {layer}, {named}")
        expected = maps.record(kind, layer, head or "all")
        expect(page.locator("#weights tbody tr")).to_have_count(len(expected["rows"]))
        mean = np.mean(expected["weights"][0], axis=0)
        np.testing.assert_allclose(cells(page), mean, rtol=1e-12)


def test_a_piece_lights_up_its_partners(show: Show) -> None:
    page = show()
    open_attention(page)
    weights = cells(page)
    page.locator("#rows button").nth(1).hover()
    assert strengths(page, "columns") == weights[1]
    assert strengths(page, "rows") == [0.0] * len(weights)
    page.locator("#columns button").nth(1).hover()
    column = [row[1] for row in weights]
    assert strengths(page, "rows") == column
    pieces = page.locator("#rows button").all_text_contents()
    best = sorted(range(len(column)), key=lambda i: -column[i])[:3]
    partners = ", ".join(f"{pieces[i]}\N{NO-BREAK SPACE}{column[i]:.2f}" for i in best)
    expect(page.locator("#readout")).to_have_text(f"do is looked at by {partners}")
    page.locator("#weights tbody tr").nth(0).locator("td").nth(3).hover()
    assert strengths(page, "columns") == weights[0]
    page.locator("h1").hover()
    assert strengths(page, "columns") == [0.0] * len(weights[0])


def test_a_refused_map_is_reported(show: Show) -> None:
    page = show()
    open_attention(page)
    answer = {"error": "attention is for at most 255 tokens on each side"}
    page.route("**/attention", lambda route: route.fulfill(status=400, json=answer))
    translate(page, "a cat.")
    expect(page.locator("#attention-error")).to_contain_text("Attention is for at most 255")
    expect(page.locator("#map")).to_be_hidden()
    page.unroute("**/attention")
    translate(page, "a cow.")
    expect(page.locator("#map")).to_be_visible()
    expect(page.locator("#attention-error")).to_be_empty()


def test_too_many_pieces_are_not_drawn(show: Show) -> None:
    page = show(char_limit=2000)
    translate(page, " ".join(["word"] * 60) + ".")
    page.locator("#attention summary").click()
    expect(page.locator("#attention-error")).to_contain_text("more than 100 pieces")
