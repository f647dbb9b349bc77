"""The everyday corpus: its splits have their sizes and share no line."""

from pathlib import Path

import pytest

from seq2seq.cli.fidelity import compose_config
from seq2seq.data.preparation import prepare

DATA = Path(__file__).resolve().parents[2] / "data" / "everyday"
SIZES = {"train": 20_000, "valid": 500, "test": 500, "test_unseen": 150}


def lines(name):
    text = (DATA / name).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_splits_have_their_sizes_and_share_no_line(language):
    for name, size in SIZES.items():
        assert len(lines(f"{name}.{language}")) == size
    together = [line for name in ("train", "valid", "test") for line in lines(f"{name}.{language}")]
    assert len(set(together)) == len(together)
    assert set(lines(f"test_unseen.{language}")) < set(lines(f"test.{language}"))


def test_it_is_prepared_without_a_warning(tmp_path):
    data = compose_config(["data=everyday"]).data
    prepared = prepare(data, tmp_path, lambda line: None)
    assert prepared.tokenizer.vocab_size == data.tokenizer.vocab_size
    assert prepared.warnings == []
    assert prepared.counts["train"].kept == prepared.counts["train"].read > 0
