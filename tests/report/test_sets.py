"""What is shown of a test set and of two systems, counted by hand."""

import time
from pathlib import Path
from typing import Any

import pytest

from seq2seq.data.corpus import DataConfig, SplitConfig
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.report.page import curves_svg
from seq2seq.report.sets import (
    EXAMPLES,
    Overlap,
    TextSet,
    choose_samples,
    count_overlaps,
    differing_parts,
    find_warnings,
)
from seq2seq.run.config import Config
from tests.toy import two_files


@pytest.mark.parametrize(
    ("text", "other", "marked"),
    [
        ("the  red house", "that is the house", ["  red"]),
        ("the red big house", " the house", [" red big"]),
        ("私は学生です。", "私は先生です。", ["学"]),
        ("in the town.", "in the (town)", ["."]),
        ("वह हिन्दी है", "वह हिन्दू है", [" हिन्दी"]),
        ("", "a", []),
    ],
)
def test_words_that_the_other_text_lacks_are_marked(
    text: str, other: str, marked: list[str]
) -> None:
    parts = differing_parts(text, other)
    assert "".join(part for part, _ in parts) == text
    assert [part for part, differs in parts if differs] == marked


@pytest.mark.parametrize("count", [2, 7, 12, 40])
def test_the_samples_are_the_ends_and_the_middle_of_the_lines_by_chrf(count: int) -> None:
    words = [f"word{i:03}" for i in range(count)]
    outputs = [" ".join(words[:i]) for i in range(count)]  # the later, the more of it is right
    text = TextSet("valid", ["a"] * count, [" ".join(words)] * count)
    lines: dict[str, list[int]] = {"worst": [], "median": [], "best": []}
    for sample in choose_samples(text, outputs):
        lines[sample.kind].append(sample.line)
    order = list(range(1, count + 1))
    assert lines["worst"] == order[:EXAMPLES]
    assert lines["best"] == order[EXAMPLES:][::-1][:EXAMPLES]
    middle = order[max(0, count - EXAMPLES) // 2 :][:EXAMPLES]
    shown = lines["worst"] + lines["best"]
    assert lines["median"] == [line for line in middle if line not in shown]


def test_long_texts_of_few_words_are_compared_in_little_time() -> None:
    def measure(size: int) -> float:
        text, other = "中国" * size, "国国中" * (2 * size // 3)
        begun = time.thread_time()
        parts = differing_parts(text, other)
        assert "".join(part for part, _ in parts) == text
        return time.thread_time() - begun

    assert measure(150) < 15 * measure(45)


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


def test_blank_lines_are_no_lines_of_the_training_text(tmp_path: Path) -> None:
    lines = ["a", "b"], ["", ""], ["c", ""], ["", "d"]
    sources, references = map(list, zip(*lines, strict=True))
    paths = two_files(tmp_path, "train", sources, references)
    config = Config(data=DataConfig(train=SplitConfig(**paths)))
    found = count_overlaps(config, [TextSet("mixed", sources, references)])
    assert found == [Overlap("the 1 training pairs", sources=1, references=1, pairs=1)]


@pytest.mark.parametrize("values", [[5e-324], [1.0, 1.0 + 2**-52], [1e100, -1e100], [2.0] * 9])
def test_curves_of_any_range_are_drawn_and_always_the_same(values: list[float]) -> None:
    drawn = curves_svg({"valid": list(enumerate(values))})
    assert "<path" in drawn
    assert "nan" not in drawn
    assert "inf" not in drawn
    assert drawn == curves_svg({"valid": list(enumerate(values))})
