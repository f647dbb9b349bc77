"""Batches of segments of similar length."""

from collections.abc import Sequence


def make_batches(sizes: Sequence[int], batch_tokens: int, workers: int) -> list[list[int]]:
    """Divide items into batches of similar size, at least one per worker if there are enough.

    Args:
        sizes: the tokens of each item; items of size 1, which are `</s>` alone, are left out.
        batch_tokens: the most tokens of a batch, padding counted; a longer item is alone.
        workers: the number of batches that are computed in parallel.

    Returns:
        The indices of the items of each batch.
    """
    # The longest first, so that no worker begins a large batch when the others are done.
    order = sorted((i for i, size in enumerate(sizes) if size > 1), key=lambda i: -sizes[i])
    batches: list[list[int]] = []
    for i in order:
        # A batch is as wide as its first item.
        if not batches or (len(batches[-1]) + 1) * sizes[batches[-1][0]] > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    if len(batches) < workers:  # a few items: some of each length for every worker
        workers = min(workers, len(order))
        batches = [order[worker::workers] for worker in range(workers)]
    return batches
