"""Word's .docx and .odt: paragraphs in archives of which all other bytes stay."""

import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from io import BytesIO

import pytest
from lxml import etree

from seq2seq.documents.document import File, Text, map_strings
from seq2seq.documents.office import read_docx, read_odt
from seq2seq.documents.translate import Plan
from seq2seq.errors import UserError
from tests.documents.hostile import LANGUAGES
from tests.documents.marks import run_plan

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
ODF = 'xmlns:office="o" xmlns:text="t" xmlns:draw="d"'
HOSTILE = "<b>&\"' ]]> \ufffe\x01\ud800😀"


def archive(*members: tuple[str, str | bytes]) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two members of one name
        made.writestr("mimetype", "application/x", zipfile.ZIP_STORED)
        for name, content in members:
            made.writestr(name, content)
        made.comment = b"comment"
    return file.getvalue()


def word(body: str) -> bytes:
    content = f'<w:document xmlns:w="{W}" xmlns:r="r"><w:body>{body}</w:body></w:document>'
    return archive(("word/document.xml", content), ("word/media/a.png", b"\x89PNG" * 100))


def docx(body: str) -> File:
    return read_docx(word(body), LANGUAGES)


def odt(body: str) -> File:
    content = f"<office:document-content {ODF}><office:body>{body}</office:body>"
    return read_odt(archive(("content.xml", f"{content}</office:document-content>")), LANGUAGES)


def run(text: str, formatting: str = "") -> str:
    return f'<w:r w:rsidR="1">{formatting}<w:t xml:space="preserve">{text}</w:t></w:r>'


def shapes(text: Text) -> list[str]:
    """A text with the kinds of its marks."""
    return [part if isinstance(part, str) else f"<{part.kind}>" for part in text]


def joined(file: File, translations: Sequence[Text], name: str) -> etree._Element:
    """A part of the file, as other programs read it; the rest is what it was."""
    old, new = (zipfile.ZipFile(BytesIO(x)) for x in (file.content, file.join(translations)))
    assert new.testzip() is None
    assert new.namelist() == old.namelist()
    assert new.comment == old.comment
    assert all(new.read(x) == old.read(x) for x in new.namelist() if x != name)
    return etree.fromstring(new.read(name))


B, ITALIC = "<w:rPr><w:b/></w:rPr>", "<w:rPr><w:i/></w:rPr>"
ENGLISH = '<w:rPr><w:lang w:val="en-US"/></w:rPr>'
LINK = f'<w:hyperlink r:id="1">{run("the site", B)}</w:hyperlink>'


BOX = f"<w:r><w:pict><w:txbxContent><w:p>{run('Box')}</w:p></w:txbxContent></w:pict></w:r>"


def field(code: str, result: str) -> str:
    kind = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'.format
    code = f"<w:r><w:instrText>{code}</w:instrText></w:r>"
    return kind("begin") + code + kind("separate") + run(result) + kind("end")


@pytest.mark.parametrize(
    ("inside", "shape"),
    [
        (run("One ") + '<w:proofErr w:type="x"/>' + run("two", ENGLISH) + run("."), ["One two."]),
        (run("A &lt;cat ") + run("sat", B) + run(" ") + run("there again"),
         ["A <cat ", "<open>", "sat ", "<close>", "there again"]),
        (run("Most of it ", ITALIC) + run("plain"), ["Most of it ", "<open>", "plain", "<close>"]),
        (run("See ") + LINK + run(" now"), ["See ", "<open>", "the site", "<close>", " now"]),
        (run("See all ") + field(' HYPERLINK "x" ', "it"), ["See all ", "<open>", "it", "<close>"]),
        (run("Page ") + field(" PAGE ", "one") + run(" of it"), ["Page ", "<word>", " of it"]),
        (run("Old") + f"<w:del>{run('er')}</w:del>" + run(" days"), ["Old", "<alone>", " days"]),
        (f"<w:ins>{run('New')}</w:ins>" + run(" days"), ["<open>", "New", "<close>", " days"]),
        ('<w:bookmarkStart w:id="1"/>' + run("Edge") + '<w:bookmarkEnd w:id="1"/>', ["Edge"]),
        (run("B") + '<w:bookmarkStart w:id="1" w:name="_GoBack"/><w:bookmarkEnd w:id="1"/>'
         + run("ack"), ["Back"]),
        (f"<w:hyperlink>{run('Hello', B)}</w:hyperlink>" + run("World"),
         ["<open>", "Hello", "<close>", "World"]),
        ("<w:r><w:t>Tab</w:t><w:tab/><w:t>and</w:t><w:br/></w:r>" + run("so"),
         ["Tab", "<alone>", "and", "<alone>", "so"]),
        (run("Note") + "<w:r><w:footnoteReference/></w:r>" + run("."), ["Note", "<alone>", "."]),
        ("<w:sdt><w:sdtPr/><w:sdtContent>" + run("Box") + "</w:sdtContent></w:sdt>" + run(" it"),
         ["<open>", "Box", "<close>", " it"]),
        (run("12"), None),
    ],
)  # fmt: skip
def test_paragraphs_of_word(inside: str, shape: list[str] | None) -> None:
    file = docx(f'<w:p><w:pPr><w:jc w:val="left"/></w:pPr>{inside}</w:p>')
    assert [shapes(text) for text in file.texts] == ([shape] if shape else [])
    assert file.join(file.texts) == file.content
    # Written anew, it has the same words with the same marks.
    changed = [(*text, HOSTILE) for text in file.texts]
    tree = joined(file, changed, "word/document.xml")
    old = joined(file, file.texts, "word/document.xml")
    for tag in ("fldChar", "instrText", "footnoteReference", "tab", "br", "del", "b", "pPr"):
        names = f"{{{W}}}{tag}"
        assert len(list(tree.iter(names))) == len(list(old.iter(names)))
    again = read_docx(file.join(changed), LANGUAGES)
    for text, written in zip(file.texts, again.texts, strict=True):
        assert len(written) == len(text) + (not isinstance(text[-1], str))
    if shape:
        assert "".join(tree.itertext()).endswith("<b>&\"' ]]> 😀")


