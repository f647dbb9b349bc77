"""The tokenizer: ids, control symbols, odd text, and refusals that say what to do."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.errors import UserError
from seq2seq.pieces import move_spans
from seq2seq.tokenizer import (
    END_ID,
    LONGEST_TRAINING_LINE,
    PADDING_ID,
    START_ID,
    UNKNOWN_ID,
    Tokenizer,
    TokenizerConfig,
    tokenizer_errors,
)

CONTROL_IDS = {PADDING_ID, START_ID, END_ID}


def corpus(lines: int = 400, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    words = ["the", "house", "is", "small", "das", "Haus", "ist", "<", "s>", "pad", "/", "1"]
    return [" ".join(generator.choices(words, k=8)) for _ in range(lines)]


def train(**options: object) -> Tokenizer:
    config = TokenizerConfig(**{"vocab_size": 60, **options})  # type: ignore[arg-type]
    return Tokenizer.train(corpus(), config)


TOKENIZER = train()
BYTE_TOKENIZER = train(vocab_size=320, byte_fallback=True)
SCRIPTS = Path(__file__).with_name("scripts.tsv").read_text(encoding="utf-8").split("\n")[:-1]


def test_text_of_the_corpus_survives_a_round_trip() -> None:
    lines = corpus(seed=1)
    encoded = TOKENIZER.encode(lines)
    assert TOKENIZER.decode(encoded) == lines
    for line, ids in zip(lines, encoded, strict=True):
        assert [ids] == TOKENIZER.encode([line])
        assert "".join(TOKENIZER.pieces(ids)) == "▁" + line.replace(" ", "▁")


def test_decoding_drops_control_symbols() -> None:
    ids = TOKENIZER.encode(["the house"])[0]
    padded = [START_ID, *ids, END_ID, PADDING_ID, PADDING_ID]
    assert TOKENIZER.decode([padded, [END_ID], []]) == ["the house", "", ""]


@given(st.lists(st.text(st.characters() | st.characters(categories=["Cs"])), max_size=5))
def test_any_text_encodes(texts: list[str]) -> None:
    for tokenizer in (TOKENIZER, BYTE_TOKENIZER):
        encoded = tokenizer.encode(texts)
        assert len(encoded) == len(texts)
        assert all(not CONTROL_IDS & set(ids) for ids in encoded)
        assert len(tokenizer.decode(encoded)) == len(texts)


@given(st.text(st.characters(exclude_categories=["Cs", "Co"], exclude_characters=" \n▁")))
def test_byte_fallback_loses_nothing(text: str) -> None:
    encoded = BYTE_TOKENIZER.encode([text])
    assert UNKNOWN_ID not in encoded[0]
    assert BYTE_TOKENIZER.decode(encoded) == [text]


def test_references_of_all_scripts_can_be_written() -> None:
    texts = [line.split("\t")[1] for line in SCRIPTS]
    tokenizer = Tokenizer.train(texts * 20, TokenizerConfig(vocab_size=900))
    assert tokenizer.decode(tokenizer.encode_target(texts)) == texts
    # Runs of spaces alone are lost.
    assert tokenizer.decode(tokenizer.encode_target(["  犬  が "])) == ["犬 が"]


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("the ſmall houſe", "the small house"),
        ("ｔｈｅ\u3000ｈｏｕｓｅ", "the house"),
        ("the\u00a0house\u200b is", "the house is"),
        ("das Ha\u200dus", "das Ha\u200dus"),
        ("the ☃ houſe", "the ☃ house"),
    ],
)
def test_a_source_is_normalized_where_the_vocabulary_needs_it(source: str, plain: str) -> None:
    assert TOKENIZER.encode([source]) == TOKENIZER.encode_target([plain])
    assert UNKNOWN_ID in TOKENIZER.encode_target([source])[0]


@pytest.mark.parametrize(
    "source", ["ſmall house", "the ſmall houſe", "☃ ſmall", "  the  ſmall houſe "]
)
def test_the_pieces_of_a_source_that_was_normalized_stand_at_its_words(source: str) -> None:
    spans = TOKENIZER.source_spans(source)
    assert [source[start:end].strip() for start, end in spans if end] == source.split()


@pytest.mark.parametrize("unseen", "\u00ad\u061c\u200b\u200d\u200e\u202e\u2060\ufe0f\ufeff")
def test_what_nobody_sees_is_left_out_of_a_source_if_the_vocabulary_lacks_it(unseen: str) -> None:
    text = f"{unseen}the ho{unseen}use ☃"
    assert TOKENIZER.encode_source([text]) == TOKENIZER.encode_target(["the house ☃"])
    assert len(TOKENIZER.source_spans(text)) == len(TOKENIZER.encode_source([text])[0])
    assert TOKENIZER.source_spans(text)[-1][1] == len(text)
    # As joiners of Persian
    knows = Tokenizer.train([*corpus(), f"ho{unseen}use"], TokenizerConfig(vocab_size=62))
    assert knows.encode_source([text]) == knows.encode_target([text])


def test_a_line_feed_that_byte_pieces_spell_is_a_space() -> None:
    pieces = BYTE_TOKENIZER.pieces(list(range(BYTE_TOKENIZER.vocab_size)))
    line_feed, house = pieces.index("<0x0A>"), BYTE_TOKENIZER.encode(["house"])[0]
    assert BYTE_TOKENIZER.decode([[*house, line_feed, *house]]) == ["house  house"]


def test_a_sample_bounds_the_training_and_is_deterministic() -> None:
    lines = corpus(2000)
    config = TokenizerConfig(vocab_size=60, max_training_sentences=100)
    reports: list[str] = []
    sampled = Tokenizer.train(iter(lines), config, reports.append)
    assert reports == ["the tokenizer learns from a sample of 100 of 2,000 sentences"]
    assert sampled.model_bytes == Tokenizer.train(lines, config).model_bytes
    assert sampled.model_bytes != Tokenizer.train(lines[:100], config).model_bytes


@pytest.mark.parametrize("order", [1, -1])
def test_every_sentence_is_as_likely_to_be_in_the_sample(order: int) -> None:
    """The word of 1,100 sentences is learned before that of 900, wherever they stand."""
    sentences = (["ab"] * 1100 + ["cd"] * 900)[::order]
    config = TokenizerConfig(vocab_size=13, max_training_sentences=400)
    tokenizer = Tokenizer.train(sentences, config)
    frequent, rare = tokenizer.encode(["ab", "cd"])
    assert len(frequent) == len(rare) == 1
    assert frequent < rare


def test_over_long_lines_are_counted() -> None:
    reports: list[str] = []
    fits, longer = "ä" * (LONGEST_TRAINING_LINE // 2), "ä" * (LONGEST_TRAINING_LINE // 2) + "a"
    config = TokenizerConfig(vocab_size=60, max_training_sentences=len(corpus()) + 1)
    tokenizer = Tokenizer.train([*corpus(), fits, longer, longer], config, reports.append)
    assert reports == ["the tokenizer's training skipped 2 lines over 4,192 bytes"]
    assert UNKNOWN_ID not in tokenizer.encode(["ä"])[0]


@pytest.mark.parametrize(("line", "advice"), [("a man ", "sentence on each"), ("a man\r", "tr ")])
def test_text_of_over_long_lines_alone_is_explained(line: str, advice: str) -> None:
    text = ["", line * LONGEST_TRAINING_LINE]
    with pytest.raises(UserError, match=f"all 1 lines .* more than 4,192 bytes; .*{advice}"):
        Tokenizer.train(text, TokenizerConfig(vocab_size=60))


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize(
    ("size", "message", "beyond"),
    [(100_000, r"largest possible number is (\d+)", 1), (6, r"alone need (\d+) pieces", -1)],
)
def test_a_refused_size_names_one_that_works(
    byte_fallback: bool, size: int, message: str, beyond: int
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        train(vocab_size=size, byte_fallback=byte_fallback)
    possible = int(re.findall(message, str(caught.value))[0])
    assert train(vocab_size=possible, byte_fallback=byte_fallback).vocab_size == possible
    with pytest.raises(UserError):
        train(vocab_size=possible + beyond, byte_fallback=byte_fallback)


@pytest.mark.parametrize("sentences", [[], [""], ["x" * 5000]], ids=["none", "blank", "long"])
def test_no_text_is_refused(sentences: list[str]) -> None:
    with pytest.raises(UserError, match="no text"):
        Tokenizer.train(sentences, TokenizerConfig(vocab_size=60))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocab_size", 4),
        ("normalization", "NFC"),
        *(("sampling", rate) for rate in (-0.1, 1.0)),
        *(("character_coverage", share) for share in (0.97, 1.01)),  # SentencePiece has from 0.98
        ("max_training_sentences", 0),
    ],
)
def test_impossible_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"data.tokenizer.{name}={value}: "):
        TokenizerConfig(**{name: value})


def test_a_malformed_model_is_refused() -> None:
    sound = TOKENIZER.model_bytes
    for raw in (b"", b"no model", sound[:-1], sound.replace(b"<pad>", b"<PAD>")):
        with pytest.raises(UserError, match="its name"), tokenizer_errors(Path("its name")):
            Tokenizer(raw)


def test_spans_move_to_a_text_that_was_normalized_word_by_word() -> None:
    words = [f"word{i}" for i in range(500)]
    text, normalized = (" ".join([fi, *words, fi]) for fi in ("ﬁsh", "fish"))
    expected = [found.span() for found in re.finditer(r"\w+", text)]
    spans = [found.span() for found in re.finditer(r"\w+", normalized)]
    assert move_spans(spans, normalized, text) == expected


def test_spans_of_a_long_text_without_any_order_move_as_a_whole_at_once() -> None:
    """Comparing all words with all others would take hours."""
    text = "ﬁ!" * 20_000 + "½"
    assert move_spans([(0, 2), (3, 5)], "fi!" * 20_000 + "1⁄2", text) == [(0, len(text))] * 2
