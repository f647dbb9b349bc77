"""HTML: which texts are translated, and that everything else stays."""

import random
import re
from collections import Counter
from collections.abc import Callable
from html import unescape

import html5lib
import pytest

from seq2seq.documents.document import Text
from seq2seq.documents.projection import SpanLink, place, show
from tests.documents.hostile import read


def upper(content: str) -> str:
    return translate(content, str.upper)


def texts(content: str) -> list[Text]:
    return read("html", content).texts


def translate(content: str, function: Callable[[str], str]) -> str:
    """Translate what the model sees of each text, and put the marks anywhere."""
    document = read("html", content)
    translations = []
    for text in document.texts:
        shown = show(text)
        links = [SpanLink((i, i + 1), (i, i + 1)) for i in range(len(shown.line))]
        new = function(shown.line)
        # Without a text, a browser might read what follows in another way.
        translations.append(place(shown, new, links) if new.strip() else text)
    return document.join(translations)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<p class='x' >a\n  dog</p>", "<p class='x' >A DOG</p>"),
        (" <b>a</b> dog\n", " <b>A</b> DOG\n"),
        ("a<br>b<br/>c", "A<br>B<br/>C"),
        ("a &amp; b &lt;i&gt; &eacute;", "A &amp; B &lt;I&gt; É"),
        ("<!-- a --><!doctype html><?php a ?>b", "<!-- a --><!doctype html><?php a ?>B"),
        (
            "a<![CDATA[b > c]]>d<![if !IE]>e<![endif]><![f]>",
            "A<![CDATA[b > c]]>D<![if !IE]>E<![endif]><![f]>",
        ),
        ("a<![CDATA[b> c", "A<![CDATA[b> c"),
        ("<script>if (a < b && c) d</script>e", "<script>if (a < b && c) d</script>E"),
        ("<pre>a\n &lt;b <i>c</i></pre>d", "<pre>a\n &lt;b <i>c</i></pre>D"),
        ("<code>a<br>b</code> c", "<code>a<br>b</code> C"),
        ("<p translate=no>a <b>b</b></p>c", "<p translate=no>a <b>b</b></p>C"),
        ("<i class='x notranslate'>a</i>b", "<i class='x notranslate'>a</i>B"),
        ("<a href='?x=1&y=2' title='a'>b</a>", "<a href='?x=1&y=2' title='a'>B</a>"),
        ("a < b", "A &lt; B"),
        ("a<script>b", "A<script>b"),
        ("<Link to='/x'>a</Link >b", "<Link to='/x'>A</Link >B"),
        (
            "<svg><foreignObject>a</foreignObject></svg>",
            "<svg><foreignObject>A</foreignObject></svg>",
        ),
        # what is open at the end, or has no end
        ("a</p", "A</p"),
        ("a<p title='b <i>c", "A<p title='b <i>c"),
        ("a<!-- b <i>c", "A<!-- b <i>c"),
        ("<textarea>a</p>&eacute;", "<textarea>a</p>&eacute;"),
        ("<plaintext>a</plaintext>b", "<plaintext>a</plaintext>b"),
        # as browsers read them
        ("<!-->a<!-- --!>b<?c>d</>e</ f>g", "<!-->A<!-- --!>B<?c>D</>E</ f>G"),
        ("<title>a <b>c</b></title>d", "<title>A &lt;B&gt;C&lt;/B&gt;</title>D"),
        ("<svg><style/>a</svg><style>b</style>c", "<svg><style/>A</svg><style>b</style>C"),
        ("<noscript><img src=a>b</noscript>c", "<noscript><img src=a>B</noscript>C"),
        (
            "<select><hr><div></div></select><select><select></select></svg></title></desc>"
            "<style><a b='</style>c",
            "<select><hr><div></div></select><select><select></select></svg></title></desc>"
            "<style><a b='</style>C",
        ),
        # which in one of two ways
        ("<svg><style><a title='</style>b'>c", "<svg><style><a title='</style>b'>c"),
        ("<noscript><a title='</noscript>b'>c", "<noscript><a title='</noscript>b'>c"),
        ("<script><!--<script></script>a</script>b", "<script><!--<script></script>a</script>b"),
        (
            "<select><svg></select><style><a b='</style>'>c",
            "<select><svg></select><style><a b='</style>'>c",
        ),
    ],
)
def test_texts_are_translated_and_the_rest_stays(content: str, expected: str) -> None:
    assert upper(content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<p>A <b>brown\n dog</b> runs.</p>", "<p>{A <b>brown dog</b> runs.}</p>"),
        ("<p><a href=x> <b>one</b> dog </a><br>", "<p><a href=x> {<b>one</b> dog} </a><br>"),
        ("Use <code>x <i>y</i></code>, <img>.", "{Use <code>x <i>y</i></code>, <img>.}"),
        ("Say <i translate=no>a</i> here", "{Say <i translate=no>a</i> here}"),
        # whose other half is elsewhere
        ("<b>one <i>x</i><br>two</b> dogs", "<b>{one <i>x</i>}<br>{two</b> dogs}"),
        ("<i>one <b>two</i> three</b>", "{<i>one <b>two</i> three}</b>"),
        # that is not in a sentence
        ("one <code><p>x</p></code> two", "{one }<code><p>x</p></code>{ two}"),
        ("one <pre>x</pre> two", "{one }<pre>x</pre>{ two}"),
        ("<code>x</code><img> <b>1</b>", "<code>x</code><img> <b>1</b>"),
    ],
)  # fmt: skip
def test_a_sentence_is_one_text_with_the_tags_in_it(content: str, expected: str) -> None:
    found = ["".join(p if isinstance(p, str) else p.raw for p in text) for text in texts(content)]
    wanted = re.findall(r"\{\s*(.*?)\s*\}", expected)
    assert found == wanted


