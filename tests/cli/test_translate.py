"""`seq2seq translate` as a filter: N lines in, N lines out."""

import gzip
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def source(corpus) -> list[str]:
    return (corpus.folder / "test.source").read_text().splitlines()


def translate(seq2seq: Callable, model: Path, tmp_path: Path, lines: list[str], *words: str):
    path = tmp_path / "in"
    path.write_text("".join(line + "\n" for line in lines))
    result = seq2seq("translate", "--model", model, "-i", path, *words)
    assert result.code == 0, result.err
    return result.out.split("\n")[:-1]


def test_blank_lines_stay_blank_and_in_place(
    trained: Path, seq2seq: Callable, tmp_path: Path, source: list[str]
) -> None:
    lines = ["", source[0], "   ", "", source[1], "\t"]
    out = translate(seq2seq, trained, tmp_path, lines)
    assert [bool(line) for line in out] == [False, True, False, False, True, False]


@pytest.mark.parametrize("batch_tokens", [1, 16, 64, 4096])
def test_the_text_does_not_depend_on_the_batch(
    trained: Path, seq2seq: Callable, tmp_path: Path, source: list[str], batch_tokens: int
) -> None:
    expected = translate(seq2seq, trained, tmp_path, source)
    words = ("--batch-tokens", str(batch_tokens))
    assert translate(seq2seq, trained, tmp_path, source, *words) == expected
    assert translate(seq2seq, trained, tmp_path, source[::-1], *words) == expected[::-1]


def test_compressed_input_and_an_output_file(
    trained: Path, seq2seq: Callable, tmp_path: Path, source: list[str]
) -> None:
    packed, output = tmp_path / "in.gz", tmp_path / "out"
    packed.write_bytes(gzip.compress("\n".join(source).encode()))
    assert seq2seq("translate", "--model", trained, "-i", packed, "-o", output).out == ""
    assert output.read_text().splitlines() == translate(seq2seq, trained, tmp_path, source)


def test_nbest_has_k_lines_each_the_best_first(
    trained: Path, seq2seq: Callable, tmp_path: Path, source: list[str]
) -> None:
    best = translate(seq2seq, trained, tmp_path, source, "--scores")
    rows = [
        line.split("\t") for line in translate(seq2seq, trained, tmp_path, source, "--nbest", "3")
    ]
    assert [int(number) for number, _, _ in rows] == [i for i in range(len(source)) for _ in "123"]
    for i, line in enumerate(best):
        score, text = line.split("\t")
        candidates = rows[3 * i : 3 * i + 3]
        assert candidates[0][1:] == [text, score]
        scores = [float(candidate[2]) for candidate in candidates]
        assert scores == sorted(scores, reverse=True)


def test_samples_are_those_of_their_seed(
    trained: Path, seq2seq: Callable, tmp_path: Path, source: list[str]
) -> None:
    words = ("--sample", "--temperature", "3", "--top-k", "20", "--top-p", "0.95")
    first = translate(seq2seq, trained, tmp_path, source, *words, "--seed", "7")
    again = (*words, "--seed", "7", "--batch-tokens", "8", "--workers", "2")
    assert translate(seq2seq, trained, tmp_path, source[::-1], *again) == first[::-1]
    assert translate(seq2seq, trained, tmp_path, source, *words, "--seed", "8") != first
    greedy = translate(seq2seq, trained, tmp_path, source, "--beam", "1")
    assert greedy != first
    one = ("--sample", "--temperature", "3", "--top-k", "1")
    assert translate(seq2seq, trained, tmp_path, source, *one) == greedy


@pytest.mark.parametrize("words", [(), ("--sample",)], ids=str)
def test_translations_begin_with_the_prefixes_of_a_file(
    trained: Path, seq2seq: Callable, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "prefixes").write_text("nine\n\nthree t\n")
    lines = ["one two", "three four five", "six"]
    free = translate(seq2seq, trained, tmp_path, lines, *words)
    words = (*words, "--prefix", str(tmp_path / "prefixes"))
    found = translate(seq2seq, trained, tmp_path, lines, *words)
    assert (found[0][:4], found[1], found[2][:7]) == ("nine", free[1], "three t")


