"""The learning rate against equation 3."""

import math

import pytest

from seq2seq.update import learning_rate


@pytest.mark.parametrize("d_model", [512, 1024])
def test_the_learning_rate_is_equation_3(d_model: int) -> None:
    root = math.sqrt(d_model)
    by_hand = {
        1: 1 / (root * 4000 * math.sqrt(4000)),
        2000: 2000 / (root * 4000 * math.sqrt(4000)),
        4000: 1 / (root * math.sqrt(4000)),
        16_000: 1 / (root * 2 * math.sqrt(4000)),
        100_000: 1 / (root * math.sqrt(100_000)),
    }
    for step, expected in by_hand.items():
        found = learning_rate(step, d_model=d_model, warmup_steps=4000)
        assert found == pytest.approx(expected, rel=1e-12)


def test_the_scale_multiplies_and_the_warm_up_moves_the_peak() -> None:
    plain = learning_rate(7, d_model=512, warmup_steps=20)
    scaled = learning_rate(7, d_model=512, warmup_steps=20, scale=2.5)
    assert scaled == pytest.approx(2.5 * plain)
    rates = [learning_rate(s, d_model=512, warmup_steps=20) for s in range(1, 60)]
    assert rates.index(max(rates)) + 1 == 20
