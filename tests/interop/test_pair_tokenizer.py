"""Token ids of imported vocabularies against those of `MarianTokenizer`."""

import json
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from seq2seq.data.corpus import FilterConfig
from seq2seq.data.encoding import PairEncoder, SampledCorpus
from seq2seq.data.noise import NoiseConfig
from seq2seq.encoded_corpus import EncodedCorpus, new_corpus
from seq2seq.errors import UserError
from seq2seq.interop.marian import make_table
from seq2seq.interop.pair_tokenizer import PairConfig, PairTokenizer, dump_pieces
from seq2seq.tokenizer import END_ID, UNKNOWN_ID, tokenizer_errors
from tests.interop.conftest import table, transformers
from tests.zoo.test_bpe_dropout import ids_of

pytestmark = pytest.mark.filterwarnings("ignore")

LINES = [
    "", " ", "Hello world!", "  two   spaces ", "tab\tand\u00a0space", "“Quotes” – ‘here’ … «là»",
    "naïve Ὀδυσσεύς 漢字かな 😀 a😀b", "½ ﬁ Ⅳ ﬀ Å e\u0301", "▁ mark ▁▁", "a\u200bb\ufeffc\u2028d",
    ">> not a tag", "a >>por<< b", "1,234.5 % (x) [y] {z}", "ß" * 50, "\x00\x01\x1f",
    "\ud7ff\ufffd",
    "<s> < / s >", "&quot; &amp;", "日本語の文です。", "Ελληνικά и русский", "ĳ ŀ ſ", "- -- ---",
]  # fmt: skip
SYMBOLS = re.compile(r"</s>|<unk>|<pad>|<s>")


class Both(NamedTuple):
    """A tokenizer of each program, and the other's id of each id here."""

    ours: PairTokenizer
    theirs: Any
    rows: list[int]


def tokenizer_files(models: tuple[bytes, bytes], pieces: list[str]) -> dict[str, bytes]:
    names = ("source.model", "target.model", "vocabulary.json")
    return dict(zip(names, (*models, dump_pieces(pieces)), strict=True))