def test_text_boxes_and_notes_are_texts_within_the_marks_of_others() -> None:
    file = docx(f"<w:p>{run('Around')}{BOX}{run(' it')}</w:p>")
    assert [shapes(text) for text in file.texts] == [["Around", "<alone>", " it"], ["Box"]]
    around, box = file.texts
    for one, other in (
        (("Um", *around[1:]), ("Kasten",)),
        (around, ("Kasten",)),
        (("Um", around[1]), box),
    ):
        words = "".join(joined(file, [one, other], "word/document.xml").itertext())
        assert ("Um" in words) == (one != around)
        assert ("Kasten" in words) == (other != box)
    # Two that are the same have translations of their own, and one in a field has one.
    twice = docx(f"<w:p>{run('Around')}{BOX}{run(' it ')}{BOX}{field(BOX, 'one')}{run('.')}</w:p>")
    changed = [("Um", *twice.texts[0][1:]), ("Eins",), ("Zwei",), ("Drei",)]
    words = "".join(joined(twice, changed, "word/document.xml").itertext())
    assert words == "UmEins it ZweiDreione."
    note = "<text:note><text:note-body><text:p>Note</text:p></text:note-body></text:note>"
    file = odt(f"<text:p>Around{note} it</text:p>")
    tree = joined(file, [("Um", *file.texts[0][1:]), ("Notiz",)], "content.xml")
    assert "".join(tree.itertext()) == "UmNotiz it"


def test_texts_of_opendocument() -> None:
    file = odt(
        "<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
        '<text:h>A <text:span text:style-name="T1">cat</text:span><text:s/><text:tab/> '
        '<text:bookmark-start text:name="b"/>sat<text:bookmark-end text:name="b"/> in '
        "<text:user-field-get>Paris</text:user-field-get></text:h><text:p>12</text:p>"
    )
    (text,) = file.texts
    assert shapes(text[:6]) == ["A ", "<open>", "cat", "<close>", "<alone>", "<alone>"]
    assert shapes(text[6:]) == [" ", "<alone>", "sat", "<alone>", " in ", "<word>"]
    tree = joined(file, [(HOSTILE, *file.texts[0])], "content.xml")
    assert "".join(tree.itertext()) == "gone<b>&\"' ]]> 😀A cat sat in Paris12"


def columns(xml: str) -> list[list[str]]:
    """The words between tabs and breaks, in any order."""
    texts = re.split(r"<[^>]*(?:tab|br|line-break)/>", xml)
    return [sorted(re.sub("<[^>]*>", " ", text).upper().split()) for text in texts]


TAB = "<w:r><w:rPr><w:b/></w:rPr><w:tab/></w:r>"


@pytest.mark.parametrize(
    ("make", "name", "inside"),
    [
        (docx, "word/document.xml",
         f"<w:p>{run('A dog ')}{TAB}{run('in it')}<w:ins>{run('The cat', B)}{TAB}"
         f"<w:hyperlink>{run('sat on')}<w:r><w:br/><w:t>a tree</w:t></w:r></w:hyperlink></w:ins>"
         f"{run('by day')}</w:p>"),
        (odt, "content.xml",
         "<text:p>A dog<text:tab/>in it<text:span>The cat<text:line-break/><text:a>sat on"
         "<text:tab/>a tree</text:a></text:span>by day</text:p>"),
    ],
)  # fmt: skip
def test_words_stay_between_tabs_and_breaks(
    make: Callable[[str], File], name: str, inside: str
) -> None:
    file = make(inside)
    texts = run_plan(Plan(file.texts), lambda line: " ".join(line.upper().split()[::-1]))
    new = etree.tostring(joined(file, texts, name), encoding=str)
    assert columns(new) == columns(inside)
    assert "DOG A" in new


