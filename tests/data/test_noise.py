"""Noise in training text: its share, what determines it, and what it never makes."""

import json
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data import encoding
from seq2seq.data.corpus import DataConfig, FilterConfig
from seq2seq.data.encoding import PairEncoder, SampledCorpus
from seq2seq.data.noise import NoiseConfig, add_noise, misspell
from seq2seq.data.preparation import prepare
from seq2seq.encoded_corpus import EncodedCorpus, encode_ids, new_corpus
from seq2seq.errors import UsageError
from seq2seq.text import SentencePair
from seq2seq.tokenizer import UNKNOWN_ID, Tokenizer, TokenizerConfig
from tests.toy import reversing
from tests.zoo.test_bpe_dropout import ids_of

PAIR = SentencePair("The man sees a red house.", "Der Mann sieht ein rotes Haus auf der Straße.")
CAPITALS = SentencePair(PAIR.source.upper(), PAIR.target.upper())
LANGUAGES = "en", "de"


def noised(pair: SentencePair, noise: NoiseConfig, count: int) -> list[SentencePair]:
    """A pair with the noise of so many numbers."""
    return [add_noise(pair, noise, LANGUAGES, [1, 0, row]) for row in range(count)]


def test_the_shares_are_those_that_were_asked_for() -> None:
    count = 20_000
    found = Counter(noised(PAIR, NoiseConfig(capitals=0.05, typos=0.2), count))
    capitals = sum(n for pair, n in found.items() if pair.target == CAPITALS.target)
    typos = sum(n for pair, n in found.items() if pair.source not in (PAIR.source, CAPITALS.source))
    both = sum(
        n
        for pair, n in found.items()
        if pair.target == CAPITALS.target and pair.source != CAPITALS.source
    )
    for number, share in ((capitals, 0.05), (typos, 0.2), (both, 0.05 * 0.2)):
        # Swapped letters may be equal: "ee".
        assert abs(number - share * count) < 4 * (share * count) ** 0.5 + 0.03 * share * count
    assert {pair.target for pair in found} == {PAIR.target, CAPITALS.target}
    assert {pair.source.isupper() == (pair.target == CAPITALS.target) for pair in found} == {True}


def test_everything_or_nothing_has_noise() -> None:
    assert set(noised(PAIR, NoiseConfig(), 99)) == {PAIR}
    assert set(noised(PAIR, NoiseConfig(capitals=1.0), 99)) == {CAPITALS}


@pytest.mark.parametrize(
    ("source", "languages", "expected"),
    [
        ("犬がいる", ("ja", "de"), None),  # no case: nothing tells that capitals are wanted
        ("NATO 1949", ("en", "de"), None),
        ("iki {name} www.a.b %s", ("tr", "de"), "İKİ {name} www.a.b %s"),
    ],
)
def test_capitals_are_those_of_the_source(
    source: str, languages: tuple[str, str], expected: str | None
) -> None:
    pair = SentencePair(source, "drei Hunde")
    found = add_noise(pair, NoiseConfig(capitals=1.0), languages, [1])
    assert found == (SentencePair(expected, "DREI HUNDE") if expected else pair)


@given(st.text("ab cä.1犬\t", max_size=30), st.integers(0, 99))
def test_a_typing_error_is_a_swapped_doubled_missing_or_mistaken_letter(
    text: str, seed: int
) -> None:
    words = len(text.split())
    found = misspell(text, Random(seed))
    assert words // 2 <= len(found.split()) <= words
    assert set(found) - set(text) <= set("svnxv")  # the keys beside a, b and c
    if words == 1:
        assert abs(len(found) - len(text)) <= 1


def test_placeholders_and_addresses_have_no_typing_errors() -> None:
    kept = ["{count}", "https://the.sea/dogs", "%(name)s", "a@the.sea", "<br/>"]
    for seed in range(200):
        words = misspell(" ".join([*kept, "dogs"]), Random(seed)).split()
        assert words[:4] == kept[:4]
        assert words[4].startswith(kept[4])


def corpus_of(folder: Path, tokenizer: Tokenizer, pairs: list[SentencePair]) -> EncodedCorpus:
    sides = tokenizer.encode([p.source for p in pairs]), tokenizer.encode([p.target for p in pairs])
    with new_corpus(folder / "ids") as write:
        write(encode_ids(*sides, tokenizer.vocab_size))
    (folder / "text").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return EncodedCorpus(folder / "ids")


class TwoVocabularies(Tokenizer):
    """One side has a vocabulary of its own, whose ids need more than 16 bits."""

    def __init__(self, model_bytes: bytes, large: str) -> None:
        super().__init__(model_bytes)
        self.shifts = dict.fromkeys(("source", "target"), 0) | {large: 2**16}
        self.source_vocab_size += self.shifts["source"]
        self.vocab_size += self.shifts["target"]

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self.shifted(texts, "source")

    def encode_target(self, texts: list[str]) -> list[list[int]]:
        return self.shifted(texts, "target")

    def shifted(self, texts: list[str], side: str) -> list[list[int]]:
        shift = self.shifts[side]
        return [[i + shift for i in ids] for ids in super().encode_target(texts)]


