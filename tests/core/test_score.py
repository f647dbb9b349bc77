"""BLEU, chrF, TER and exact match equal sacreBLEU's own command and hand-made values."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sacrebleu import BLEU, CHRF, TER

from seq2seq.errors import UserError
from seq2seq.paper.table2 import paper_bleu
from seq2seq.score import (
    ScoreConfig,
    bleu,
    exact_match,
    score_all,
    too_long_for_ter,
    unsuited_tokenizer,
)

REFERENCES = [
    "Der Hund läuft durch den tiefen Schnee.",
    'Sie sagte: "Es kostet 3,5 Mio. Euro."',
    "Das ist gut.",
    "Zwei Kinder spielen am Ufer des Sees.",
]
OTHER_REFERENCES = [
    "Ein Hund rennt durch tiefen Schnee.",
    "Sie sagte, es koste 3,5 Mio. Euro.",
    "Das ist schön.",
    "Am Ufer des Sees spielen zwei Kinder.",
]
HYPOTHESES = [
    "Ein Hund läuft durch den tiefen Schnee.",
    'Sie sagte: "das kostet 3,5 Mio. Euro."',
    "Das ist gut.",
    "zwei Kinder spielen an dem Ufer des Sees",
]


def sacrebleu_command(folder: Path, references: list[list[str]], *options: str) -> dict[str, Any]:
    """The output of `python -m sacrebleu` for `HYPOTHESES`, by metric."""
    files = []
    for i, lines in enumerate([HYPOTHESES, *references]):
        files.append(folder / f"{i}.txt")
        files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", *map(str, files[1:]), "-i", str(files[0])]
    command += ["-m", "bleu", "chrf", "ter", "--width", "12", *options]
    output = subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout
    return {result["name"]: result for result in json.loads(output)}


@pytest.mark.parametrize(
    ("references", "config", "options"),
    [
        ([REFERENCES, OTHER_REFERENCES], ScoreConfig(), []),
        (
            [REFERENCES],
            ScoreConfig(tokenize="intl", lowercase=True),
            ["--tokenize", "intl", "--lowercase", "--chrf-lowercase"],
        ),
        ([REFERENCES], ScoreConfig(), ["--chrf-word-order", "2"]),
    ],
)
def test_scores_and_signatures_equal_those_of_sacrebleu_s_command(
    tmp_path: Path, references: list[list[str]], config: ScoreConfig, options: list[str]
) -> None:
    expected = sacrebleu_command(tmp_path, references, *options)
    found = {score.name: score for score in score_all(HYPOTHESES, references, config)}
    assert len(expected) == 3
    for name, wanted in expected.items():
        assert found[name].value == pytest.approx(wanted["score"], abs=1e-10)
        assert found[name].signature == wanted["signature"]
        if name == "BLEU":
            ratios = re.findall(r"[\d.]+", wanted["verbose_score"])
            assert re.findall(r"[\d.]+", found[name].detail) == ratios[:6]


def test_a_blank_reference_does_not_count_where_another_has_text() -> None:
    # The same with the blank one as sacreBLEU has it, and with a copy of the other in its place.
    blank, absent, copied = (
        [REFERENCES, [other, *OTHER_REFERENCES[1:]]] for other in (" ", None, REFERENCES[0])
    )
    every = [*score_all(HYPOTHESES, blank), paper_bleu(HYPOTHESES, blank)]
    found = {score.name: score for score in every}
    for metric in (BLEU(), CHRF(), CHRF(word_order=2), TER()):
        wanted = metric.corpus_score(HYPOTHESES, absent)
        assert found[wanted.name].value == wanted.score
    assert found["paper BLEU"].value == paper_bleu(HYPOTHESES, copied).value
    assert all("nrefs:var|" in score.signature for score in found.values())
    assert exact_match(["a", ""], [["a", "b"], ["", ""]]).value == 50.0


@pytest.mark.parametrize(
    ("text", "suited"),
    [
        ("狗在雪地里跑，孩子们在笑！ GPU", "zh"),
        ("犬が北京市の雪の中を走る。", "ja-mecab|char"),  # char if MeCab is not installed
        ("개가 눈 속을 달린다.", "ko-mecab|char"),
        ("สุนัขวิ่งในหิมะ", "char"),
        ("ໝາແລ່ນ ឆ្កែရត់ក្នុង ခွေးက ཁྱི་གངས་", "char"),
        ("Собака из 北京 бежит по снегу.", None),
        ("कुत्ता बर्फ में दौड़ता है।", None),
        ("42 ...", None),
    ],
)
def test_a_tokenizer_that_does_not_suit_the_script_is_told(text: str, suited: str | None) -> None:
    remark = unsuited_tokenizer(bleu([text], [[text]]).signature, [[text]])
    assert (remark == "") == (suited is None)
    assert re.search(f"13a .*add --tokenize ({suited}) or flores200$", remark) or not suited
    assert unsuited_tokenizer("nrefs:1|tok:zh|smooth:exp", [[text]]) == ""


def test_exact_match_counts_lines_that_equal_any_reference() -> None:
    hypotheses = ["a", " b ", "c", "D"]
    references = [["a", "x", "x", "d"], ["x", "b", "x", "x"]]
    assert exact_match(hypotheses, references[:1]).value == 25.0
    assert exact_match(hypotheses, references).value == 50.0
    lowercase = exact_match(hypotheses, references, ScoreConfig(lowercase=True))
    assert lowercase.value == 75.0
    assert lowercase.signature == "nrefs:2|case:lc"
    assert lowercase.detail == "3 of 4 lines"


def test_a_tokenizer_s_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    config = ScoreConfig(tokenize="ja-mecab")
    with pytest.raises(UserError, match=r"tokenizer ja-mecab: .*pip install sacrebleu\[ja\]"):
        bleu(HYPOTHESES, [REFERENCES], config)


@pytest.mark.parametrize("metric", [bleu, exact_match, score_all])
def test_texts_that_are_not_parallel_are_refused(metric: Callable) -> None:
    with pytest.raises(UserError, match="hypotheses has 1 lines, references 2 has 2"):
        metric(["a"], [["a"], ["a", "b"]])
    with pytest.raises(UserError, match="hypotheses: no lines"):
        metric([], [[]])
    with pytest.raises(UserError, match="no references"):
        metric(["a"], [])


@pytest.mark.parametrize("line", ["ab cde " * 14_285, "word " * 251], ids=["100,000", "251"])
def test_ter_is_skipped_where_a_line_is_too_long_for_it(line: str) -> None:
    names = [score.name for score in score_all(["a b", line], [["a b", line]])]
    assert names == ["BLEU", "chrF2", "chrF2++", "exact match"]
    assert "line 2 has" in too_long_for_ter([["a"], ["a b", line]])
