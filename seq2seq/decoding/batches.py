"""Batches of segments of similar length."""

from collections.abc import Callable, Sequence


def make_batches(
    sizes: Sequence[int],
    batch_tokens: int,
    workers: int,
    rounded: Callable[[int], int] = int,
) -> list[list[int]]:
    """Divide items into batches of similar size, at least one per worker if there are enough.

    Args:
        sizes: the tokens of each item; items of size 1, which are `</s>` alone, are left out.
        batch_tokens: the most tokens of a batch, padding counted; a longer item is alone.
        workers: the number of batches that are computed in parallel.
        rounded: rounds the number of items of a full batch down.

    Returns:
        The indices of the items of each batch.
    """
    # The longest first, so that no worker begins a large batch when the others are done.
    order = sorted((i for i, size in enumerate(sizes) if size > 1), key=lambda i: -sizes[i])
    batches: list[list[int]] = []
    room = 0
    for i in order:
        if not room:  # a batch is as wide as its first item
            room = rounded(max(1, batch_tokens // sizes[i]))
            batches.append([])
        batches[-1].append(i)
        room -= 1
    # Of a few items, batches are divided until every worker has one: that with most tokens first.
    tokens = [len(batch) * sizes[batch[0]] for batch in batches]
    parts = [1] * len(batches)
    while sum(parts) < min(workers, len(order)):
        divisible = (place for place, batch in enumerate(batches) if parts[place] < len(batch))
        parts[max(divisible, key=lambda place: tokens[place] / parts[place])] += 1
    return [b[part::n] for b, n in zip(batches, parts, strict=True) for part in range(n)]
