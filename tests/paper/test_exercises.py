"""Solutions to the exercises of `seq2seq/paper/README.md`, with the functions of that page."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seq2seq.loss import label_smoothed_loss
from tests.conftest import MakeModel
from tests.core.paper import Array, page_functions
from tests.core.table import END, Ids, Table

page = SimpleNamespace(**page_functions())


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.fixture
def p(make_model: MakeModel) -> dict[str, Array]:
    """The parameters of a model with d_model = 8, two heads and 11 tokens."""
    return {name: value.numpy() for name, value in make_model().state_dict().items()}


@pytest.fixture
def x(random: np.random.Generator) -> Array:
    return random.normal(size=(5, 8))


DECODER = "decoder.layers.0.self_attention"


def test_1_with_a_wrong_mask_each_token_reads_the_one_that_it_should_predict(
    p: dict[str, Array], x: Array
) -> None:
    other = x.copy()
    other[3] += 1.0
    for k, expected in ((0, [3, 4]), (1, [2, 3, 4])):  # row 2 predicts token 3, and has read it
        mask = np.tril(np.ones((5, 5), dtype=bool), k=k)
        before, after = (page.multi_head(p, DECODER, 2, rows, rows, mask) for rows in (x, other))
        changed = np.abs(after - before).max(axis=1) > 1e-9
        assert np.flatnonzero(changed).tolist() == expected


def test_2_without_the_root_one_weight_takes_nearly_all(random: np.random.Generator) -> None:
    query, key = random.normal(size=(1000, 256)), random.normal(size=(64, 256))
    largest = [page.softmax(query @ key.T / root).max(axis=1).mean() for root in (1.0, 16.0)]
    assert largest[0] > 0.8
    assert largest[1] < 0.2


def test_3_without_positions_the_encoder_does_not_know_who_bites(p: dict[str, Array]) -> None:
    matrix, dog, bites, man = p["embedding.weight"], 4, 5, 6
    one = page.stack(p, "encoder", 2, matrix[[dog, bites, man]])
    other = page.stack(p, "encoder", 2, matrix[[man, bites, dog]])
    np.testing.assert_allclose(one[::-1], other, atol=1e-12)
    one = page.stack(p, "encoder", 2, page.embed(matrix, [dog, bites, man]))
    other = page.stack(p, "encoder", 2, page.embed(matrix, [man, bites, dog]))
    assert np.abs(one[::-1] - other).max() > 0.01


def test_4_without_softmax_attention_is_linear_in_the_tokens(random: np.random.Generator) -> None:
    n, d_k = 1000, 64
    query, key, value = random.normal(size=(3, n, d_k))
    np.testing.assert_allclose((query @ key.T) @ value, query @ (key.T @ value), atol=1e-8)
    assert n * d_k * n + n * n * d_k == 128_000_000
    assert d_k * n * d_k + n * d_k * d_k == 8_192_000


def test_5_a_shift_of_positions_is_one_matrix() -> None:
    table, shift = page.positions(100, 16), np.zeros((16, 16))
    for i in range(0, 16, 2):
        angle = 7 / 10000 ** (i / 16)
        # (sin a, cos a) becomes (sin(a + angle), cos(a + angle)).
        cos, sin = math.cos(angle), math.sin(angle)
        shift[i : i + 2, i : i + 2] = [[cos, -sin], [sin, cos]]
    np.testing.assert_allclose(table[:-7] @ shift, table[7:], atol=1e-12)


def test_6_the_target_itself_has_the_lowest_loss(random: np.random.Generator) -> None:
    target = page.peaked(0.9, size=50)
    floor = page.token_loss(target, 0, 0.1)
    assert floor == pytest.approx(-0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 49))
    for _ in range(100):
        near = target * np.exp(0.1 * random.normal(size=50))
        assert page.token_loss(near / near.sum(), 0, 0.1) > floor


def test_7_the_losses_of_unequal_halves_are_summed_and_divided_once(make_model: MakeModel) -> None:
    model = make_model()
    source = torch.tensor([[4, 5, 3], [6, 3, 0]])
    target, output = (
        torch.tensor([[2, 7, 8, 9], [2, 7, 0, 0]]),
        torch.tensor([[7, 8, 9, 3], [7, 3, 0, 0]]),
    )

    def gradient(*parts: tuple[slice, float]) -> torch.Tensor:
        model.zero_grad()
        for rows, divisor in parts:
            logits = model(source[rows], target[rows])
            loss = label_smoothed_loss(logits, output[rows], smoothing=0.1, padding_id=0)
            (loss.smoothed / divisor).backward()
        return model.embedding.weight.grad.clone()

    whole = gradient((slice(2), 6))
    torch.testing.assert_close(gradient((slice(1), 6), (slice(1, 2), 6)), whole)
    means = gradient((slice(1), 2 * 4), (slice(1, 2), 2 * 2))  # the mean of both halves' means
    assert (means - whole).abs().max() > 0.01


def test_8_a_head_whose_rows_of_w_o_are_zero_is_no_more(p: dict[str, Array], x: Array) -> None:
    w_o = p[f"{DECODER}.w_o.weight"].copy()
    w_o[:, 4:] = 0  # the second of two heads; PyTorch's matrix is transposed
    found = page.multi_head(p | {f"{DECODER}.w_o.weight": w_o}, DECODER, 2, x, x)
    query, key, value = (p[f"{DECODER}.{name}.weight"][:4] for name in ("w_q", "w_k", "w_v"))
    head = page.attention(x @ query.T, x @ key.T, x @ value.T)
    np.testing.assert_allclose(found, head @ w_o[:, :4].T, atol=1e-12)


def test_9_with_a_cache_each_row_is_computed_once(p: dict[str, Array], x: Array) -> None:
    keys, values, rows = [], [], []
    for row in x[:, None]:
        keys.append(page.linear(p, f"{DECODER}.w_k", row))
        values.append(page.linear(p, f"{DECODER}.w_v", row))
        query = page.linear(p, f"{DECODER}.w_q", row)
        key, value = np.concatenate(keys), np.concatenate(values)
        heads = [
            page.attention(query[:, h], key[:, h], value[:, h]) for h in (slice(4), slice(4, 8))
        ]
        rows.append(page.linear(p, f"{DECODER}.w_o", np.concatenate(heads, axis=1)))
    mask = np.tril(np.ones((5, 5), dtype=bool))
    whole = page.multi_head(p, DECODER, 2, x, x, mask)
    np.testing.assert_allclose(np.concatenate(rows), whole, atol=1e-12)


def test_10_a_minimum_length_hides_the_end_until_it_is_reached() -> None:
    table = Table(1, vocab_size=4, end=3.0)

    def log_probabilities(tokens: Ids) -> dict[int, float]:
        return dict(enumerate(table.log_probabilities(0, tokens)))

    def at_least_three(tokens: Ids) -> dict[int, float]:
        found = log_probabilities(tokens)
        return found if len(tokens) >= 3 else {t: v for t, v in found.items() if t != END}

    every, _ = page.beam_search(log_probabilities, END, max_length=4, beam=81)
    assert len(every[0][0]) < 3
    found, _ = page.beam_search(at_least_three, END, max_length=4, beam=81)
    assert found[0] == next(pair for pair in every if len(pair[0]) >= 3)
