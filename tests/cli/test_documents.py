"""`seq2seq translate` for documents and folders of them."""

import gzip
import io
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.model_folder import save_model
from tests.conftest import MakeTrained, Result

SRT = "1\n00:00:01,000 --> 00:00:02,500\nA <i>man</i> sees\nthe {sea}.\n\n2\n0:03 --> 0:04\nNo.\n"
HTML = "<!doctype html>\n<p class=x>A <b>man</b> sees {n} <i>dogs</i>.</p><script>a</script>\n"


class Site:
    """A folder of documents, `folder`, and the folder of their translations, `output`."""

    def __init__(self, model: Path, seq2seq: Callable[..., Result], parent: Path) -> None:
        self.folder, self.output = parent / "site", parent / "site.de"
        self.command, self.seq2seq = ("translate", "--model", model), seq2seq

    def write(self, **contents: str | bytes) -> None:
        """Write documents, whose names have `_` for the dot."""
        for name, content in contents.items():
            path = self.folder / name.replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def translate(self, *words: str) -> Result:
        """Translate the folder, or bring its translations up to date."""
        files = ("-i", self.folder, "-o", self.output, "--resume")
        return self.seq2seq(*self.command, *files, *words)


@pytest.fixture
def site(model: Path, seq2seq: Callable[..., Result], tmp_path: Path) -> Site:
    return Site(model, seq2seq, tmp_path)


