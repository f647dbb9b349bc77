"""Translations that would break out of their places if nobody wrote them with care."""

import re
from functools import partial
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

from hypothesis import strategies as st

from seq2seq.documents.document import Document, Languages, Text, map_strings, write_text
from seq2seq.documents.formats import read_file

LANGUAGES = Languages("en", "de")

WORST = [
    "a", "0", " ", ".", "-", "_", ":", "'", '"', "!", "\\", "\n", "a\n", "# ", "- ", "> ", "1. ",
    "`", "`a", "``a", "*a ", "**a", "[", "](", "[a](", "![", "[^a", "[[", '](a "', "$a", "$$\n",
    "\\[\n", "\\(", "\\begin{a}\n", "{", "{a", "{{", "{%", "{/*", "{n, plural, one{a}", "'{",
    "%", "%0", "%1$", "%(", "&", "&a", "&#1", "<", "<a", "</a", "<!--", "<?", "<![CDATA[", "<b>a",
    "<svg><script>", "@a", "a@", "a.", "a_", "a/", "A. ", "As-", "http://", "Ctrl+", "(*", "++a",
]  # fmt: skip
"""Openers without an end, and other pieces that a careless pattern reads again and again."""

PLACES = {
    "arb": ['{"a": "A dog @"}'],
    "ass": ["[Events]\nFormat: Layer, Text\nDialogue: 0,A dog @\n"],
    "docx": ["<w:p><w:r><w:t>A dog @</w:t></w:r></w:p>"],
    "html": ["<p>A dog @</p>"],
    "json": ['{"a": "A dog @"}', "@"],
    "md": ["A dog @\n", "| a | b |\n|---|---|\n| A dog | @ |\n"],
    "odt": ["<text:p>A dog @</text:p>"],
    "po": ['msgid "A dog @"\nmsgstr ""\n', "@"],
    "properties": ["a = A dog @\n", "@"],
    "resx": ["<root><data name='a'><value>A dog @</value></data></root>"],
    "srt": ["1\n00:00:01,000 --> 00:00:02,500\nA dog @\n", "@"],
    "strings": ['"a" = "A dog @";\n', "@"],
    "stringsdict": ["<plist><dict><key>a</key><string>A dog @</string></dict></plist>"],
    "tmx": [
        "<tmx version='1.4'><body><tu><tuv xml:lang='en'><seg>A dog @</seg></tuv></tu></body></tmx>"
    ],
    "ts": ["<TS><message><source>A dog @</source></message></TS>", "<!DOCTYPE TS [@"],
    "txt": ["A dog @", "@"],
    "vtt": ["WEBVTT\n\n00:01.000 --> 00:02.500\nA dog @\n", "WEBVTT\n\n@"],
    "xcstrings": ['{"sourceLanguage": "en", "strings": {"A dog @": {}}}'],
    "xliff": [
        "<xliff version='1.2'><file><body><trans-unit id='1'><source>A dog @</source></trans-unit>"
        "</body></file></xliff>",
        "<!DOCTYPE xliff [@",
    ],
    "xml": ["<resources><string name='a'>A dog @</string></resources>"],
}
"""By format, documents with a place for any characters, each in a text or outside of all."""
_ROOTS = {
    "docx": ("word/document.xml", "<w:document xmlns:w='w'>@</w:document>"),
    "odt": ("content.xml", "<office:text xmlns:office='o' xmlns:text='t'>@</office:text>"),
}


def fill_place(suffix: str, place: str, characters: str) -> bytes:
    """Return a document of a format with characters in its place."""
    content = place.replace("@", characters)
    if suffix not in _ROOTS:
        return content.encode()
    name, root = _ROOTS[suffix]
    archive = BytesIO()
    with ZipFile(archive, "w", ZIP_DEFLATED) as file:
        file.writestr(name, root.replace("@", content))
    return archive.getvalue()


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
