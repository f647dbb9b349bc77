"""Translations that would break out of their places if nobody wrote them with care."""

import re
from functools import partial

from hypothesis import strategies as st

from seq2seq.documents.document import Document, Languages, Text, map_strings, write_text
from seq2seq.documents.formats import read_file

LANGUAGES = Languages("en", "de")

HOSTILE = [
    'A "b" \\ c\\',
    "a\n\n1\n00:00:01,000 --> 0\nb",
    "a --> b <i> {\\i1} \\N c {",
    "a\u2028b\x85c\x0bd 😀",
    "100 % d %s {x} }} 'y' '",
    '"; "x" = "y"; /* z',
    "# a",
    "1. a",
    "- a | b",
    "> [a](b) *c* _d_ `e` <u> &amp; !",
    ":::a\t",
    "    a = \\u12",
    "l'",
]
TEXTS = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(alphabet="ab1 \n\\\"'{}<>%&#*_`[]()|-=+~!:;,/$\u2028é😀", min_size=1, max_size=20),
).map(lambda text: f"x{text}" if text.isspace() else text)


def read(
    suffix: str, content: str, languages: Languages = LANGUAGES, *, fuzzy: bool = False
) -> Document:
    """Read a document of the format that has this suffix."""
    return read_file(f"a.{suffix}", content.encode(), languages, fuzzy=fuzzy).documents[""][0]


def replace_words(text: Text, words: str) -> Text:
    """Put words in place of each string, with its white space at the ends, as translators do."""
    bare = words.strip() or "x"
    return map_strings(partial(re.compile(r"\S(?:.*\S)?", re.DOTALL).sub, lambda _: bare), text)


def join_words(document: Document, words: str) -> str:
    """Return the document with the same words everywhere."""
    return document.join([replace_words(text, words) for text in document.texts])


def upper(document: Document) -> str:
    """Return the document with its texts in capitals."""
    return document.join(map_strings(str.upper, text) for text in document.texts)


def strings(document: Document) -> list[str]:
    """Return the texts with marks as they stand in the file."""
    return [write_text(text) for text in document.texts]


def assert_unchanged(document: Document) -> None:
    """Check that a document is the same where the same is put in."""
    assert document.join(document.texts) == document.content