def test_forced_scores_of_the_model_s_own_output(
    trained: Path, corpus, seq2seq: Callable, tmp_path: Path, source: list[str]
) -> None:
    output = tmp_path / "out"
    out = translate(seq2seq, trained, tmp_path, source, "--scores", "--alpha", "0")
    found = [line.split("\t") for line in out]
    output.write_text("".join(text + "\n" for _, text in found))
    words = ("score", "--model", trained, "-s", corpus.folder / "test.source", "-i", output)
    result = seq2seq(*words, "--forced", "--per-line")
    assert result.code == 0
    rows = [line.split("\t") for line in result.out.splitlines()]
    assert [float(p) for p, _ in rows] == pytest.approx([float(p) for p, _ in found], abs=1e-4)
    total, tokens = sum(float(p) for p, _ in rows), sum(int(n) for _, n in rows)
    assert f"{tokens} tokens, perplexity {math.exp(-total / tokens):.4f}\n" in result.err
    summary = seq2seq(*words, "--forced")
    assert (summary.out, summary.err) == (result.err, "")
    printed = json.loads(seq2seq(*words, "--forced", "--json", "--per-line").out)
    assert (printed["tokens"], len(printed["lines"])) == (tokens, len(source))
    assert printed["log_probability"] == pytest.approx(total, abs=1e-4)
    assert printed["perplexity"] == pytest.approx(math.exp(-total / tokens), abs=1e-6)


def test_damaged_bytes_are_counted_and_the_line_is_kept(
    trained: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one two\n\xff\xfe three\x85four\nfive\x0bsix\r\nseven")
    result = seq2seq("translate", "--model", trained, "-i", path)
    assert result.code == 0
    assert result.out.count("\n") == 4
    assert "1 lines were not valid UTF-8" in result.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--model", "nowhere"], 1, "nowhere: no such folder"),
        (["--model", "{run}", "-i", "missing.txt"], 1, "missing.txt"),
        (["--model", "{run}", "--beam", "0"], 1, "beam_size=0: must be at least 1"),
        (["--model", "{run}", "--nbest", "9"], 1, "nbest=9"),
        (["--model", "{run}", "--alpha", "-1"], 1, "alpha=-1"),
        (["--model", "{run}", "--batch-tokens", "0"], 2, "--batch-tokens 0"),
        (["--model", "{run}", "--precision", "fp8"], 1, "precision 'fp8' is unknown"),
        (["--model", "{run}", "-o", "no/such/folder/out"], 1, "no/such/folder/out"),
        ([], 2, "--model"),
    ],
)
def test_bad_calls_get_a_clear_line(
    trained: Path, seq2seq: Callable, tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    (tmp_path / "in").write_text("one\n")
    words = [word.format(run=trained) for word in words]
    if "-i" not in words:
        words += ["-i", str(tmp_path / "in")]
    result = seq2seq("translate", *words)
    assert (result.code, result.out) == (code, "")
    assert says in result.err
    assert "Traceback" not in result.err


def test_a_damaged_model_is_refused(trained: Path, seq2seq: Callable, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    for file in (trained / "best").iterdir():
        content = bytearray(file.read_bytes())
        if file.name == "model.safetensors":
            content[-5] ^= 1
        (copy / file.name).write_bytes(content)
    result = seq2seq("translate", "--model", copy)
    assert result.code == 1
    assert "model.safetensors: damaged" in result.err


def test_a_closed_pipe_ends_it_quietly(trained: Path, source: list[str]) -> None:
    command = f"'{sys.executable}' -m seq2seq translate --model '{trained}' | head -n 1"
    result = subprocess.run(
        command, shell=True, input="\n".join(source * 200).encode(), capture_output=True, check=True
    )
    assert result.stdout.count(b"\n") == 1
    assert result.stderr == b""


def test_a_model_folder_translates_by_itself(
    trained: Path, seq2seq: Callable, tmp_path: Path, source: list[str]
) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(trained / "best", moved)
    expected = translate(seq2seq, trained / "best", tmp_path, source)
    assert translate(seq2seq, moved, tmp_path, source) == expected


def test_more_checkpoints_than_there_are_can_t_be_averaged(
    trained: Path, seq2seq: Callable
) -> None:
    result = seq2seq("average", "--model", trained, "--last", "9")
    assert result.code == 1
    assert "has 3 checkpoints, not 9" in result.err
