"""The everyday corpus: its files are those of its generator, and hold combinations out."""

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from seq2seq.cli.fidelity import compose_config
from seq2seq.data.preparation import prepare

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "everyday"
sys.path.insert(0, str(DATA / "generator"))
try:
    generate = import_module("generate")
finally:
    sys.path.pop(0)

SIZES = {"train": 20_000, "valid": 500, "test": 500, "test_unseen": 150}


@pytest.fixture(scope="module")
def splits():
    return generate.build()


def lines(name):
    text = (DATA / name).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def test_the_committed_files_equal_a_regeneration(splits):
    for name, sentences in splits.items():
        assert lines(f"{name}.en") == [sentence.english for sentence in sentences]
        assert lines(f"{name}.de") == [sentence.german for sentence in sentences]
    assert (DATA / "README.md").read_text(encoding="utf-8") == generate.readme(splits)


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_splits_have_their_sizes_and_share_no_line(language):
    for name, size in SIZES.items():
        assert len(lines(f"{name}.{language}")) == size
    together = [line for name in ("train", "valid", "test") for line in lines(f"{name}.{language}")]
    assert len(set(together)) == len(together)
    assert set(lines(f"test_unseen.{language}")) < set(lines(f"test.{language}"))


def test_held_out_pairs_are_only_in_the_unseen_split(splits):
    seen = {fact for name in ("train", "valid") for s in splits[name] for fact in s.facts}
    words = Counter(word for s in splits["train"] for _, *pair in s.facts for word in pair)
    for sentence in splits["test_unseen"]:
        new = [fact for fact in sentence.facts if fact not in seen and generate.held_out(fact)]
        assert new
        assert all(words[word] >= generate.OFTEN for _, *pair in new for word in pair)
    unseen = {sentence.english for sentence in splits["test_unseen"]}
    for sentence in splits["test"]:
        held = any(generate.held_out(fact) for fact in sentence.facts)
        assert held == (sentence.english in unseen)
    assert not any(map(generate.held_out, seen))


def test_it_is_prepared_without_a_warning(tmp_path):
    data = compose_config(["data=everyday"]).data
    prepared = prepare(data, tmp_path, lambda line: None)
    assert prepared.tokenizer.vocab_size == data.tokenizer.vocab_size
    assert prepared.warnings == []
    assert prepared.counts["train"].kept == prepared.counts["train"].read > 0
