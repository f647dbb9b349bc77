"""Scores of parts of a test set, and what is shown of two systems, counted by hand."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest

from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.reporting.buckets import (
    Bucket,
    by_word_frequency,
    by_word_kind,
    make_buckets,
    training_frequencies,
)
from seq2seq.reporting.comparison import differing_parts, line_changes, ngram_changes
from seq2seq.reporting.draw import curves_svg
from seq2seq.reporting.page import bucket_table, format_cell
from seq2seq.reporting.sets import find_warnings
from seq2seq.reporting.significance import bleu_with_interval, words
from seq2seq.score import bleu
from seq2seq.text import SentencePair

REFERENCES = ["a man sees the sea .", "the woman likes an apple .", "nobody paints .", "a a a a b"]
OUTPUTS = ["a man likes the sea .", "the woman likes an apple .", "nobody sees the sea .", "a b b"]


def split(lines: Sequence[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def bleu_of(lines: Sequence[int]) -> float:
    return bleu([OUTPUTS[i] for i in lines], [[REFERENCES[i] for i in lines]]).value


def by_length(lengths: Sequence[int]) -> list[Bucket]:
    buckets = make_buckets(lengths, None, OUTPUTS, REFERENCES)
    return [bucket for bucket in buckets if bucket.by == "source_length"]


def test_a_bucket_has_the_bleu_of_its_lines_and_the_buckets_all_lines() -> None:
    lengths = [5, 9, 4, 30]
    buckets = by_length(lengths)
    for bucket in buckets:
        end = float("inf") if bucket.end is None else bucket.end
        lines = [i for i, length in enumerate(lengths) if bucket.start <= length < end]
        assert bucket.value == bleu_of(lines)
    assert [bucket.count for bucket in buckets] == [1, 2, 1]
    # The interval of a single line has no width, and is not shown.
    table = bucket_table(by_length([4, 9, 9, 9]), "tokens")
    assert [format_cell(row[3])[0] == "" for row in table.rows] == [True, False]


def test_lines_are_put_by_the_rarest_word_of_their_reference() -> None:
    counts = {word: 20 for line in REFERENCES for word in line.split()} | {"nobody": 1, "b": 0}
    found = make_buckets([1] * 5, counts, [*OUTPUTS, "a b"], [*REFERENCES, ""])
    buckets = [bucket for bucket in found if bucket.by == "rarest_word"]
    assert {bucket.start: bucket.count for bucket in buckets} == {0: 1, 1: 1, 10: 2}
    assert buckets[-1].value == bleu_of([0, 1])
    assert buckets[0].value == bleu_of([3])


def test_word_f1_is_that_of_counting_each_word_by_hand() -> None:
    counts = Counter({"a": 100, "b": 1})
    found = by_word_frequency(counts, split(["a b b x"]), split(["a a a a b"]))
    (rare,) = [bucket for bucket in found if bucket.start == 1]
    # One of the two b is right: precision 1/2, recall 1.
    assert rare.value == pytest.approx(100 * 2 * 0.5 * 1 / 1.5)
    assert rare.count == 1
    buckets = by_word_frequency(counts, split(OUTPUTS), split(REFERENCES))
    assert sum(b.count for b in buckets) == sum(map(len, split(REFERENCES)))
    assert all(b.low <= b.value <= b.high for b in buckets)


def test_words_are_of_the_first_kind_that_fits() -> None:
    reference = "Im Jahr 1900 war der Mann der Chef 1900"
    output = "Im Jahr 1900 war die Frau"
    buckets = {b.kind: b for b in by_word_kind(split([output]), split([reference]))}
    assert {kind: bucket.count for kind, bucket in buckets.items()} == {
        "with digits": 2, "with a capital": 4, "repeated in the line": 2, "other": 1,
    }  # fmt: skip
    # "1900" is right once: precision 1, recall 1/2. "die" is another word, which is wrong.
    assert buckets["with digits"].value == pytest.approx(100 * 2 / 3)
    assert buckets["repeated in the line"].value == 0
    assert buckets["other"].value == pytest.approx(100 * 2 / 3)
    assert buckets["with a capital"].value == pytest.approx(100 * 2 * 2 / (3 + 4))


def test_frequencies_are_counted_in_the_target_side() -> None:
    pairs = [SentencePair("the sea", "a sea, a sea"), SentencePair("", "the man")]
    assert training_frequencies(["sea the apple"], pairs) == ({"sea": 2, "the": 1}, 2)


@pytest.mark.parametrize("tokenize", [None, "char", "zh"])
def test_frequencies_are_those_of_the_words_of_each_line(tokenize: str | None) -> None:
    lines = [f"{i % 7} Hunde, {i // 3}.{i} m: „Haus“ ... 犬が{i % 5}匹。" for i in range(300)]
    expected = Counter(chain.from_iterable(words(line, tokenize) for line in lines))
    pairs = [SentencePair("", line) for line in lines]
    assert training_frequencies(lines, pairs, tokenize) == (expected, 300)


def test_words_are_those_of_the_tokenizer_of_bleu() -> None:
    outputs, references = ["私は学生"], ["私は先生"]
    counts, _ = training_frequencies(references, [SentencePair("", "先生と先生")], "char")
    assert counts == {"先": 2, "生": 2}
    buckets = make_buckets([3], counts, outputs, references, "char")
    (kind,) = [bucket for bucket in buckets if bucket.by == "word_kind"]
    assert (kind.count, kind.value) == (4, 75.0)
    _, lost = ngram_changes(["私は学生"], ["私は先生"], references, "char")
    assert "先 生" in {change.ngram for change in lost}


def test_an_interval_is_that_of_resampled_texts() -> None:
    outputs, references = OUTPUTS * 30, REFERENCES * 30
    value, low, high = bleu_with_interval(outputs, references)
    assert value == bleu(outputs, [references]).value
    chance = np.random.default_rng(1)
    drawn = (chance.integers(len(outputs), size=len(outputs)) for _ in range(150))
    scores = [
        bleu([outputs[i] for i in lines], [[references[i] for i in lines]]).value for lines in drawn
    ]
    assert (low, high) == pytest.approx(np.percentile(scores, [2.5, 97.5]), abs=2)


@pytest.mark.parametrize(
    ("text", "other", "marked"),
    [
        ("the  red house", "that is the house", ["red"]),
        ("the red big house ", " the house", ["red", "big"]),
        ("私は学生です。", "私は先生です。", ["学"]),
        ("in the town.", "in the (town)", ["."]),
        ("", "a", []),
    ],
)
def test_words_that_the_other_text_lacks_are_marked(
    text: str, other: str, marked: list[str]
) -> None:
    parts = differing_parts(text, other)
    assert "".join(part for part, _ in parts) == text
    assert [part for part, differs in parts if differs] == marked


def test_ngrams_are_won_and_lost_as_counted_by_hand() -> None:
    won, lost = ngram_changes(["a b c"], ["a c x"], ["a b c"])
    assert {(n.ngram, n.run, n.other) for n in won} == {
        (ngram, 1, 0) for ngram in ("b", "a b", "b c", "a b c")
    }
    assert lost == []


def test_lines_are_sorted_by_the_change_of_their_chrf() -> None:
    changes = line_changes(
        ["1", "2", "3"], ["abc", "abc", "abc"], ["abc", "abd", "x"], ["x", "abd", "abc"]
    )
    assert [change.line for change in changes] == [1, 2, 3]
    assert [change.run_chrf for change in changes] == [change.other_chrf for change in changes][
        ::-1
    ]


def test_the_first_lines_of_each_kind_of_suspicious_output_are_shown() -> None:
    def translation(text: str, **more: Any) -> Translation:
        return Translation([Candidate(text, 0.0, text.split(), False)], **more)

    sources = ["a dog", "the sea", "x" * 5000, *["red"] * 9]
    outputs = ["ein Hund", "", "the " * 9, *["red"] * 9]
    translations = [translation(text) for text in outputs]
    translations[0] = translation("ein Hund", unknown=2)
    warnings, lines = find_warnings(sources, translations)
    assert (warnings.empty, warnings.copied, warnings.repeating, warnings.unknown) == (1, 9, 1, 2)
    found = {kind: [one.line for one in lines if one.kind == kind] for kind in vars(warnings)}
    assert {kind: numbers for kind, numbers in found.items() if numbers} == {
        "empty": [2],
        "copied": [4, 5, 6, 7, 8],
        "repeating": [3],
        "unknown": [1],
    }
    assert all(one.source == sources[one.line - 1][:1000] for one in lines)


@pytest.mark.parametrize("values", [[5e-324], [1.0, 1.0 + 2**-52], [1e100, -1e100], [2.0] * 9])
def test_curves_of_any_range_are_drawn_and_always_the_same(values: list[float]) -> None:
    drawn = curves_svg({"valid": list(enumerate(values))})
    assert "<path" in drawn
    assert "nan" not in drawn
    assert "inf" not in drawn
    assert drawn == curves_svg({"valid": list(enumerate(values))})
