"""`--forms plain`: every command that translates computes the same by the core alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from tests.conftest import Result
from tests.server.live import serve_by_command

PLAIN = ("--forms", "plain")


@pytest.fixture
def text(tmp_path: Path, sentences: list[str]) -> Path:
    path = tmp_path / "text.en"
    path.write_text("\n".join(["", *sentences[:12], "a dog\t42", *sentences[60:66]]) + "\n")
    return path


def output(result: Result) -> str:
    assert result.code == 0, result.err
    return result.out


@pytest.mark.parametrize("words", ["", "--nbest 3", "--sample --seed 2", "--sentences --beam 1"])
def test_lines_are_translated_alike(
    model: Path, text: Path, seq2seq: Callable[..., Result], words: str
) -> None:
    translate = ("translate", "--model", model, "-i", text, *words.split())
    plain, fast = (output(seq2seq(*translate, *forms)) for forms in (PLAIN, ()))
    assert [line.split("\t")[:2] for line in plain.splitlines()] == [
        line.split("\t")[:2] for line in fast.splitlines()
    ]
    assert len(set(plain.splitlines())) > 5


def test_a_glossary_and_links_are_the_same(
    model: Path, text: Path, seq2seq: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "terms").write_text("sea\thouse\n")
    found = []
    for name, forms in (("plain", PLAIN), ("fast", ("--forms", "fast"))):
        files = ("--glossary", tmp_path / "terms", "--alignments", tmp_path / name)
        out = output(seq2seq("translate", "--model", model, "-i", text, *files, *forms))
        assert "house" in out
        found.append((out, (tmp_path / name).read_text()))
    assert found[0] == found[1]


def test_an_ensemble_translates_a_document_alike(
    model: Path, seq2seq: Callable[..., Result], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>a man sees <b>the sea</b>.</p><p>nobody likes an apple.</p>")
    translate = ("translate", "--model", model, "--model", model, "-i", page)
    plain, fast = (output(seq2seq(*translate, *forms)) for forms in (PLAIN, ()))
    assert plain == fast != page.read_text()


def test_models_and_translations_have_the_same_scores(
    model: Path, text: Path, seq2seq_json: Callable
) -> None:
    scored = ("score", "--model", model, "-s", text, "-r", text)
    plain, fast = (seq2seq_json(*scored, *forms) for forms in (PLAIN, ()))
    assert plain == fast
    rescored = ("rescore", "--model", model, "-s", text, "-i", text)
    plain, fast = (seq2seq_json(*rescored, *forms)["log_probability"] for forms in (PLAIN, ()))
    assert plain == pytest.approx(fast, rel=1e-5)


def test_a_server_translates_alike(model: Path, sentences: list[str]) -> None:
    body = json.dumps({"q": sentences[:8], "source": "en", "target": "de"}).encode()
    with serve_by_command(model, *PLAIN) as (_, served, _):
        answer = served.ask("POST", "/translate", body, {"Content-Type": "application/json"})
    fast = Translator.load(model, TranslationOptions(device="cpu", sentences=True))
    assert answer.json["translatedText"] == [each.text for each in fast.translate(sentences[:8])]


def test_a_form_that_the_engine_lacks_is_refused(model: Path, seq2seq: Callable) -> None:
    words = ("translate", "--model", model, "--engine", "ctranslate2", *PLAIN)
    result = seq2seq(*words, stdin=b"a dog\n")
    assert result.code == 2
    assert "choose the engine native" in result.err
