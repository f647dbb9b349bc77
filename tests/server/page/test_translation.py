"""The page: text, translation, alternatives, warnings, errors, languages."""

from collections.abc import Callable
from typing import Any

from tests.server.page.conftest import PAUSE
from tests.server.page.driver import (
    expect,
    focused,
    open_attention,
    posts,
    refuse_once,
    send,
    stop_the_clock,
    translate,
)

Show = Callable[..., Any]


# While the user types


def test_a_text_is_sent_once_the_user_pauses(show: Show) -> None:
    page = show()
    sent = posts(page)
    stop_the_clock(page)
    page.locator("#source").press_sequentially("a dog")
    page.clock.run_for(PAUSE - 50)
    page.locator("#source").press_sequentially(".")
    page.clock.run_for(PAUSE - 50)
    assert sent == []
    page.clock.run_for(100)
    expect(page.locator("#output")).to_have_text("A DOG.")
    assert [(path, fields["q"]) for path, fields in sent] == [("/translate", "a dog.")]


def test_the_answer_to_an_older_text_is_dropped(show: Show) -> None:
    page = show()
    held: list[Any] = []
    page.route("**/translate", lambda route: held.append(route))
    for text in ("old.", "new."):
        with page.expect_request("**/translate"):
            send(page, text)
    expect(page.locator("#output")).to_have_attribute("aria-busy", "true")
    old, new = held
    new.continue_()
    expect(page.locator("#output")).to_have_text("NEW.")
    old.continue_()
    page.wait_for_timeout(50)
    expect(page.locator("#output")).to_have_text("NEW.")
    expect(page.locator("#output")).to_have_attribute("aria-busy", "false")


def test_an_emptied_field_empties_the_page(show: Show) -> None:
    page = show()
    open_attention(page)
    page.locator("#clear").click()
    expect(page.locator("#output")).to_be_empty()
    for part in ("#alternatives", "#attention", "#copy", "#clear"):
        expect(page.locator(part)).to_be_hidden()
    assert focused(page) == "source"


def test_markup_is_shown_as_text(show: Show) -> None:
    page = show()
    hostile = "<img src=x onerror=alert(1)>."
    open_attention(page, hostile)
    expect(page.locator("#output")).to_have_text(hostile.upper())
    assert page.locator("img").count() == 0


def test_the_words_that_belong_together_are_marked(show: Show) -> None:
    page = show()
    translate(page, "a dog.  the cat runs.\n")
    marked, linked = page.locator("#marks mark"), page.locator("#output .linked")
    page.locator("#output .word", has_text="RUNS.").hover()
    expect(marked).to_have_text(["runs."])
    expect(linked).to_have_text(["RUNS."])
    expect(page.locator("#marks")).to_have_text("a dog.  the cat runs.", use_inner_text=True)
    # The marks lie exactly behind the words of the text field.
    place = "node => { const {x, y} = node.getBoundingClientRect(); return [x, y]; }"
    assert page.locator("#marks").evaluate(place) == page.locator("#source").evaluate(place)
    page.locator("h1").hover()
    expect(marked).to_have_count(0)
    # From the caret to the translation.
    page.locator("#source").focus()
    page.keyboard.press("Control+Home")
    expect(marked).to_have_text(["a"])
    expect(linked).to_have_text(["A"])
    page.keyboard.type("x")
    expect(marked).to_have_count(0)
    # The translation is that of an older text now.
    page.locator("#output .word", has_text="DOG.").hover()
    expect(marked).to_have_count(0)


def test_a_word_may_belong_to_several(show: Show) -> None:
    def link_twice(route: Any) -> None:
        answer = route.fetch().json()
        answer["details"][0]["alignments"] = [[0, 0], [0, 1]]
        route.fulfill(json=answer)

    page = show()
    page.route("**/translate", link_twice)
    translate(page, "a dog.")
    page.keyboard.press("Control+Home")
    expect(page.locator("#output .linked")).to_have_text(["A", "DOG."])
    expect(page.locator("#marks")).to_have_text("a dog.")


# Alternatives


def test_alternatives_have_scores_and_replace_the_translation(show: Show) -> None:
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


def test_the_sentence_at_the_caret_is_selected(show: Show) -> None:
    page = show()
    translate(page, "one dog. two cats.\nthree cows.")
    chosen = page.locator("#output [aria-pressed=true]")
    expect(chosen).to_have_text("THREE COWS.")
    for position, text in ((0, "ONE DOG."), (10, "TWO CATS."), (25, "THREE COWS.")):
        page.locator("#source").evaluate(f"e => e.setSelectionRange({position}, {position})")
        expect(chosen).to_have_text(text)
        expect(page.locator("#choices .text").first).to_have_text(text)


# What looks wrong


def test_warnings_say_what_looks_wrong(show: Show) -> None:
    page = show()
    translate(page, "a dog.")
    expect(page.locator("#warnings")).to_be_hidden()
    for sentence, warning in (
        ("an endless cat.", "cut off at the maximum length"),
        ("a µcat.", "doesn't know 1 piece of"),
        ("a µµµcat.", "doesn't know 3 pieces of"),
    ):
        translate(page, f"{sentence} {sentence}")
        expect(page.locator("#warnings li")).to_have_count(2)  # one of each sentence
        expect(page.locator("#warnings li").first).to_contain_text(warning)
        expect(page.locator("#warnings q").first).to_have_text(sentence)


