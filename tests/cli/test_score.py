"""`seq2seq score` with real files."""

import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.paper.table2 import WHY_IT_DIFFERS, paper_bleu
from seq2seq.score import ScoreConfig, score_all
from seq2seq.search import SearchConfig

REFERENCES = ["Der Nord-Süd-Dialog, bitte.", "Ein Hund läuft im tiefen Schnee.", "Gut\u2028so."]
HYPOTHESES = ["Der Nord-Süd-Dialog bitte.", "Ein Hund rennt im tiefen Schnee.", "Gut\u2028so."]
OTHER = ["Der Dialog bitte.", "Ein Hund rennt im Schnee.", "so gut"]
SOURCES = ["a man sees the sea.", "two small dogs", "nobody paints an apple."]
TEXTS = ("-s", "test.en", "-r", "test.de")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with out.de, other.de, test.de, test.de.gz and test.en."""
    texts = {"out.de": HYPOTHESES, "other.de": OTHER, "test.de": REFERENCES, "test.en": SOURCES}
    for name, lines in texts.items():
        write(tmp_path / name, lines)
    (tmp_path / "test.de.gz").write_bytes(gzip.compress((tmp_path / "test.de").read_bytes()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def values(results: dict[str, Any]) -> dict[str, float]:
    return {result["name"]: result["value"] for result in results["scores"]}


def expected(references: list[list[str]], **options: Any) -> dict[str, float]:
    config = ScoreConfig(**options)
    return {s.name: s.value for s in score_all(HYPOTHESES, references, config)}


def test_a_line_for_each_metric_with_value_and_signature(seq2seq: Callable) -> None:
    printed = seq2seq("score", "-i", "out.de", "-r", "test.de")
    assert (printed.code, printed.err) == (0, "")
    wanted = score_all(HYPOTHESES, [REFERENCES])
    lines = printed.out.splitlines()
    assert [s.name for s in wanted] == ["BLEU", "chrF2", "chrF2++", "TER", "exact match"]
    for line, s in zip(lines, wanted, strict=False):
        assert re.split(r" {2,}", line) == [s.name, f"{s.value:.2f}", *filter(None, [s.detail])]
    assert lines[len(wanted) :] == ["", *(f"{s.name}|{s.signature}" for s in wanted)]


def test_texts_that_make_a_score_misleading_are_told_of(files: Path, seq2seq: Callable) -> None:
    write(files / "test.zh", ["狗在雪地里跑。", "孩子们在笑。", ""])
    write(files / "more.zh", ["狗在雪地里跑。", "孩子们在笑。", "好。"])
    words = ("score", "-i", "more.zh", "-r", "more.zh")
    told, other = seq2seq(*words, "-r", "test.zh").err.splitlines()
    assert told.startswith("seq2seq: BLEU's tokenizer 13a does not suit")
    assert "blank" in other
    assert seq2seq(*words, "--tokenize", "zh").err == ""


def test_translations_whose_reference_is_blank_are_counted(files: Path, seq2seq: Callable) -> None:
    write(files / "half.de", [REFERENCES[0], "", " "])
    write(files / "also.de", ["", REFERENCES[1], ""])
    words = ("score", "-i", "out.de", "-r")
    assert (
        "out.de: 2 of 3 lines have no reference but a blank one" in seq2seq(*words, "half.de").err
    )
    assert "out.de: 1 of 3 lines" in seq2seq(*words, "half.de", "-r", "also.de").err
    write(files / "out.de", [HYPOTHESES[0], "", ""])  # blank lines of a document, on both sides
    assert seq2seq(*words, "half.de").err == ""


TOKENIZED = ["Ein Hund läuft .", "Er sieht das Meer .", "Gut so ."]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (TOKENIZED, "out.de: 3 of 3 lines end in ' .'"),
        (
            ["Der Nord@@ -Süd-Dialog", "Ein Hund im Schn@@", "Gut."],
            "out.de: 2 of 3 lines have pieces",
        ),
        (
            ["\u2581Ein \u2581Hund", "Zwei @@ Zeichen", "a@@b.de"],
            "out.de: 2 of 3 lines have pieces",
        ),
    ],
)
def test_tokens_and_pieces_that_are_scored_as_text_are_told_of(
    lines: list[str], told: str, files: Path, seq2seq: Callable
) -> None:
    write(files / "out.de", lines)
    (line,) = seq2seq("score", "-i", "out.de", "-r", "test.de").err.splitlines()
    assert told in line


def test_tokens_are_compared_without_a_remark_by_the_option_that_the_remark_names(
    files: Path, seq2seq: Callable
) -> None:
    write(files / "out.de", TOKENIZED)
    words = ("score", "-i", "out.de", "-r", "out.de")
    (option,) = set(re.findall("add (--[a-z]+ [a-z]+)", seq2seq(*words).err))
    result = seq2seq(*words, *option.split())
    assert (result.code, result.err) == (0, "")
    assert "|tok:none|" in result.out


@pytest.mark.parametrize(
    "words",
    ["-i out.de -r two.tsv", "-i two.tsv -r test.de", "-i out.de -r test.de --compare two.tsv"],
)
def test_columns_are_not_scored_as_one_text(words: str, files: Path, seq2seq: Callable) -> None:
    write(files / "two.tsv", [f"{a}\t{b}" for a, b in zip(REFERENCES, OTHER, strict=True)])
    result = seq2seq("score", *words.split())
    assert result.code == 1
    assert "two.tsv: every line has a tab" in result.err


def test_a_tab_within_one_line_is_text(files: Path, seq2seq: Callable) -> None:
    write(files / "test.de", [REFERENCES[0], "Gut:\tso", "x"])
    assert seq2seq("score", "-i", "out.de", "-r", "test.de").code == 0


def test_two_files_are_scored_without_loading_torch(files: Path) -> None:
    script = "import sys; from seq2seq.cli.main import main; main(sys.argv[1:])\n"
    script += "sys.exit(sys.modules.keys() & {'torch', 'numpy', 'sacremoses'} != set())"
    words = ["score", "-i", "out.de", "-r", "test.de", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script, *words], env=environment, cwd=files)
    assert done.returncode == 0


def test_translations_may_come_from_standard_input(
    files: Path, monkeypatch: pytest.MonkeyPatch, seq2seq_json: Callable
) -> None:
    with (files / "out.de").open() as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        assert values(seq2seq_json("score", "-i", "-", "-r", "test.de")) == expected([REFERENCES])


def test_several_references_and_the_options(seq2seq_json: Callable) -> None:
    words = ["-i", "out.de", "-r", "test.de", "-r", "other.de", "--tokenize", "intl", "--lowercase"]
    results = seq2seq_json("score", *words)
    assert values(results) == expected([REFERENCES, OTHER], tokenize="intl", lowercase=True)
    assert "nrefs:2|case:lc" in results["scores"][0]["signature"]


def test_the_paper_s_bleu_has_its_own_line_reason_and_language(seq2seq: Callable) -> None:
    printed = seq2seq("score", "-i", "out.de", "-r", "test.de", "--paper", "--language", "fr")
    wanted = paper_bleu(HYPOTHESES, [REFERENCES], "fr")
    lines = printed.out.splitlines()
    assert f"paper BLEU    {wanted.value:.2f}  {wanted.detail}" in lines
    assert lines[-1] == f"paper BLEU|{wanted.signature}"
    assert "|lang:fr|hyphens:kept|" in wanted.signature
    assert printed.err == f"seq2seq: {WHY_IT_DIFFERS}\n"


def test_systems_are_compared(seq2seq: Callable, seq2seq_json: Callable) -> None:
    words = ["-i", "out.de", "-r", "test.de", "--compare", "other.de", "test.de.gz"]
    comparisons = seq2seq_json("score", *words)["comparisons"]
    named = [(c["system"], c["baseline"], c["metric"]) for c in comparisons]
    systems = ["other.de", "test.de.gz"]
    assert named == [(s, "out.de", m) for s in systems for m in ("BLEU", "chrF2", "chrF2++", "TER")]
    assert comparisons[0]["difference"] < 0 < comparisons[4]["difference"]
    assert "|bs:1000|seed:12345|" in comparisons[0]["signature"]

    printed = seq2seq("score", *words).out
    assert "\nother.de against out.de (3 lines differ)\nmetric " in printed
    assert "\ntest.de.gz against out.de (2 lines differ)\nmetric " in printed
    for number, better in ((0, "out.de"), (3, "not significant"), (4, "test.de.gz")):
        c = comparisons[number]
        bounds = "{:.2f} to {:.2f}".format(*c["interval"])
        shown = f"{c['metric']} {c['value']:.2f} {c['difference']:+.2f} {bounds} {c['p_value']:.4f}"
        assert f"{shown} {better}\n" in re.sub(" +", " ", printed)
    assert "  95 % interval of the score  " in printed
    assert f"\nBLEU|{comparisons[0]['signature']}\n" in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_a_model_is_scored(files: Path, model: Path, seq2seq_json: Callable) -> None:
    outputs = {}
    for beam in (1, 2):
        options = TranslationOptions(precision="bf16", search=SearchConfig(beam_size=beam))
        translations = Translator.load(model, options).translate(SOURCES)
        outputs[beam] = [translation.text for translation in translations]
    assert outputs[1] != outputs[2]
    write(files / "test.de", outputs[2])
    words = ("--beam", "2", "--precision", "bf16", "--compare", "other.de")
    results = seq2seq_json("score", "--model", model, *TEXTS, *words)
    assert values(results)["exact match"] == 100
    assert results["comparisons"][0]["baseline"] == str(model)


def test_a_model_is_compared_with_copies_of_its_source(model: Path, seq2seq_json: Callable) -> None:
    results = seq2seq_json("score", "--model", model, *TEXTS, "--compare", "test.en")
    named = {(c["system"], c["baseline"]) for c in results["comparisons"]}
    assert named == {("test.en", str(model))}


@pytest.mark.parametrize(("given", "used"), [([], "none"), (["--tokenize", "intl"], "intl")])
def test_a_run_is_scored_by_the_tokenizer_of_its_validations(
    given: list[str], used: str, files: Path, model: Path, seq2seq_json: Callable
) -> None:
    shutil.copytree(model, files, dirs_exist_ok=True)
    (files / "config.yaml").write_text("bleu_tokenizer: none\n")
    results = seq2seq_json("score", "--model", ".", *TEXTS, *given)
    assert f"tok:{used}|" in results["scores"][0]["signature"]


def test_a_model_isn_t_opened_for_texts_that_aren_t_parallel(
    files: Path, seq2seq: Callable
) -> None:
    write(files / "test.en", SOURCES[:2])
    result = seq2seq("score", "--model", "nowhere", *TEXTS)
    assert result.code == 1
    assert "test.en has 2 lines, test.de has 3" in result.err


@pytest.mark.parametrize(
    "words", ["--tokenize 13b", "--paper --language german", "--compare other.de other.de"]
)
def test_a_model_isn_t_opened_when_an_option_is_refused(words: str, seq2seq: Callable) -> None:
    result = seq2seq("score", "--model", "nowhere", *TEXTS, *words.split())
    assert result.code == 2
    assert re.search(rf"\b{words.rpartition(' ')[2]}\b", result.err)


def test_a_seed_that_is_no_number_is_refused_before_a_model_is_opened(
    seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    result = seq2seq("score", "--model", "nowhere", *TEXTS, "--compare", "other.de")
    assert result.code == 2
    assert "SACREBLEU_SEED=abc" in result.err
    monkeypatch.setenv("SACREBLEU_SEED", "None")  # sacreBLEU's word for a new one each time
    assert seq2seq("score", "-i", "out.de", "-r", "test.de", "--compare", "other.de").code == 0
