"""Products of few numbers of rows: sizes, and results equal to the product's own."""

import torch
from torch import Tensor

from seq2seq.fast.packed import fill_up_rows, round_batch_size, round_rows


def test_batch_sizes_are_few_and_hardly_larger_than_needed() -> None:
    sizes = [round_batch_size(count) for count in range(4097)]
    assert sizes[:9] == list(range(9))
    assert len(set(sizes[1:])) == 8 + 4 * 9
    assert all(count <= size <= 1.25 * count for count, size in enumerate(sizes))
    assert all(round_batch_size(size) == size for size in sizes)


def test_rows_are_rounded_up_to_multiples_of_four() -> None:
    sizes = [round_rows(count) for count in range(4097)]
    assert sizes[:10] == [0, 1, 2, 4, 4, 8, 8, 8, 8, 12]
    assert len(set(sizes[1:])) == 2 + 8 + 4 * 7
    assert all(count <= size <= max(count + 3, 1.25 * count) for count, size in enumerate(sizes))
    assert all(round_rows(size) == size for size in sizes)


def test_a_product_sees_rounded_numbers_of_rows_and_keeps_its_results() -> None:
    matrix = torch.randint(-5, 6, (3, 4)).double()
    seen = set()

    def product(x: Tensor) -> Tensor:
        seen.add(x.shape)
        return x @ matrix.T

    filled_up = fill_up_rows(product)
    for shape in [(0, 4), (1, 4), (5, 1, 4), (3, 7, 4), (2, 2, 9, 4)]:
        x = torch.randint(-5, 6, shape).double()
        assert torch.equal(filled_up(x), x @ matrix.T)
    assert seen == {(0, 4), (1, 4), (8, 4), (24, 4), (40, 4)}
