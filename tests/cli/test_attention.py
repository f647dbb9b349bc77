"""`seq2seq attention`: pictures and numbers."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2seq.decoding.translator import Translator

SOURCE, TARGET = "a man sees the sea.", "nobody paints an apple."


def test_each_head_gets_a_panel(seq2seq: Callable, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    words = ("attention", "--model", model, "--source", SOURCE, "--target", TARGET, "-o", path)
    assert seq2seq(*words) == (0, f"{path}\n", "")
    text = path.read_text()
    titles = [f"layer {n}, head {h}" for n in (1, 2) for h in (1, 2)]
    assert [title for title in titles if f"<!-- {title} -->" in text] == titles[2:]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_the_json_weights_equal_those_in_python(seq2seq: Callable, model: Path, kind: str) -> None:
    words = ["attention", "--model", model, "--source", SOURCE, "--target", TARGET, "--json"]
    result = seq2seq(*words, "--kind", kind, "--layer", "all", "--head", "2")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    attention = Translator.load(model).attention(SOURCE, TARGET)
    weights = torch.tensor(found["weights"])
    assert torch.equal(weights, getattr(attention, kind)[:, 1:2].cpu())
    assert found == json.loads(json.dumps(attention.record(kind, "all", 2)))


def test_the_target_is_the_translation_and_matplotlib_is_not_needed(
    seq2seq: Callable, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    words = ("attention", "--model", model, "--source", SOURCE, "--json")
    (translation,) = Translator.load(model).translate([SOURCE])
    result = seq2seq(*words)
    assert result == seq2seq(*words, "--target", translation.text)
    maps = Translator.load(model).attention(SOURCE)
    assert json.loads(result.out) == json.loads(json.dumps(maps.record("cross")))
    assert (result.code, result.err) == (0, "")
    assert result != seq2seq(*words, "--target", TARGET)
