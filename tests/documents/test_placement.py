"""Where the marks of a text go in its translation."""

import random
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from seq2seq.documents.document import Mark, write_text
from seq2seq.documents.projection import SpanLink, place, show
from tests.documents.marks import read, transfer
from tests.documents.test_formats import is_linear


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        # around the words that are linked, which may be elsewhere, in another order
        ("A <b>big dog</b>.", "Ein großer Hund.", "0-0 1-1 2-2 3-3", "Ein <b>großer Hund</b>."),
        (
            "<b>the dog</b> and <i>the cat</i>",
            "die Katze und der Hund",
            "0-3 1-4 2-2 3-0 4-1",
            "<i>die Katze</i> und <b>der Hund</b>",
        ),
        ("He <b>looked up</b>.", "Er sah sie an.", "0-0 1-1 2-3 3-4", "Er <b>sah sie an</b>."),
        ("<a><b>one</b> two</a> x", "x zwei eins", "0-2 1-1 2-0", "x <a>zwei <b>eins</b></a>"),
        # half of a pair, which no other passes
        ("<i>see</i> <a>the dog", "den hund sieh", "0-2 1-0 2-1", "<i></i><a>den hund sieh"),
        ("<p><b>all of it</b></p>", "das alles", "", "<p><b>das alles</b></p>"),
        # signs and spaces as in the source
        ("<b>Stop!</b> It is hot", "Halt! Heiß", "0-0 4-2", "<b>Halt!</b> Heiß"),
        ("<b>Stop</b>! Hot", "Halt! Heiß", "0-0 1-1 2-2", "<b>Halt</b>! Heiß"),
        ('"<u>x</u>" y', "„x“ y", "1-1 3-3", "„<u>x</u>“ y"),
        ("a<b> c</b> d", "A C D", "0-0 1-1 2-2", "A <b>C</b> D"),
        ("at: {a}, x", "BEI:, X", "0-0 1-1 2-2 3-3", "BEI: {a}, X"),
        ("one <b>way-</b>in, don't", "EIN-WEG, NICHT'S", "0-0 1-2 5-5", "EIN-<b>WEG</b>, NICHT'S"),
        (" <g> a <x/></g>\n", "A", "", "  <g>A <x/></g>\n"),
        # marks by themselves: before the word, or after the one that they touch
        ("one <img/> two", "zwei eins", "0-1 1-0", "<img/> zwei eins"),
        ("one<br/> two three", "drei eins zwei", "0-1 1-2 2-0", "drei eins<br/> zwei"),
        ("one<br/>two", "eins zwei", "0-0 1-1", "eins<br/>zwei"),
        ("See <a></a>. <i/>", "Siehe.", "0-0 1-1", "Siehe <a></a>. <i/>"),
        # words that the model did not see
        ("Hi {a}, you have {n} messages", "Hallo, du hast Post", "0-0 1-1 2-2 3-3 4-4",
         "Hallo {a}, du hast {n} Post"),
        ("Delete {a}?", "Löschen?", "0-0 1-1", "Löschen {a}?"),
        ("{a}/{b} sea", "See", "1-0", "{a} {b} See"),
        # no spaces between words
        ("I see a <b>dog</b>.", "犬が見えます。", "", "犬が見え<b>ま</b>す。"),
        # no word of their own: one from the nearer end of a pair that has more
        ("<a>a b</a> <b>c</b>", "eins zwei", "0-0 1-1", "<a>eins</a> <b>zwei</b>"),
        ("<b>c</b> <a>a b</a>", "eins zwei", "1-0 2-1", "<b>eins</b> <a>zwei</a>"),
        ("<a>a</a> <b>c</b> <i>d e</i>", "1 2 3", "0-0 2-1 3-2", "<a>1</a> <b>2</b> <i>3</i>"),
        ("<i>d e</i> <b>c</b> <a>a</a>", "1 2 3", "0-0 1-1 3-2", "<i>1</i> <b>2</b> <a>3</a>"),
        # no links, and no words
        ("a <b>dog</b> runs", "läuft", "", "<b>läuft</b>"),
        ("<a>a</a> <b>b</b> <i>c</i>", "x", "", "<b></b><a>x</a><i></i>"),
        ("a <b>c {n}</b><br/>", "", "", "<b>{n}</b><br/>"),
    ],
)  # fmt: skip
def test_marks_go_with_their_words(source: str, target: str, links: str, expected: str) -> None:
    assert transfer(source, target, links) == expected


