"""Validation pairs that are cut from the training text, by hashes of their sources."""

import hashlib
from collections.abc import Iterable
from typing import TypeAlias

from seq2seq.data.pair_files import SentencePair
from seq2seq.errors import UserError

HeldOut: TypeAlias = dict[bytes, tuple[int, SentencePair]]
"""Pairs with their numbers in the training text, by digests of their sources."""


def hold_out(train: Iterable[SentencePair], number: int) -> HeldOut:
    """Choose pairs of different sources: of those with the lowest digests, the first ones."""
    chosen: HeldOut = {}
    for numbered in enumerate(train, start=1):
        if all(map(str.strip, numbered[1])):
            chosen.setdefault(source_digest(numbered[1]), numbered)
        if len(chosen) > 2 * number + 1:
            chosen = dict(sorted(chosen.items())[: number + 1])
    if len(chosen) <= number:
        raise UserError(
            f"data.valid_from_train={number}: data.train has {len(chosen):,} different sources:"
            " lower it, so that some are left for training"
        )
    return dict(sorted(sorted(chosen.items())[:number], key=lambda item: item[1][0]))


def source_digest(pair: SentencePair) -> bytes:
    """Return what pairs of equal sources, but for white space, have in common."""
    return hashlib.blake2b(" ".join(pair.source.split()).encode(), digest_size=8).digest()
