"""Texts of applications: Android's strings.xml, Qt's .ts, Apple's .stringsdict, .NET's .resx."""

import plistlib

import pytest
from lxml import etree

from seq2seq.documents.document import Document, Mark, Text, join_strings
from seq2seq.documents.translate import Plan
from seq2seq.errors import UserError
from tests.documents.hostile import read
from tests.documents.marks import run_plan

XLIFF = 'xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2"'


def android(inside: str) -> Document:
    return read("xml", f"<resources {XLIFF}>{inside}</resources>")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (r"Can\'t \"go\" \u0041\uD83D\uDE00 &lt;b> &#8230;", ('Can\'t "go" A😀 <b> …',)),
        (r"One\nTwo\\n", ("One", Mark(r"\n"), r"Two\n")),
        ('"It\'s  here"', ("It's  here",)),
        (r"\@home <b>now</b>", ("@home ", Mark("<b>", "open"), "now", Mark("</b>", "close"))),
        ("To <xliff:g>%1$s</xliff:g>", ("To ", Mark("<xliff:g>%1$s</xliff:g>", "word"))),
        ('<![CDATA[a <a href="#">link</a> & it\\\'s]]>', ('a <a href="#">link</a> & it\'s',)),
    ],
)
def test_android_texts_are_read_and_written_with_their_escapes(raw: str, text: Text) -> None:
    content = f'<string name="a">{raw}</string>'
    document = android(content)
    assert document.texts == [text]
    assert document.join(document.texts) == document.content
    changed = document.join([(*document.texts[0], "?\"'\\\n&")])  # and so they are read again
    assert read("xml", changed).texts == [join_strings([*text, "?\"'\\", Mark(r"\n"), "&"])]


@pytest.mark.parametrize("sign", ["", r"\u0000", r"\uE000", "\ue000"])
def test_tags_stay_in_their_branches_of_a_plural_whatever_signs_are_beside_them(sign: str) -> None:
    message = f"{{n, plural, one{{A {sign} <b>dog</b>}} other{{<i># dogs</i>}}}}"
    document = android(f'<string name="a">{message}</string>')
    (text,) = run_plan(Plan(document.texts), str.upper)
    assert "<b>DOG</b>} other{<i># DOGS</i>}" in document.join([text])


def test_quotation_marks_in_cdata_stay_as_they_are() -> None:
    document = android('<string name="a"><![CDATA[a <a href="#">link</a>]]></string>')
    assert '<![CDATA[<a href="#">x</a>]]>' in document.join([('<a href="#">x</a>',)])


def test_android_resources_that_are_no_texts_are_left() -> None:
    document = android(
        '<string name="a" translatable="false">Name</string><string name="b">@string/a</string>'
        '<string name="c">100 %</string><color name="d">red</color><string name="e"/>'
        '<string-array name="f"><item>First</item><item>@string/a</item></string-array>'
        '<plurals name="g"><item quantity="one">%d cat</item><item quantity="other">%d cats</item>'
        "</plurals>"
    )
    assert document.texts == [("First",), ("%d cat",), ("%d cats",)]
    assert "<item>\\@x</item>" in document.join([("@x",), *document.texts[1:]])


QT = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de">
<context><name>Main</name>
  <message><source>&amp;Open file</source><translation type="unfinished"></translation></message>
  <message><source>Save &amp; e&amp;xit</source><translation type="unfinished"/></message>
  <message><source>Tab<byte value="x9"/> here</source></message>
  <message><source>Done</source><translation>Fertig</translation></message>
  <message><source>Long</source><translation variants="yes"><lengthvariant>Lang</lengthvariant>
  </translation></message>
  <message><source>Maybe</source><translation type="unfinished">Vielleicht</translation></message>
  <message><source>Gone</source><translation type="vanished"></translation></message>
  <message numerus="yes"><source>%n cats</source><translation type="unfinished">
    <numerusform></numerusform><numerusform>Katzen</numerusform></translation></message>
</context></TS>"""


def test_qt_translations_that_are_empty_are_filled_and_stay_unfinished() -> None:
    document = read("ts", QT)
    assert document.texts == [
        ("&Open file",),
        ("Save & e&xit",),
        ("Tab", Mark('<byte value="x9"/>'), " here"),
        ("%n cats",),
    ]
    tab = document.texts[2]
    joined = document.join([("Datei &öffnen",), ("'Ende'",), tab, ("%n Katze",)])
    found = [
        (x.get("type"), "".join(x.itertext()).split())
        for x in etree.fromstring(joined.encode()).iter("translation")
    ]
    assert found == [
        ("unfinished", ["Datei", "&öffnen"]),
        ("unfinished", ["'Ende'"]),
        ("unfinished", ["Tab", "here"]),
        (None, ["Fertig"]),
        (None, ["Lang"]),
        ("unfinished", ["Vielleicht"]),
        ("vanished", []),
        ("unfinished", ["%n", "KatzeKatzen"]),
    ]
    assert '<translation type="unfinished">Tab<byte value="x9"/> here</translation>' in joined


def test_more_plural_forms_than_any_language_has_are_refused() -> None:
    message = '<message numerus="yes"><source>%n dogs</source><translation type="unfinished">'
    forms = "<numerusform></numerusform>" * 11
    with pytest.raises(UserError, match="11 plural forms"):
        read("ts", f"<TS><context>{message}{forms}</translation></message></context></TS>")


def test_plural_rules_of_apple_keep_what_is_no_text() -> None:
    rules = {
        "NSStringLocalizedFormatKey": "There are %#@n@ left",
        "n": {
            "NSStringFormatSpecTypeKey": "NSStringPluralRuleType",
            "NSStringFormatValueTypeKey": "ld",
            "one": "one option",
            "other": "%ld options & more",
        },
    }
    content = plistlib.dumps({"options": rules}, sort_keys=False).decode()
    document = read("stringsdict", content)
    assert document.texts == [("There are %#@n@ left",), ("one option",), ("%ld options & more",)]
    assert document.join(document.texts) == content
    joined = document.join([document.texts[0], ("<eine>",), document.texts[2]])
    rules["n"]["one"] = "<eine>"  # type: ignore[index]
    assert plistlib.loads(joined.encode()) == {"options": rules}


RESX = """<root><resheader name="version"><value>Two dogs</value></resheader>
<data name="a" type="System.String, mscorlib"><value> One &amp; {0}\r\ntwo</value></data>
<data name="b" type="System.Drawing.Color"><value>Red</value></data>
<data name="c" mimetype="a/b"><value>Dogs</value></data><data name=">>d"><value>dog</value></data>
<data name="e"><value>AcmeSync runs</value><comment>{Locked}</comment></data>
<data name="f"><value>mdi:home</value></data></root>"""


def test_resources_of_dot_net_keep_all_but_strings() -> None:
    document = read("resx", RESX)
    assert document.texts == [("One & {0}\r\ntwo",)]
    assert document.join(document.texts) == RESX
    joined = document.join([("<Eins>\r\nzwei",)])
    assert joined == RESX.replace("One &amp; {0}\r\ntwo", "&lt;Eins&gt;\r\nzwei")
