"""Catalogues, lists of properties and JSON: messages of programs, and who reads them afterwards."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import javaproperties
import polib
import pytest
from hypothesis import given

from seq2seq.documents.document import Languages, Mark
from seq2seq.documents.placeholders import BRACES, ICU, JAVA, PRINTF, Syntax, find_texts
from seq2seq.documents.spans import one_line
from seq2seq.errors import UserError
from tests.documents.hostile import HOSTILE, TEXTS, assert_unchanged, join_words, read, strings

HEADER = r"""msgid ""
msgstr ""
"Project-Id-Version: dogs\nReport-Msgid-Bugs-To: a\nPO-Revision-Date: 2020-01-01 00:00+0000\n"
"Last-Translator: a\nLanguage-Team: a\nLanguage: de\nMIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"
"""
PO = (
    HEADER
    + r"""
# said by a person
#: a.c:1
#, c-format, python-format
msgctxt "menu"
msgid "%d%% of \"<b>%s</b>\"\n"
msgstr ""

#, fuzzy
#| msgid "A cat"
msgid "A dog"
msgstr "Eine Katze"

msgid "One sea"
msgid_plural ""
"{n} seas "
"and\n"
"a dog"
msgstr[0] ""
msgstr[1] ""

msgid "Done"
msgstr "Fertig"

#~ msgid "Old"
#~ msgstr ""
"""
)


def test_empty_entries_are_filled_and_become_fuzzy() -> None:
    document = read("po", PO)
    assert strings(document) == ['%d%% of "<b>%s</b>"', "One sea", "{n} seas and", "a dog"]
    assert 'msgstr "5 %%\\n"' in document.join([("5 %",), *document.texts[1:]])
    filled = document.join(document.texts)
    assert filled == PO.replace("#, c-", "#, fuzzy, c-").replace(
        'msgstr ""\n\n#, fuzzy', 'msgstr "%d%% of \\"<b>%s</b>\\"\\n"\n\n#, fuzzy', 1
    ).replace('msgid "One sea"', '#, fuzzy\nmsgid "One sea"').replace(
        'msgstr[0] ""', 'msgstr[0] "One sea"'
    ).replace('msgstr[1] ""', 'msgstr[1] ""\n"{n} seas and\\n"\n"a dog"')
    assert not read("po", filled).slots
    again = read("po", PO, fuzzy=True)
    assert 'msgstr "Ein Hund"' in again.join([("Ein Hund",)] * 5)


@pytest.mark.parametrize("before", ['msgstr ""\n"Ein "\n"Hund"\n', 'msgstr\n"Ein "\n"Hund"\n'])
def test_a_fuzzy_translation_of_several_lines_is_replaced_whole(before: str) -> None:
    content = '#, fuzzy\nmsgid "a dog"\n'
    document = read("po", content + before, fuzzy=True)
    after = before.partition('"')[0] + '"A DOG"\n'
    assert document.join([("A DOG",)]) == content + after


@pytest.mark.parametrize(
    ("suffix", "content", "named"),
    [
        ("po", 'msgid ""\nmsgstr ""\n"Language: pt_BR\\n"\n', "in pt_BR"),
        ("ts", '<TS language="fr"><context/></TS>', "in fr"),
        ("arb", '{"@@locale": "fr_CA", "a": "A"}', "in fr_CA"),
        ("ts", '<TS language="de_AT" sourcelanguage="fr_FR"/>', "from fr_FR to de_AT"),
    ],
)
def test_messages_in_another_language_are_refused(suffix: str, content: str, named: str) -> None:
    with pytest.raises(UserError, match=f"is {named}, but the model translates en to de"):
        read(suffix, content)
    for own in ("de_AT", ""):
        read(suffix, re.sub("pt_BR|fr(_FR|_CA)?", own, content), Languages("de", "de"))


def test_the_options_that_a_line_of_help_begins_with_stay() -> None:
    for message, text in {"  -h, --help   shows": "shows", "- a  b": "- a  b"}.items():
        assert strings(read("po", f'msgid "{message}"\nmsgstr ""')) == [text]


def test_plural_forms_are_translated_from_what_serves_them() -> None:
    entry = '#, c-format\nmsgid "One dog"\nmsgid_plural "%d dogs"\n'
    for forms, expected in ((1, ["%d dogs"]), (2, ["One dog", "%d dogs"]), (3, ["%d dogs"] * 3)):
        empty = "".join(f'msgstr[{form}] ""\n' for form in range(forms))
        assert strings(read("po", entry + empty)) == expected


def test_more_plural_forms_than_any_language_has_are_refused() -> None:
    entry = 'msgid "One dog"\nmsgid_plural "%d dogs"\nmsgstr[0] ""\nmsgstr[10] ""\n'
    with pytest.raises(UserError, match="line 4: not a keyword"):
        read("po", entry)


def test_translations_are_indented_as_the_entry_is() -> None:
    document = read("po", '\tmsgid "a\\nb"\r\n\tmsgstr ""\r\n')
    lines = document.join([("c",), ("d",)]).splitlines()
    assert lines[:3] == ["\t#, fuzzy", '\tmsgid "a\\nb"', '\tmsgstr ""']
    assert lines[3:] == ['\t"c\\n"', '\t"d"']


@pytest.mark.parametrize("words", HOSTILE)
def test_msgfmt_and_polib_read_what_was_filled(words: str, tmp_path: Path) -> None:
    filled = join_words(read("po", PO, fuzzy=True), words)
    before, after = polib.pofile(PO), polib.pofile(filled)
    assert [(e.msgctxt, e.msgid) for e in before] == [(e.msgctxt, e.msgid) for e in after]
    assert after.find("A dog").msgstr == one_line(words).strip()
    if not shutil.which("msgfmt"):
        pytest.skip("gettext is not installed")
    (tmp_path / "de.po").write_text(filled)
    command = ["msgfmt", "--check", "--use-fuzzy", "-o", "/dev/null", str(tmp_path / "de.po")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


PROPERTIES = r"""# A comment \u12
! another = one
plain=A dog
with\ blank : It\u2019s\
   \tred
