"""Placeholders in strings, and from texts to lines for a model and back."""

import random
import time
from collections.abc import Callable
from typing import cast

import pytest

from seq2seq.decoding.alignment import Alignment
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.documents.document import Mark, write_text
from seq2seq.documents.formats import read_file
from seq2seq.documents.placeholders import as_strings, divide, find_placeholders
from seq2seq.documents.translate import Plan, translate_file
from tests.documents.hostile import LANGUAGES
from tests.documents.marks import read, run_plan


def translate(plan: Plan, function: Callable[[str], str]) -> list[str]:
    return [write_text(text) for text in run_plan(plan, function)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hi {name}, {0} of {n, number}", ["{name}", "{0}", "{n, number}"]),
        ("%s has %(count)d, %1$s, %-5.2f, %@", ["%s", "%(count)d", "%1$s", "%-5.2f", "%@"]),
        ("100%% of %,d %#@n@ or 100%s\\nOne", ["%%", "%,d", "%#@n@", "%s", "\\n"]),
        ("5 %<b>a</b> %<num>d %0:s", ["<b>", "</b>", "%<num>d", "%0:s"]),
        ("On {day, date, ::yMMMd}", ["{day, date, ::yMMMd}"]),
        ("Hi @name, $name, US$ 5 or $5", ["@name", "$name"]),
        ("use --no-wait or -- a --bc; (*.png *.jpg)", ["--no-wait", "--bc", "(*.png *.jpg)"]),
        ("a_b, E_xit, file_name, MAX_2, a.b, www", ["file_name", "MAX_2"]),
        ("config.yaml, /usr/share/a.b. and/or he/she", ["config.yaml", "/usr/share/a.b"]),
        ("ab.png#xywh=0,0,1, Ctrl+Shift+S", ["ab.png#xywh=0,0,1", "Ctrl+Shift+S"]),
        ("{{ x }} ${x.y} %{x} #{x}", ["{{ x }}", "${x.y}", "%{x}", "#{x}"]),
        ("%count% %1 %L2, %first-name% %user.name%",
         ["%count%", "%1", "%L2", "%first-name%", "%user.name%"]),
        ("See https://a.b/c?d=(e).", ["https://a.b/c?d=(e"]),
        ("(www.a.b), or mail a.b+c@d.e!", ["www.a.b", "a.b+c@d.e"]),
        ("%ld%% of 5.1%% and %5.1f%% of %d%%", ["%ld%%", "%%", "%5.1f%%", "%d%%"]),
        ("%dth dog of %s%s, %ss, %(who)ss, %@s", ["%dth", "%s%s", "%ss", "%(who)ss", "%@s"]),
        ("%-5s|%05.2f of %lu, %s\u72ac %lld\u00baC", ["%-5s", "%05.2f", "%lu", "%s", "%lld"]),
        ("The dog '{'name'}' runs with {x}.", ["'{'name'}'", "{x}"]),
        ("{items[0]} costs {0,10:N2}, {1,-5}", ["{items[0]}", "{0,10:N2}", "{1,-5}"]),
        ("100% sure, 5%due, 50%discount, { a } and {a b}, a@b", []),
    ],
)  # fmt: skip
def test_placeholders_are_found_by_their_looks(text: str, words: list[str]) -> None:
    found = find_placeholders((text,))
    assert [mark.raw for mark in found if isinstance(mark, Mark)] == words
    assert as_strings(found) == (text,)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (("a <b>c</b> <br> d<i/>",), "open close alone alone"),
        (("a <b>c <i>d</b> e</i>",), "alone open alone close"),
        (("<b>a", Mark("<x>", "open"), "c</b>", Mark("</x>", "close")), "alone open alone close"),
        (("a", Mark("<x>", "open"), "<b>c</b>", Mark("</x>", "close")), "open open close close"),
        (("a < b > c",), ""),
        (("&Open R&D &amp; a _File '_B' _c",), "alone alone"),
        (("<p>a <b>c</b></p><hr>",), "alone open close alone alone"),
        (("{1>a<1} {b>c<b} {2}",), "open close open close word"),
        (("<0>a</0> <_:b-1/> <3 4>",), "open close alone"),
        (("{n, plural, one {a ", Mark("<x/>"), "} ", Mark("<y/>"), "{b}}"), "alone alone word"),
        (("{% if a %}b{# c #} <%= d %>{{#e}}f{{/e}}{{ g }}",), "alone " * 5 + "word"),
    ],
)
def test_tags_in_strings_are_pairs_if_both_are_there(text: tuple, kinds: str) -> None:
    found = find_placeholders(text)
    assert " ".join(mark.kind for mark in found if isinstance(mark, Mark)) == kinds
    assert as_strings(found) == text


