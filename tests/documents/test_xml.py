"""XML: the places of elements and texts, what is refused, and texts with tags in them."""

from itertools import pairwise

import pytest
from lxml import etree

from seq2seq.documents.document import Mark, Text
from seq2seq.documents.xml import Element, Role, escape, pair, parse, read_element_text
from seq2seq.errors import UserError

AWKWARD = """<?xml version="1.0"?>
<!DOCTYPE r [<!-- ' ]> " --><?x ]> ?><!ENTITY own "]>">]>
<r a="1>2" b='"'><!-- <c> --><x:y xmlns:x="u"/><?p <q> ?><e
 k = "&lt;&#65;"><![CDATA[<no>]]></e ></r>
<!-- end -->"""


def _role(element: Element) -> Role:
    if element.name in ("bpt", "ept"):
        return ("open" if element.name == "bpt" else "close"), element.get("i")
    return "around" if element.name in ("b", "i") else "alone"


def read(content: str) -> Text:
    return read_element_text(parse(content), _role).text


def test_elements_are_where_another_parser_has_them() -> None:
    found = list(parse(AWKWARD).walk())
    other = [x for x in etree.fromstring(AWKWARD).iter() if isinstance(x.tag, str)]
    assert [x.local for x in found] == [etree.QName(x).localname for x in other]
    assert [x.attributes for x in found[::2]] == [dict(x.attrib) for x in other[::2]]
    assert found[2].raw == '<e\n k = "&lt;&#65;"><![CDATA[<no>]]></e >'
    assert read_element_text(found[2], _role).text == ("<no>",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no element found"),
        ("<r>\n<a></b></r>", "line 2: not well-formed XML: mismatched tag"),
        ("<r/><r/>", "junk after document element"),
        ('<r a="1" a="2"/>', "duplicate attribute"),
        ("<r>&unknown;</r>", "undefined entity"),
        ("<r>\x01</r>", "invalid token"),
        ("<r>\ud800</r>", "invalid token"),
        ("<" * 1_000_000, "invalid token"),
        ("<" + "r" * 1_000_000, "unclosed token"),
        ("<r><!--" + "<b " * 300_000, "unclosed token"),
        ("<a>" * 300 + "</a>" * 300, "more than 256 elements in one another"),
        ('<r a="' + "b" * 10_000_001 + '"/>', "a tag of more than 10,000,000 characters"),
        (
            '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">'
            + "".join(f'<!ENTITY {y} "{f"&{x};" * 10}">' for x, y in pairwise("abcdefghi"))
            + ']><r x="&i;"/>',
            "limit on input amplification",
        ),
    ],
)
def test_what_is_not_well_formed_or_is_an_attack_is_refused(content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(content)


@pytest.mark.parametrize("declared", ['"<b>&lt;</b>"', '"&own;"', 'SYSTEM "file:///etc/passwd"'])
def test_entities_of_the_document_are_kept_not_expanded(declared: str) -> None:
    content = f"<!DOCTYPE r [<!ENTITY own {declared}>]><r>Hi &own;, &amp; &#x41;</r>"
    assert read(content) == ("Hi ", Mark("&own;", "word"), ", & A")


def test_a_text_has_its_tags_and_all_that_is_no_text_as_marks() -> None:
    content = "\n One<b>two<x y='&gt;'/></b>&lt;<!-- <i> --><![CDATA[&lt;]]>\r\n  end<i></i> "
    span = read_element_text(parse(f"<r>{content}</r>"), _role)
    assert span.text == (
        "One",
        Mark("<b>", "open"),
        "two",
        Mark("<x y='&gt;'/>"),
        Mark("</b>", "close"),
        "<",
        Mark("<!-- <i> -->"),
        "&lt;",
        Mark("\r\n  "),
        "end",
        Mark("<i></i>"),
    )
    assert span.write(span.text) == content.strip()


def test_marks_that_belong_together_are_a_pair_only_if_they_are_nested() -> None:
    content = "<bpt i='1'/>a<bpt i='2'/>b<ept i='1'/>c<ept i='2'/><b>d<bpt i='3'/></b><ept i='3'/>"
    kinds = [part.kind for part in read(f"<r>{content}</r>") if isinstance(part, Mark)]
    assert kinds == ["open", "alone", "close", "alone", "open", "alone", "close", "alone"]


def test_pairing_and_white_space_take_linear_time() -> None:
    assert len(read(f"<r>a{' ' * 1_000_000}b</r>")) == 1
    count = 30_000
    parts: list[tuple[str | Mark, Role]] = [(Mark("<"), ("open", i)) for i in range(count)]
    parts += [(Mark(">"), ("close", i)) for i in range(count)]
    assert sum(part.kind == "open" for part in pair(parts) if isinstance(part, Mark)) == 1


HOSTILE = "<b>&\"' ]]> \ufffe\x01\x0b\ud800😀 \u202eשלום\u202c &amp; <!-- x -->\r"


@pytest.mark.parametrize("content", ["<r>a</r>", "<r> <![CDATA[a]]> </r>", "<r>a<b>c</b></r>"])
def test_any_translation_is_read_again_by_another_parser(content: str) -> None:
    root = parse(content)
    span = read_element_text(root, _role)
    new = span.write((HOSTILE,))
    assert ("CDATA" in new) == ("CDATA" in content)
    read_again = etree.fromstring(f"<r>{new}</r>").text
    kept = HOSTILE.translate(dict.fromkeys(map(ord, "\ufffe\x01\x0b\ud800")))
    assert read_again == (kept if "CDATA" not in content else kept.replace("\r", "\n"))


def test_attributes_are_set_where_they_are() -> None:
    element = parse("<r  a='1' b=\"2\" />")
    changed = element.with_attributes(a='"', b=None, c="3")
    assert dict(etree.fromstring(changed).attrib) == {"a": '"', "c": "3"}
    assert escape("a>\u0000") == "a&gt;"