@pytest.fixture(scope="module")
def tokenizers(spm_models: tuple[bytes, bytes], tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("made")
    for name, model in zip(("source.spm", "target.spm"), spm_models, strict=True):
        (folder / name).write_bytes(model)
    vocabulary = table(spm_models, (">>por<<",), 1)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    rows = make_table(folder / "vocab.json", vocabulary, len(vocabulary), vocabulary["<pad>"])
    ours = PairTokenizer(tokenizer_files(spm_models, list(rows)), PairConfig(), ("en", "pt"))
    return Both(ours, transformers.MarianTokenizer.from_pretrained(folder), list(rows.values()))


def typed_symbol(line: str) -> bool:
    """Whether the other program reads a part of the text as a symbol."""
    return bool(SYMBOLS.search(line)) or (line.startswith(">>") and "<<" in line)


def assert_same_ids(tokenizers: Both, line: str) -> None:
    expected = tokenizers.theirs(line)["input_ids"]
    found = [*tokenizers.ours.encode([line])[0], END_ID]
    assert [tokenizers.rows[i] for i in found] == expected, line
    expected = tokenizers.theirs(text_target=line)["input_ids"]
    found = [*tokenizers.ours.encode_target([line])[0], END_ID]
    assert [tokenizers.rows[i] for i in found] == expected, line


def test_ids_are_those_of_transformers(tokenizers: Both) -> None:
    for line in LINES:
        if not typed_symbol(line):
            assert_same_ids(tokenizers, line)


@settings(max_examples=150)
@given(line=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_ids_of_any_line_are_those_of_transformers(tokenizers: Both, line: str) -> None:
    if not typed_symbol(line):
        assert_same_ids(tokenizers, line)


def test_texts_are_those_of_transformers(tokenizers: Both) -> None:
    ours, theirs, rows = tokenizers
    lines = [line for line in LINES if not typed_symbol(line)]
    for ids in ours.encode_target(lines) + ours.encode(lines):
        known = [i for i in ids if i != UNKNOWN_ID]
        expected = theirs.decode(
            [rows[i] for i in known], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert ours.decode([known]) == [expected.replace("\n", " ")]


def test_each_piece_has_a_span_of_the_text_as_it_was_typed(tokenizers: Both) -> None:
    ours = tokenizers.ours
    for line in LINES:
        spans = ours.source_spans(line)
        assert len(spans) == len(ours.encode([line])[0]), line
        assert len(ours.target_spans(line)) == len(ours.encode_target([line])[0]), line
        starts = [0, *(end for _, end in spans)]
        assert all(a <= b for a, b in spans), line
        assert starts == sorted(starts), line
        assert starts[-1] <= len(line)


def test_typed_symbols_are_text(tokenizers: Both) -> None:
    ours = tokenizers.ours
    typed = ["</s>", "<unk>", "<pad> a", "<s>", "a </s> b", *ours.controls]
    for line, ids in zip(typed, ours.encode(typed), strict=True):
        assert ids, line
        assert not {0, 2, 3, *ours.controls.values()} & set(ids), line


def test_language_pieces_are_controls_and_not_written(tokenizers: Both) -> None:
    ours = tokenizers.ours
    assert ours.decode([[0, 2, 3]]) == [""]
    for piece, token_id in ours.controls.items():
        assert re.fullmatch(">>[a-z]+<<", piece)
        assert ours.source_pieces([token_id]) == [piece]
        assert ours.decode([[token_id]]) == [""]


def test_noise_follows_the_language_that_the_source_s_own_table_names(
    spm_models: tuple[bytes, bytes], tmp_path: Path
) -> None:
    tables = []
    for model, texts in zip(spm_models, (["o", "O"], ["i", "İ"]), strict=True):
        pieces = SentencePieceProcessor(model_proto=model).encode(texts, out_type=str)
        tables.append([*CONTROLS, *dict.fromkeys(chain(*pieces))])
    files = tokenizer_files(spm_models, [*tables[0], "many", "more", "words", ">>tr<<"])
    files["target_vocabulary.json"] = dump_pieces(tables[1])
    tokenizer = PairTokenizer(files, PairConfig(separate_vocabularies=True), ("en", "tr"))
    control = tokenizer.controls[">>tr<<"]
    assert control >= tokenizer.vocab_size
    encode = PairEncoder(tokenizer, [control], FilterConfig(), keeps_text=True)
    ids, text, _ = encode((0, [["o"], ["i"]]))
    with new_corpus(tmp_path / "ids") as write:
        write(ids)
    (tmp_path / "text").write_bytes(text)
    noise = NoiseConfig(capitals=1.0)
    corpus, given = EncodedCorpus(tmp_path / "ids"), (tmp_path / "text", tokenizer)
    sampled = SampledCorpus(corpus, *given, rate=0.0, noise=noise, languages=("en", "de"), seed=1)
    source, target = tokenizer.encode(["O"])[0], tokenizer.encode_target(["İ"])[0]
    assert ids_of(sampled, 0) == [([control, *source], target)]


def test_lone_surrogates_read_as_the_replacement_character(tokenizers: Both) -> None:
    assert tokenizers.ours.encode(["a\ud800b"]) == tokenizers.ours.encode(["a\ufffdb"])


def test_moses_punctuation_is_known_to_a_model_without_typographic_characters(
    spm_models: tuple[bytes, bytes],
) -> None:
    pieces = ["<pad>", "<unk>", "<s>", "</s>", '▁"', '"', "'", "▁'", "-", "▁-", "▁", "s", "so", "o"]
    config = PairConfig(punctuation="moses")
    tokenizer = PairTokenizer(tokenizer_files(spm_models, pieces), config, ("en", "pt"))
    for typed, plain in (("“so”", '"so"'), ("‘so’", "'so'"), ("so – so", "so - so")):
        assert tokenizer.encode([typed]) == tokenizer.encode([plain])
        assert tokenizer.encode_target([typed]) == tokenizer.encode_target([plain])


def test_a_character_that_nobody_sees_is_left_out_of_a_source_if_its_own_table_lacks_it(
    spm_models: tuple[bytes, bytes],
) -> None:
    pieces = [*CONTROLS, *sorted(table(spm_models, (), 1).keys() - {*CONTROLS})]
    for with_joiner in ("vocabulary.json", "target_vocabulary.json"):
        files = tokenizer_files(spm_models, pieces)
        files["target_vocabulary.json"] = files["vocabulary.json"]
        files[with_joiner] = dump_pieces([*pieces, "\u2060"])
        tokenizer = PairTokenizer(files, PairConfig(separate_vocabularies=True), ("en", "pt"))
        read = "two \u2060dogs" if with_joiner == "vocabulary.json" else "two dogs"
        assert tokenizer.encode_source(["two \u2060dogs"]) == tokenizer.encode([read])


Corruption = Callable[[dict[str, bytes]], dict[str, bytes]]


def pieces_are(*pieces: object) -> Corruption:
    return lambda files: files | {"vocabulary.json": json.dumps(pieces).encode()}


CONTROLS = ("<pad>", "<unk>", "<s>", "</s>")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (pieces_are("<unk>", "<pad>", "<s>", "</s>", "a"), "does not begin with <pad>"),
        (pieces_are(*CONTROLS, "a", "a"), "has a piece twice"),
        (pieces_are(*CONTROLS, 3), "Expected `str`, got `int`"),
        (pieces_are(*CONTROLS, "a" * 1001), "more than 1,000 characters"),
        (lambda files: files | {"target.model": b"model"}, "can't be parsed"),
    ],
)
def test_corrupt_files_are_refused_in_one_line(
    spm_models: tuple[bytes, bytes], damage: Corruption, complaint: str, tmp_path: Path
) -> None:
    files = tokenizer_files(spm_models, [*CONTROLS, "a"])
    PairTokenizer(files, PairConfig(), ("", ""))
    with pytest.raises(UserError, match=complaint) as error, tokenizer_errors(tmp_path):
        PairTokenizer(damage(files), PairConfig(), ("", ""))
    assert "\n" not in str(error.value)
