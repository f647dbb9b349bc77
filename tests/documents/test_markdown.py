"""Markdown: what is translated, what stays, and markdown-it that reads it afterwards."""

from typing import Any

import pytest
from hypothesis import given
from markdown_it import MarkdownIt

from seq2seq.documents.document import Mark
from seq2seq.documents.markdown import with_labels
from seq2seq.documents.spans import Piece
from seq2seq.documents.translate import Plan
from seq2seq.errors import UserError
from tests.documents.hostile import TEXTS, assert_unchanged, join_words, read, strings, upper

MARKDOWN = """---
title: Stays
---

# A *dog* #

Two **dogs _run_** at
[the sea](http://a.b/c_d "title") with `code`,
see [guide] and [this guide][guide] &amp; \\*more\\*.

> [!NOTE]
> A cat
> sleeps\x20\x20
> here.

1. - [ ] An <b>item</b>
     ![a picture](a.png)

| Head | `a \\| b` cell |
|------|---------------|
| One  | two \\| three  |

```python
code = "stays"
```

<div>
stays
</div>

:::tip
Setext\\
head
===

    code stays

[guide]: http://a.b/guide
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_paragraphs_headings_items_and_cells_are_found(newline: str) -> None:
    document = read("md", MARKDOWN.replace("\n", newline))
    assert strings(document) == [
        "A *dog*",
        'Two **dogs _run_** at [the sea](http://a.b/c_d "title") with `code`,'
        " see [guide][guide] and [this guide][guide] & *more*.",
        "A cat sleeps",
        "here.",
        "An <b>item</b>",
        "Head",
        "`a \\| b` cell",
        "One",
        "two | three",
        "Setext",
        "head",
    ]
    assert Mark("`code`", "word") in document.texts[1]
    assert_unchanged(document)


@pytest.mark.parametrize(
    ("content", "marks"),
    [
        ("See [https://a.b](https://a.b) now", ["[", "https://a.b", "](https://a.b)"]),
        ("See <!-- b --> <?a?> c", ["<!-- b -->", "<?a?>"]),
        ("See ![the sea] c\n\n[the sea]: a.png", ["![the sea]"]),
        ("In \\(x^2\\), $$y$$, \\ref{a}", ["\\(x^2\\)", "$$y$$", "\\ref{a}"]),
        ("See [a](b){ .c } ^[d] {e}`f`{.g}", ["[", "](b){ .c }", "^[", "]", "{e}`f`{.g}"]),
        ("See {/* a */} [[b|c]] [@d, 1]", ["{/* a */}", "[[b|c]]", "[@d, 1]"]),
        ("{{< a >}} See ++b+c++ ![[d]] {{% e %}} f", ["++b+c++", "![[d]]", "{{% e %}}"]),
        ("> [!note]- See it", []),
        ('See [it](a b (1).md ":)") ![c](d e.md) f', ["[", '](a b (1).md ":)")', "![c](d e.md)"]),
        ("[The sea][]\n\n[the sea]: a.html", ["[", "][The sea]"]),
    ],
)
def test_links_pictures_and_comments_are_marks(content: str, marks: list[str]) -> None:
    (text,) = read("md", content).texts
    assert [part.raw for part in text if isinstance(part, Mark)] == marks


def test_footnotes_and_definitions_are_texts_of_their_own() -> None:
    document = read("md", "Word\n: Meaning\n\n[^1]: A note\n[^b]: Another [^1]")
    assert strings(document) == ["Word", "Meaning", "A note", "Another [^1]"]


def test_the_sign_of_a_footnote_is_no_word() -> None:
    plan = Plan(read("md", "She is reading.[^1] The dogs[^b] eat.\n").texts)
    assert plan.lines == ["She is reading. The dogs eat."]


def test_tables_that_lack_more_cells_than_a_writer_leaves_out_are_refused() -> None:
    def table(columns: int, rows: int) -> str:
        return f"{'|a' * columns}\n{'|-' * columns}\n" + "Dog\n" * rows

    assert len(read("md", table(8, 40)).texts) == 8 + 40
    for content in (table(300, 300), f"> {table(300, 300)}", table(100, 60) * 9):
        with pytest.raises(UserError, match=r"tables lack [0-9,]+ cells"):
            read("md", content.replace("\n", "\n> ") if content[0] == ">" else content)


def test_no_longer_text_than_a_label_is_looked_up_as_one() -> None:
    class Counted(str):
        __slots__ = ()

        def __getitem__(self, key: Any) -> str:
            found = super().__getitem__(key)
            sizes.append(len(found))
            return found

    sizes: list[int] = []
    text = Counted("[" * 3000 + "]" * 3000)
    pieces = [Piece(i, i + 1, Mark(sign, "open" if sign == "[" else "close"), "[")
              for i, sign in enumerate(str(text))]  # fmt: skip
    assert with_labels(text, pieces, set()) == pieces
    assert max(sizes) < 1000


def test_translations_are_broken_into_lines_that_begin_no_block() -> None:
    document = read("md", "> A dog and\n> a cat\n> at sea\n")
    assert document.join([("Ein Hund - und 2. eine Katze # am Meer",)]) == (
        "> Ein Hund - und 2.\n> eine Katze #\n> am Meer\n"
    )


def test_breaks_stay_where_they_are_within_links_and_emphasis() -> None:
    content = "> **A dog  \n> in *snow* \\\n> and** a [cat  \n> here](x) now\n> and then"
    document = read("md", content)
    assert strings(document) == ["A dog", "in *snow*", "and** a [cat", "here](x) now and then"]
    assert upper(document) == content.upper().replace("(X)", "(x)")


def test_emphasis_has_the_spaces_that_it_needs() -> None:
    document = read("md", "a **`b`** c _d_ e")
    marks = [part for part in document.texts[0] if isinstance(part, Mark)]
    written = document.join([("水", *marks[:3], "は", marks[3], "d", marks[4], "e")])
    assert written == "水 **`b`** は _d_ e"


def shape(content: str) -> list[tuple[str, str]]:
    """Return the blocks, and the marks in them, as markdown-it finds them."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(content):
        found.append((token.type, token.content if token.type != "inline" else ""))
        found += [(child.type, child.content) for child in token.children or []]
    return [part for part in found if part[0] not in ("text", "softbreak", "hardbreak")]


@given(TEXTS)
def test_no_translation_makes_marks_or_blocks(words: str) -> None:
    """Marks stand between words, as translators set them."""
    content = MARKDOWN.replace("_run_", "run").replace(" with `code`,", "")
    words = f"{words.strip()} x" if words[-1:].isalnum() or words[0].isalnum() else "x"
    words = words.strip()
    assert shape(join_words(read("md", content), words)) == shape(content)


@pytest.mark.parametrize(
    "content",
    [
        "$$\nx\n\n= y\n$$ (z)\n\n\\[\nx\n\\]\n\n\\begin{a*}\nx\n\\end{a*}",
        "import A from 'a';\nexport const a = 1\n\n(a-b)=\n\n[TOC]",
        "=== \"Tab\"\n\n--8<-- 'a'\n\n<<< @/a\n\n@import 'a'",
    ],
)
def test_formulas_and_modules_stay(content: str) -> None:
    document = read("md", f"{content}\n\nA dog\n\n*[DOG]: Another\n")
    assert strings(document) == ["A dog", "Another"]


@pytest.mark.parametrize(
    "content", ["---\n", "---" + "\r\n" * 99, "```\nno end", "[a]: b\n", "    code"]
)
def test_what_has_no_text_stays(content: str) -> None:
    assert read("md", content).join([]) == content