@pytest.mark.parametrize(
    ("source", "target", "is_free"),
    [
        ("Hi {n} dogs", "7 Hunde", True),
        ("Hi {n} dogs", "Hunde 7", True),
        ("Hi {n} dogs", "Hunde", False),
        ("Hi {n} dogs", "7 Hunde 7", False),
        ("Hi {n} dogs", "17 Hunde", False),
        ("Hi {n} dogs", "7m Hunde", False),
        ("Hi {n}m", "7m", True),
    ],
)
def test_a_stand_in_is_free_if_it_is_there_once_as_a_word(
    source: str, target: str, is_free: bool
) -> None:
    shown = show(read(source), ["7"])
    (atom,) = shown.stand_ins
    assert shown.has_free(atom, target) == is_free


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Hi {a}, {n} dogs", "7 Hunde, Tom", "{n} Hunde, {a}"),
        ("Click <b>Open {a}</b>.", "Klicken Sie auf 7 Tom.", "Klicken Sie auf 7 <b>{a}</b>."),
        ("<b>{a}</b> and <i>{n}</i>", "7 und Tom", "<i>{n}</i> und <b>{a}</b>"),
        # among the words of a pair that it is not in
        ("<b>{a} and {n}</b> or {x}", "Tom Uhr Bob 7", "<b>{a} {n}</b> Uhr {x}"),
    ],
)
def test_stand_ins_become_what_they_stand_for(source: str, target: str, expected: str) -> None:
    assert transfer(source, target, "", ["Tom", "7", "Bob"]) == expected


def random_text(generator: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(generator.randint(0, 5)):
        name = generator.randrange(10**6)
        match generator.randrange(8):
            case 0 | 1 if depth < 4:
                parts.append(f"<{name}>{random_text(generator, depth + 1)}</{name}>")
            case 2:
                parts.append(f"<{name}/>")
            case 3:
                parts.append(f"{{n{name}}}")
            case _:
                parts.append(generator.choice(["dog", "犬", "שלום", *".( \n!", "x y"]))
        parts.append(generator.choice(["", " "]))
    return "".join(parts)


def nesting(marked: str) -> dict[str, tuple[str, ...]]:
    """Say for each mark which pairs it is in; that the marks are nested is checked."""
    within: list[str] = []
    found = {}
    for part in read(marked):
        if isinstance(part, Mark):
            if part.kind == "close":
                assert within.pop() == part.raw.replace("/", "")
            assert part.raw not in found
            found[part.raw] = tuple(within)
            if part.kind == "open":
                within.append(part.raw)
    assert not within
    return found


@pytest.mark.parametrize("count", [1000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_each_mark_is_there_once_and_nested_as_it_was(count: int) -> None:
    """Whatever the text, the translation and the links."""
    generator = random.Random(count)
    words = ["Hund", "犬", "כלב", ",", "„", "a b", "Tom", "7", " ", "Tom"]
    for _ in range(count):
        source = random_text(generator)
        shown = show(read(source), generator.choice([(), ("Tom",), ("Tom", "7")]))
        target = " ".join(generator.choices(words, k=generator.randint(0, 8))).strip()
        links = []
        for _ in range(9 if shown.line and target else 0):
            spans = [sorted(generator.sample(range(len(x) + 1), 2)) for x in (shown.line, target)]
            links.append(SpanLink(*map(tuple, spans)))
        found = write_text(place(shown, target, links))
        assert nesting(found) == nesting(source), (source, target, links)
        alone = [p.raw for p in read(source) if isinstance(p, Mark) and p.kind == "alone"]
        order = [p.raw for p in read(found) if isinstance(p, Mark) and p.kind == "alone"]
        inside = nesting(source)
        for one, other in pairwise(alone):
            if inside[one] == inside[other]:
                assert order.index(one) < order.index(other)


@pytest.mark.parametrize("is_one_link", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: "".join(f"{{n{i}}} " for i in range(2 * n)) + "dog",
        lambda n: "".join(f"<b{i}>dog</b{i}> " for i in range(n)),
        lambda n: "".join(f"<b{i}>!</b{i}> " for i in range(n)),
        lambda n: "<b>" * n + "a dog" + "</b>" * n,
        lambda n: "</x>" * n + "dog" + "<x>" * n,
    ],
)  # fmt: skip
def test_the_time_to_place_marks_grows_with_their_number(
    make: Callable[[int], str], is_one_link: bool
) -> None:
    def measure(number: int) -> float:
        source = read(make(number))
        shown = show(source)
        size = len(shown.line)
        links = [SpanLink((i, i + 1), (i, i + 1)) for i in range(size // 2)]
        of_all = [SpanLink((0, size), (0, size))]
        begun = time.thread_time()
        found = place(shown, shown.line.upper(), of_all if is_one_link else links)
        seconds = time.thread_time() - begun
        marks = [Counter(p for p in text if isinstance(p, Mark)) for text in (source, found)]
        assert marks[0] == marks[1]
        return seconds

    assert is_linear(measure, 800)
