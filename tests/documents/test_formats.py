"""All formats: what is not translated stays byte for byte."""

from collections import Counter
from pathlib import Path

import pytest

from seq2seq.documents import formats
from seq2seq.documents.document import Languages, Mark
from seq2seq.documents.formats import FORMATS, SUFFIXES, find_format, read_file
from seq2seq.documents.lines import begins_as_code, is_plain
from seq2seq.documents.placeholders import divide
from seq2seq.documents.translate import Plan
from seq2seq.errors import UserError
from tests.documents.hostile import LANGUAGES
from tests.documents.marks import run_plan

XML = "<?xml version='1.0' encoding='iso-8859-1'?>\n"
SMALL = {
    "arb": '{"a": "A {n} dog", "@a": {"description": "x"}}',
    "ass": "[Events]\nFormat: Layer, Text\nDialogue: 0,A {\\i1}dog{\\i0}\\Nruns\n",
    "html": "<p>A <b>dog</b>&nbsp;runs",
    "json": '{"a": {"b": "A <b>dog</b> \\u00e9"}}',
    "md": "# A *dog*\n\n```\ncode\n```\n",
    "po": 'msgid ""\nmsgstr "Content-Type: text/plain\\n"\n\nmsgid "A %s"\nmsgstr ""\n',
    "properties": "# no\na = A {0} dog\n",
    "resx": XML + "<root><data name='a'><value>A {0} dog\nruns</value></data></root>",
    "srt": "1\n00:00:01,000 --> 00:00:02,500\nA <i>dog</i>\n",
    "strings": '/* no */\n"a" = "A %@ dog";\n',
    "tmx": XML + "<tmx version='1.4'><header/><body><tu><tuv xml:lang='en'><seg>A <ph/> dog</seg>"
    "</tuv></tu></body></tmx>",
    "ts": XML + "<TS><context><message><source>A %1 dog</source><translation type='unfinished'/>"
    "</message></context></TS>",
    "txt": "A dog\r\n\r\nruns",
    "vtt": "WEBVTT\n\n00:01.000 --> 00:02.500\nA <b>dog</b>\n",
    "xcstrings": '{"sourceLanguage": "en", "strings": {"A %@ dog": {}, "12px": {}}}',
    "xliff": XML + "<xliff version='1.2'><file source-language='en' target-language='de'><body>"
    "<trans-unit id='1'><source>A <g id='1'>dog</g></source></trans-unit></body></file></xliff>",
    "xml": XML + "<resources><string name='a'>A <b>dog</b> %s</string></resources>",
}  # fmt: skip


def translated(content: bytes, name: str, languages: Languages = LANGUAGES) -> bytes:
    """A document whose texts are in capitals, with accents and with all of their marks."""
    file = read_file(name, content, languages)
    accents = str.maketrans("AEO", "ÀÉÓ")
    texts = run_plan(Plan(file.texts), lambda line: line.upper().translate(accents))
    for before, after in zip(file.texts, texts, strict=True):
        marks = [Counter(p for p in text if isinstance(p, Mark)) for text in (before, after)]
        assert marks[0] == marks[1]
        ends = [[p for p in divide(text) if not isinstance(p, tuple)] for text in (before, after)]
        assert ends[0] == ends[1]
    return file.join(texts)


def check(content: bytes, name: str, languages: Languages = LANGUAGES) -> None:
    file = read_file(name, content, languages)
    assert run_plan(Plan(file.texts), str) == file.texts
    again = read_file(name, translated(content, name, languages), languages)
    # What was filled is not asked for again.
    assert not again.texts or len(again.texts) >= len(file.texts)
    if again.texts:
        assert file.join(run_plan(Plan(file.texts), str)) == content


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_the_rest_of_a_document_stays(name: str, codec: str) -> None:
    check(SMALL[name].encode(codec), f"file.{name.upper()}")
    assert translated(SMALL[name].encode(codec), f"a.{name}") != SMALL[name].encode(codec)


def test_characters_that_the_encoding_lacks_are_written_as_references() -> None:
    file = read_file("a.xml", SMALL["xml"].encode("latin-1"), LANGUAGES)
    assert "ж".encode() not in file.join([("ж",)])
    assert b"<string name='a'>&#1078;</string>" in file.join([("ж",)])
    file = read_file("a.properties", SMALL["properties"].encode(), LANGUAGES)
    assert file.join([("ж",)]) == b"# no\na = \\u0436\n"


