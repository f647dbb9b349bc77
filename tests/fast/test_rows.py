"""Tokens as rows against the plain model of padded batches: losses, gradients, shapes."""

import itertools
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from seq2seq.batches import Batching, cut
from seq2seq.config import Positions, Start, TrainingConfig
from seq2seq.device import Compute
from seq2seq.encoded_corpus import EncodedCorpus, encode_ids, new_corpus
from seq2seq.fast.rows import Grid, GridLayout, Shape, Side, make_host_batch, row_states
from seq2seq.fast.training import FastModel
from seq2seq.fast.updates import FastUpdater
from seq2seq.loss import Loss, label_smoothed_loss
from seq2seq.transformer import Transformer
from tests.conftest import MakeModel
from tests.models import ALL_MODERN
from tests.toy import encoded_corpus

V, LONGEST = 23, 11

of_all_kinds = pytest.mark.parametrize(
    "choices",
    [
        {"attention_bias": True, "start": Start.zero, "positions": Positions.learned},
        {"d_k": 3, "d_v": 5, "shared_embedding": False, "tied_output": False, "output_bias": True},
        ALL_MODERN,
    ],
    ids=str,
)
# Nothing to fill up; sentences of the longest length and a shorter one; only pairs of one side.
SHAPES = [None, Shape((76, 90), 60, (LONGEST, LONGEST)), Shape((68, 64), None, None)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> EncodedCorpus:
    return encoded_corpus(tmp_path_factory.mktemp("corpus") / "train.ids", V, 60, LONGEST - 2)


def batches_of(corpus: EncodedCorpus) -> list[np.ndarray]:
    """As many tokens as fit, a single pair, and the longest and the shortest."""
    lengths = corpus.lengths()
    everything = np.arange(len(corpus))
    extremes = np.array([lengths[0].argmax(), lengths[0].argmin(), lengths[1].argmax()])
    return [cut(everything, lengths, (64, 64))[0], everything[:1], extremes]


CPU = torch.device("cpu")
EXACT = Compute()


def with_gradients(loss: Loss, model: Transformer) -> list[Tensor]:
    model.zero_grad()
    loss.smoothed.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [loss.smoothed.detach(), loss.cross_entropy.detach(), *gradients]


def of_padded_batch(
    model: Transformer, corpus: EncodedCorpus, pairs: np.ndarray, compute: Compute = EXACT
) -> list[Tensor]:
    batching = Batching(corpus, source_tokens=64, target_tokens=64, seed=1)
    batch = batching.collate(pairs)
    with compute.autocast():
        logits = model(batch.source, batch.target_input)
        loss = label_smoothed_loss(logits, batch.target_output, smoothing=0.1, padding_id=0)
    return with_gradients(loss, model)


def of_rows(
    fast: FastModel, corpus: EncodedCorpus, pairs: np.ndarray, shape: Shape | None = None
) -> list[Tensor]:
    batch = make_host_batch(corpus.tokens(pairs), shape).to(CPU)
    with fast.compute.autocast():
        loss = fast.loss(batch, 0.1)
    return with_gradients(loss, fast.model)


@pytest.mark.parametrize("shape", SHAPES, ids=["exact", "one shape", "rows alone"])
@of_all_kinds
def test_rows_have_the_loss_and_the_gradient_of_the_padded_batch(
    make_model: MakeModel, corpus: EncodedCorpus, choices: dict[str, Any], shape: Shape | None
) -> None:
    plain, fast = (make_model(vocab_size=V, max_learned_positions=99, **choices) for _ in "12")
    fast_model = FastModel(fast, Compute())
    for pairs in batches_of(corpus):
        expected = of_padded_batch(plain, corpus, pairs)
        found = of_rows(fast_model, corpus, pairs, shape)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.filterwarnings("ignore")  # uncompiled, FlexAttention is slow, and says so
def test_flex_attention_is_that_of_padded_sentences(tmp_path: Path, make_model: MakeModel) -> None:
    """With more than one block of keys and of queries, whole blocks that fill up, one sentence."""
    from seq2seq.fast.attention import FlexLayout

    chance = np.random.default_rng(1)
    sources = [chance.integers(4, V, n).tolist() for n in [*chance.integers(0, 40, 12), 199]]
    targets = [chance.integers(4, V, n).tolist() for n in [*chance.integers(0, 40, 12), 150]]
    with new_corpus(tmp_path / "corpus") as write:
        write(encode_ids(sources, targets, V))
    corpus = EncodedCorpus(tmp_path / "corpus")
    fast = FastModel(make_model(vocab_size=V), Compute())
    fast.model.eval()
    for pairs in (np.arange(12), np.arange(13), np.array([12]), np.array([3])):
        sides = corpus.tokens(pairs)
        rows = len(sides[1][0])
        with torch.no_grad():
            expected = row_states(fast.model, make_host_batch(sides).to(CPU), GridLayout)
            for fill in (0, 70, 300):
                shape = Shape((len(sides[0][0]) + fill // 2, rows + fill), 30, corpus.longest)
                batch = make_host_batch(sides, shape).to(CPU)
                states = row_states(fast.model, batch, FlexLayout)
                torch.testing.assert_close(states[:rows], expected, rtol=0, atol=1e-9)
                assert states.isfinite().all()


def no_mask(grid: Grid) -> Tensor:
    raise AssertionError


# A block of queries ends with the first row of a sentence; sentences are longer than blocks.
BORDERS = [([127, 1, 5], [128, 3, 9]), ([255, 2], [256, 40]), ([300, 1, 90], [1, 500, 2])]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=9))
@example(list(zip(*BORDERS[0], strict=True)))
@example(list(zip(*BORDERS[1], strict=True)))
@example(list(zip(*BORDERS[2], strict=True)))
@pytest.mark.parametrize("block", [64, 128])
def test_the_blocks_of_flex_attention_hold_every_key_of_each_query(
    block: int, lengths: list[tuple[int, int]]
) -> None:
    from seq2seq.fast.attention import FlexLayout

    sides, sentences = [], []
    for of_side in zip(*lengths, strict=True):
        starts = torch.tensor([0, *itertools.accumulate(of_side)])
        positions = torch.cat([torch.arange(length) for length in of_side])
        sentences.append(torch.repeat_interleave(torch.tensor(of_side)))
        sides.append(Side(positions, sentences[-1], starts, max(of_side)))
    for queries, keys, causal in ((0, 1, False), (1, 0, False), (0, 0, False), (0, 0, True)):
        same = sentences[queries].unsqueeze(1) == sentences[keys]  # (N, M)
        expected = same.tril() if causal else same
        with mock.patch.dict(os.environ, SEQ2SEQ_TRIALS="blocks_of_64" if block == 64 else ""):
            mask = FlexLayout(sides[queries], sides[keys], no_mask, causal=causal).mask
        n, m = (torch.arange(size) for size in expected.shape)
        zero = torch.tensor(0)
        attends = mask.mask_mod(zero, zero, n.unsqueeze(1), m)
        in_blocks = mask.to_dense()[0, 0].bool()
        in_blocks = in_blocks.repeat_interleave(block, 0).repeat_interleave(block, 1)
        assert torch.equal(attends & in_blocks[: len(n), : len(m)], expected)
        adjacent = mask.kv_indices.diff(dim=-1)[0, 0] == 1  # as "contiguous_blocks" has it
        for row, count in zip(adjacent, mask.kv_num_blocks[0, 0], strict=True):
            assert row[: max(0, count - 1)].all()
        # The gradient of keys and values reads the blocks of queries of each block of keys.
        transposed = BlockMask.from_kv_blocks(mask.kv_num_blocks, mask.kv_indices)
        assert torch.equal(mask.q_num_blocks, transposed.q_num_blocks)
        for count, *numbers in zip(
            mask.q_num_blocks[0, 0], mask.q_indices[0, 0], transposed.q_indices[0, 0], strict=True
        ):
            assert torch.equal(*(each[:count] for each in numbers))


@pytest.mark.parametrize("small", [0, 2**19], ids=["attention in bf16", "attention in float32"])
def test_rows_are_as_exact_as_the_padded_batch_in_bf16(
    make_model: MakeModel, corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr("seq2seq.fast.rows._SMALL", small)
    monkeypatch.setattr("seq2seq.fast.rows.is_compiled_by_onednn", lambda x: True)
    pairs = batches_of(corpus)[0]
    exact = of_padded_batch(make_model(vocab_size=V), corpus, pairs)
    compute = Compute(dtype=torch.bfloat16)

    def error(found: list[Tensor]) -> float:
        return sum(((f - e).norm() / e.norm()).item() for f, e in zip(found, exact, strict=True))

    plain, model = (make_model(vocab_size=V).float() for _ in "12")
    of_plain = of_padded_batch(plain, corpus, pairs, compute)
    found = of_rows(FastModel(model, compute, residual=False), corpus, pairs)
    assert error(found) < 1.5 * error(of_plain)


def test_where_onednn_compiles_all_batches_have_one_shape(
    make_model: MakeModel, corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    batching = Batching(corpus, source_tokens=64, target_tokens=64, seed=1)
    options = {"compute": Compute(dtype=torch.bfloat16), "seed": 1}
    model = make_model(vocab_size=V).float()
    updater = FastUpdater(model, batching, TrainingConfig(), **options)
    shapes = set()
    for module in updater.fast.model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda _, inputs, output: shapes.add(output.shape[1]))
    epoch = batching.epoch(0)
    assert len(epoch) > 3
    for pairs in epoch:
        of_rows(updater.fast, corpus, pairs, updater.shape)
    assert len(shapes) <= 2  # of the source, of the target


def test_every_dropout_drops(make_model: MakeModel, corpus: EncodedCorpus) -> None:
    for name in ("dropout", "attention_dropout", "relu_dropout"):
        fast = FastModel(make_model(vocab_size=V, **{name: 0.5}), Compute())
        pairs = batches_of(corpus)[0]
        fast.model.eval()
        exact = of_rows(fast, corpus, pairs)[0]
        torch.testing.assert_close(of_rows(fast, corpus, pairs)[0], exact)
        fast.model.train()
        assert of_rows(fast, corpus, pairs)[0] != exact, name


def test_a_dropout_that_drops_everything_does_so(
    make_model: MakeModel, corpus: EncodedCorpus
) -> None:
    models = [make_model(vocab_size=V, dropout=0.0) for _ in "12"]
    for model in models:
        model.encoder.layers[0].dropout.p = 1.0
    pairs = batches_of(corpus)[0]
    expected = of_padded_batch(models[0].train(), corpus, pairs)
    assert of_rows(FastModel(models[1], Compute()), corpus, pairs)[0] == pytest.approx(expected[0])