def test_lines_of_a_text_are_translated_by_themselves() -> None:
    text = read("One\n\n<b>two\nthree</b> \n five")
    assert [part if isinstance(part, str) else write_text(part) for part in divide(text)] == [
        "One", "\n\n", "<b>two", "\n", "three</b> ", "\n", " five"
    ]  # fmt: skip
    plan = Plan([text, read(" a\r\nb\n"), read("a {n}.<br/> b <i>c<br/></i>")])
    assert translate(plan, str.upper)[1:] == [" A\r\nB\n", "A {n}.<br/> B <i>C<br/></i>"]
    assert plan.lines[-3:] == ["a 100.", "b c", ""]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("<p>One.</p><p>Two</p>", ["One.", "Two"]),
        ("<a>Home</a><a><i>News</i></a> <b>to</b>", ["Home", "News to"]),
        ("<b>\u6c34</b><i>\u6c34</i>", ["\u6c34\u6c34"]),
        ("A\tdog (*.a);;Cat", ["A", "dog Tom", "Cat"]),
        ("A DOG {x}, <b>A</b> CAT", ["A DOG TOM, A CAT"]),
        ("Has {n, plural, =1 {one # {x}} other {{s, select, a {he}}}} it",
         ["Has", "one 100 Tom", "he", "it"]),
        ("<q><b>Ctrl</b><b>S</b></q> it", ["Ctrl S it"]),
        ("<b>Stop!</b>It", ["Stop! It"]),
        ("H<sub>2</sub>O, word<sup><a>1</a></sup>.", ["H O, word."]),
    ],
)  # fmt: skip
def test_words_that_belong_apart_are_and_the_same_words_stay(text: str, lines: list[str]) -> None:
    plan = Plan([(text,)])
    assert [line for line in plan.lines if line] == lines
    assert translate(plan, str) == [text]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("{0} No dogs|{1} One dog|]1,Inf[ %count% dogs", 3),
        ("A dog|:count dogs", 2),
        ("no dogs | one dog | {n} dogs", 3),
        ("At least {{ limit }} dog.|At least {{ limit }} dogs.", 2),
        ("Press | to see a dog", 1),
        ("Use `a | b` of {name} or <b>%s | %d</b>", 1),
    ],
)
def test_only_the_forms_of_a_plural_are_translated_by_themselves(text: str, count: int) -> None:
    assert len(Plan([(text,)]).lines) == count


