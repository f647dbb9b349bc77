"""Folders of Hugging Face's that can't be imported: each is refused in one line, and says why."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from seq2seq.errors import UserError
from seq2seq.interop.marian_import import import_marian
from tests.interop.conftest import MakeFolder, edit_json

pytestmark = pytest.mark.filterwarnings("ignore")

WEIGHTS = "model.safetensors"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 310020485\n"
Change = Callable[[Path], object]


def config(**changes: Any) -> Change:
    return lambda folder: edit_json(folder / "config.json", lambda saved: saved.update(changes))


def vocabulary(edit: Callable[[dict[str, Any]], object]) -> Change:
    return lambda folder: edit_json(folder / "vocab.json", edit)


def weights(edit: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def change(folder: Path) -> None:
        saved = safetensors.torch.load_file(folder / WEIGHTS)
        edit(saved)
        safetensors.torch.save_file(saved, folder / WEIGHTS)

    return change


def write(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


FIRST = "model.encoder.layers.0.fc1.weight"

REFUSED: dict[str, tuple[Change, str]] = {
    "other embeddings": (config(scale_embedding=False), "only a model with scale_embedding"),
    "other heads": (config(decoder_attention_heads=2), "as many attention heads"),
    "a text for a number": (config(d_model="16"), "Expected `int`, got `str` - at `.*d_model"),
    "a billion layers": (config(encoder_layers=10**9), "at most 1,000"),
    "more layers": (config(encoder_layers=3), "has no model.encoder.layers.2.fc1.bias"),
    "a model of petabytes": (config(d_model=2**40), "shape|can be this large|memory"),
    "no JSON": (write("config.json", b"{"), "not valid JSON"),
    "a start beyond the pieces": (config(decoder_start_token_id=10**9), "not a piece"),
    "a pointer for weights": (write(WEIGHTS, POINTER), "a pointer of Git LFS.*git lfs pull"),
    "no weights": (remove(WEIGHTS), "neither model.safetensors nor pytorch_model.bin"),
    "no tokenizer": (remove("source.spm"), "source.spm: No such file"),
    "a corrupt tokenizer": (write("source.spm", b"\x0a\xff"), "copy the folder again"),
    "one piece less": (vocabulary(lambda v: v.pop("▁th")), "pieces are not 0 to"),
    "an id twice": (vocabulary(lambda v: v.update({"▁th": v["</s>"]})), "each once"),
    "NaN": (weights(lambda w: w[FIRST].fill_(torch.nan)), "not finite"),
    "another shape": (weights(lambda w: w.update({FIRST: torch.ones(3, 3)})), r"shape \[3, 3\]"),
    "one matrix more": (weights(lambda w: w.update(x=torch.ones(2))), "'x' is not a parameter"),
    "integers": (weights(lambda w: w.update({FIRST: w[FIRST].int()})), "floating-point type"),
    "a pickle as safetensors": (write(WEIGHTS, b"\x80\x04N." * 9), "not a safetensors file"),
    "gigabytes": (lambda folder: os.truncate(folder / WEIGHTS, 2**40), "can't hold more than"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("config.json", "model_type is 't5': only 'marian'"), ("model.pt", "only models of Marian")],
)
def test_other_models_are_refused(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / name).write_text('{"model_type": "t5", "vocab_size": "many"}')
    with pytest.raises(UserError, match=complaint):
        import_marian(tmp_path)


@pytest.mark.parametrize(("change", "complaint"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_in_one_line(make_folder: MakeFolder, change: Change, complaint: str) -> None:
    folder = make_folder().path
    change(folder)
    with pytest.raises(UserError, match=complaint) as error:
        import_marian(folder)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)
    assert len(str(error.value)) < 500