@pytest.mark.parametrize("large", ["source", "target"])
def test_a_large_vocabulary_of_one_side_is_encoded(
    tmp_path: Path, sentences: list[str], tokenizer: Tokenizer, large: str
) -> None:
    two, sides = TwoVocabularies(tokenizer.model_bytes, large), [sentences, sentences[::-1]]
    ids, text, _ = PairEncoder(two, [], FilterConfig(), keeps_text=True)((0, sides))
    with new_corpus(tmp_path / "ids") as write:
        write(ids)
    (tmp_path / "text").write_bytes(text)
    corpus = EncodedCorpus(tmp_path / "ids")
    sampled = SampledCorpus(corpus, tmp_path / "text", two, rate=0.0, seed=1)
    expected = list(zip(two.encode(sides[0]), two.encode_target(sides[1]), strict=True))
    rows = range(len(sentences))
    assert [(corpus.source(i)[:-1].tolist(), corpus.target(i)[:-1].tolist()) for i in rows] == (
        expected
    )
    assert ids_of(sampled, 0) == expected


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_noise_is_a_function_of_seed_and_epoch_in_any_number_of_processes(
    tmp_path: Path, sentences: list[str], monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    text = [SentencePair(line, line[::-1]) for line in sentences]
    both = [*sentences, *map(str.upper, sentences)]
    tokenizer = Tokenizer.train(both, TokenizerConfig(vocab_size=120))
    corpus = corpus_of(tmp_path, tokenizer, text)
    noise = NoiseConfig(capitals=0.3, typos=0.3)

    def epochs(seed: int, *numbers: int) -> list[list[tuple[list[int], list[int]]]]:
        made = SampledCorpus(
            corpus, tmp_path / "text", tokenizer, rate=rate, noise=noise, seed=seed
        )
        return [ids_of(made, number) for number in numbers]

    first = epochs(1, 0, 1, 2)
    assert first[0] != first[1] != first[2]
    assert epochs(1, 2) == first[2:]  # as a resumed run begins
    assert epochs(2, 0) != first[:1]
    if not rate:
        # The pairs are those that their numbers determine, whatever they are encoded with.
        written = [add_noise(pair, noise, ("", ""), [1, 1, row]) for row, pair in enumerate(text)]
        longest = corpus.longest
        for row, pair in enumerate(written):
            ids = [tokenizer.encode([side])[0] for side in pair]
            fits = all(len(side) < most for side, most in zip(ids, longest, strict=True))
            usual = corpus.source(row)[:-1].tolist(), corpus.target(row)[:-1].tolist()
            known = UNKNOWN_ID not in chain(*ids)
            assert first[1][row] == (tuple(ids) if fits and known else usual)
        # With a few pairs at a time, in several processes.
        monkeypatch.setattr(encoding, "_CHUNK_PAIRS", 7)
        monkeypatch.setattr(encoding.os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
        assert epochs(1, 1) == first[1:2]


def test_a_pair_keeps_its_text_if_noise_can_not_be_written(
    tmp_path: Path, sentences: list[str], tokenizer: Tokenizer
) -> None:
    # The vocabulary has no capitals, and the longest pair leaves room for any other.
    pairs = [SentencePair(line, line) for line in [*sentences, " ".join(sentences[:9])]]
    corpus = corpus_of(tmp_path, tokenizer, pairs)
    noise = NoiseConfig(capitals=1.0)
    found = SampledCorpus(corpus, tmp_path / "text", tokenizer, rate=0.0, noise=noise, seed=1)
    usual = [(corpus.source(i)[:-1].tolist(), corpus.target(i)[:-1].tolist()) for i in range(99)]
    assert ids_of(found, 0)[:99] == usual


def test_the_vocabulary_is_learned_from_as_many_capitals_and_the_cache_is_its_own(
    tmp_path: Path, sentences: list[str]
) -> None:
    plain = DataConfig(
        train=reversing(tmp_path, "train", sentences),
        valid=reversing(tmp_path, "valid", sentences[:5]),
        tokenizer=TokenizerConfig(vocab_size=60),
    )
    noises = [NoiseConfig(), NoiseConfig(typos=0.1), NoiseConfig(capitals=0.5)]
    made = [prepare(replace(plain, noise=noise), tmp_path / "cache", str) for noise in noises]
    assert len({data.folder for data in made}) == 3
    assert made[0].tokenizer.model_bytes == made[1].tokenizer.model_bytes
    unknown = [UNKNOWN_ID in data.tokenizer.encode(["A MAN SEES"])[0] for data in made]
    assert unknown == [True, True, False]
    # The pairs themselves are encoded without noise.
    for data in made:
        ids = data.train.source(0)[:-1].tolist()
        assert data.tokenizer.decode([ids]) == [sentences[0]]
        assert np.array_equal(data.valid_sets["valid"].corpus.source(0)[:-1], ids)


@pytest.mark.parametrize("name", ["capitals", "typos"])
@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_between_none_and_all(name: str, share: float) -> None:
    with pytest.raises(UsageError, match=rf"^data\.noise\.{name}"):
        NoiseConfig(**{name: share})