def test_placeholders_are_shown_as_words_and_taken_out_if_these_are_lost() -> None:
    texts = [read("Hi {name}, {count} dogs"), ("Tom likes %s, and %d",), ("{n}",)]
    plan = Plan(texts)
    assert plan.lines == ["Hi Tom, 100 dogs", "Tom likes 100, and 2013", ""]
    assert translate(Plan(texts), str.upper) == [
        "HI {name}, {count} DOGS", "TOM LIKES %s, AND %d", "{n}",
    ]  # fmt: skip
    seen: list[str] = []

    def without_100(line: str) -> str:
        seen.append(line)
        return line.replace("100", "").upper().replace("TOM", "Tom")

    assert translate(plan, without_100)[0] == "HI {name}, {count} DOGS"
    assert seen[3:] == ["Hi, dogs", "Tom likes, and"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s has %d dogs", "%s DOGS %d HAS"),
        ("%ss dog has %d cats", "%ss CATS HAS %d DOG"),
        ("%s%s and %d dogs", "%s%s DOGS %d AND"),
        ("%d%% of %s dogs", "%d%% DOGS %s OF"),
        ("<b>{}</b> has {:d} or {}", "<b>{}</b> OR {:d} HAS {}"),
        ("%1$s has %2$d dogs", "DOGS %2$d HAS %1$s"),
    ],
)
def test_placeholders_without_numbers_keep_their_order(text: str, expected: str) -> None:
    def reverse(line: str) -> str:
        return " ".join(w.upper() if w.islower() else w for w in reversed(line.split()))

    assert translate(Plan([(text,)]), reverse) == [expected]


def test_a_text_without_a_translation_stays() -> None:
    assert translate(Plan([read("a <b>dog</b> {n}")]), lambda _: " ") == ["a <b>dog</b> {n}"]
    assert translate(Plan([("a {n}\nb",)], placeholders=False), str) == ["a {n}\nb"]


def test_strings_of_any_signs_are_found_again() -> None:
    generator = random.Random(1)
    signs = ["{", "}", "%", "$", "<", ">", "</", "b", "@", ".", "http://", " ", "1", "\n", "|", "א"]
    for _ in range(3000):
        text = "".join(generator.choices(signs, k=generator.randint(1, 20)))
        found = find_placeholders((text, Mark("<g>", "open"), text, Mark("</g>", "close"), text))
        assert as_strings(found)[0].startswith(text)
        depth = 0
        for part in found:
            depth += {"open": 1, "close": -1}.get(getattr(part, "kind", ""), 0)
            assert depth >= 0
        assert depth == 0
        parts = (p for x in divide(found) for p in ([x] if isinstance(x, str | Mark) else x))
        assert write_text(tuple(parts)) == write_text(found)


@pytest.mark.parametrize("sign", ["{", "{%", "<%", "%", "aaaa", "<a", "a.", "%a"])
def test_a_long_string_takes_no_longer_than_it_is_long(sign: str) -> None:
    begun = time.process_time()
    find_placeholders((sign * 50_000,))
    assert time.process_time() - begun < 5


def test_the_first_text_that_stays_for_its_placeholders_is_named() -> None:
    class Adding:
        """Adds a placeholder to each line that ends with `dog`."""

        def translate(self, lines: list[str], **_: object) -> list[Translation]:
            texts = (f"{line.upper()} %s" if line.endswith("dog") else line for line in lines)
            return [Translation([Candidate(text, 0.0, [], False)]) for text in texts]

        def alignments(self, *_: object) -> list[Alignment]:
            return []

    content = rb'{"a": "It runs.\\n A cat", "b": "a dog", "c": "the dog"}'
    file = read_file("a.json", content, LANGUAGES)
    assert len(Plan(file.texts).lines) > len(file.texts)  # the first text is divided
    output, warnings = translate_file(file, cast("Translator", Adding()))
    assert output == file.content
    reported = "texts left as they were, to keep placeholders: 2 (first: text 2, 'a dog')"
    assert reported in str(warnings)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("A man runs {count}m.", ("100", "10000")),
        ("A man named {name} runs.", ("Tom", "Tomm\u00e9")),
        ("Mail a@b.cd to me", ("Tom", "Tommot")),
        ("Open %n dogs", ("100", "100.000")),
        ("Open x%1 dogs", ("Tom", "1Tom")),
    ],
)
def test_a_stand_in_counts_only_as_a_word_of_its_own(text: str, wrong: tuple[str, str]) -> None:
    (placed,) = translate(Plan([(text,)]), lambda line: line.replace(*wrong).upper())
    (plain,) = translate(Plan([(text,)]), lambda line: line.replace(wrong[0], "").upper())
    assert placed == plain
    assert wrong[1][len(wrong[0]) :].upper() not in placed.replace(text.upper(), "")


