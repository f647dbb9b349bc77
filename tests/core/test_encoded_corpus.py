"""An encoded corpus holds the token ids that were written."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.encoded_corpus import EncodedCorpus, encode_ids, new_corpus
from seq2seq.errors import UserError
from seq2seq.tokenizer import END_ID, PADDING_ID

PairIndices = list[tuple[list[int], list[int]]]


def write(path: Path, rows: PairIndices, vocab_size: int = 100, chunk: int = 3) -> None:
    with new_corpus(path) as append:
        for start in range(0, len(rows), chunk):
            sides = map(list, zip(*rows[start : start + chunk], strict=True))
            append(encode_ids(*sides, vocab_size))
            append(encode_ids([], [], vocab_size))  # of pairs that were all filtered out


ids = st.lists(st.integers(0, 99), max_size=6)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=20), st.integers(1, 7))
def test_every_row_comes_back(tmp_path: Path, rows: PairIndices, chunk: int) -> None:
    path = tmp_path / "corpus"
    write(path, rows, chunk=chunk)
    corpus = EncodedCorpus(path)
    assert len(corpus) == len(rows)
    sides = [[len(ids) + 1 for ids in side] for side in zip(*rows, strict=True)]
    assert [side.tolist() for side in corpus.lengths()] == sides
    assert {side.dtype for side in corpus.lengths()} == {np.dtype(np.int32)}
    assert corpus.longest == (max(sides[0]), max(sides[1]))
    for index in reversed(range(len(rows))):
        source, target = rows[index]
        assert corpus.source(index).tolist() == [*source, END_ID]
        assert corpus.target(index).tolist() == [*target, END_ID]
    some = np.arange(len(rows))[::2]
    assert [side.tolist() for side in corpus.lengths(some)] == [side[::2] for side in sides]
    for side, padded in enumerate(corpus.padded(some)):
        longest = max(sides[side][::2])
        for i, ids in zip(some, padded.tolist(), strict=True):
            assert ids == [*rows[i][side], END_ID, *[PADDING_ID] * (longest - sides[side][i])]


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(65_536, np.uint16), (65_537, np.int32)], ids=["16 bit", "32 bit"]
)
def test_the_largest_id_fits(tmp_path: Path, vocab_size: int, dtype: type) -> None:
    path = tmp_path / "corpus"
    write(path, [([vocab_size - 1], [0])], vocab_size=vocab_size)
    assert EncodedCorpus(path).source(0).tolist() == [vocab_size - 1, END_ID]
    assert EncodedCorpus(path).source(0).dtype == dtype


def test_an_id_outside_the_vocabulary_is_never_wrapped(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        write(tmp_path / "corpus", [([65_536], [0])])


@pytest.mark.parametrize("keep", [0, 7, 8, 0.5, -1])
@pytest.mark.parametrize("suffix", ["", ".ends"])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: float, suffix: str) -> None:
    path = tmp_path / "corpus"
    write(path, [([1, 2], [3])] * 50)
    truncated = Path(f"{path}{suffix}")
    whole = truncated.read_bytes()
    truncated.write_bytes(whole[: int(len(whole) * keep) if keep == 0.5 else int(keep)])
    with pytest.raises(UserError, match=str(path)):
        EncodedCorpus(path)
