"""The web page, driven in Chromium against a stub that answers as the server does.

The stub holds an answer back, refuses, or names a problem when a test wants it to;
tests/serving/test_page_and_server.py tries the page with the real server.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-core")

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs Chromium: apt-get install chromium", allow_module_level=True)

expect = playwright.expect
ORIGIN = "http://localhost:5000"  # on loopback, where browsers allow a page to copy
FILES = Path(__file__).parents[2] / "seq2seq" / "serving" / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
PAUSE = 400
LANGUAGES = {"en": "English", "de": "German", "he": "Hebrew"}
KINDS = ("cross", "encoder", "decoder")
LAYERS, HEADS = 2, 3


def translate_sentence(sentence: str, language: str, alternatives: int) -> dict[str, Any]:
    """Translate into capitals; the alternatives have another last word."""
    words = sentence.removesuffix(".").upper().split()
    if language == "he":
        words = ["שלום"] * len(words)
    texts = [" ".join([*words[:-1], last]) + "." for last in (words[-1], "ONE", "TWO", "THREE")]
    found = [{"text": text, "score": -0.25 - i} for i, text in enumerate(texts)]
    return {
        "source": sentence,
        **found[0],
        "pieces": pieces(texts[0]),
        "cut": False,
        "unknown": 0,
        "suspect": [],
        "alternatives": found[1 : 1 + alternatives],
    }


def pieces(text: str) -> list[str]:
    """Split before the last letter of each word, so that some pieces begin no word."""
    return [part for word in text.split() for part in ("▁" + word[:-1], word[-1])]


def weights(rows: int, columns: int, layer: int, head: int) -> list[list[float]]:
    """Weights that differ in each cell, layer and head, and of which each row's sum is 1."""
    raw = [
        [1 + (7 * i + 3 * j + 5 * head + 11 * layer) % 13 for j in range(columns)]
        for i in range(rows)
    ]
    return [[value / sum(row) for value in row] for row in raw]


