"""`seq2seq import` and what can be done with its result."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result
from tests.interop.conftest import MakeFolder, edit_json

pytestmark = pytest.mark.filterwarnings("ignore")


def test_an_imported_model_translates_scores_and_is_described(
    make_folder: MakeFolder, seq2seq: Callable[..., Result], tmp_path: Path
) -> None:
    made, model = make_folder(encoder_layers=3, pieces=(">>por<<",)), tmp_path / "model"
    code, out, _ = seq2seq("import", made.path, "-o", model)
    assert code == 0
    assert "marian: 3+2 layers, d_model 16, swish, " in out
    assert "en -> pt" in out
    assert "target languages: p" in out
    assert f"next: seq2seq translate --model {model} < input > output" in out
    (tmp_path / "in").write_text("two small dogs\n\nthe long road\n")
    code, out, _ = seq2seq("translate", "--model", model, "-i", tmp_path / "in")
    assert code == 0
    assert len(out.splitlines()) == 3
    (tmp_path / "out").write_text(out)
    assert (
        seq2seq("rescore", "--model", model, "-s", tmp_path / "in", "-i", tmp_path / "out")[0] == 0
    )
    picture = tmp_path / "picture.svg"
    assert seq2seq("attention", "--model", model, "--source", "dogs", "-o", picture)[0] == 0
    assert "Post-LN" not in picture.read_text()


def test_an_imported_model_has_its_own_card_or_else_a_short_one(
    make_folder: MakeFolder,
    seq2seq: Callable[..., Result],
    first_files: dict[Path, list[str]],
    tmp_path: Path,
) -> None:
    made = make_folder()
    code, out, _ = seq2seq("import", made.path, "-o", tmp_path / "a_model")
    assert code == 0
    assert f"next: seq2seq translate --model {tmp_path / 'a_model'} --to por < input" in out
    assert "README.md" in first_files[tmp_path / "a_model"]
    card = (tmp_path / "a_model" / "README.md").read_text()
    assert "\nlanguage:\n- en\n- por\n- pob\n" in card
    assert "# a\\_model\n" in card
    assert f"imported from {made.path.name}" in card.replace("\\", "")
    assert "license" not in card
    own = b"---\nlicense: apache-2.0\n---\n\xff\n" + 100_000 * b"| score | 1.0 |\n"
    (made.path / "README.md").write_bytes(own)
    assert seq2seq("import", made.path, "-o", tmp_path / "second")[0] == 0
    assert (tmp_path / "second" / "README.md").read_bytes() == own
    assert seq2seq("export", "--model", tmp_path / "second", "--to", "marian", "-o",
                   tmp_path / "back")[0] == 0  # fmt: skip
    assert (tmp_path / "back" / "README.md").read_bytes() == own


def test_the_fidelity_report_says_where_it_differs_from_the_paper(
    make_folder: MakeFolder, seq2seq: Callable[..., Result], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    assert seq2seq("import", make_folder(separate=True).path, "-o", model)[0] == 0
    code, out, err = seq2seq("fidelity", "--model", model, "--json")
    assert (code, "its training is not known" in err) == (0, True)
    found = json.loads(out)
    differing = {row["detail"] for row in found if row["verdict"] == "differs"}
    assert {"feed-forward (3.3)", "shared matrix (3.4)"} <= differing
    assert {row["detail"] for row in found}.isdisjoint({"steps (5.2)", "beam (6.1)"})


def test_an_existing_folder_is_kept_and_a_missing_one_is_named(
    make_folder: MakeFolder, seq2seq: Callable[..., Result], tmp_path: Path
) -> None:
    made = make_folder()
    (tmp_path / "model").mkdir()
    code, _, err = seq2seq("import", made.path, "-o", tmp_path / "model")
    assert (code, "already exists" in err) == (1, True)
    for place in (tmp_path / "none", made.path / "config.json"):
        code, _, err = seq2seq("import", place, "-o", tmp_path / "new")
        assert (code, "no folder of this name; fetch one with hf download" in err) == (1, True)
    assert seq2seq("import", made.path)[0] == 2


def test_punctuation_is_normalized_where_the_model_does_not_know_it(
    make_folder: MakeFolder, seq2seq: Callable[..., Result], tmp_path: Path
) -> None:
    made = make_folder()  # knows „ “ ” ‘ ’ –
    _, out, _ = seq2seq("import", made.path, "-o", tmp_path / "none")
    assert "punctuation:" not in out

    def rename(vocabulary: dict[str, int]) -> None:
        for piece in "„“”‘’":
            vocabulary[piece * 2] = vocabulary.pop(piece)

    edit_json(made.path / "vocab.json", rename)
    _, out, _ = seq2seq("import", made.path, "-o", tmp_path / "moses")
    assert "punctuation: normalized as Moses does" in out
    settings = json.loads((tmp_path / "moses" / "config.json").read_text())
    assert settings["tokenizer"]["punctuation"] == "moses"
