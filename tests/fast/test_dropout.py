"""Dropout's mask against what its name and rate promise."""

import math

import pytest
import torch

from seq2seq.fast.training import CpuDropout, random_keep_mask


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.3, 0.5, 0.9])
def test_elements_are_dropped_at_the_rate_and_the_mean_is_kept(rate: float) -> None:
    torch.manual_seed(1)
    mask = random_keep_mask(torch.empty(2**20, dtype=torch.float64), rate)
    assert set(mask.tolist()) == {0.0, 1 / (1 - rate)}
    deviation = math.sqrt(rate * (1 - rate) / len(mask))
    dropped = (mask == 0).double().mean().item()
    assert abs(dropped - rate) < 5 * deviation
    assert abs(mask.mean().item() - 1) < 5 * deviation / (1 - rate)


def test_neighbors_are_dropped_independently() -> None:
    torch.manual_seed(2)
    dropped = (random_keep_mask(torch.empty(2**20), 0.3) == 0).double() - 0.3
    for distance in (1, 2, 3, 4, 5, 64):
        together = (dropped[distance:] * dropped[:-distance]).mean().item()
        assert abs(together) < 5 * 0.21 / 2**10
    quarters = dropped.view(-1, 4).mean(dim=0)  # each of the four that share a random number
    assert (quarters.abs() < 5 * math.sqrt(0.21 / 2**18)).all()


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (5,), (2, 3, 5), (4, 4), (0, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_mask_has_the_shape_and_type_of_its_input(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    mask = random_keep_mask(torch.empty(shape, dtype=dtype), 0.5)
    assert mask.shape == shape
    assert mask.dtype == dtype
    assert set(mask.flatten().tolist()) <= {0.0, 2.0}


def test_the_last_elements_of_an_odd_size_are_dropped_as_well() -> None:
    torch.manual_seed(3)
    masks = torch.stack([random_keep_mask(torch.empty(7), 0.5) for _ in range(2000)])
    assert ((masks == 0).double().mean(dim=0) - 0.5).abs().max() < 5 * 0.5 / math.sqrt(2000)


def test_a_seed_gives_the_same_mask_again_and_another_seed_another() -> None:
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(random_keep_mask(torch.empty(1000), 0.5))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_nothing_happens_outside_training_or_at_rate_zero() -> None:
    x = torch.randn(3, 5)
    assert CpuDropout(0.5).eval()(x) is x
    assert CpuDropout(0.0).train()(x) is x


def test_gradients_flow_where_values_do() -> None:
    torch.manual_seed(4)
    x = torch.ones(101, requires_grad=True)
    kept = CpuDropout(0.4).train()(x)
    kept.sum().backward()
    assert torch.equal(x.grad, kept.detach())
    assert 0 < (kept == 0).sum() < 101