def test_headers_and_notes_are_read_and_other_parts_are_not() -> None:
    part = f'<w:x xmlns:w="{W}"><w:p>{{}}</w:p></w:x>'
    names = ["document", "header1", "footnotes", "endnotes", "comments"]
    others = ["styles", "glossary/document"]
    members = [(f"word/{name}.xml", part.format(run(name))) for name in names + others]
    file = read_docx(archive(*members), LANGUAGES)
    assert file.texts == [(name,) for name in names]
    # as Word for the web names it
    file = read_docx(archive(("word/document2.xml", members[0][1])), LANGUAGES)
    assert file.texts == [("document",)]


def test_texts_of_charts_and_diagrams() -> None:
    main = "http://schemas.openxmlformats.org/drawingml/2006/main"
    drawing = f'<x xmlns:w="{W}x" xmlns:a="{main}"><a:p><a:pPr/><a:r><a:rPr b="1"/><a:t>Sea</a:t>'
    drawing += "</a:r><a:br/><a:r><a:t>side</a:t></a:r><a:endParaRPr/></a:p></x>"
    name = "word/charts/chart1.xml"
    members = ("word/document.xml", f'<w:x xmlns:w="{W}"/>'), (name, drawing)
    file = read_docx(archive(*members), LANGUAGES)
    (text,) = file.texts
    assert shapes(text) == ["<open>", "Sea", "<close>", "<alone>", "side"]
    tree = joined(file, [map_strings(str.upper, text)], name)
    assert [x.attrib for x in tree.iter(f"{{{main}}}t")] == [{}, {}]
    assert "".join(tree.itertext()) == "SEASIDE"


GOOD = word(f"<w:p>{run('text')}</w:p>")
ENTRY = GOOD.index(b"PK\x01\x02", GOOD.index(b"PK\x01\x02") + 1)  # of word/document.xml


def spoilt(place: int, format_: str, value: int) -> bytes:
    content = bytearray(GOOD)
    struct.pack_into(format_, content, ENTRY + place, value)
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xd0\xcf\x11\xe0", "not a ZIP archive"),
        (GOOD[:-20], "not a ZIP archive"),
        (archive(("a", "b")), "has no text"),
        (archive(("word/document.xml", ""), ("../a", "")), "lies outside it"),
        (archive(("word/document.xml", ""), ("word/document.xml", "")), "two members of one name"),
        (archive(("word/document.xml", "<!DOCTYPE a><a/>")), "it has a DOCTYPE"),
        (archive(("word/document.xml", b"\xff\xfe\xfd")), "word/document.xml: the file is not"),
        (archive(("word/document.xml", " " * 100_000_001)), "100,000,000 bytes of text"),
        (archive(("word/document.xml", f'<ns0:document xmlns:ns0="{W}"/>')), "don't begin with w:"),
        (spoilt(8, "<H", 1), "encrypted"),
        (spoilt(10, "<H", zipfile.ZIP_LZMA), "not known"),
        (spoilt(16, "<L", 1), "damaged"),
        (spoilt(24, "<L", 1), "damaged"),
        (spoilt(42, "<L", 0), "inside one another"),
        (spoilt(24, "<L", 2**27), "more than 100,00"),
    ],
)
def test_hostile_archives_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_docx(content, LANGUAGES)


def test_a_paragraph_with_an_empty_text_stays_if_nothing_is_translated() -> None:
    english = '<w:rPr><w:lang w:val="en-GB"/></w:rPr>'
    for first in (f"{english}<w:t></w:t><w:br/><w:t>A dog</w:t>", f"{english}<w:t/>", "<w:t/>"):
        content = word(
            f"<w:p><w:r>{first}</w:r>{run('A dog')}<w:r><w:t/></w:r>{run(' runs')}</w:p>"
        )
        file = read_docx(content, LANGUAGES)
        assert file.join(run_plan(Plan(file.texts), lambda _: "")) == content


def test_hidden_words_stay_and_spacing_of_letters_cuts_no_word() -> None:
    hidden, shown = "<w:rPr><w:vanish/></w:rPr>", '<w:rPr><w:vanish w:val="0"/></w:rPr>'
    file = docx(f"<w:p>{run('A ')}{run('secret ', hidden)}{run('dog', shown)}{run(' runs')}</w:p>")
    assert Plan(file.texts).lines == ["A dog runs"]
    (text,) = run_plan(Plan(file.texts), str.upper)
    assert [part.raw for part in text if "secret" in getattr(part, "raw", "")] == [
        run("secret ", hidden)
    ]

    def spaced(width: int) -> str:
        return f'<w:rPr><w:spacing w:val="{width}"/></w:rPr>'

    pdf = run("A ma", spaced(1)) + run("n in a red sh", spaced(-1)) + run("irt", spaced(2))
    assert [shapes(text) for text in docx(f"<w:p>{pdf}</w:p>").texts] == [["A man in a red shirt"]]
