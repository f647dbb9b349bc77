"""Several training corpora: what is encoded of each, in which share, and with what before it."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seq2seq.batches import make_batching
from seq2seq.cli.fidelity import compose_config
from seq2seq.config import TrainingConfig
from seq2seq.data.corpus import CorpusConfig, DataConfig, FilterConfig, SplitConfig
from seq2seq.data.preparation import PreparedData, prepare
from seq2seq.errors import UserError
from seq2seq.tokenizer import Tokenizer, TokenizerConfig
from tests.toy import reversing, two_files


@pytest.fixture
def plain(sentences: list[str], tmp_path: Path) -> DataConfig:
    return DataConfig(
        train=reversing(tmp_path, "train", sentences[20:]),
        valid=reversing(tmp_path, "valid", sentences[:10]),
        tokenizer=TokenizerConfig(vocab_size=60),
        filter=FilterConfig(max_tokens=40),
    )


def corpus(folder: Path, name: str, lines: list[str], **options: Any) -> CorpusConfig:
    paths = two_files(folder, name, lines, [line[::-1] for line in lines])
    return CorpusConfig(**paths, **options)


def prepared(config: DataConfig, folder: Path, tokenizer: Tokenizer | None = None) -> PreparedData:
    return prepare(config, folder / "cache", lambda line: None, tokenizer)


def test_shares_hold_after_filtering_to_the_line(
    plain: DataConfig, sentences: list[str], tmp_path: Path
) -> None:
    """A line is known by its own text: each corpus has its own beginning."""
    beginnings = {"two": "likes", "the": "sees"}
    good = {name: [f"{word} {line}" for line in sentences] for name, word in beginnings.items()}
    bad = ["", "x", *["a man " * 40] * 60]  # blank or over-long, but for one
    mixed = replace(
        plain,
        corpora={
            "two": corpus(tmp_path, "two", good["two"][:33] + bad, weight=0.4),
            "the": corpus(tmp_path, "the", good["the"][:17], weight=2.5),
        },
    )
    data = prepared(mixed, tmp_path)
    kept = {name: data.counts[f"corpora.{name}"].kept for name in ("two", "the")}
    assert kept == {"two": 34, "the": 17}
    assert data.mixture is not None
    batching = make_batching(
        TrainingConfig(source_tokens=200, target_tokens=200, micro_batch_tokens=200),
        data.train,
        seed=1,
        pairs_of_epoch=data.mixture.epoch,
    )
    total: Counter[str] = Counter()
    for epoch in range(5):
        rows = [int(row) for batch in batching.epoch(epoch) for row in batch]
        assert Counter(rows) == Counter(data.mixture.epoch(1, epoch).tolist())
        total.update(data.tokenizer.decode([data.train.source(row).tolist() for row in rows]))
    assert {total[line] for line in sentences[20:]} == {5}
    assert {total[line] for line in good["the"][:17]} <= {12, 13}
    assert {total[line] for line in [*good["two"][:33], "x"]} == {2}


def test_control_symbols_stand_before_the_source_and_can_t_be_typed(
    plain: DataConfig, sentences: list[str], tmp_path: Path
) -> None:
    typed = [f">>de<< <bt> {line} >>de<<" for line in sentences[20:]]
    config = replace(
        plain,
        train=replace(plain.train, target_language="fr"),
        valid=replace(plain.valid, target_language="de"),
        corpora={"back": corpus(tmp_path, "back", typed, tag="<bt>", target_language="de")},
        tokenizer=TokenizerConfig(vocab_size=70),
        filter=FilterConfig(),
    )
    data = prepared(config, tmp_path)
    controls = data.tokenizer.controls
    assert set(controls) == {">>de<<", ">>fr<<", "<bt>"}
    de, fr, bt = (controls[piece] for piece in (">>de<<", ">>fr<<", "<bt>"))
    count = len(sentences) - 20
    sources = [data.train.source(row).tolist() for row in range(2 * count)]
    assert all(source[0] == fr for source in sources[:count])
    assert all(source[:2] == [de, bt] for source in sources[count:])
    rest = [source[1:] for source in sources[:count]] + [source[2:] for source in sources[count:]]
    assert not {de, fr, bt} & {token for source in rest for token in source}
    assert data.tokenizer.decode(rest) == sentences[20:] + typed
    assert data.valid_sets["valid"].corpus.source(0)[0] == de
    targets = [data.train.target(row).tolist() for row in range(2 * count)]
    assert not {de, fr, bt} & {token for target in targets for token in target}


def test_a_weight_leaves_the_encoded_text_and_a_tag_does_not(
    plain: DataConfig, sentences: list[str], tmp_path: Path
) -> None:
    def folder(**options: object) -> Path:
        back = corpus(tmp_path, "back", sentences[5:30], **options)
        return prepared(replace(plain, corpora={"back": back}), tmp_path).folder

    assert folder() == folder(weight=3.0) != folder(tag="<bt>") != folder(tag="<other>")


def test_rows_are_read_by_the_target_language_of_their_corpus(
    plain: DataConfig, sentences: list[str], tmp_path: Path
) -> None:
    rows = [{"en": line, "de": line.upper(), "fr": line[::-1]} for line in sentences]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    places = {code: CorpusConfig(pairs=str(path), target_language=code) for code in ("de", "fr")}
    valid = SplitConfig(pairs=str(path), target_language="fr")
    config = replace(plain, train=SplitConfig(), valid=valid, corpora=places, source_language="en")
    data = prepared(replace(config, tokenizer=TokenizerConfig(vocab_size=80)), tmp_path)
    targets = data.tokenizer.decode([data.train.target(row).tolist() for row in range(200)])
    expected = [row[code] for code in ("de", "fr") for row in rows]
    assert targets[: len(expected)] == expected
    assert [pair.target for pair in data.valid_sets["valid"].pairs] == [row["fr"] for row in rows]


def test_a_test_set_of_a_model_of_several_languages_says_which_before_the_training(
    plain: DataConfig, sentences: list[str], tmp_path: Path
) -> None:
    config = replace(plain, corpora={"back": corpus(tmp_path, "back", sentences)})
    texts = (config.train, config.valid, config.corpora["back"])
    for text, code in zip(texts, ("de", "de", "fr"), strict=True):
        text.target_language = code
    test = corpus(tmp_path, "test", sentences[:3])
    for code, message in ((None, "choose one with"), ("cs", "no target language 'cs'")):
        test.target_language = code
        with pytest.raises(UserError, match=rf"data\.test: .*{message}"):
            prepared(replace(config, test=test), tmp_path)
    test.target_language = "fr"
    prepared(replace(config, test=test), tmp_path)


def test_a_given_vocabulary_marks_every_source_and_must_have_its_marks(
    plain: DataConfig, sentences: list[str], tmp_path: Path
) -> None:
    def given(*controls: str) -> Tokenizer:
        return Tokenizer.train(sentences, TokenizerConfig(vocab_size=70), controls=controls)

    tagged = replace(plain, corpora={"back": corpus(tmp_path, "back", sentences, tag="<bt>")})
    with pytest.raises(UserError, match=r"back: no tag '<bt>': the model knows none"):
        prepared(tagged, tmp_path, given())
    with pytest.raises(UserError, match=r"data\.train: .* \(de, fr\): choose one"):
        prepared(plain, tmp_path, given(">>de<<", ">>fr<<"))
    one = given(">>de<<")
    data = prepared(plain, tmp_path, one)
    assert {data.train.source(row)[0] for row in range(5)} == {one.controls[">>de<<"]}
    assert data.valid_sets["valid"].corpus.source(0)[0] == one.controls[">>de<<"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.corpora.back.weight=0"], "data.corpora.back.weight=0.0: must be above 0"),
        (["data.corpora.back.tag=bt"], "data.corpora.back.tag: 'bt' is not a tag: use a word"),
        (["data.corpora.back.tag=<pad>"], "other than <pad>, <unk>, <s>, </s>"),
        (["data.corpora.back.target_language=d e"], "'d e' is not a language code"),
        (
            ["data.corpora.back.target_language=de"],
            "data.train: has no target_language, but data.corpora.back has: give",
        ),
        (["data.corpora.train.source=a"], "choose a name of letters"),
    ],
)
def test_a_wrong_override_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        compose_config(["data=everyday", *words])
