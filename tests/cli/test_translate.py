"""`seq2seq translate` as a filter: N lines in, N lines out."""

import bz2
import gzip
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.search import SearchConfig
from tests.cli.conftest import Terminal


@pytest.fixture(scope="module")
def source(corpus) -> list[str]:
    return (corpus / "test.source").read_text().splitlines()


@pytest.fixture
def translate(trained: Path, seq2seq: Callable, tmp_path: Path) -> Callable[..., list[str]]:
    """Translate lines, as words say; with other models if they name some."""

    def run(lines: list[str], *words: str | Path) -> list[str]:
        path = tmp_path / "in"
        path.write_text("".join(f"{line}\n" for line in lines))
        models = () if "--model" in words else ("--model", trained)
        result = seq2seq("translate", "-i", path, *models, *words)
        assert result.code == 0, result.err
        return result.out.split("\n")[:-1]

    return run


@pytest.mark.posix
def test_no_output_is_an_input_or_a_file_of_the_model(
    quick: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    text, output, weights = tmp_path / "text", tmp_path / "out", quick / "model.safetensors"
    text.write_text("a man\n")
    (tmp_path / "soft").symlink_to(text)
    (tmp_path / "hard").hardlink_to(text)
    words = ("translate", "--model", quick, "--beam", "1")
    for path in (text, tmp_path / "soft", tmp_path / "hard", weights):
        result = seq2seq(*words, "-i", text, "-o", path)
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert "choose another output" in result.err
    shell = f"{sys.executable} -m seq2seq translate --model {quick} < {text} >> {text}"
    assert subprocess.run(shell, shell=True, capture_output=True).returncode == 1
    assert text.read_text() == "a man\n"
    replaced = f"seq2seq: {output}: will be replaced\n"
    assert replaced not in seq2seq(*words, "-i", text, "-o", output).err
    assert replaced in seq2seq(*words, "-i", text, "-o", output).err
    assert seq2seq(*words, "-i", text, "-o", os.devnull).code == 0
    assert not Path(os.devnull).is_file()


@pytest.mark.posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_whole_lines_in_a_file_that_is_named(
    quick: Path, tmp_path: Path, number: int
) -> None:
    (tmp_path / "out").write_text("from before")
    command = [sys.executable, "-m", "seq2seq", "translate", "--model", quick, "-o", "out"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as run:
        run.stdin.write(b"42\n" * 9000)
        run.stdin.flush()
        while run.poll() is None and not any(p.stat().st_size for p in tmp_path.glob("out.*")):
            time.sleep(0.1)
        run.send_signal(number)
        run.stdin.close()
        err = run.stderr.read().decode()
    assert run.returncode == 128 + number, err
    (part,) = tmp_path.glob("out.*.part")
    assert f"{part.name}: has what was written until then\n" in err
    assert set(part.read_text().split("\n")) == {"42", ""}
    assert (tmp_path / "out").read_text() == "from before"


TEXT = "Der Hund läuft.\n" * 3


def archive(kind: str) -> bytes:
    """An archive of a file of text."""
    with TemporaryDirectory() as folder:
        Path(folder, "in").mkdir()
        Path(folder, "in/corpus.en").write_text("a man\n" * 200)
        made = shutil.make_archive(f"{folder}/made", kind, Path(folder, "in"))
        return Path(made).read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("text", gzip.compress(b"a man\n"), "let its name end in .gz"),
        ("twice.gz", gzip.compress(gzip.compress(b"a man\n")), "let its name end in .gz"),
        ("text", lzma.compress(b"a man\n"), "let its name end in .xz"),
        ("text", bz2.compress(b"a man\n"), "let its name end in .bz2"),
        ("corpus.zip", archive("zip"), "a ZIP archive, .* unzip"),
        ("corpus.tgz", archive("gztar"), ".tgz, extract its files: tar -xf"),
        ("corpus.tar.gz", archive("gztar"), "a tar archive, .* tar -xf"),
        ("text", TEXT.encode("utf-16"), "line 1: UTF-16, .* iconv -f utf-16 -t utf-8"),
        ("text", TEXT.encode("utf-16-be"), "line 1: byte 0xe4 .* not UTF-8"),
        ("text", b"a\n" + 2 * b"a\0man\n", "line 2: a NUL"),
        ("text", TEXT.encode("latin-1"), "line 1: byte 0xe4 at position 11 .* not UTF-8"),
        ("text", b"%PDF-1.7\n1 0 obj\n" * 9, "PDF"),
        ("text.pdf.gz", gzip.compress(TEXT.encode()), "format is not supported"),
        ("text.de.yml", TEXT.encode(), "if its lines are text, add --format txt"),
        ("text.en.gz", gzip.compress(b'{"a":\n"A dog"}\n'), "--format txt translates its lines"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # gzip writes the time
)
def test_what_is_not_lines_of_text_is_refused(
    quick: Path, seq2seq: Callable, tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    result = seq2seq("translate", "--model", quick, "-i", path, "-o", tmp_path / "out.gz")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert re.match(f"seq2seq: {re.escape(str(path))}: .*text", result.err)
    assert re.search(says, result.err)
    assert [item.name for item in tmp_path.iterdir()] == [name]
    if name == "text":
        result = seq2seq("score", "-i", path, "-r", path)
        assert (result.code, bool(re.search(says, result.err))) == (1, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_messages_that_can_t_be_printed_don_t_fail_the_command(quick: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("to be replaced")
    command = f"'{sys.executable}' -m seq2seq translate --model '{quick}' -o out 2>/dev/full"
    done = subprocess.run(command, shell=True, cwd=tmp_path, input=b"42\n\xff\n7\n")
    assert (done.returncode, (tmp_path / "out").read_text()) == (0, "42\n\ufffd\n7\n")


def test_white_space_and_line_ends_are_kept(quick: Path, seq2seq: Callable, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b" \r\n  42 \r\n\tone\n\r\n7\ttwo\t\r\n- one")
    words = ("translate", "--model", quick, "-i", tmp_path / "in", "-o", tmp_path / "out")
    result = seq2seq(*words)
    assert result.code == 0
    assert "lines: 6; empty outputs: 1 (first: line 3)" in result.err
    assert (tmp_path / "out").read_bytes() == b" \r\n  42 \r\n\t\n\r\n7\t\t\r\n- \n"
    assert seq2seq(*words, "--nbest", "1").code == 0
    rows = (tmp_path / "out").read_bytes().split(b"\n")
    assert rows[:2] == [b"0\t \t0.000000\r", b"1\t  42 \t0.000000\r"]


def test_a_log_gets_lines_with_what_is_done_and_left(
    quick: Path, seq2seq: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq.cli.progress._LOG_SECONDS", 0.0)
    (tmp_path / "in").write_text("a man\n" * 3)
    result = seq2seq("translate", "--model", quick, "-i", tmp_path / "in", "-o", tmp_path / "out")
    assert re.search(r"^seq2seq: 3 of 3 lines, +[0-9.]+ lines/s, 00:00 left$", result.err, re.M)


def test_a_missing_file_is_told_before_pytorch_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from seq2seq.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(99 if 'torch' in sys.modules else code)"
    )
    nowhere = str(tmp_path / "nowhere")
    for words in (
        ["translate", "--model", "x", "-i", nowhere],
        ["rescore", "--model", "x", "-s", nowhere, "-i", nowhere],
    ):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True)
        assert (done.returncode, b"nowhere: no such file" in done.stderr) == (1, True)


def test_progress_is_for_terminals(
    trained: Path, tmp_path: Path, source: list[str], seq2seq: Callable
) -> None:
    (tmp_path / "in").write_text("\n".join(source))
    words = ["translate", "--model", str(trained), "-i", str(tmp_path / "in")]
    words += ["-o", str(tmp_path / "out")]
    shown = Terminal(*words).read_to_the_end()
    assert f"{len(source)}/{len(source)}" in shown
    assert " lines/s" in shown
    assert "lines/s" not in seq2seq(*words).err


@pytest.mark.posix
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


def test_alignments_have_a_line_for_each_line(
    trained: Path, translate: Callable, tmp_path: Path, source: list[str]
) -> None:
    lines, links = ["", *source, "42 43"], tmp_path / "links.gz"
    translate(lines, "--alignments", links)
    found = gzip.decompress(links.read_bytes()).decode().split("\n")
    translations = Translator.load(trained)
    expected = translations.alignments(lines, translations.translate(lines))
    assert found == [*map(str, expected), ""]
    assert (found[0], found[-2]) == ("", "0-0 1-1")


def test_nbest_writes_k_candidates_per_line_the_best_first(
    translate: Callable, source: list[str]
) -> None:
    rows = [line.split("\t") for line in translate(source, "--nbest", "3")]
    assert [int(number) for number, _, _ in rows] == [i for i in range(len(source)) for _ in "123"]
    for i, line in enumerate(translate(source, "--scores")):
        candidates = rows[3 * i : 3 * i + 3]
        assert candidates[0][:0:-1] == line.split("\t")
        scores = [float(candidate[2]) for candidate in candidates]
        assert scores == sorted(scores, reverse=True)


def test_sentences_and_terms_are_those_of_the_translator(
    trained: Path, translate: Callable, tmp_path: Path
) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("seven\ttwo two\n# no term\n")
    lines = ["one two?  three four!", "", "six", "one two?three seven!"]
    words = ("--glossary", terms, "--sentences", "--source-language", "en")
    found = translate(lines, *words)
    options = TranslationOptions(sentences=True, source_language="en", glossary=terms)
    expected = Translator.load(trained, options).translate(lines)
    assert found == [one.text for one in expected]
    assert "two two" in found[3]


def test_several_models_are_an_ensemble(
    trained: Path, translate: Callable, seq2seq: Callable, tmp_path: Path, source: list[str], corpus
) -> None:
    folders = [trained / "checkpoints" / f"step_00000{step}" for step in (300, 450)]
    models = [word for folder in folders for word in ("--model", folder)]
    translations = Translator.load(folders).translate(source)
    found = translate(source, *models, "--scores")
    assert found == [f"{one.score:.6f}\t{one.text}" for one in translations]
    assert found != translate(source, *models[:2], "--scores")

    output, reference = tmp_path / "out", corpus / "test.target"
    output.write_text("".join(f"{one.text}\n" for one in translations))
    scored = seq2seq("score", *models, "-s", tmp_path / "in", "-r", reference)
    assert scored.out == seq2seq("score", "-i", output, "-r", reference).out


def test_the_engine_ctranslate2_translates(
    trained: Path, translate: Callable, source: list[str]
) -> None:
    pytest.importorskip("ctranslate2")
    engine = ("--engine", "ctranslate2")
    translator = Translator.load(trained, TranslationOptions(engine="ctranslate2"))
    expected = [one.text for one in translator.translate_stream(source)]
    assert translate(source, *engine) == expected
    search = SearchConfig(beam_size=1, alpha=translator.search.alpha)
    translator = Translator.load(trained, TranslationOptions(engine="ctranslate2", search=search))
    found = [[f"{one.score:.6f}", one.text] for one in translator.translate_stream(source)]
    greedy = (*engine, "--beam", "1")
    assert [line.split("\t") for line in translate(source, *greedy, "--scores")] == found
    nbest = [line.split("\t") for line in translate(source, *greedy, "--nbest", "1")]
    assert [row[:0:-1] for row in nbest] == found
