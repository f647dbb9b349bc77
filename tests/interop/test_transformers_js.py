"""Exported folders in transformers.js: `npm install @huggingface/transformers` in a folder.

TRANSFORMERS_JS=FOLDER pytest -m slow tests/interop/test_transformers_js.py
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seq2seq.config import Positions
from seq2seq.interop.marian_import import import_marian
from seq2seq.interop.onnx_folder import write_onnx
from seq2seq.model_folder import TrainedModel
from seq2seq.tokenizer import END_ID, UNKNOWN_ID
from tests.conftest import MakeModel, MakeTrained
from tests.interop.conftest import MakeFolder
from tests.interop.onnx_sessions import translate
from tests.interop.texts import EMOJI, KINDS, SIX_SCRIPTS, TYPED, random_texts, train_tokenizer
from tests.models import ALL_MODERN

PACKAGES = os.environ.get("TRANSFORMERS_JS", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PACKAGES and shutil.which("node")), reason="needs transformers.js"),
    pytest.mark.filterwarnings("ignore"),  # the libraries' own
]


def transformers_js(folder: Path, **job: list[Any]) -> dict[str, Any]:
    """Give transformers.js lines to translate, texts to encode and outputs to decode."""
    everything = {
        "folder": str(folder),
        "lines": [],
        "longest": 10,
        "texts": [],
        "outputs": [],
    } | job
    done = subprocess.run(
        ["node", Path(__file__).with_name("transformers_js.mjs"), PACKAGES],
        input=json.dumps(everything).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "choices", [{}, ALL_MODERN, {"num_decoder_layers": 3, "positions": Positions.learned}], ids=str
)
def test_greedy_translations_are_equal(
    make_trained: MakeTrained, sentences: list[str], tmp_path: Path, choices: dict[str, Any]
) -> None:
    trained = make_trained(**choices)
    write_onnx(tmp_path / "onnx", trained)
    lines = [
        *sentences,
        *(f"{one} {other}" for one, other in zip(sentences, sentences[::-1], strict=True)),
    ]
    found = transformers_js(tmp_path / "onnx", lines=lines)["translations"]
    assert [text.strip() for text in found] == translate(trained, lines)


def test_eight_bit_integers_run(
    make_trained: MakeTrained, sentences: list[str], tmp_path: Path
) -> None:
    write_onnx(tmp_path / "onnx", make_trained(), "int8")
    found = transformers_js(tmp_path / "onnx", lines=sentences[:20])["translations"]
    assert len(set(found)) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_equal_for_ten_thousand_lines(
    kind: str, make_model: MakeModel, tmp_path: Path
) -> None:
    tokenizer = train_tokenizer(kind)
    model = make_model(vocab_size=tokenizer.vocab_size)
    write_onnx(tmp_path / "onnx", TrainedModel(model.float(), tokenizer, "en", "de"))
    texts = [*SIX_SCRIPTS, *TYPED, *EMOJI, "", " ", "  ", *random_texts(10_000, 3)]
    expected = tokenizer.encode_target(texts)
    outputs = [ids for ids in expected if ids]
    found = transformers_js(tmp_path / "onnx", texts=texts, outputs=outputs)
    assert found["ids"] == [[*ids, END_ID] for ids in expected]
    decoded = [text.strip() for text in found["decoded"]]
    assert decoded == [text.strip() for text in tokenizer.decode(outputs)]


def test_an_imported_model_translates(
    make_folder: MakeFolder, sentences: list[str], tmp_path: Path
) -> None:
    trained = import_marian(make_folder(pieces=()).path)
    write_onnx(tmp_path / "onnx", trained)
    table = range(trained.tokenizer.vocab_size)
    texts = [*sentences, *trained.tokenizer.source_pieces(list(table))]
    found = transformers_js(tmp_path / "onnx", lines=sentences, texts=texts)
    ids = [[i if i in table else UNKNOWN_ID for i in line] for line in found["ids"]]
    assert ids == [[*line, END_ID] for line in trained.tokenizer.encode(texts)]
    assert [text.strip() for text in found["translations"]] == translate(trained, sentences)