def test_every_format_has_a_small_file_here_and_a_row_in_the_readme() -> None:
    with_tests_of_their_own = {"docx", "odt", "resx", "stringsdict", "xcstrings"}
    assert set(SMALL) >= set(FORMATS) - with_tests_of_their_own
    readme = (Path(formats.__file__).parent / "README.md").read_text()
    assert [suffix for suffix in SUFFIXES if f"`{suffix}`" not in readme] == []


def test_the_format_is_found_by_the_name() -> None:
    assert {find_format(f"a.b{suffix}") for suffix in SUFFIXES} == set(FORMATS)
    assert find_format("A.XLF") == "xliff"
    assert find_format("html") == find_format("a.html.bak") == ""


def test_lines_are_known_by_the_name_and_the_beginning() -> None:
    names = "a test.en x.de-AT eng_Latn.devtest a.TXT test.lc.norm.tok.en test.en.part1 a.01"
    names += " test.src x.fra x.pt_BR x.deu_Latn"
    assert all(map(is_plain, [*names.split(), "Mr. Smith"]))
    names = "yml ftl csv rst tex svg ttml lrc php desktop ipynb py js c h sh log 7z mp3 json5 zip"
    assert not any(is_plain(f"messages.de.{suffix}") for suffix in names.split())
    code = "<?xml?>|<!--|<ul>\n|<svg\nid='a'>| <html><body>|{|{\"a\"|[\n{|#!/bin/sh|// a"
    code += "|WEBVTT|use strict;\n|namespace A {|---\na: b|\\section{A}|1\n00:01,0 --> 00:02,0\nA"
    assert all(map(begins_as_code, code.split("|")))
    plain = "|A|<b>A</b> dog|<unk> a|{name} is|[Music] A|[1] A|--- A|#A|1\nA|use it; now|-- A"
    plain += "|I <3 you\n|>>de<< A"
    assert not any(map(begins_as_code, plain.split("|")))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("srt", "1\nA dog --> runs.\n", "no subtitle was recognised"),
        ("vtt", "1\n00:01.000 --> 00:02.000\nA", "doesn't begin with WEBVTT"),
        ("ass", "A dog", "no section"),
        ("ass", "[Events]\n\nDialogue: 0,0:00:01.00,A dog", "line 3: fewer than 10 columns"),
        ("ass", "[Events]\nFormat: Start, Text, End\n", "line 2: the last column"),
        ("po", 'msgid "a"\nmsgstr "b', "line 2: not a keyword with a string"),
        ("po", 'msgid "a"\n\nmsgid "b"\nmsgstr ""', "line 3: msgid: the entry before has no"),
        ("po", 'msgstr "a"', "line 1: msgstr: not expected here"),
        ("po", '#, a\n"a"', "line 2: a string without a keyword"),
        ("po", 'msgid "a"\nmsgstr[0] "b"', r"line 2: msgstr\[0\] goes with msgid_plural"),
        ("po", '\nmsgid "a"\n', "line 2: the entry has no msgstr"),
        ("properties", "a=b\nc=\\u12x", "line 2: .u needs four hexadecimal digits"),
        ("strings", '"a" = "b";\n"c" = "d', "line 2: not"),
        ("strings", '"a" = "b"\n"c" = "d";', "line 1: not"),
        ("strings", '"a" = "b"', "line 1: no semicolon"),
        ("strings", "/* a", "line 1: not"),
        ("json", '{"a": "b",\n}', "line 2 column 1"),
        ("json", "[" * 100_000, "nested too deeply"),
        ("arb", '["a"]', "not an object"),
        ("xcstrings", '{"strings": []}', 'no object "strings"'),
        ("txt", "{\n", "begins as markup, data or a program"),
        ("xliff", "<html/>", "not an XLIFF file: its first element is html"),
    ],
)
def test_malformed_files_are_refused_with_the_line(name: str, content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_file(f"a.{name}", content.encode(), LANGUAGES)


@pytest.mark.parametrize(
    "name", ["arb", "ass", "html", "json", "md", "po", "properties", "srt", "strings", "txt"]
)
@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n\r\n"])
def test_empty_files_have_no_texts(name: str, content: bytes) -> None:
    assert read_file(f"a.{name}", content, LANGUAGES).join([]) == content
