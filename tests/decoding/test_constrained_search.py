"""Constrained search over a lookup table against brute force over all outputs."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.decoding.glossary import Term, constrained_search
from seq2seq.search import Hypothesis
from tests.core.table import END, START, Ids, Table, search
from tests.core.test_beam_search import assert_same, brute_force

CONTINUING = {4}


def terms(*sequences: Sequence[int], times: int = 1) -> list[Term]:
    return [Term("", "", (tuple(one),)) for one in sequences] * times


def occurrences(ids: Ids, sequence: Ids) -> int:
    """How often a sequence stands in an output, without overlaps and not within a word."""
    following, count, start = (*ids, END), 0, 0
    while start + len(sequence) <= len(ids):
        end = start + len(sequence)
        if ids[start:end] == sequence and following[end] not in CONTINUING:
            count, start = count + 1, end
        else:
            start += 1
    return count


def missing(ids: Ids, needed: Sequence[Term]) -> int:
    """How many terms an output lacks; a sequence with the start symbol stands at its beginning."""
    return sum(
        max(0, times - max(occurrences((START, *ids) if s[0] == START else ids, s) for s in ways))
        for ways, times in Counter(term.sequences for term in needed).items()
    )


def constrained(
    table: Table, needed: Sequence[Sequence[Term]], max_length: int, **choices: float
) -> list[list[Hypothesis]]:
    lengths, by = [max_length] * len(needed), constrained_search
    return search(table, lengths, needed, CONTINUING, by=by, suppressed=(START,), **choices)


NEEDED = [
    terms((2,)),
    terms((3, 3, 2)),  # 3 3 3 2 has it
    terms((2, 3), (3, 4)),
    terms((2, 4, 2), times=1),
    terms((3,), times=3),
    [Term("", "", ((2, 2), (START, 3, 4)))],  # the second only at the beginning
    [],
]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("nbest", [1, 3])
def test_a_wide_beam_finds_the_best_outputs_with_the_terms(alpha: float, nbest: int) -> None:
    table = Table(3, vocab_size=5, end=0.5)
    found = constrained(table, NEEDED, 5, beam_size=1000, alpha=alpha, nbest=nbest)
    for sentence, needed in enumerate(NEEDED):
        outputs = brute_force(table, sentence, 5, alpha, suppressed=(START,))
        expected = [(ids, score) for ids, score in outputs if not missing(ids, needed)]
        assert_same(found[sentence], expected[:nbest])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.lists(
        st.lists(st.lists(st.integers(2, 4), min_size=1, max_size=3), max_size=3),
        min_size=1,
        max_size=4,
    ),
)
def test_any_beam_writes_all_terms_that_fit(
    seed: int, beam: int, needed: list[list[list[int]]]
) -> None:
    some = [terms(*sequences) for sequences in needed]
    table = Table(seed, vocab_size=6, end=3.0)
    for outputs, of_sentence in zip(
        constrained(table, some, 20, beam_size=beam), some, strict=True
    ):
        assert missing(tuple(outputs[0].token_ids), of_sentence) == 0
        assert len(outputs[0].token_ids) < 20


def test_an_output_that_is_too_short_for_its_terms_has_as_many_as_fit() -> None:
    table, needed = Table(1, vocab_size=5), terms((2, 3), (3, 2, 2))
    (found,) = constrained(table, [needed], 3, beam_size=1000)
    assert missing(tuple(found[0].token_ids), needed) == 1