class Stub:
    """Answers the requests of a page; a test changes its fields."""

    def __init__(self) -> None:
        self.targets = {"en": ["de"], "de": []}
        self.char_limit = 200
        self.key_required = False
        self.flaws: dict[str, Any] = {}
        self.failures: list[tuple[int, str, dict[str, str]]] = []
        """Answers to the next requests to translate: status, error, headers."""
        self.gone = False
        self.hold = False
        self.held: list[Any] = []
        """Requests to translate whose answers wait for `answer`, if `hold` is true."""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """The path and the fields of each POST."""
        self.elsewhere: list[str] = []

    def handle(self, route: Any) -> None:
        url, request = route.request.url, route.request
        if not url.startswith(ORIGIN + "/"):
            self.elsewhere.append(url)
            route.abort()
            return
        path = url.removeprefix(ORIGIN)
        if request.method == "GET" and (file := FILES / (path[1:] or "index.html")).is_file():
            headers = {"content-type": TYPES[file.suffix], "content-security-policy": POLICY}
            route.fulfill(body=file.read_bytes(), headers=headers)
        elif request.method == "GET":
            route.fulfill(json={"/languages": self.languages, "/frontend/settings": self.settings}[path]())
        else:
            self.asked.append((path, request.post_data_json))
            if self.gone:
                route.abort()
            elif path == "/translate" and self.hold:
                self.held.append(route)
            else:
                self.answer(route)

    def answer(self, route: Any) -> None:
        path, fields = route.request.url.removeprefix(ORIGIN), route.request.post_data_json
        if path == "/translate" and self.failures:
            status, error, headers = self.failures.pop(0)
            route.fulfill(status=status, json={"error": error}, headers=headers)
        elif path == "/translate":
            route.fulfill(json=self.translate(fields))
        else:
            route.fulfill(json=self.attend(fields))

    def languages(self) -> Any:
        return [
            {"code": code, "name": LANGUAGES[code], "targets": targets}
            for code, targets in self.targets.items()
        ]

    def settings(self) -> Any:
        codes = [(code, target) for code, targets in self.targets.items() for target in targets]
        named = [{"code": code, "name": LANGUAGES[code]} for code in codes[0]]
        return {
            "charLimit": self.char_limit,
            "frontendTimeout": PAUSE,
            "keyRequired": self.key_required,
            "mostAlternatives": 3,
            "language": dict(zip(("source", "target"), named, strict=True)),
        }

    def translate(self, fields: dict[str, Any]) -> Any:
        details = []

        def translated(match: re.Match[str]) -> str:
            details.append(
                translate_sentence(match[0], fields["target"], fields["alternatives"]) | self.flaws
            )
            return str(details[-1]["text"])

        text = re.sub(r"[^\s.][^.\n]*\.?", translated, fields["q"])
        return {"translatedText": text, "alternatives": [], "details": details}

    def attend(self, fields: dict[str, Any]) -> Any:
        source, target = [*pieces(fields["source"]), "</s>"], ["<s>", *pieces(fields["target"])]
        rows = source if fields["kind"] == "encoder" else target
        columns = target if fields["kind"] == "decoder" else source
        layer = fields["layer"] or LAYERS
        heads = [weights(len(rows), len(columns), layer, head) for head in range(1, HEADS + 1)]
        return {
            "kind": fields["kind"],
            "layers": [layer],
            "heads": list(range(1, HEADS + 1)),
            "rows": rows,
            "columns": columns,
            "weights": [heads],
        }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def show(browser: Any, stub: Stub) -> Iterator[Callable[..., Any]]:
    """Open the page; afterwards no script may have failed, and nothing may have left the origin."""
    contexts, messages = [], []

    def show(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.route("**/*", stub.handle)
        page.goto(ORIGIN + "/")
        expect(page.locator("#count")).not_to_be_empty()
        return page

    yield show
    for context in contexts:
        context.close()
    # Chromium itself reports each answer that is an error.
    assert [text for text in messages if not text.startswith("Failed to load resource")] == []
    assert stub.elsewhere == []


def translate(page: Any, text: str) -> None:
    page.locator("#source").fill(text)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#output")).to_have_text(re.compile(r"\S"))
    expect(page.locator("#output")).not_to_have_class("stale")


def open_attention(page: Any, text: str = "a dog runs.") -> None:
    translate(page, text)
    page.locator("#attention summary").click()
    expect(page.locator("#map")).to_be_visible()


def cells(page: Any) -> list[list[float]]:
    """The weights that the cells are coloured by."""
    script = """rows => rows.map(row => [...row.querySelectorAll('td')].map(
        cell => Number(cell.style.getPropertyValue('--weight'))))"""
    return page.locator("#weights tbody tr").evaluate_all(script)


def strengths(page: Any, side: str) -> list[float]:
    """How strongly the pieces of a side are lit."""
    script = "all => all.map(piece => Number(piece.style.getPropertyValue('--weight')))"
    return page.locator(f"#{side} button").evaluate_all(script)


def focused(page: Any) -> str:
    script = """() => {
        const {id, name, value, dataset, textContent, parentElement, tagName} = document.activeElement;
        return id || (name && `${name}=${value}`) || (dataset.index && `${parentElement.id}[${dataset.index}]`)
            || (dataset.sentence && `sentence ${dataset.sentence}`) || tagName.toLowerCase();
    }"""
    return page.evaluate(script)


# While the user types


def test_a_text_is_sent_once_the_user_pauses(show: Callable[..., Any], stub: Stub) -> None:
    page = show()
    page.clock.install()
    page.locator("#source").press_sequentially("a dog")
    page.clock.run_for(PAUSE - 50)
    page.locator("#source").press_sequentially(".")
    page.clock.run_for(PAUSE - 50)
    assert stub.asked == []
    page.clock.run_for(100)
    expect(page.locator("#output")).to_have_text("A DOG.")
    assert [(path, fields["q"]) for path, fields in stub.asked] == [("/translate", "a dog.")]


def test_ctrl_enter_translates_at_once(show: Callable[..., Any], stub: Stub) -> None:
    page = show()
    page.clock.install()
    page.locator("#source").fill("a dog.")
    page.keyboard.press("Control+Enter")
    page.clock.run_for(1)
    expect(page.locator("#output")).to_have_text("A DOG.")
    assert len(stub.asked) == 1


def test_the_answer_to_an_older_text_is_dropped(show: Callable[..., Any], stub: Stub) -> None:
    page = show()
    stub.hold = True
    for text in ("old.", "new."):
        page.locator("#source").fill(text)
        with page.expect_request("**/translate"):
            page.keyboard.press("Control+Enter")
    expect(page.locator("#output")).to_have_attribute("aria-busy", "true")
    old, new = stub.held
    stub.answer(new)
    expect(page.locator("#output")).to_have_text("NEW.")
    stub.answer(old)
    page.wait_for_timeout(50)
    expect(page.locator("#output")).to_have_text("NEW.")
    expect(page.locator("#output")).to_have_attribute("aria-busy", "false")


def test_an_emptied_field_empties_the_page(show: Callable[..., Any], stub: Stub) -> None:
    page = show()
    open_attention(page)
    page.locator("#clear").click()
    expect(page.locator("#output")).to_be_empty()
    for part in ("#alternatives", "#attention", "#copy", "#clear"):
        expect(page.locator(part)).to_be_hidden()
    assert focused(page) == "source"


def test_line_ends_and_blank_lines_stay(show: Callable[..., Any]) -> None:
    page = show()
    translate(page, "one. two.\n\n  three.\n")
    assert page.locator("#output").evaluate("e => e.textContent") == "ONE. TWO.\n\n  THREE.\n"


def test_markup_is_shown_as_text(show: Callable[..., Any]) -> None:
    page = show()
    hostile = "<img src=x onerror=alert(1)>."
    open_attention(page, hostile)
    expect(page.locator("#output")).to_have_text(hostile.upper())
    assert page.locator("img").count() == 0


def test_hebrew_runs_from_right_to_left(show: Callable[..., Any], stub: Stub) -> None:
    stub.targets = {"en": ["he"], "he": []}
    page = show()
    open_attention(page, "hello friend.")
    direction = "e => getComputedStyle(e).direction"
    assert page.locator("#source").evaluate(direction) == "ltr"
    assert page.locator("#output").evaluate(direction) == "rtl"
    assert page.locator("#output").get_attribute("lang") == "he"
    page.locator("#rows button").first.focus()
    page.keyboard.press("ArrowLeft")  # where the text goes on
    assert focused(page) == "rows[1]"


# Alternatives


def test_alternatives_have_scores_and_replace_the_translation(show: Callable[..., Any]) -> None:
    page = show(permissions=["clipboard-read", "clipboard-write"])
    translate(page, "a dog.\nthe cat.")
    page.locator("#output span", has_text="A DOG.").click()
    texts = page.locator("#choices .text").all_text_contents()
    scores = page.locator("#choices .score").all_text_contents()
    assert texts == ["A DOG.", "A ONE.", "A TWO.", "A THREE."]
    assert scores == ["−0.25", "−1.25", "−2.25", "−3.25"]
    assert page.locator("#choices mark").all_text_contents() == ["ONE", "TWO", "THREE"]
    page.get_by_label("A TWO.").check()
    page.locator("#copy").click()
    expect(page.locator("#copied")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "A TWO.\nTHE CAT."


def test_the_sentence_at_the_caret_is_selected(show: Callable[..., Any]) -> None:
    page = show()
    translate(page, "one dog. two cats.\nthree cows.")
    chosen = page.locator("#output [aria-pressed=true]")
    expect(chosen).to_have_text("THREE COWS.")
    for position, text in ((0, "ONE DOG."), (10, "TWO CATS."), (25, "THREE COWS.")):
        page.locator("#source").evaluate(f"e => e.setSelectionRange({position}, {position})")
        expect(chosen).to_have_text(text)
        expect(page.locator("#choices .text").first).to_have_text(text)


def test_without_clipboard_the_translation_is_selected(show: Callable[..., Any]) -> None:
    page = show()
    translate(page, "a dog.")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.locator("#copy").click()
    expect(page.locator("#copied")).to_have_text("Selected: copy with Ctrl+C")
    assert page.evaluate("getSelection().toString()") == "A DOG."


# What looks wrong


@pytest.mark.parametrize(
    ("flaws", "warning"),
    [
        ({"suspect": ["output_truncated"]}, "cut off"),
        ({"suspect": ["source_truncated"]}, "its end was left out"),
        ({"suspect": ["repeating"]}, "repeats itself"),
        ({"suspect": ["copied"]}, "equal to the text"),
        ({"suspect": ["empty"]}, "is empty"),
        ({"suspect": ["unknown"], "unknown": 1}, "doesn't know 1 piece of"),
        ({"suspect": ["unknown"], "unknown": 3}, "doesn't know 3 pieces of"),
    ],
)
def test_warnings_say_what_looks_wrong(
    show: Callable[..., Any], stub: Stub, flaws: dict[str, Any], warning: str
) -> None:
    page = show()
    translate(page, "a dog.")
    expect(page.locator("#warnings")).to_be_hidden()
    stub.flaws = flaws
    translate(page, "a cat. a cow.")
    expect(page.locator("#warnings li")).to_have_count(2)
    expect(page.locator("#warnings li").first).to_contain_text(warning)
    expect(page.locator("#warnings q").first).to_have_text("a cat.")


def test_too_long_a_text_is_not_sent(show: Callable[..., Any], stub: Stub) -> None:
    stub.char_limit = 3
    page = show()
    page.locator("#source").fill("🐕🐕🐕")  # three characters, as the server counts
    page.keyboard.press("Control+Enter")
    expect(page.locator("#output")).to_have_text("🐕🐕🐕.")
    page.locator("#source").press_sequentially("x")
    expect(page.locator("#error")).to_have_text("At most 3 characters can be translated at once.")
    expect(page.locator("#count")).to_have_text("4 / 3 characters")
    expect(page.locator("#source")).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Control+Enter")
    page.wait_for_timeout(PAUSE + 50)
    assert len(stub.asked) == 1
    page.keyboard.press("Backspace")
    expect(page.locator("#error")).to_be_empty()


def test_an_error_stands_beside_the_field_and_the_translation_stays(
    show: Callable[..., Any], stub: Stub
) -> None:
    page = show()
    translate(page, "a dog.")
    stub.failures = [(400, "zz is not supported", {})]
    page.locator("#source").fill("a cat.")
    expect(page.locator("#error")).to_have_text("Zz is not supported.")
    expect(page.locator("#output")).to_have_text("A DOG.")
    expect(page.locator("#output")).to_have_class("stale")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#output")).to_have_text("A CAT.")
    expect(page.locator("#error")).to_be_empty()


def test_a_busy_server_is_asked_again_when_it_says(show: Callable[..., Any], stub: Stub) -> None:
    page = show()
    page.clock.install()
    stub.failures = [(503, "busy: about 12 s of work is waiting", {"Retry-After": "12"})]
    page.locator("#source").fill("a dog.")
    page.keyboard.press("Control+Enter")
    page.clock.run_for(1)
    expect(page.locator("#error")).to_have_text(
        "Busy: about 12 s of work is waiting. Trying again in 12 s."
    )
    page.clock.run_for(11_900)
    assert len(stub.asked) == 1
    page.clock.run_for(200)
    expect(page.locator("#output")).to_have_text("A DOG.")
    expect(page.locator("#error")).to_be_empty()


def test_a_server_that_has_gone_is_reported(show: Callable[..., Any], stub: Stub) -> None:
    page = show()
    stub.gone = True
    page.locator("#source").fill("a dog.")
    expect(page.locator("#error")).to_contain_text("The server doesn't answer")


def test_an_answer_that_is_no_json_is_reported(show: Callable[..., Any], stub: Stub) -> None:
    page = show()
    page.route("**/translate", lambda route: route.fulfill(status=502, body="<h1>Bad Gateway"))
    page.locator("#source").fill("a dog.")
    expect(page.locator("#error")).to_contain_text("can't be read (status 502)")


def test_a_key_is_asked_for_and_sent(show: Callable[..., Any], stub: Stub) -> None:
    stub.key_required = True
    page = show()
    page.get_by_label("API key").fill("secret")
    open_attention(page)
    assert {path: fields["api_key"] for path, fields in stub.asked} == {
        "/translate": "secret",
        "/attention": "secret",
    }


# Languages


def test_one_pair_of_languages_leaves_nothing_to_choose(show: Callable[..., Any]) -> None:
    page = show()
    expect(page.get_by_label("Translate from")).to_be_disabled()
    expect(page.get_by_label("Translate to")).to_be_disabled()
    expect(page.locator("#swap")).to_be_hidden()


def test_only_languages_that_a_model_has_can_be_chosen(
    show: Callable[..., Any], stub: Stub
) -> None:
    stub.targets = {"en": ["de", "he"], "de": ["en"], "he": []}
    page = show()
    source, target = page.get_by_label("Translate from"), page.get_by_label("Translate to")
    assert source.locator("option").all_text_contents() == ["English", "German"]
    assert target.locator("option").all_text_contents() == ["German", "Hebrew"]
    translate(page, "a dog.")
    target.select_option("he")
    expect(page.locator("#output")).to_contain_text("שלום")
    expect(page.locator("#swap")).to_be_hidden()  # no model translates from Hebrew
    source.select_option("de")
    assert target.locator("option").all_text_contents() == ["English"]
    assert stub.asked[1][1] | {"source": "en", "target": "he"} == stub.asked[1][1]


def test_swap_translates_the_translation_back(show: Callable[..., Any], stub: Stub) -> None:
    stub.targets = {"en": ["de"], "de": ["en"]}
    page = show()
    translate(page, "a dog.")
    page.get_by_role("button", name="Swap languages").click()
    expect(page.locator("#source")).to_have_value("A DOG.")
    expect(page.get_by_label("Translate from")).to_have_value("de")
    expect(page.locator("#output")).to_have_attribute("lang", "en")
    expect(page.locator("#output")).not_to_have_class("stale")
    path, fields = stub.asked[-1]
    assert (path, fields["q"], fields["source"], fields["target"]) == (
        "/translate",
        "A DOG.",
        "de",
        "en",
    )


# Attention


def test_attention_is_asked_for_only_while_it_is_shown(
    show: Callable[..., Any], stub: Stub
) -> None:
    page = show()
    translate(page, "a dog.")
    assert [path for path, _ in stub.asked] == ["/translate"]
    page.locator("#attention summary").click()
    expect(page.locator("#map")).to_be_visible()
    page.get_by_label("Head").select_option("2")  # of the same answer
    path, fields = stub.asked[-1]
    assert [path for path, _ in stub.asked] == ["/translate", "/attention"]
    assert fields == {
        "source": "a dog.",
        "target": "A DOG.",
        "source_language": "en",
        "target_language": "de",
        "kind": "cross",
        "layer": None,
        "head": "all",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_cells_are_the_weights(show: Callable[..., Any], stub: Stub, kind: str) -> None:
    page = show()
    open_attention(page)
    page.locator(f"[name=kind][value={kind}]").check()
    for layer, head in ((2, 0), (2, 3), (1, 1)):
        page.get_by_label("Layer").select_option(str(layer))
        page.get_by_label("Head").select_option(str(head))
        title = f"Layer {layer}, " + (f"head {head}" if head else "mean of all heads")
        expect(page.locator("#weights caption")).to_have_text(title)
        answer = stub.attend(
            {"source": "a dog runs.", "target": "A DOG RUNS.", "kind": kind, "layer": layer}
        )
        chosen = answer["weights"][0] if head == 0 else [answer["weights"][0][head - 1]]
        expected = [
            [sum(values) / len(chosen) for values in zip(*rows, strict=True)]
            for rows in zip(*chosen, strict=True)
        ]
        found = cells(page)
        assert found == [pytest.approx(row, rel=1e-12) for row in expected]
        spoken = page.locator("#weights td span").all_text_contents()
        assert spoken == [f"{weight:.2f}" for row in expected for weight in row]
    side = "source" if kind == "encoder" else "target"
    pieces_of = {"source": ["a", "do", "g", "runs", "."], "target": ["A", "DO", "G", "RUNS", "."]}
    assert page.locator("#weights th[scope=row]").count() == len(answer["rows"]), pieces_of[side]


def test_rows_of_cross_attention_are_named_by_the_piece_that_is_written(
    show: Callable[..., Any],
) -> None:
    page = show()
    open_attention(page, "a dog.")
    assert page.locator("#rows button").all_text_contents() == ["A", "DOG", ".", "</s>"]
    page.locator("[name=kind][value=decoder]").check()
    expect(page.locator("#rows button").first).to_have_text("<s>")


def test_a_piece_lights_up_its_partners(show: Callable[..., Any], stub: Stub) -> None:
    page = show()
    open_attention(page)
    weights = cells(page)
    page.locator("#rows button").nth(1).hover()
    assert strengths(page, "columns") == weights[1]
    assert strengths(page, "rows") == [0.0] * len(weights)
    page.locator("#columns button").nth(2).hover()
    column = [row[2] for row in weights]
    assert strengths(page, "rows") == column
    best = sorted(column, reverse=True)[:3]
    expect(page.locator("#readout")).to_have_text(re.compile(r"^DO|\w+ is looked at by "))
    for weight in best:
        expect(page.locator("#readout")).to_contain_text(f"{weight:.2f}")
    page.locator("#weights tbody tr").nth(0).locator("td").nth(3).hover()
    assert strengths(page, "columns") == weights[0]
    page.locator("h1").hover()
    assert strengths(page, "columns") == [0.0] * len(weights[0])


def test_colours_follow_the_weights(show: Callable[..., Any]) -> None:
    """The share of the colour of heat in a cell's background is its weight."""
    page = show()
    open_attention(page)
    script = """all => all.map(cell => {
        const context = document.createElement('canvas').getContext('2d');
        context.fillStyle = getComputedStyle(cell).backgroundColor;
        context.fillRect(0, 0, 1, 1);
        return context.getImageData(0, 0, 1, 1).data[0];  // red, of which heat has least
    })"""
    red = page.locator("#weights tbody td").evaluate_all(script)
    weights = [weight for row in cells(page) for weight in row]
    brightest = sorted(range(len(weights)), key=lambda i: -weights[i])
    assert [red[i] for i in brightest] == sorted(red)
    assert max(red) - min(red) > 20


def test_another_model_may_have_other_layers(show: Callable[..., Any], stub: Stub) -> None:
    stub.targets = {"en": ["de", "he"], "de": [], "he": []}
    page = show()
    open_attention(page)
    page.get_by_label("Layer").select_option("1")
    page.get_by_label("Translate to").select_option("he")
    expect(page.locator("#rows button").first).to_have_text("שלו")
    expect(page.get_by_label("Layer")).to_have_value(str(LAYERS))


def test_a_refused_map_is_reported(show: Callable[..., Any], stub: Stub) -> None:
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


def test_too_many_pieces_are_not_drawn(show: Callable[..., Any], stub: Stub) -> None:
    stub.char_limit = 2000
    page = show()
    translate(page, " ".join(["word"] * 60) + ".")
    page.locator("#attention summary").click()
    expect(page.locator("#attention-error")).to_contain_text("more than 100 pieces")


# For everyone


def test_the_keyboard_alone_reaches_everything(show: Callable[..., Any], stub: Stub) -> None:
    stub.targets = {"en": ["de"], "de": ["en"]}
    page = show()
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
    tab_to("choice=0")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#output")).to_have_text("ONE ONE. TWO CATS.")
    tab_to("summary")
    page.keyboard.press("Enter")
    expect(page.locator("#map")).to_be_visible()
    tab_to("kind=cross")
    tab_to("layer")
    tab_to("head")
    tab_to("rows[0]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    weights = cells(page)
    assert focused(page) == f"rows[{len(weights) - 2}]"
    assert strengths(page, "columns") == weights[-2]
    tab_to("columns[0]")
    assert strengths(page, "rows") == [row[0] for row in weights]
    page.keyboard.press("Shift+Tab")
    assert focused(page) == f"rows[{len(weights) - 2}]"  # where the user left


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe_finds_nothing_to_blame(
    show: Callable[..., Any], stub: Stub, scheme: str, width: int
) -> None:
    stub.targets = {"en": ["de"], "de": ["en"]}
    stub.key_required = True
    page = show(color_scheme=scheme, viewport={"width": width, "height": 800})

    def check() -> None:
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()

    check()
    stub.flaws = {"suspect": ["repeating"]}
    open_attention(page, "one dog. two cats.")
    page.locator("#rows button").nth(1).focus()
    check()
    stub.failures = [(400, "zz is not supported", {})]
    page.locator("#source").fill("a cat.")
    expect(page.locator("#error")).not_to_be_empty()
    check()


def test_nothing_is_wider_than_a_narrow_screen(show: Callable[..., Any]) -> None:
    page = show(viewport={"width": 360, "height": 700})
    open_attention(page, "one exceedinglylongwordthatfitsintonolineofanarrowscreenatall and more.")
    assert page.evaluate("document.documentElement.scrollWidth") == 360


# The files


def test_the_page_is_small_and_asks_nobody_else() -> None:
    files = sorted(FILES.iterdir())
    assert {file.suffix for file in files} == set(TYPES)
    assert sum(file.stat().st_size for file in files) < 40_000
    for file in files:
        text = file.read_text()
        assert not re.search(r"https?:|//[a-z]|@import|url\(", text.replace("// ", "")), file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|eval\(|localStorage|cookie", text)
    page = (FILES / "index.html").read_text()
    assert not re.search(r"<[^>]+\s(style|on\w+)\s*=|<style|<script(?![^>]*\ssrc=)", page)
