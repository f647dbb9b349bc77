"""BPE-dropout (Provilkov et al. 2020): byte-pair encoding that skips some merges, at random.

SentencePiece samples too, but its generators differ from process to process whatever their seed is.
Here a sample is a function of text, rate and seed, so that a resumed run sees the same pieces, and
so does each process of one.
"""

import random
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any

from sentencepiece import SentencePieceProcessor

_WORD = re.compile("▁?[^▁]*")
_CACHED_WORDS = 1 << 16


class BpeDropout:
    """The merges of a byte-pair encoding of SentencePiece, whose pieces don't go over spaces."""

    def __init__(self, processor: SentencePieceProcessor) -> None:
        self._processor = processor
        self._unknown: int = processor.unk_id()
        self._ids: dict[str, int] = {}
        """The ids of the pieces that text can be merged to; the smaller one is merged first."""
        self._byte_ids: dict[str, int] = {}
        for token_id in range(processor.get_piece_size()):
            if processor.is_byte(token_id):
                self._byte_ids[processor.id_to_piece(token_id)] = token_id
            elif not processor.is_control(token_id) and not processor.is_unknown(token_id):
                self._ids[processor.id_to_piece(token_id)] = token_id
        self._encode_whole = lru_cache(_CACHED_WORDS)(lambda word: self._merge(word, repeat(False)))

    def __reduce__(self) -> tuple[Any, ...]:
        return BpeDropout, (self._processor,)  # without the cache

    def encode(self, texts: Iterable[str], rate: float, seed: int) -> list[list[int]]:
        """Return the ids of normalized texts, with ``▁`` for spaces."""
        draw = random.Random(seed).random
        return [self._encode_text(text, rate, draw) for text in texts]

    def _encode_text(self, text: str, rate: float, draw: Callable[[], float]) -> list[int]:
        ids: list[int] = []
        for word in _WORD.findall(text):
            word_ids, merges = self._encode_whole(word)
            # Draw for one merge after the other; most words skip none, and are cached.
            made = next((i for i in range(merges) if draw() < rate), merges)
            if made < merges:
                later = iter(lambda: draw() < rate, None)
                word_ids, _ = self._merge(word, chain(repeat(False, made), [True], later))
            ids += word_ids
        # Unknown characters that follow one another become one token, as in SentencePiece.
        previous = [-1, *ids]
        return [i for i, p in zip(ids, previous, strict=False) if not i == p == self._unknown]

    def _merge(self, word: str, skips: Iterable[bool]) -> tuple[list[int], int]:
        """Return a word's ids, and how many merges were tried; `skips` says which are skipped."""
        skip = iter(skips)
        symbols = list(word)  # the first of two that were merged has both; the second is empty
        after = list(range(1, len(word) + 1))
        before = list(range(-1, len(word) - 1))
        merges: list[tuple[int, int, int, str]] = []  # a heap: the piece's id, left, right, piece

        def propose(left: int, right: int) -> None:
            if left >= 0 and right < len(symbols):
                piece = symbols[left] + symbols[right]
                if (token_id := self._ids.get(piece)) is not None:
                    heappush(merges, (token_id, left, right, piece))

        for left in range(len(word) - 1):
            propose(left, left + 1)
        tried = 0
        while merges:
            _, left, right, piece = heappop(merges)
            # One of the two may have been merged with another since.
            if not (symbols[left] and symbols[right]) or symbols[left] + symbols[right] != piece:
                continue
            tried += 1
            if next(skip):
                continue
            symbols[left], symbols[right] = piece, ""
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
            propose(before[left], left)
            propose(left, after[left])
        return list(chain.from_iterable(map(self._ids_of, filter(None, symbols)))), tried

    def _ids_of(self, symbol: str) -> list[int]:
        if symbol in self._ids:
            return [self._ids[symbol]]
        if self._byte_ids:
            return [self._byte_ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
        return [self._unknown]
