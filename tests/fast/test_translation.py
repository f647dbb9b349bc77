"""The fast forms of a translator against the plain model, all at once and step by step."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2seq.config import Activation, Positions, Start
from seq2seq.decoder import IncrementalDecoder, incremental_decoder
from seq2seq.fast import packed
from seq2seq.fast.decoder import TranslationKernels, use_translation_kernels
from seq2seq.fast.packed import (
    PackedLinear,
    fill_up_rows,
    packed_matmul,
    plain_matmul,
    round_batch_size,
)
from seq2seq.transformer import Transformer
from tests.conftest import MakeModel
from tests.models import ALL_MODERN

SOURCE = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]])
TARGET = torch.tensor([[2, 9, 4, 6], [2, 5, 5, 7]])
CHOICES = [
    {},
    {"d_k": 3, "d_v": 5, "positions": Positions.learned, "activation": Activation.swish},
    {"shared_embedding": False, "tied_output": False, "output_bias": True, "start": Start.zero},
    ALL_MODERN,
]
KERNELS = [TranslationKernels(packed=p, step=s) for p in (True, False) for s in (True, False)]


def steps(model: Transformer, decoder: IncrementalDecoder) -> Tensor:
    """Logits of TARGET (B, T, V), one position after the other, with beams that are reordered."""
    mask = model.source_mask(SOURCE)
    cache = decoder.start(model.encode(SOURCE, mask), mask)
    logits = []
    for place, tokens in enumerate(TARGET.T):
        if place == 1:
            cache.reorder(torch.tensor([0, 0, 1, 1]))
        if place > 1:
            cache.reorder(torch.tensor([1, 0, 3, 2]))
        beams = 1 if place == 0 else 2
        step = decoder.step(tokens.repeat_interleave(beams), cache)
        logits.append(step.view(2, beams, -1)[:, 0])
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("kernels", KERNELS, ids=str)
@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.inference_mode()
def test_a_translators_model_gives_the_plain_models_logits(
    make_model: MakeModel, choices: dict[str, Any], dtype: torch.dtype, kernels: TranslationKernels
) -> None:
    plain = make_model(vocab_size=40, **choices).to(dtype)
    fast = copy.deepcopy(plain)
    decoder = use_translation_kernels(fast, dtype, kernels)
    expected = plain(SOURCE, TARGET)
    low = dtype is torch.bfloat16
    close = {"rtol": 5e-2, "atol": 5e-2} if low else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(fast(SOURCE, TARGET), expected, **close)
    torch.testing.assert_close(steps(fast, decoder), expected, **close)
    over_it = incremental_decoder(fast)  # as alignments have one
    assert isinstance(over_it, IncrementalDecoder)
    torch.testing.assert_close(steps(fast, over_it), expected, **close)


def matmuls_of(model: Transformer) -> set[object]:
    return {m.matmul.pack for m in model.modules() if isinstance(m, PackedLinear)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_matrices_are_packed_where_they_can_be(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    model = make_model(vocab_size=40).to(dtype)
    use_translation_kernels(model, dtype, TranslationKernels())
    assert matmuls_of(model) == {packed_matmul if packed.can_pack(dtype) else plain_matmul}
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert not packed.can_pack(dtype)
    model = make_model(vocab_size=40).to(dtype)
    use_translation_kernels(model, dtype, TranslationKernels())
    assert matmuls_of(model) == {plain_matmul}


def test_batch_sizes_are_few_and_hardly_larger_than_needed() -> None:
    sizes = [round_batch_size(count) for count in range(4097)]
    assert sizes[:9] == list(range(9))
    assert len(set(sizes[1:])) == 8 + 4 * 9
    assert all(count <= size <= 1.25 * count for count, size in enumerate(sizes))
    assert all(round_batch_size(size) == size for size in sizes)


def test_a_product_sees_few_numbers_of_rows_and_keeps_its_results() -> None:
    matrix = torch.randint(-5, 6, (3, 4)).double()
    seen = set()

    def matmul(x: Tensor) -> Tensor:
        seen.add(x.shape)
        return x @ matrix.T

    filled_up = fill_up_rows(matmul)
    for shape in [(0, 4), (1, 4), (5, 1, 4), (3, 7, 4), (2, 2, 9, 4)]:
        x = torch.randint(-5, 6, shape).double()
        assert torch.equal(filled_up(x), x @ matrix.T)
    assert seen == {(0, 4), (1, 4), (8, 4), (24, 4), (40, 4)}