def test_a_document_keeps_all_but_its_words(
    model: Path, seq2seq: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in {"film.srt": SRT, "page.html": HTML}.items():
        path, output = tmp_path / name, tmp_path / f"{name}.gz"
        path.write_text(content)
        result = seq2seq("translate", "--model", model, "-i", path, "-o", output)
        assert (result.code, result.out, result.err.count("\n")) == (0, "", 1), result.err
        assert result.err.startswith("seq2seq: lines: ")
        found = gzip.decompress(output.read_bytes()).decode()
        assert found != content
        for mark in re.findall(r"<[^>]*>|\{\w+\}|\d.*-->.*", content):
            assert found.count(mark) == content.count(mark)
        again = seq2seq("translate", "--model", model, "-i", output, "--format", path.suffix[1:])
        assert re.findall(r"<[^>]*>", again.out) == re.findall(r"<[^>]*>", found)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        piped = seq2seq("translate", "--model", model, "--format", path.suffix[1:])
        assert (piped.code, piped.out) == (0, found)
    words = ("translate", "--model", model, "-i", path, "--format")
    assert seq2seq(*words, "html", "-o", tmp_path / "page.txt").code == 0
    as_lines = seq2seq(*words, "txt")
    assert as_lines.out.count("\n") == HTML.count("\n")


def test_a_document_whose_output_can_t_be_written_is_not_translated_first(
    model: Path, seq2seq: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq.cli.documents.translate_file", work := Mock())
    (tmp_path / "film.srt").write_text(SRT)
    files = ("-i", tmp_path / "film.srt", "-o", tmp_path / "nowhere" / "film.srt")
    result = seq2seq("translate", "--model", model, *files)
    assert (result.code, result.out, work.called) == (1, "", False)
    assert re.fullmatch(r"seq2seq: \S+/nowhere/film.srt: can't be written: .+\n", result.err)


@pytest.mark.posix
def test_the_documents_of_a_folder_are_translated_and_all_else_is_copied(
    site: Site, tmp_path: Path
) -> None:
    folder, output = site.folder, site.output
    files = {
        "a.html": HTML.encode(), "sub/b.txt": b"A man.\r\n\r\nTwo", "c.css": b"\xff",
        "d.pdf": b"%PDF", "sub/bad.srt": b"no times", "latin.md": "caf\xe9".encode("latin-1"),
    }  # fmt: skip
    site.write(**files)
    (folder / "link.html").symlink_to("a.html")
    result = site.seq2seq(*site.command, "-i", folder, "-o", output)
    assert result.code == 3
    found = {str(p.relative_to(output)): p.read_bytes() for p in output.rglob("*") if p.is_file()}
    assert found.keys() == {*files, "link.html", ".translated.jsonl"}
    assert {name for name, content in found.items() if content == files.get(name)} == {
        "c.css", "d.pdf", "sub/bad.srt", "latin.md"
    }  # fmt: skip
    assert found["sub/b.txt"].count(b"\r\n") == 2
    assert (output / "link.html").is_symlink()
    for reason in ("d.pdf: documents of .pdf", "bad.srt: no subtitle", "latin.md: the file is not"):
        assert reason in result.err
    assert "2 translated, 0 kept; files: 5 copied as they are; to be looked at: 3\n" in result.err
    # and nothing is written over
    before = sorted(tmp_path.rglob("*"))
    for target, reason in ((output, "not an empty folder"), (folder / "x", "is in the folder")):
        result = site.seq2seq(*site.command, "-i", folder, "-o", target)
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert reason in result.err
    assert site.seq2seq(*site.command, "-i", folder).code == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_continued_and_brought_up_to_date(site: Site) -> None:
    site.write(**{f"{name}_txt": f"A man {name}.\n" for name in "abc"})
    assert site.translate().code == 0
    site.write(b_txt="Two dogs run.\n")
    (site.output / "c.txt").write_text("Ein Mann, C.\n")
    result = site.translate()
    assert result.code == 3
    assert "1 translated, 1 kept; files: 0 copied as they are; to be looked at: 1\n" in result.err
    assert "c.txt: kept, as it was made or edited by hand; remove it" in result.err
    assert (site.output / "c.txt").read_text() == "Ein Mann, C.\n"
    (site.output / "c.txt").unlink()
    # Other options make other translations.
    for options in (("--beam", "2"), ("--beam", "2", "--fuzzy")):
        result = site.translate(*options)
        assert result.code == 0
        assert "3 translated, 0 kept" in result.err


def test_the_folder_of_a_translation_is_translated_again(site: Site) -> None:
    site.write(a_txt="A man.\n")
    assert site.translate().code == 0
    site.folder, site.output = site.output, site.output.with_name("fr")
    site.translate()
    assert "documents: 0 translated, 1 kept; files: 0 copied" in site.translate().err


def test_what_to_check_in_a_folder_is_named_by_file(site: Site) -> None:
    site.write(a_txt="42\n", b_txt="99\nA 7 man runs.\n")
    assert "(first: b.txt, text " in site.translate().err


def test_options_name_the_languages_of_a_model_that_names_none(
    make_trained: MakeTrained, seq2seq: Callable, tmp_path: Path
) -> None:
    model, output = tmp_path / "model", tmp_path / "out"
    save_model(model, replace(make_trained(), source_language="source", target_language="target"))
    files = {
        "a.arb": '{"@@locale": "en", "a": "A man"}',
        "a.tmx": '<tmx><body><tu><tuv xml:lang="en"><seg>A man</seg></tuv></tu></body></tmx>',
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        words = ["translate", "--model", model, "-i", tmp_path / name, "-o", output]
        refused = seq2seq(*words)
        assert (refused.code, refused.err.count("\n"), output.exists()) == (1, 1, False)
        assert f"{name}: names languages, but the model doesn't: add" in refused.err
        assert refused.err.endswith("--to CODE\n")
        assert seq2seq(*words, "--source-language", "en", "--to", "fr").code == 0
        assert '"fr"' in output.read_text()
        output.unlink()
    (tmp_path / "a.arb").write_text('{"a": "A man"}')
    assert seq2seq(*words[:4], tmp_path / "a.arb").code == 0


def test_what_ends_a_folder_early_or_not_at_all_is_continued(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write(a_css="a", b_pdf="%PDF", **{os.fsdecode(b"caf\xe9_txt"): "A man.\n"})
    with monkeypatch.context() as patch:
        patch.setattr("seq2seq.cli.documents._translate", Mock(side_effect=KeyboardInterrupt))
        stopped = site.translate()
    assert stopped.code == 130
    assert "the same command with --resume goes on\n" in stopped.err
    assert "1 translated, 0 kept" in site.translate().err
    assert "0 translated, 1 kept" in site.translate().err
