"""HTML: which texts are translated, and that everything else stays."""

from collections.abc import Callable
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    ],
)
def test_texts_are_translated_and_the_rest_stays(content: str, expected: str) -> None:
    assert upper(content) == expected


pieces = st.sampled_from(
    ["<p>", "</p>", "<b x='1'>", "</b>", "<br>", "<pre>", "</pre>", "<script>", "</script>", "&lt;",
     "&amp;", "<", ">", "&", "<p", "<!--", "a", "B", " ", "\n", "<!-- x -->", "<img src=a>",
     "<code>", "</code>"]
)  # fmt: skip


@given(st.lists(pieces, max_size=15).map("".join))
def test_a_document_put_together_unchanged_is_the_same_document(content: str) -> None:
    document = Document.of(content)
    again = document.join(document.lines)
    # Texts are escaped again, and their white space is folded.
    assert unescape(again).split() == unescape(content).split()
    assert Document.of(again).lines == document.lines


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


@given(st.text(max_size=40))
def test_a_translation_can_not_add_tags(text: str) -> None:
    content = Document.of("<p>a</p>").join([text])
    assert content.count("<") == len(["<p>", "</p>"])


def test_the_server_translates_html() -> None:
    with serve_fake() as (served, translator):
        answer = served.translate(["<p>a <b>b</b></p>", "c\nd"], format="html")
        assert answer.json == {"translatedText": ["<p>A <b>B</b></p>", "C D"]}
        calls = sorted(line for call in translator.calls for line in call)
        assert calls == ["a", "a b", "b", "c d"]
