"""`seq2seq translate` as a filter: N lines in, N lines out."""

import gzip
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2seq.data.lines import read_text_lines
from seq2seq.data.tokenizer import END_ID, Tokenizer
from seq2seq.decoding.translator import Translator
from seq2seq.storage.model_folder import save_model
from seq2seq.storage.trained_model import TrainedModel


@pytest.fixture(scope="module")
def source(corpus) -> list[str]:
    return (corpus.folder / "test.source").read_text().splitlines()


@pytest.fixture
def quick(make_model: Callable, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A model that outputs nothing but `</s>`, so that reading and writing is all its work."""
    model = make_model(vocab_size=tokenizer.vocab_size).float()
    with torch.no_grad():
        last = model.decoder.layers[-1].feed_forward_norm
        last.bias.copy_(1e4 * model.embedding.weight[END_ID])
    save_model(tmp_path / "quick", TrainedModel(model, tokenizer, "a", "b"))
    return tmp_path / "quick"


def translate(seq2seq: Callable, model: Path, tmp_path: Path, lines: list[str], *words: str):
    path = tmp_path / "in"
    path.write_text("".join(line + "\n" for line in lines))
    result = seq2seq("translate", "--model", model, "-i", path, *words)
    assert result.code == 0, result.err
    return result.out.split("\n")[:-1]


@pytest.mark.parametrize("suffix", ["", ".zst"])
def test_output_is_compressed_as_its_suffix_says(
    trained: Path, seq2seq: Callable, tmp_path: Path, source: list[str], suffix: str
) -> None:
    path, output = tmp_path / "in.gz", tmp_path / f"out{suffix}"
    path.write_bytes(gzip.compress("\n".join(source[:3]).encode()))
    result = seq2seq("translate", "--model", trained, "-i", path, "-o", output)
    assert result.code == 0, result.err
    expected = translate(seq2seq, trained, tmp_path, source[:3])
    assert list(read_text_lines(output)) == expected
    assert output.read_bytes().startswith(expected[0].encode()) == (suffix == "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "in.gz", output.name]


def test_a_file_can_be_translated_in_place_and_a_device_written_to(
    trained: Path, seq2seq: Callable, tmp_path: Path, source: list[str]
) -> None:
    expected = translate(seq2seq, trained, tmp_path, source[:3])
    path = tmp_path / "in"
    assert seq2seq("translate", "--model", trained, "-i", path, "-o", path).code == 0
    assert path.read_text().splitlines() == expected
    assert seq2seq("translate", "--model", trained, "-i", path, "-o", os.devnull).code == 0
    assert not Path(os.devnull).is_file()


def test_an_incomplete_output_does_not_get_its_name(
    quick: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    path, output = tmp_path / "in.gz", tmp_path / "out"
    many = "a man likes the sea.\n" * 15_000  # more than is read ahead
    path.write_bytes(gzip.compress(many.encode(), compresslevel=0)[:-9])
    output.write_text("from before")
    result = seq2seq("translate", "--model", quick, "-i", path, "-o", output, "--beam", "1")
    assert result.code == 1
    assert "the archive is cut short" in result.err
    assert output.read_text() == "from before"
    assert len(list(tmp_path.glob("out.*.part"))) == 1


def test_progress_is_for_terminals(trained: Path, tmp_path: Path, source: list[str]) -> None:
    (tmp_path / "in").write_text("\n".join(source))
    command = [sys.executable, "-m", "seq2seq", "translate", "--model", str(trained)]
    command += ["-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 100))
    subprocess.run(command, stderr=slave, check=True)
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert f"{len(source)}/{len(source)}" in shown
    assert " lines/s" in shown
    assert "lines/s" not in subprocess.run(command, capture_output=True, check=True).stderr.decode()


@pytest.mark.slow
def test_memory_does_not_grow_with_a_pipe(quick: Path) -> None:
    def peak_kib(lines: int) -> int:
        command = (
            f"yes 'a man likes the sea.' | head -n {lines} |"
            f" '{sys.executable}' -m seq2seq translate --model '{quick}' --beam 1 | wc -l"
        )
        measured = (
            "import resource, subprocess, sys;"
            "done = subprocess.run(sys.argv[1], shell=True, check=True, capture_output=True);"
            "print(done.stdout.decode(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        printed = subprocess.run(
            [sys.executable, "-c", measured, command], check=True, capture_output=True
        ).stdout.split()
        assert int(printed[0]) == lines
        return int(printed[1])

    # All lines held as text would take some 100 bytes each.
    few, many = 50_000, 1_000_000
    small, large = peak_kib(few), peak_kib(many)
    print(f"{few:,} lines {small:,} KiB, {many:,} lines {large:,} KiB")
    assert large - small < 4096 + 0.02 * (many - few)


def test_nbest_writes_k_candidates_per_line_the_best_first(
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


def test_translations_begin_with_the_prefixes_of_a_file(
    trained: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    (tmp_path / "prefixes").write_text("nine\n\nthree t\n")
    lines = ["one two", "three four five", "six"]
    free = translate(seq2seq, trained, tmp_path, lines)
    words = ("--prefix", str(tmp_path / "prefixes"))
    found = translate(seq2seq, trained, tmp_path, lines, *words)
    assert (found[0][:4], found[1], found[2][:7]) == ("nine", free[1], "three t")


def test_sentences_of_a_line_are_translated_one_by_one(
    trained: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    alone = translate(seq2seq, trained, tmp_path, ["one two?", "three four!"])
    lines = ["one two?  three four!", "", "one two?three four!"]
    found = translate(seq2seq, trained, tmp_path, lines, "--sentences", "--source-language", "en")
    assert found[:2] == ["  ".join(alone), ""]
    result = seq2seq("translate", "--model", trained, "--source-language", "e")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "source_language=e: must be the code of a language" in result.err


def test_several_models_are_an_ensemble(
    trained: Path, seq2seq: Callable, tmp_path: Path, source: list[str], corpus
) -> None:
    folders = [trained / "checkpoints" / f"step_00000{step}" for step in (300, 450)]
    models = [word for folder in folders for word in ("--model", folder)]
    translations = Translator.load(folders).translate(source)
    path = tmp_path / "in"
    path.write_text("\n".join(source))
    result = seq2seq("translate", *models, "-i", path, "--scores")
    assert result.out == "".join(f"{one.score:.6f}\t{one.text}\n" for one in translations)
    assert result.out != seq2seq("translate", *models[:2], "-i", path, "--scores").out

    output, reference = tmp_path / "out", corpus.folder / "test.target"
    output.write_text("".join(f"{one.text}\n" for one in translations))
    scored = seq2seq("score", *models, "-s", path, "-r", reference)
    assert scored.out == seq2seq("score", "-i", output, "-r", reference).out


def test_the_engine_ctranslate2_says_what_differs_and_translates(
    trained: Path,
    seq2seq: Callable,
    tmp_path: Path,
    source: list[str],
) -> None:
    pytest.importorskip("ctranslate2")
    expected = translate(seq2seq, trained, tmp_path, source)
    words = ("--engine", "ctranslate2")
    assert translate(seq2seq, trained, tmp_path, source, *words) == expected
    path = tmp_path / "in"
    result = seq2seq("translate", "--model", trained, "-i", path, *words)
    assert result.err.count("engine ctranslate2: ") == 1
