"""The learning rate against equation 3, Adam against the equations of Kingma and Ba."""

import math

import pytest
import torch
from torch import nn

from seq2seq.training.optimizer import learning_rate, make_adam


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


def test_adam_is_that_of_kingma_and_ba() -> None:
    beta_1, beta_2, epsilon = 0.9, 0.98, 1e-9
    model = nn.Linear(3, 2).double()
    adam = make_adam(model)
    theta = [p.detach().clone() for p in model.parameters()]
    m, v = ([torch.zeros_like(p) for p in theta] for _ in range(2))
    generator = torch.Generator().manual_seed(1)
    for t in range(1, 8):
        alpha = 0.1 / t
        for i, parameter in enumerate(model.parameters()):
            # Some of them so small that epsilon counts.
            g = torch.randn(parameter.shape, dtype=torch.float64, generator=generator) * 10.0 ** -(
                4 * i
            )
            if i:
                g[0] *= 1e-5
            parameter.grad = g.clone()
            m[i] = beta_1 * m[i] + (1 - beta_1) * g
            v[i] = beta_2 * v[i] + (1 - beta_2) * g**2
            corrected = m[i] / (1 - beta_1**t), v[i] / (1 - beta_2**t)
            theta[i] -= alpha * corrected[0] / (corrected[1].sqrt() + epsilon)
        for group in adam.param_groups:
            group["lr"] = alpha
        adam.step()
        for parameter, expected in zip(model.parameters(), theta, strict=True):
            torch.testing.assert_close(parameter.detach(), expected, rtol=0, atol=1e-12)
