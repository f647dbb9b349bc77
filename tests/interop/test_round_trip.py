"""Imported models that are exported again."""

from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq.interop.export import write_ctranslate2, write_marian
from seq2seq.interop.marian_import import import_marian
from seq2seq.tokenizer import END_ID
from tests.interop.conftest import MakeFolder, greedy, transformers

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.parametrize("kind", [{}, {"separate": True, "tie_word_embeddings": False}]),
]


def test_a_model_that_went_back_to_transformers_is_the_same(
    make_folder: MakeFolder, kind: dict[str, Any], sentences: list[str], tmp_path: Path
) -> None:
    trained = import_marian(make_folder(**kind).path)
    write_marian(tmp_path / "back", trained)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "back")
    ids = [[*ids, END_ID] for ids in trained.tokenizer.encode(sentences)]
    assert tokenizer(sentences)["input_ids"] == ids
    ids = [[*ids, END_ID] for ids in trained.tokenizer.encode_target(sentences)]
    assert tokenizer(text_target=sentences)["input_ids"] == ids
    again = import_marian(tmp_path / "back")
    assert again.tokenizer.files() == trained.tokenizer.files()
    assert again.model.config == trained.model.config
    weights = again.model.state_dict()
    for name, value in trained.model.state_dict().items():
        assert torch.equal(weights[name], value), name


def test_an_imported_model_runs_in_ctranslate2(
    make_folder: MakeFolder, kind: dict[str, Any], sentences: list[str], tmp_path: Path
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    trained = import_marian(make_folder(pieces=(), **kind).path)
    write_ctranslate2(tmp_path / "ct2", trained)
    lines = sentences[::9]
    translator = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    results = translator.translate_batch(
        [trained.tokenizer.source_pieces(ids) for ids in trained.tokenizer.encode(lines)],
        beam_size=1,
        max_decoding_length=11,
        suppress_sequences=[["<pad>"], ["<s>"]],
    )
    assert [result.hypotheses[0] for result in results] == greedy(trained, lines, 11)
