"""HTML: which texts are translated, and that everything else stays."""

import random
from collections import Counter
from collections.abc import Callable
from html import unescape

import html5lib
import pytest

from seq2seq.serving.html import Document
from tests.serving.live import serve_fake


def upper(content: str) -> str:
    return translate(content, str.upper)


def translate(content: str, function: Callable[[str], str]) -> str:
    document = Document.of(content)
    return document.join([function(line) for line in document.lines])


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
        ("1 < 2", "1 &lt; 2"),
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
        # which in one of two ways
        ("<svg><style><a title='</style>b'>c", "<svg><style><a title='</style>b'>c"),
        ("<noscript><a title='</noscript>b'>c", "<noscript><a title='</noscript>b'>c"),
        ("<script><!--<script></script>a</script>b", "<script><!--<script></script>a</script>b"),
        (
            "<select><p></select><style><a b='</style>'>c",
            "<select><p></select><style><a b='</style>'>c",
        ),
    ],
)
def test_texts_are_translated_and_the_rest_stays(content: str, expected: str) -> None:
    assert upper(content) == expected


SENTENCES = {
    "A brown dog runs.": "Ein brauner Hund rennt.",
    "brown dog": "Brauner Hund.",
    "Look at the old town": "Sieh dir die Altstadt an",
    "Look at the": "Sieh",
    "old town": "alte Stadt",
    "one two one": "eins zwei eins",
    "one": "eins",
    "it": "es",
    "two": "zwei",
    "the dog and the cat": "die Katze & der Hund",
    "the dog": "der Hund",
    "the cat": "die Katze",
    "A dog.": "犬が走る。",
    "dog": "犬",
    "You.": "Ich du.",
    "You": "?",
}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # found in the translation of the whole
        ("<p>A <b>brown dog</b> runs.</p>", "<p>Ein <b>brauner Hund</b> rennt.</p>"),
        ("<p>A <a href=x><b>brown\n dog</b></a> runs.", "<p>Ein <a href=x><b>brauner Hund</b></a>"),
        ("<b>one</b> <i>two</i> <u>one</u>", "<b>eins</b> <i>zwei</i> <u>eins</u>"),
        ("<b>the dog</b> and <i>the cat</i>", "<i>die Katze</i> &amp; <b>der Hund</b>"),
        ("A <b>dog</b>.", "<b>犬</b>が走る。"),
        # not found, or not clear
        ("<p>Look at the <b>old town</b></p>", "<p>Sieh <b>alte Stadt</b></p>"),
        ("<b>You</b>.", "<b>?</b>."),
        ("<b>one</b> two one", "<b>eins</b> TWO ONE"),
        # never asked for: the tags are around several texts, or end a sentence
        ("<b>Look at <i>it</b></i>", "<b>LOOK AT <i>es</b></i>"),
        ("one <code>x</code> two", "eins <code>x</code> zwei"),
    ],
)
def test_tags_within_a_sentence_stay_around_their_words(content: str, expected: str) -> None:
    found = translate(content, lambda text: SENTENCES.get(text, text.upper()))
    assert found.startswith(expected)


PARTS = """<p>|</p>|<b x=1>|</b>|<a title="|<a b='|"|'|">|=|/>|>|<|</p|&lt;|
&lt;img src=x onerror=y&gt;|<!--|-->|--!>|<!-->|<!x>|<?x>|</>|</ x>|<![CDATA[|]]>|<script>|
</script>|<style/>|<style>|</style>|<title>|</title>|<textarea>|</textarea>|<xmp>|</xmp>|
<iframe>|<noframes>|<noscript>|</noscript>|<plaintext>|<svg>|</svg>|<math>|</math>|
<foreignObject>|</foreignObject>|<desc>|</desc>|<mi>|</mi>|<annotation-xml>|<select>|</select>|
<option>|<input>|<frameset>|<template>|</template>|<table>|<td>|</table>|<form>|</form>|<br>|
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
        content = "".join(generator.choices(parts, k=generator.randint(1, 20)))
        # Texts are escaped again, and their white space is folded.
        same = translate(content, str)
        assert unescape(same).split() == unescape(content).split()
        assert Document.of(same).lines == Document.of(content).lines
        found = translate(content, lambda text: generator.choice([*HOSTILE, text.upper()]))
        for scripting in (True, False):
            before, after = (elements(text, scripting=scripting) for text in (content, found))
            assert after == before, (content, found)


def test_the_server_translates_html() -> None:
    with serve_fake() as (served, translator):
        answer = served.translate(["<p>a <b>b</b></p>", "c\nd"], format="html")
        assert answer.json == {"translatedText": ["<p>A <b>B</b></p>", "C D"]}
        calls = sorted(line for call in translator.calls for line in call)
        assert calls == ["a", "a b", "b", "c d"]
