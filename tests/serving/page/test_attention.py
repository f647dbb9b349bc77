"""The page: the attention of a sentence and its translation."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.serving.page.driver import cells, expect, open_attention, strengths, translate
from tests.serving.page.stub import LAYERS, Stub

Show = Callable[..., Any]


def test_attention_is_asked_for_only_while_it_is_shown(show: Show, stub: Stub) -> None:
    page = show()
    translate(page, "a dog.")
    assert [path for path, _ in stub.asked] == ["/translate"]
    page.locator("#attention summary").click()
    expect(page.locator("#map")).to_be_visible()
    page.get_by_label("Head").select_option("2")  # of the same answer
    assert [path for path, _ in stub.asked] == ["/translate", "/attention"]
    assert stub.asked[-1][1] == {
        "source": "a dog.",
        "target": "A DOG.",
        "source_language": "en",
        "target_language": "de",
        "kind": "cross",
        "layer": None,
        "head": "all",
    }


def test_the_cells_are_the_weights(show: Show, stub: Stub) -> None:
    page = show()
    open_attention(page)
    for kind, layer, head in (
        ("cross", 2, 0),
        ("cross", 1, 1),
        ("encoder", 2, 3),
        ("decoder", 1, 0),
    ):
        page.locator(f"[name=kind][value={kind}]").check()
        page.get_by_label("Layer").select_option(str(layer))
        page.get_by_label("Head").select_option(str(head))
        title = f"Layer {layer}, " + (f"head {head}" if head else "mean of all heads")
        expect(page.locator("#weights caption")).to_have_text(title)
        answer = stub.attend(
            {"source": "a dog runs.", "target": "A DOG RUNS.", "kind": kind, "layer": layer}
        )
        expect(page.locator("#weights tbody tr")).to_have_count(len(answer["rows"]))
        chosen = answer["weights"][0] if head == 0 else [answer["weights"][0][head - 1]]
        expected = [
            [sum(values) / len(chosen) for values in zip(*rows, strict=True)]
            for rows in zip(*chosen, strict=True)
        ]
        assert cells(page) == [pytest.approx(row, rel=1e-12) for row in expected]
        spoken = page.locator("#weights td span").all_text_contents()
        flat = [weight for row in expected for weight in row]
        assert [float(text) for text in spoken] == pytest.approx(flat, abs=0.0051)


def test_rows_of_cross_attention_are_named_by_the_piece_that_is_written(show: Show) -> None:
    page = show()
    open_attention(page, "a dog.")
    assert page.locator("#rows button").all_text_contents() == ["A", "DOG", ".", "</s>"]
    page.locator("[name=kind][value=decoder]").check()
    expect(page.locator("#rows button").first).to_have_text("<s>")


def test_a_piece_lights_up_its_partners_and_colours_follow_the_weights(
    show: Show, stub: Stub
) -> None:
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
    # The share of the colour of heat in a cell's background is its weight.
    script = """all => all.map(cell => {
        const context = document.createElement('canvas').getContext('2d');
        context.fillStyle = getComputedStyle(cell).backgroundColor;
        context.fillRect(0, 0, 1, 1);
        return context.getImageData(0, 0, 1, 1).data[0];  // red, of which heat has least
    })"""
    red = page.locator("#weights tbody td").evaluate_all(script)
    flat = [weight for row in weights for weight in row]
    brightest = sorted(range(len(flat)), key=lambda i: -flat[i])
    assert [red[i] for i in brightest] == sorted(red)
    assert max(red) - min(red) > 20


def test_another_model_may_have_other_layers(show: Show, stub: Stub) -> None:
    stub.targets = {"en": ["de", "he"], "de": [], "he": []}
    page = show()
    open_attention(page)
    page.get_by_label("Layer").select_option("1")
    page.get_by_label("Translate to").select_option("he")
    expect(page.locator("#rows button").first).to_have_text("שלו")
    expect(page.get_by_label("Layer")).to_have_value(str(LAYERS))


def test_a_refused_map_is_reported(show: Show, stub: Stub) -> None:
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


def test_too_many_pieces_are_not_drawn(show: Show, stub: Stub) -> None:
    stub.char_limit = 2000
    page = show()
    translate(page, " ".join(["word"] * 60) + ".")
    page.locator("#attention summary").click()
    expect(page.locator("#attention-error")).to_contain_text("more than 100 pieces")
