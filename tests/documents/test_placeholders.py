"""Placeholders of all dialects, wherever they touch letters, digits, tags and each other."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.documents.document import write_text
from seq2seq.documents.formats import read_file
from seq2seq.documents.translate import Plan
from tests.documents.hostile import LANGUAGES
from tests.documents.marks import run_plan

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


def test_no_quote_is_undone() -> None:
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
