"""`seq2seq export`: another program translates as `seq2seq translate` does."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seq2seq.data.tokenizer import END_ID
from seq2seq.storage.checkpoint import find_model

LONGEST = 20  # tokens of an output; what would be longer is cut off elsewhere by each program


def test_marian_translates_as_this_package_does(
    corpus, trained: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", reason="an extra of the tests")
    folder = tmp_path / "marian"
    exported = seq2seq("export", "--model", trained, "--to", "marian", "-o", folder)
    assert (exported.code, exported.out) == (0, f"{folder}\n")
    card = (find_model(trained) / "README.md").read_bytes()
    assert (folder / "README.md").read_bytes() == card
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    model = transformers.MarianMTModel.from_pretrained(folder)
    source = corpus.folder / "test.source"
    expected = seq2seq("translate", "--model", trained, "--beam", "1", "-i", source).out
    lines = source.read_text().splitlines()
    outputs = model.generate(
        **tokenizer(lines, return_tensors="pt", padding=True), num_beams=1, max_length=LONGEST
    )
    ended = [END_ID in ids[1:-1] for ids in outputs.tolist()]
    assert any(ended)
    found = tokenizer.batch_decode(outputs, skip_special_tokens=True)
    for one, other, whole in zip(found, expected.splitlines(), ended, strict=True):
        assert not whole or one == other


def test_an_existing_folder_is_kept(trained: Path, seq2seq: Callable, tmp_path: Path) -> None:
    folder = shutil.copytree(find_model(trained), tmp_path / "folder")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = seq2seq("export", "--model", trained, "--to", "marian", "-o", folder)
    assert (result.code, {p.name: p.read_bytes() for p in folder.iterdir()}) == (1, before)
    assert "already exists" in result.err


def test_a_card_that_can_t_be_read_leaves_no_half_an_export(
    trained: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    shutil.copytree(find_model(trained), tmp_path / "model")
    (tmp_path / "model" / "README.md").write_bytes(bytes(2**24 + 1))
    folder = tmp_path / "marian"
    result = seq2seq("export", "--model", tmp_path / "model", "--to", "marian", "-o", folder)
    assert (result.code, folder.exists()) == (1, False)
    assert "README.md" in result.err