def test_too_long_a_text_is_not_sent(show: Show) -> None:
    page = show(char_limit=3)
    sent = posts(page)
    translate(page, "🐕🐕🐕")  # three characters, as the server counts
    expect(page.locator("#output")).to_have_text("🐕🐕🐕")
    stop_the_clock(page)
    page.locator("#source").press_sequentially("x")
    expect(page.locator("#error")).to_have_text("At most 3 characters can be translated at once.")
    expect(page.locator("#count")).to_have_text("4 / 3 characters")
    expect(page.locator("#source")).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Control+Enter")
    page.clock.run_for(PAUSE + 50)
    assert len(sent) == 1
    page.keyboard.press("Backspace")
    expect(page.locator("#error")).to_be_empty()


def test_an_error_stands_beside_the_field_and_the_translation_stays(show: Show) -> None:
    page = show()
    translate(page, "a dog.")
    refuse_once(page, 400, "zz is not supported")
    send(page, "a cat.")
    expect(page.locator("#error")).to_have_text("Zz is not supported.")
    expect(page.locator("#output")).to_have_text("A DOG.")
    expect(page.locator("#output")).to_have_class("stale")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#output")).to_have_text("A CAT.")
    expect(page.locator("#error")).to_be_empty()


def test_a_busy_server_is_asked_again_when_it_says(show: Show) -> None:
    page = show()
    sent = posts(page)
    stop_the_clock(page)
    refuse_once(page, 503, "busy: too much work is waiting", **{"Retry-After": "12"})
    send(page, "a dog.")
    page.clock.run_for(1)
    expect(page.locator("#error")).to_have_text(
        "Busy: too much work is waiting. Trying again in 12 s."
    )
    page.clock.run_for(11_900)
    assert len(sent) == 1
    page.clock.run_for(200)
    expect(page.locator("#output")).to_have_text("A DOG.")
    expect(page.locator("#error")).to_be_empty()


def test_a_server_that_has_gone_and_an_answer_that_is_no_json_are_reported(show: Show) -> None:
    page = show()
    page.route("**/translate", lambda route: route.abort())
    send(page, "a dog.")
    expect(page.locator("#error")).to_contain_text("The server doesn't answer")
    page.route("**/translate", lambda route: route.fulfill(status=502, body="<h1>Bad Gateway"))
    send(page, "a dog.")
    expect(page.locator("#error")).to_contain_text("can't be read (status 502)")


def test_a_key_is_asked_for_and_sent(show: Show) -> None:
    page = show(keys=["secret"])
    sent = posts(page)
    page.get_by_label("API key").fill("secret")
    open_attention(page)
    keys = {path: fields["api_key"] for path, fields in sent}
    assert keys == {"/translate": "secret", "/attention": "secret"}


# Languages


def test_only_languages_that_a_model_has_can_be_chosen(show: Show) -> None:
    page = show("en-de", "en-he", "de-en")
    sent = posts(page)
    source, target = page.get_by_label("Translate from"), page.get_by_label("Translate to")
    assert source.locator("option").all_text_contents() == ["English", "German"]
    assert target.locator("option").all_text_contents() == ["German", "Hebrew"]
    translate(page, "a dog.")
    target.select_option("he")
    expect(page.locator("#output")).to_have_attribute("lang", "he")
    expect(page.locator("#swap")).to_be_hidden()  # no model translates from Hebrew
    source.select_option("de")
    assert target.locator("option").all_text_contents() == ["English"]
    pairs = [(fields["source"], fields["target"]) for _, fields in sent[:2]]
    assert pairs == [("en", "de"), ("en", "he")]


def test_swap_translates_the_translation_back(show: Show) -> None:
    page = show("en-de", "de-en")
    sent = posts(page)
    translate(page, "a dog.")
    page.get_by_role("button", name="Swap languages").click()
    expect(page.locator("#source")).to_have_value("A DOG.")
    expect(page.get_by_label("Translate from")).to_have_value("de")
    expect(page.locator("#output")).to_have_attribute("lang", "en")
    expect(page.locator("#output")).not_to_have_class("stale")
    path, fields = sent[-1]
    assert path == "/translate"
    assert (fields["q"], fields["source"], fields["target"]) == ("A DOG.", "de", "en")


def test_swap_keeps_a_text_that_is_not_translated_yet(show: Show) -> None:
    page = show("en-de", "de-en")
    translate(page, "ein Hund.")
    page.locator("#source").fill("eine Katze.")
    with page.expect_response("**/translate"):
        page.get_by_role("button", name="Swap languages").click()
    expect(page.locator("#source")).to_have_value("eine Katze.")
    expect(page.locator("#output")).to_have_text("EINE KATZE.")
    expect(page.locator("#output")).to_have_attribute("lang", "en")
