"""Exported models that are imported again, and imported ones that are exported again."""

from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq.data.tokenizer import END_ID, START_ID
from seq2seq.interop.ctranslate2 import write_ctranslate2
from seq2seq.interop.marian_export import write_marian
from seq2seq.interop.marian_import import import_marian
from tests.interop.conftest import MakeFolder, transformers
from tests.interop.test_marian_import import greedy

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kind", [{}, {"separate": True, "tie_word_embeddings": False}], ids=str)
def test_an_imported_model_can_go_back_to_transformers(
    make_folder: MakeFolder, kind: dict[str, Any], sentences: list[str], tmp_path: Path
) -> None:
    made = make_folder(pieces=(), **kind)
    trained = import_marian(made.path)
    write_marian(tmp_path / "back", trained)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "back")
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "back").eval()
    lines = sentences[::9]
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    expected = [[*ids, END_ID] for ids in trained.tokenizer.encode(lines)]
    assert [row[row != 0].tolist() for row in batch["input_ids"]] == expected
    target = torch.randint(4, trained.model.vocab_size, (len(lines), 6))
    target[:, 0] = START_ID
    with torch.no_grad():
        found = model(**batch, decoder_input_ids=target).logits
        difference = (found - trained.model(batch["input_ids"], target)).abs()
    difference[..., START_ID] = 0.0
    assert difference.max() < 1e-4
    again = import_marian(tmp_path / "back")
    assert greedy(again, lines, None) == greedy(trained, lines, None)


@pytest.mark.parametrize("kind", [{}, {"separate": True, "tie_word_embeddings": False}], ids=str)
def test_an_imported_model_runs_in_ctranslate2(
    make_folder: MakeFolder, kind: dict[str, Any], sentences: list[str], tmp_path: Path
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    made = make_folder(padding_last=True, pieces=(), **kind)
    trained = import_marian(made.path)
    write_ctranslate2(tmp_path / "ours", trained)
    lines = sentences[::9]
    sources = [trained.tokenizer.source_pieces(ids) for ids in trained.tokenizer.encode(lines)]
    outputs = []
    names = ["ours"]
    if not kind:  # its converter knows one vocabulary, with <pad> at its end
        names.append("theirs")
        converter = ctranslate2.converters.TransformersConverter(str(made.path))
        converter.convert(str(tmp_path / "theirs"))
    for name in names:
        translator = ctranslate2.Translator(str(tmp_path / name), compute_type="float32")
        # Its own converter for `transformers` leaves `</s>` to its caller.
        ends = [] if name == "ours" else ["</s>"]
        results = translator.translate_batch(
            [source + ends for source in sources],
            beam_size=1,
            max_decoding_length=11,
            suppress_sequences=[["<pad>"], ["<s>"]] if name == "ours" else None,
        )
        outputs.append([result.hypotheses[0] for result in results])
    assert all(output == outputs[0] for output in outputs)
    assert outputs[0] == [pieces[:11] for pieces in greedy(trained, lines, None)]
