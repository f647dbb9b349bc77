"""Placeholders of all dialects, wherever they touch letters, digits, tags and each other."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.documents.document import Mark, write_text
from seq2seq.documents.formats import read_file
from seq2seq.documents.placeholders import find_placeholders
from seq2seq.documents.translate import Plan
from tests.documents.hostile import LANGUAGES
from tests.documents.marks import run_plan


@pytest.mark.parametrize(
    ("text", "placeholders"),
    [
        ("%s%s dogs", ["%s%s"]),
        ("%ld%% of dogs", ["%ld%%"]),
        ("5.1%% and %5.1f%% done", ["%%", "%5.1f%%"]),
        ("The dog of %ss runs.", ["%ss"]),
        ("%dth dog", ["%dth"]),
        ("100%s dogs", ["%s"]),
        ("%(who)ss dog", ["%(who)ss"]),
        ("%s\u72ac runs", ["%s"]),
        ("%lu dogs and %@s dog", ["%lu", "%@s"]),
        ("%-5s|%05.2f dogs", ["%-5s", "%05.2f"]),
        ("dog_%s.txt and %s_%s are files", ["dog_%s.txt", "%s_%s"]),
        ("The dog '{'name'}' runs with {x}.", ["'{'name'}'", "{x}"]),
        ("%lld\u00baC", ["%lld"]),
        ("%count% dogs, %d%%", ["%count%", "%d%%"]),
        ("%first-name% and %user.name%", ["%first-name%", "%user.name%"]),
        ("{items[0]} costs {0,10:N2}, {1,-5}", ["{items[0]}", "{0,10:N2}", "{1,-5}"]),
        ("100% done, 50%discount, a 5% drop", []),
    ],
)
def test_the_longest_reading_is_kept(text: str, placeholders: list[str]) -> None:
    found = [part.raw for part in find_placeholders((text,)) if isinstance(part, Mark)]
    assert found == placeholders


DIALECTS = {
    "C": ["%s", "%d", "%5.1f", "%ld", "%-5s", "%d%%"],
    "Java": ["%1$s", "%2$d"],
    "Apple": ["%@", "%1$@", "%lu"],
    "Python": ["%(who)s", "{name}", "{0}"],
    "ICU": ["{name}", "{day, date, short}", "'{'name'}'"],
    "Symfony": ["%count%", "%name%"],
    "Ruby": ["%{name}", "%<name>s"],
    "i18next": ["{{name}}", "{{ name }}"],
}
ENGINES = {
    "the same": str,
    "capitals": str.upper,
    "backwards": lambda line: " ".join(line.split()[::-1]),
    "without digits": lambda line: re.sub(r"\d|Tom", "", line),
    "an article": lambda line: f"l'{line}",
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_program_finds_the_same_placeholders_in_a_translation(
    dialect: list[str], engine: object, data: st.DataObject
) -> None:
    words = st.sampled_from(["dogs", "s", "The", "7", "<b>run</b>", ", ", ".", " ", " ", "-"])
    parts = data.draw(st.lists(st.one_of(st.sampled_from(dialect), words), max_size=7))
    # A number and a letter around a percent sign may as well be 50%discount.
    text = re.sub(r"\d(?=%)", "", "".join(parts))
    file = read_file("a.json", json.dumps({"a": text}).encode(), LANGUAGES)
    translated = json.loads(file.join(run_plan(Plan(file.texts), engine)))["a"]
    for placeholder in dialect:
        assert translated.count(placeholder) == text.count(placeholder)
    assert not re.search(r"'(?=\{\w)", translated) or re.search(r"'(?=\{\w)", text)


def test_a_text_whose_placeholders_are_lost_stays_and_is_counted() -> None:
    plan = Plan([("Hello dogs and %s",), ("Hello cats",)])
    texts = run_plan(plan, lambda line: f"{line.upper()} %d")
    assert list(map(write_text, texts)) == ["Hello dogs and %s", "Hello cats"]
    assert plan.kept == [0, 1]


@pytest.mark.parametrize("text", ["%ss dog has %d cats", "%s%s and %d dogs", "%d%% of %s dogs"])
def test_placeholders_that_are_told_by_their_order_keep_it(text: str) -> None:
    (translated,) = run_plan(Plan([(text,)]), ENGINES["backwards"])
    found, expected = (re.findall("%[sd]", line) for line in (write_text(translated), text))
    assert found == expected


def test_an_ending_is_no_loss_and_no_quote_is_undone() -> None:
    (translated,) = run_plan(Plan([("Hello %s dogs",)]), lambda line: line.replace("Tom", "Tomin"))
    assert write_text(translated) == "Hello %sin dogs"
    file = read_file("a.json", b"{\"a\": \"'{'name'}' runs\"}", LANGUAGES)
    joined = json.loads(file.join(run_plan(Plan(file.texts), lambda line: f"d'{line}")))["a"]
    assert "''{" not in joined
    assert "'{'name'}'" in joined


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", " "])
@pytest.mark.parametrize("engine", [str.upper, ENGINES["without digits"]])
def test_a_no_break_space_beside_a_placeholder_stays(space: str, engine: object) -> None:
    text = f"dogs{space}%d and %s{space}dogs"
    (translated,) = run_plan(Plan([(text,)]), engine)
    assert write_text(translated).count(f"{space}%d") == 1
    assert write_text(translated).count(f"%s{space}") == 1
