"""BPE-dropout: what it draws, what determines it, and the epochs that it makes."""

import json
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seq2seq.batches import Batching, make_batching
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.data.encoding import SampledCorpus
from seq2seq.device import Compute
from seq2seq.encoded_corpus import EncodedCorpus, encode_ids, new_corpus
from seq2seq.errors import UserError
from seq2seq.model_folder import new_transformer
from seq2seq.tokenizer import END_ID, PADDING_ID, Tokenizer, TokenizerConfig
from seq2seq.trainer import Trainer
from seq2seq.update import Updater

MakeSampled: TypeAlias = Callable[..., SampledCorpus]
RATE = 0.3
LINES = [f"a man sees {n} houses and {n * n} old friends" for n in range(100)]
PLAIN = Tokenizer.train(LINES, TokenizerConfig(vocab_size=60))
BYTES = Tokenizer.train(LINES, TokenizerConfig(vocab_size=320, byte_fallback=True))


@pytest.fixture(scope="module")
def texts(sentences: list[str]) -> list[str]:
    return [*sentences, " ".join(sentences[:4])]


@pytest.fixture(scope="module")
def sampled(
    texts: list[str], tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> MakeSampled:
    folder = tmp_path_factory.mktemp("corpus")
    return partial(new_sampled, folder, tokenizer, texts, [text[::-1] for text in texts])


def new_sampled(
    folder: Path, tokenizer: Tokenizer, *sides: list[str], before: tuple = (), seed: int = 1
) -> SampledCorpus:
    """A corpus whose sources begin with the control symbols `before`."""
    rows = zip(*sides, strict=True)
    (folder / "text").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources, targets = map(tokenizer.encode, sides)
    with new_corpus(folder / "ids") as write:
        write(encode_ids([[*before, *ids] for ids in sources], targets, tokenizer.vocab_size))
    corpus = EncodedCorpus(folder / "ids")
    return SampledCorpus(corpus, folder / "text", tokenizer, rate=RATE, seed=seed)


def ids_of(corpus: SampledCorpus, epoch: int) -> list[tuple[list[int], list[int]]]:
    """Both sides of each pair, without padding and end symbol."""
    found = []
    first = corpus.first_row(epoch)
    for row in range(first, first + len(corpus)):
        source, target = (padded[0].tolist() for padded in corpus.padded(np.array([row])))
        found.append((source[:-1], target[:-1]))
    return found


# The tokenizer


def test_each_merge_is_skipped_with_the_given_probability() -> None:
    """Of the two merges of "ab", the first makes the second possible."""
    tokenizer = Tokenizer.train(["ab"] * 50, TokenizerConfig(vocab_size=9))
    assert tokenizer.pieces(tokenizer.encode(["ab"])[0]) == ["▁ab"]
    draws = 4000
    for rate in (0.1, 0.5):
        sampled = tokenizer.encode_sampled(["ab"] * draws, rate, seed=1)
        found = Counter(" ".join(tokenizer.pieces(ids)) for ids in sampled)
        expected = {"▁ab": (1 - rate) ** 2, "▁ ab": (1 - rate) * rate, "▁ a b": rate}
        assert found.keys() == expected.keys()
        for pieces, share in expected.items():
            deviation = math.sqrt(share * (1 - share) / draws)
            assert abs(found[pieces] / draws - share) < 4 * deviation


@given(st.lists(st.text(st.characters() | st.characters(categories=["Cs"])), max_size=5))
@example(["▁▁ a  ▁b", "☃☃ ☃", "<s></s> <pad>", "\ud800 a", "a man\u3000sees", ""])
def test_any_text_is_sampled_and_without_a_skipped_merge_as_usual(texts: list[str]) -> None:
    for tokenizer in (PLAIN, BYTES):
        usual = tokenizer.encode_target(texts)
        assert tokenizer.encode_sampled(texts, 0.0, seed=1) == usual
        sampled = tokenizer.encode_sampled(texts, RATE, seed=1)
        assert {0, 2, 3}.isdisjoint(token for ids in sampled for token in ids)
        assert tokenizer.decode(sampled) == tokenizer.decode(usual)


def test_a_long_text_without_spaces_is_sampled_in_little_time(tokenizer: Tokenizer) -> None:
    text = "amansees" * 2000
    assert tokenizer.decode(tokenizer.encode_sampled([text], RATE, seed=1)) == [text]


# The corpus


def test_each_epoch_spells_the_same_pairs_again(
    sampled: MakeSampled, tokenizer: Tokenizer, texts: list[str]
) -> None:
    found = sampled()
    epochs = [ids_of(found, epoch) for epoch in range(3)]
    for pairs in epochs:
        for side, expected in enumerate((texts, [text[::-1] for text in texts])):
            assert tokenizer.decode([pair[side] for pair in pairs]) == expected
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_an_epoch_is_a_function_of_seed_and_epoch(sampled: MakeSampled) -> None:
    first, again = sampled(), sampled()
    in_order = [ids_of(first, epoch) for epoch in range(3)]
    assert [ids_of(again, epoch) for epoch in (2, 0, 1)] == [in_order[i] for i in (2, 0, 1)]
    assert ids_of(sampled(seed=2), 0) != in_order[0]


@pytest.mark.integration
def test_processes_encode_what_one_does_and_a_machine_once(
    sampled: MakeSampled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the first process writes is what another one opens."""
    monkeypatch.setattr("seq2seq.data.encoding._CHUNK_PAIRS", 8)
    alone = ids_of(sampled(), 2)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setattr("seq2seq.data.encoding._FEW_ITEMS", 1)
    first, second = sampled(), sampled()
    path = tmp_path / "shared"
    first.share = lambda write: nullcontext(write(path) or path)
    second.share = lambda write: nullcontext(path)
    assert ids_of(first, 2) == ids_of(second, 2) == alone


def test_a_step_of_many_short_epochs_has_the_pairs_of_each(
    sampled: MakeSampled, texts: list[str]
) -> None:
    other, corpus = sampled(), sampled()
    tokens = {"source_tokens": 20_000, "target_tokens": 20_000, "micro_batch_tokens": 4_000}
    config = TrainingConfig(**tokens, log_steps=1)
    batching = make_batching(config, corpus, seed=1)
    assert len(batching.epoch(0)) == 1  # so a step has five epochs
    sizes = TransformerConfig(num_layers=1, d_model=8, d_ff=8, num_heads=2)
    model = new_transformer(sizes, 60)
    trainer = Trainer(Updater(model, batching, config, compute=Compute(), seed=1))
    with closing(trainer.steps()) as steps:
        for first in (0, 5):
            step = next(steps)
            assert step.epoch == first + 4
            for epoch, (_, batch) in enumerate(step.batches.batches, first):
                found = sorted(ids[ids != PADDING_ID].tolist() for ids in batch.source)
                assert found == sorted([*ids, END_ID] for ids, _ in ids_of(other, epoch))
    assert len(corpus.slots) <= 12


def test_a_corpus_that_is_closed_encodes_no_more(sampled: MakeSampled) -> None:
    found = sampled()
    found.close()
    with pytest.raises(CancelledError):
        found.first_row(0)


def test_text_that_is_removed_during_a_training_is_named(
    tmp_path: Path, sentences: list[str], tokenizer: Tokenizer
) -> None:
    found = new_sampled(tmp_path, tokenizer, sentences, sentences)
    found.first_row(0)
    (tmp_path / "text").unlink()
    with pytest.raises(UserError, match=r"text: no such file"):
        found.first_row(1)


def test_control_symbols_stay_before_the_sources(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(LINES, TokenizerConfig(vocab_size=60), print, ["<tag>"])
    control = tokenizer.controls["<tag>"]
    for source, target in ids_of(
        new_sampled(tmp_path, tokenizer, LINES, LINES, before=(control,)), 0
    ):
        assert source[0] == control
        assert control not in source[1:] + target


def test_a_source_that_is_read_in_its_normal_form_is_so_in_each_epoch(
    tmp_path: Path, sentences: list[str], tokenizer: Tokenizer
) -> None:
    wide = ["\uff41 man", " ".join(sentences[:4])]
    found = ids_of(new_sampled(tmp_path, tokenizer, wide, wide), 0)
    assert tokenizer.decode([found[0][0]]) == ["a man"]


def test_no_side_is_longer_than_the_longest(sampled: MakeSampled) -> None:
    found = sampled()
    corpus, pairs = found.corpus, ids_of(found, 0)
    for side, longest in enumerate(corpus.longest):
        assert max(len(pair[side]) for pair in pairs) < longest
    # The longest pair of all keeps its pieces.
    last = len(corpus) - 1
    assert pairs[-1] == (corpus.source(last)[:-1].tolist(), corpus.target(last)[:-1].tolist())
    more = sum(len(pair[0]) + 1 for pair in pairs) / corpus.lengths()[0].sum()
    assert more > 1.2


def test_a_step_over_the_end_of_an_epoch_has_the_pairs_of_both(
    sampled: MakeSampled, texts: list[str]
) -> None:
    found = sampled()
    batching = Batching(found, source_tokens=200, target_tokens=200, seed=1)
    before, after = batching.epoch(4), batching.epoch(5)
    expected = ids_of(found, 4), ids_of(found, 5)
    found.first_row(6)  # encoded in another thread while the step is collated
    for rows in (*before, *after):
        assert sum(map(np.sum, found.lengths(rows))) <= 400 or len(rows) == 1
    for batches in (before, after):
        assert sorted(np.concatenate(batches) % len(found)) == [*range(len(texts))]
    both = np.concatenate((before[-1], after[0]))
    pairs = [expected[0][row % len(found)] for row in before[-1]]
    pairs += [expected[1][row % len(found)] for row in after[0]]
    for side, of_side in enumerate(zip(*pairs, strict=True)):
        ended = [[*ids, END_ID] for ids in of_side]
        ids, lengths = found.tokens(both)[side]
        assert ids.tolist() == [token for ids in ended for token in ids]
        assert lengths.tolist() == found.lengths(both)[side].tolist() == [*map(len, ended)]
        for row, padded in zip(ended, found.padded(both)[side].tolist(), strict=True):
            assert padded == row + [PADDING_ID] * (lengths.max() - len(row))
