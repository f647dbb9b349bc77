"""The selection of candidates against torch.topk, and the sizes of batches."""

import math
import shutil

import pytest
import torch
from torch import Tensor

from seq2seq.decoding.search import best_continuations
from seq2seq.fast.topk import compiled_topk, plain_topk, topk_by_blocks, topk_in_chunks


@pytest.mark.parametrize("size", [1, 127, 1280, 2000, 8000])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_best_of_blocks_are_the_best_of_all(size: int, count: int) -> None:
    generator = torch.Generator().manual_seed(size)
    scores = torch.randn(20, size, generator=generator)
    scores[:, ::3] = -math.inf
    scores[10:] = scores[10:].round()  # ties: any of the equals will do
    count = min(count, size)
    best, places = topk_by_blocks(scores, count)
    assert torch.equal(best, scores.topk(count).values)
    assert torch.equal(scores.gather(1, places), best)
    assert all(len(set(row)) == count for row in places.tolist())


@pytest.mark.parametrize("chunk_elements", [1, 3 * 4000, 5 * 4000 + 1, 2**30])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_chunks_give_what_the_whole_batch_gives(chunk_elements: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(11, 2, 2000, generator=generator, dtype=dtype)
    live_scores = torch.randn(11, 2, generator=generator, dtype=dtype)
    sizes = []

    def score(logits: Tensor, live_scores: Tensor) -> Tensor:
        sizes.append(len(logits))
        return (logits.log_softmax(dim=-1) + live_scores.unsqueeze(2)).flatten(1)

    found = topk_in_chunks(score, 4, logits, live_scores, chunk_elements=chunk_elements)
    assert sizes == {1: [1] * 11, 12_000: [3, 3, 3, 2], 20_001: [5, 5, 1]}.get(chunk_elements, [11])
    for fast, plain in zip(found, plain_topk(score, 4, logits, live_scores), strict=True):
        assert torch.equal(fast, plain)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")
@torch.inference_mode()
def test_compiled_candidates_are_the_plain_ones() -> None:
    """Of batches of several sizes, and where a token is forced."""
    for sentences, forced in ((3, None), (7, None), (5, torch.tensor([-1, 9, 1, -1, 1999]))):
        generator = torch.Generator().manual_seed(sentences)
        logits = torch.randn(4 * sentences, 2000, generator=generator)
        scores = -10 * torch.rand(sentences, 4, generator=generator)
        found, expected = (
            best_continuations(logits, scores, 4, (0, 2), forced, topk)
            for topk in (compiled_topk(), plain_topk)
        )
        possible = expected[0] > -math.inf  # the others have no order
        assert possible.sum() == 8 * sentences - (0 if forced is None else 4 * 3)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[possible], other[possible], rtol=1e-6, atol=1e-5)
