"""`tokenizer.json` in Hugging Face's library against the tokenizer that it describes."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.errors import UserError
from seq2seq.interop.marian_import import import_marian
from seq2seq.interop.onnx_folder import write_onnx
from seq2seq.interop.pair_tokenizer import PairConfig, PairTokenizer, dump_pieces
from seq2seq.interop.tokenizer_json import hidden, tokenizer_json
from seq2seq.pieces import read_processor
from seq2seq.tokenizer import (
    CONTROL_PIECES,
    END_ID,
    PAIR_FILES,
    UNKNOWN_ID,
    Tokenizer,
    TokenizerConfig,
)
from tests.conftest import MakeTrained
from tests.interop.conftest import MakeFolder, train_spm
from tests.interop.texts import EMOJI, KINDS, SIX_SCRIPTS, TYPED, random_texts, train_tokenizer

library = pytest.importorskip("tokenizers", reason="reads the exported tokenizer")

pytestmark = pytest.mark.filterwarnings("ignore")  # the library's own


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(kind) for kind in KINDS}


@cache
def read(tokenizer: Tokenizer) -> Any:
    """The same tokenizer in Hugging Face's library."""
    return library.Tokenizer.from_str(json.dumps(tokenizer_json(tokenizer).content))


def check(tokenizer: Tokenizer, lines: list[str]) -> None:
    """Ids of all lines, and the text of the ids, are equal."""
    found = [each.ids for each in read(tokenizer).encode_batch(lines)]
    expected = tokenizer.encode_target(lines)
    assert found == [[*ids, END_ID] for ids in expected]
    decoded = [read_text.strip() for read_text in read(tokenizer).decode_batch(found)]
    assert decoded == [text.strip() for text in tokenizer.decode(expected)]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_equal(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    check(tokenizers[kind], [*SIX_SCRIPTS, *TYPED, *EMOJI, "", " ", "   ", *random_texts(300, 1)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_equal_for_ten_thousand_lines(
    kind: str, tokenizers: dict[str, Tokenizer]
) -> None:
    check(tokenizers[kind], random_texts(10_000, 2))


def test_the_text_of_any_ids_is_equal(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer, draw = tokenizers["byte_fallback"], random.Random(1)
    pieces = tokenizer.pieces(list(range(tokenizer.vocab_size)))
    # Bytes that are not UTF-8 become other numbers of U+FFFD in each library.
    ids = [i for i, piece in enumerate(pieces) if not piece.startswith("<0x")]
    outputs = [draw.choices(ids, k=draw.randrange(1, 9)) for _ in range(300)]
    outputs += [
        [UNKNOWN_ID],
        [UNKNOWN_ID, UNKNOWN_ID, ids[-1]],
        *tokenizer.encode_target(["ȺɃ\nɄ"]),
    ]
    found = [text.strip() for text in read(tokenizer).decode_batch(outputs)]
    assert found == [text.strip() for text in tokenizer.decode(outputs)]


@pytest.fixture(scope="module")
def identity(tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers["identity"]


@given(text=st.text(max_size=40))
def test_ids_of_any_text_are_equal_without_normalization(identity: Tokenizer, text: str) -> None:
    check(identity, [text.replace("\ufdd0", "")])


def test_a_control_symbol_is_reached_by_its_hidden_name_alone(identity: Tokenizer) -> None:
    (typed, named) = read(identity).encode_batch([">>de<< a man", hidden(">>de<<") + "a man"])
    control = identity.controls[">>de<<"]
    assert control not in typed.ids
    assert named.ids == [control, *identity.encode_target(["a man"])[0], END_ID]


@pytest.mark.parametrize("pieces", [(">>por<<", ">>pob<<"), ()], ids=str)
def test_ids_of_an_imported_model_are_equal_but_for_those_that_its_table_lacks(
    make_folder: MakeFolder, sentences: list[str], pieces: tuple[str, ...]
) -> None:
    tokenizer = import_marian(make_folder(pieces=pieces).path).tokenizer
    described = tokenizer_json(tokenizer)
    assert described.unlisted
    lines = [*sentences, *SIX_SCRIPTS, *TYPED, "G aßa “a” äöü ßß ä[-]^\\ö"]
    assert any(UNKNOWN_ID not in tokenizer.encode([c])[0] for c in "Gß“")  # as translations have
    found = [
        [i if i < tokenizer.vocab_size else UNKNOWN_ID for i in each.ids]
        for each in read(tokenizer).encode_batch(lines)
    ]
    expected = tokenizer.encode(lines)
    assert found == [[*ids, END_ID] for ids in expected]
    outputs = tokenizer.encode_target([line[::-1] for line in sentences] + ["Größe", "“zz”"])
    decoded = [text.strip() for text in read(tokenizer).decode_batch(outputs)]
    assert decoded == tokenizer.decode(outputs)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_runs_of_characters_that_the_table_has_and_the_sources_model_lacks_are_pieces(
    sentences: list[str], model_type: str
) -> None:
    model = train_spm(sentences, 60, model_type)
    runs = [
        "ß",
        "ßß",
        "ä",
        "äö",
        "äöäö",
        "öäü",
        "^-]\\",
        "中国",
        "中国人",
        "aß",
        "ß.",
        ">>ü<<",
        "😀",
    ]
    known = read_processor(model).encode(" ".join(sentences), out_type=str)
    table = dump_pieces([*CONTROL_PIECES.values(), *runs, *sorted({*known})])
    files = dict(zip(PAIR_FILES, (model, model, table), strict=False))
    tokenizer = PairTokenizer(files, PairConfig(), ("en", "zh"))
    draw, letters = random.Random(1), ["a", "man", ".", " ", "人", "ö", "z"]
    lines = ["".join(draw.choices(runs + letters, k=draw.randint(1, 4))) for _ in range(2000)]
    found = [
        [i if i < tokenizer.vocab_size else UNKNOWN_ID for i in each.ids[:-1]]
        for each in read(tokenizer).encode_batch(lines)
    ]
    expected = tokenizer.encode(lines)
    assert found == expected
    once = {run for run in runs if tokenizer.source_pieces(tokenizer.encode([run])[0])[-1] == run}
    assert once == {*runs} - {"aß", "ß.", ">>ü<<"}


def test_case_folding_is_refused(sentences: list[str]) -> None:
    config = TokenizerConfig(vocab_size=60, normalization="nmt_nfkc_cf")
    with pytest.raises(UserError, match="text is normalized by nmt_nfkc_cf: identity, nmt_nfkc"):
        tokenizer_json(Tokenizer.train(sentences, config))


def test_transformers_reads_the_folder(make_trained: MakeTrained, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="an extra of the tests")
    transformers = pytest.importorskip("transformers", reason="an extra of the tests")
    trained = make_trained()
    write_onnx(tmp_path / "onnx", trained)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "onnx")
    text = "two small dogs </s> <unk> a man."
    ids = [*trained.tokenizer.encode_target([text])[0], END_ID]
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer.eos_token_id == END_ID
    assert transformers.AutoConfig.from_pretrained(tmp_path / "onnx").d_model == 8