format = It''s {0} of '{1}'
empty=
! the end
last   Größe \
"""
STRINGS = r"""/* A "comment" = "x"; */
"A" = "A \"dog\" \U00e4\ud83d\ude00 %1$@ of 100%%\nruns";
// "B" = "b";
NSName = "Sea" ;
"none" = "%@";
"""


def test_properties_are_found_as_java_reads_them() -> None:
    document = read("properties", PROPERTIES)
    assert strings(document) == ["A dog", "It’s\tred", "It's {0} of '{1}'", "Größe"]
    assert_unchanged(document)
    assert "plain=L'x\n" in join_words(document, "L'x")
    document = read("properties", "a=It''s {0}\nb=Is it {0}?")
    words = ("L'", Mark("{0}", "word"))
    assert document.join([document.texts[0], words]) == "a=It''s {0}\nb=L''{0}"
    assert strings(read("properties", "a=It''s {0}\nb=It''s"))[1] == "It's"


@given(TEXTS)
def test_java_reads_what_was_written(words: str) -> None:
    content = "a = A dog\nb:A\\\n  sea\nc A man"
    written = join_words(read("properties", content), words)
    assert javaproperties.loads(written) == dict.fromkeys("abc", one_line(words.strip()))


def test_apples_strings_keep_keys_comments_and_escapes() -> None:
    document = read("strings", STRINGS)
    assert strings(document) == ['A "dog" ä😀 %1$@ of 100%%', "runs", "Sea"]
    assert_unchanged(document)


@given(TEXTS)
def test_no_translation_ends_one_of_apples_strings(words: str) -> None:
    words = f"é{words.strip()}é"
    written = join_words(read("strings", '"a" = "A dog";\n"b" = "No";'), words)
    assert strings(read("strings", written)) == [one_line(words)] * 2


JSON = r"""{
  "title": "Dogs", "count": 3, "nested": {"list": ["A \"sea\"\nand <b>more</b>", null, "42"]},
  "title": "Dogs \ud83d\ude00 and {{name}}",
  "link": "See $t(title) or @:nested.list {'@'} { n } :name: $1 $10"
}"""
ARB = """{
  "@@locale": "en",
  "dogs": "{n, plural, =0{No dogs} one{# dog in {place}} other{{n} dogs}} at sea",
  "@dogs": {"description": "Stays", "placeholders": {"n": {}}},
  "who": "{sex, select, male{He} other{They {n, plural, other{all}}}} said: it's '{name}'",
  "broken": "Dogs {of",
  "phone": "(###) is #1"
}"""


def test_json_values_are_found_by_their_places() -> None:
    document = read("json", JSON)
    assert strings(document) == [
        "Dogs",
        'A "sea"',
        "and <b>more</b>",
        "Dogs 😀 and {{name}}",
        "See $t(title) or @:nested.list {'@'} { n } :name: $1 $10",
    ]
    words = [part.raw for part in document.texts[-1] if isinstance(part, Mark)]
    assert words == ["$t(title)", "@:nested.list", "{'@'}", "{ n }", ":name:", "$1"]
    assert_unchanged(document)
    [text] = read("json", '["<ul><li>A</li><LI>A <b>dog</b></LI></ul>"]').texts
    assert [m.kind for m in text if isinstance(m, Mark)] == ["alone", "alone", "open", "close"]
    described = '{"a": {"message": "A dog", "description": "b", "placeholders": {"c": "d"}}}'
    assert strings(read("json", described)) == ["A dog"]


@given(TEXTS)
def test_json_reads_what_was_written(words: str) -> None:
    written = join_words(read("json", '{"a": "\\u00e4 dog", "b": ["é sea", {"a": 1}]}'), words)
    line = one_line(words.strip())
    assert json.loads(written) == {"a": line, "b": [line, {"a": 1}]}


def test_the_branches_of_arb_messages_are_texts() -> None:
    document = read("arb", ARB)
    assert strings(document) == [
        "No dogs",
        "# dog in {place}",
        "{n} dogs",
        "at sea",
        "He",
        "They",
        "all",
        "said: it's '{name}'",
        "(###) is #1",
    ]
    assert document.join(document.texts) == ARB.replace('"en"', '"de"')
    quote = ("l'", Mark("{place}", "word"), " {")
    apostrophe = document.join([document.texts[0], quote, *document.texts[2:-1], ("#1",)])
    assert "one{l’{place} (}" in apostrophe
    assert '"phone": "#1"' in apostrophe  # `#` is a number in branches alone


@pytest.mark.parametrize("syntax", [PRINTF, JAVA, ICU, BRACES])
def test_an_entity_within_a_sentence_is_kept(syntax: Syntax) -> None:
    [slot] = find_texts("a dog&nbsp;runs", syntax)
    assert slot.text == ("a dog", Mark("&nbsp;"), "runs")


@pytest.mark.parametrize("syntax", [PRINTF, JAVA, ICU, BRACES])
@given(words=TEXTS)
def test_no_translation_becomes_a_placeholder(syntax: Syntax, words: str) -> None:
    message = "%d dogs {0} at sea"
    [slot] = find_texts(message, syntax)
    marks = [part for part in slot.text if isinstance(part, Mark)]
    written = slot.write((f"é {words}", *marks, f"{words} é"))
    literal = "''|'[{}]'" if syntax is JAVA else "|".join(syntax.characters)
    found = re.findall(syntax.arguments, re.sub(literal, "", written))
    assert found == [mark.raw for mark in marks]
