"""An encoded corpus holds the token ids that were written, and is written whole or not at all."""

import contextlib
import os
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data.encoded import EncodedCorpus, encode_ids, new_corpus
from seq2seq.data.tokenizer import END_ID, PADDING_ID
from seq2seq.errors import UserError

Rows = list[tuple[list[int], list[int]]]


def write(path: Path, rows: Rows, vocab_size: int = 100, chunk: int = 3, batch: int = 4) -> None:
    with (
        patch("seq2seq.data.encoded._ROWS_PER_BATCH", batch),
        new_corpus(path, vocab_size) as append,
    ):
        for start in range(0, len(rows), chunk):
            part = rows[start : start + chunk]
            sides = ([source for source, _ in part], [target for _, target in part])
            append(encode_ids(*sides, vocab_size))
            append(encode_ids([], [], vocab_size))  # of pairs that were all filtered out


def assert_padded(padded: np.ndarray, rows: list[list[int]]) -> None:
    longest = max(map(len, rows), default=0)
    assert padded.tolist() == [row + [PADDING_ID] * (longest - len(row)) for row in rows]


ids = st.lists(st.integers(0, 99), max_size=6)


@given(st.lists(st.tuples(ids, ids), max_size=20), st.integers(1, 7), st.integers(1, 7))
def test_every_row_comes_back(tmp_path: Path, rows: Rows, chunk: int, batch: int) -> None:
    path = tmp_path / "corpus.arrow"
    write(path, rows, chunk=chunk, batch=batch)
    corpus = EncodedCorpus(path)
    assert len(corpus) == len(rows)
    sides = [[len(ids) + 1 for ids in side] for side in zip(*rows, strict=True)] or [[], []]
    assert [side.tolist() for side in corpus.lengths()] == sides
    assert {side.dtype for side in corpus.lengths()} == {np.dtype(np.int32)}
    if rows:
        assert corpus.longest == (max(sides[0]), max(sides[1]))
    for index in reversed(range(len(rows))):
        source, target = rows[index]
        assert corpus.source(index).tolist() == [*source, END_ID]
        assert corpus.target(index).tolist() == [*target, END_ID]
    some = np.arange(len(rows))[::2]
    for side, padded in enumerate(corpus.padded(some)):
        assert_padded(padded, [[*rows[i][side], END_ID] for i in some])
    assert [side.tolist() for side in corpus.lengths(some)] == [side[::2] for side in sides]
    for outside in (-1, len(rows)):
        with pytest.raises(IndexError):
            corpus.source(outside)


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(65_536, np.uint16), (65_537, np.int32)], ids=["16 bit", "32 bit"]
)
def test_the_largest_id_fits(tmp_path: Path, vocab_size: int, dtype: type) -> None:
    path = tmp_path / "corpus.arrow"
    write(path, [([vocab_size - 1], [0])], vocab_size=vocab_size)
    assert EncodedCorpus(path).source(0).tolist() == [vocab_size - 1, END_ID]
    assert EncodedCorpus(path).source(0).dtype == dtype


def test_an_id_outside_the_vocabulary_is_never_wrapped(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        write(tmp_path / "corpus.arrow", [([65_536], [0])])
    assert not list(tmp_path.iterdir())


def test_a_failed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "corpus.arrow"
    write(path, [([1], [2])])
    with contextlib.suppress(KeyboardInterrupt), new_corpus(path, 100) as append:
        append(encode_ids([[5]], [[6]], 100))
        raise KeyboardInterrupt
    assert EncodedCorpus(path).source(0).tolist() == [1, END_ID]
    assert os.listdir(tmp_path) == ["corpus.arrow"]


@pytest.mark.parametrize("keep", [0, 7, 0.5, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "corpus.arrow"
    write(path, [([1, 2], [3])] * 50)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep) if keep == 0.5 else int(keep)])
    with pytest.raises(UserError, match=str(path)):
        EncodedCorpus(path)