PARTS = """<p>|</p>|<b x=1>|</b>|<a title="|<a b='|"|'|">|=|/>|>|<|</p|&lt;|
&lt;img src=x onerror=y&gt;|<!--|-->|--!>|<!-->|<!x>|<?x>|</>|</ x>|<![CDATA[|]]>|<script>|
</script>|<style/>|<style>|</style>|<title>|</title>|<textarea>|</textarea>|<xmp>|</xmp>|
<iframe>|<noframes>|<noscript>|</noscript>|<plaintext>|<svg>|</svg>|<math>|</math>|
<foreignObject>|</foreignObject>|<desc>|</desc>|<mi>|</mi>|<annotation-xml>|<select>|</select>|
<option>|<input>|<hr>|<div>|</div>|<button>|<p translate=NO>|<li translate=no>|<td translate=no>|
<code>|</code>|<i translate=no>|</i>|<a>|</a>|<img src=b>|
<frameset>|<template>|</template>|<table>|<td>|</table>|<form>|</form>|<br>|
<img src="a>b">|<!--<script>|a|dog |1 < 2| |\0""".replace("\n", "").split("|")
HOSTILE = [
    "<img src=x onerror=y>", "\" x='", "--> ]]>", "</script></style></title>", "<!--", "", "a dog",
]  # fmt: skip


def elements(document: str, *, scripting: bool) -> Counter:
    """Count the elements, with their attributes, that a browser makes of a document."""
    root = html5lib.HTMLParser().parse(document, scripting=scripting)
    found = (node for node in root.iter() if isinstance(node.tag, str))  # no comments
    return Counter((node.tag, *sorted(map(str, node.attrib.items()))) for node in found)


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_translation_adds_no_element_and_no_attribute(count: int) -> None:
    """Whatever the document and the translation, and whether scripts are on or off."""
    generator = random.Random(count)
    for _ in range(count):
        parts = generator.sample(PARTS, generator.randint(3, len(PARTS)))
        # A comment comes first, as two U+0000 there would be those of UTF-16.
        content = "<!---->" + "".join(generator.choices(parts, k=generator.randint(1, 20)))
        # Texts are escaped again, and their white space is folded.
        same = translate(content, str)
        assert unescape(same).split() == unescape(content).split()
        assert texts(same) == texts(content)
        found = translate(content, lambda text: generator.choice([*HOSTILE, text.upper()]))
        for scripting in (True, False):
            before, after = (elements(text, scripting=scripting) for text in (content, found))
            assert after == before, (content, found)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<p>A man <!-- -->runs<!-- --> here.</p>", ["A man runs here."]),
        ("<p>A man<sup><a href='#1'>[1]</a></sup> runs.</p>", ["A man runs."]),
        ("<h1>A dog<a href='#a'>\u00b6</a></h1>", ["A dog"]),
        ("A <a>\u2191</a> dog <i>*</i>, <b>5</b> cats <b>!</b>", ["A dog, 5 cats !"]),
        ("<i class='material-icons big'>home</i> A dog <mat-icon>run</mat-icon> runs",
         ["A dog runs"]),
        ("<p translate=no>A <b translate=yes>cat <b>runs</b></b> here</p><p>now</p>",
         ["cat runs", "now"]),
        ("<div class=notranslate>A<p translate='yes'>cat <i translate=no>Tom</i> runs</p>b</div>c",
         ["cat runs", "c"]),
    ],
)  # fmt: skip
def test_what_is_no_word_neither_cuts_a_sentence_nor_is_in_it(
    content: str, expected: list[str]
) -> None:
    document = read("html", content)
    assert [show(text).line for text in document.texts] == expected
    assert upper(content).lower() == content.lower()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<p TRANSLATE=No>a<p>b", ["b"]),
        ("<p translate=yes translate=no>a", ["a"]),
        ("<div><p translate=no>a <b>b</b></div>c", ["c"]),
        ("<ul><li class=notranslate>a<ul><li>b</ul>c<li>d</ul>", ["d"]),
        ("<ul><li><ol><li translate=no>a</ol>b", ["b"]),
        ("<dl><div><dt translate=no>a<dd>b<dd translate=no>c<div>d</div>e</div></dl>f", ["b", "f"]),
        ("<table><tr><td translate=no>a<table><td>b</table>c<th>d<tr translate=no><td>e</table>f",
         ["d", "f"]),
        ("<table><tbody translate=no><tr><td>a<tbody><tr><td>b</table>", ["b"]),
        ("<select><option translate=no>a<option>b<optgroup translate=no><option>c</select>d",
         ["b", "d"]),
        ("<ul translate=no><li translate=yes>a<li>b<li translate=yes>c</ul>d", ["a", "c", "d"]),
        ("<li translate=no>a<p translate=yes>b<li>c", ["b", "c"]),
        ("<p translate=no>a<button><p>b</button>c</p>d", ["d"]),
    ],
)  # fmt: skip
def test_an_element_ends_where_its_end_tag_is_left_out(content: str, expected: list[str]) -> None:
    assert [show(text).line for text in texts(content)] == expected


def test_a_comment_within_a_word_parts_it_not() -> None:
    assert [show(text).line for text in texts("A wo<!-- -->man runs")] == ["A woman runs"]
