"""All formats: what is not translated stays byte for byte."""

import gzip
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from html import escape
from pathlib import Path

import pytest

from seq2seq.documents import FORMATS, SUFFIXES, find_format, formats
from seq2seq.documents.document import Languages, Mark
from seq2seq.documents.formats import READERS, choose_format, read_file
from seq2seq.documents.placeholders import divide
from seq2seq.documents.translate import Plan
from seq2seq.errors import UserError
from seq2seq.text import begins_as_code
from tests.documents.hostile import LANGUAGES, PLACES, WORST, fill_place
from tests.documents.marks import run_plan

WORD = "<w:p><w:r><w:t>B</w:t></w:r></w:p>"
UNIT, END = "<trans-unit id='1'><source>", "</source></trans-unit>"
XLIFF = "<xliff version='1.2'><file><body>{}</body></file></xliff>"
XML_FORMATS = {"docx", "odt", "resx", "stringsdict", "tmx", "ts", "xliff", "xml"}
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


def seconds(suffix: str, place: str, unit: str, size: int) -> float:
    """The processor time to read a document with `size` characters in its place."""
    is_escaped = suffix in XML_FORMATS and "DOCTYPE" not in place
    escaped = escape(unit) if is_escaped else unit
    content = fill_place(suffix, place, escaped * (size // len(escaped)))
    start = time.thread_time()
    with suppress(UserError):
        read_file(f"a.{suffix}", content, LANGUAGES)
    return time.thread_time() - start


def seconds_of_plan(unit: str, size: int) -> float:
    """The processor time to make lines for a model of a text, and to take them back."""
    text = f"A dog {unit * (size // len(unit))}"
    start = time.thread_time()
    run_plan(Plan([(text,)]), lambda line: f"{line} x")
    return time.thread_time() - start


def is_linear(measure: Callable[[int], float], size: int) -> bool:
    """Tell whether four times the size take less than nine times as long: the square takes 16.

    Other work on the machine disturbs one measurement, but not three.
    """
    return any((longer := measure(4 * size)) < 0.02 or longer < 9 * measure(size) for _ in range(3))


@pytest.mark.parametrize("suffix", PLACES)
def test_the_time_to_read_a_document_grows_with_its_size(suffix: str) -> None:
    cases = [(place, unit) for place in PLACES[suffix] for unit in WORST]
    slow = [case for case in cases if not is_linear(partial(seconds, suffix, *case), 1000)]
    assert slow == []


def test_the_time_to_find_placeholders_grows_with_the_text() -> None:
    cases = [*((unit, 1000) for unit in WORST), ("<b>!</b> ", 9000)]
    assert [x for x in cases if not is_linear(partial(seconds_of_plan, x[0]), x[1])] == []


@pytest.mark.slow
@pytest.mark.parametrize("suffix", PLACES)
def test_the_worst_characters_of_each_format_are_read_at_any_size(suffix: str) -> None:
    cases = [(place, unit) for place in PLACES[suffix] for unit in WORST]
    place, unit = max(cases, key=lambda case: seconds(suffix, *case, 10_000))
    sizes = (50_000, 100_000, 200_000)
    print(suffix, repr(unit), *(f"{seconds(suffix, place, unit, size):.2f} s" for size in sizes))
    assert is_linear(partial(seconds, suffix, place, unit), 50_000)


DIGITS = "9" * 5000  # more than Python makes a number of


@pytest.mark.parametrize(
    ("suffix", "place", "characters", "message"),
    [
        ("po", "@", f'msgid "A dog"\nmsgstr[{DIGITS}] ""\n', "line 2: not a keyword"),
        ("docx", "@", "<w:p><w:r><w:t>A<w:p/></w:t></w:r></w:p>", ""),
        ("docx", "@", f"<w:p><w:r><w:t>A{WORD}</w:t></w:r></w:p>", "a text within another one"),
        ("docx", "@", f"<w:p><w:r><w:rPr>{WORD}</w:rPr><w:t>A</w:t></w:r></w:p>", "within another"),
        ("xliff", "@", XLIFF.format(f"{UNIT}A {UNIT}B{END}{END}"), "a text within another one"),
        ("html", "@", f"A dog &#{DIGITS};", ""),
        ("html", "@", f"A dog &#{'0' * 5000};", ""),
        ("ass", "[Events]\nDialogue: 0,0,0,0,0,0,0,0,0,@", f"{{\\p{DIGITS}}}A dog", ""),
    ],
)
def test_what_no_program_writes_is_refused_in_one_line_or_read(
    suffix: str, place: str, characters: str, message: str
) -> None:
    content = fill_place(suffix, place, characters)
    with pytest.raises(UserError, match=message) if message else nullcontext():
        file = read_file(f"a.{suffix}", content, LANGUAGES)
        assert file.join(run_plan(Plan(file.texts), str)) == content


def test_a_number_of_html_is_read_as_browsers_do() -> None:
    content = f"a&#x41;&#65;&#{'0' * 5000}66;&#38;lt; &#{DIGITS}; &#0;"
    (text,) = read_file("a.html", content.encode(), LANGUAGES).texts
    assert text == ("aAAB&lt; \ufffd \ufffd",)


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
    assert {find_format(f"a.b{suffix}") for suffix in SUFFIXES} == set(FORMATS) == set(READERS)
    assert find_format("A.XLF") == "xliff"
    assert find_format("html") == find_format("a.html.bak") == ""


def test_text_is_known_by_its_content_whatever_its_name() -> None:
    names = "test.en x.de-AT eng_Latn.devtest a test.lc.norm.tok.en test.en.part1 a.01 x.fra"
    names += " a.in a.raw a.sys a.detok a.sent a.list a.corpus a.data a.lines a.utf8 a.pl a.foo .a"
    content = "Ein Hund läuft.\n".encode()
    for name in [*names.split(), "Mr. Smith"]:
        assert choose_format(name, content) == "txt"
        for other in ("latin-1", "utf-16"):
            assert choose_format(name, content.decode().encode(other)) == "txt"
        assert read_file(name, content, LANGUAGES).texts == [("Ein Hund läuft.",)]
        for bad in (
            b"\x89PNG\r\n\x1a\n",
            b"a\0b\0",
            b"%PDF-1.7",
            gzip.compress(b"a"),
            b"#!/bin/sh\n",
        ):
            with pytest.raises(UserError, match="text"):
                read_file(name, bad, LANGUAGES)


def test_known_formats_that_are_no_lines_of_text_are_refused_by_their_names() -> None:
    names = "yml ftl csv rst tex svg ttml lrc php desktop ipynb py js c h log json5 pdf XLSX sgm"
    for name in [*(f"messages.de.{suffix}" for suffix in names.split()), "sub/Makefile"]:
        with pytest.raises(UserError, match=f"{name}: format is not supported: choose .arb, "):
            choose_format(name, b"A dog.\n")


def test_code_is_known_by_its_beginning() -> None:
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
        ("json", '{"a": "b"\n"c": "d"}', "line 2"),
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