@pytest.mark.parametrize(
    "code",
    [
        "<code>npm install dog</code>",
        "<kbd>{key} up</kbd>",
        '<span translate="no">Bob Dog</span>',
        "<i class='a notranslate'>Bob Dog</i>",
        "`npm install dog`",
        "``a dog``",
        ":ref:`a dog <dog>`",
        ":py:class:`a dog`",
        "`a dog <http://a.b>`_",
        "{{{raw dog}}}",
        "[[a dog|b]]",
        '[dog a="b c"]',
        "[dogs /]",
        "<!-- a dog -->",
    ],
)
@pytest.mark.parametrize("name", ["json", "po", "txt"])
def test_code_in_strings_is_not_translated(code: str, name: str) -> None:
    text = f"A man sees {code} here."
    quoted = text.replace('"', '\\"')
    content = {
        "json": f'{{"a": "{quoted}"}}',
        "po": f'msgid "{quoted}"\nmsgstr ""\n',
        "txt": text,
    }[name]
    (found,) = read_file(f"a.{name}", content.encode(), LANGUAGES).texts
    plan = Plan([found])
    assert "dog" not in plan.lines[0]
    assert translate(plan, str.upper) == [f"A MAN SEES {code} HERE."]


def test_quotation_marks_of_typewriters_are_no_code() -> None:
    assert translate(Plan([("a `dog' or `cat', ``a'' or ``b''",)]), str.upper) == [
        "A `DOG' OR `CAT', ``A'' OR ``B''"
    ]


def test_codes_in_brackets_go_around_their_words() -> None:
    plan = Plan([("A [b]big [i]dog[/i][/b] runs",)])
    assert plan.lines == ["A big dog runs"]
    assert translate(plan, str.upper) == ["A [b]BIG [i]DOG[/i][/b] RUNS"]


@pytest.mark.parametrize("word", ["[optional]", "[e-mail]", "[theme] <b>and</b>", "[sighs]"])
def test_a_word_in_brackets_is_no_code(word: str) -> None:
    assert word.partition("]")[0] in Plan([(f"A man sees {word} here.",)]).lines[0]


def test_links_of_markdown_in_strings_go_around_their_words() -> None:
    plan = Plan([("A [big dog](http://a.b/c) runs",)])
    assert plan.lines == ["A big dog runs"]
    assert translate(plan, str.upper) == ["A [BIG DOG](http://a.b/c) RUNS"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("A <b>wo</b><i>man</i> sings.", ["A woman sings."]),
        ("<b>A</b><i>n</i> apple", ["An apple"]),
        ("<b>Stop.</b><i>go</i>", ["Stop.", "go"]),
        ("<a>home</a><a>news</a>", ["home", "news"]),
        ("A <del>dog</del><ins>cat</ins> runs", ["A dog", "cat runs"]),
    ],
)
def test_a_word_that_formatting_crosses_is_one(text: str, lines: list[str]) -> None:
    assert Plan([(text,)]).lines == lines
    assert translate(Plan([(text,)]), str) == [text]


def test_no_signs_are_left_around_nothing() -> None:
    (text,) = read_file("a.md", b"~~A~~ _dog_", LANGUAGES).texts
    assert translate(Plan([text]), lambda _: "Un chien") == ["~~Un~~ _chien_"]
    plan = Plan([text])
    assert translate(plan, lambda _: "Chien") == ["~~A~~ _dog_"]
    assert plan.kept == [0]
    (link,) = read_file("a.md", b"[A](b) **[dog](c)**", LANGUAGES).texts
    assert translate(Plan([link]), lambda _: "Chien") == ["[A](b) **[dog](c)**"]
