"""Beam search over a lookup table against brute force and against a search in plain Python."""

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.decoding.glossary import Term, constrained_search
from seq2seq.decoding.options import SamplingConfig
from seq2seq.decoding.sampling import sample
from seq2seq.errors import UserError
from seq2seq.fast.search import FastBeams, topk_by_blocks
from seq2seq.search import Beams, DecodingConfig, Hypothesis, SearchConfig
from tests.core.paper import page_functions
from tests.core.table import END, START, Ids, Table, search, tables

Outcome = list[tuple[Ids, float]]
ALPHAS = [0.0, 0.6, 1.0, 2.5]
PAGE = page_functions()


def penalized(score: float, tokens: int, alpha: float) -> float:
    return score / ((5 + tokens + 1) / 6) ** alpha  # the end symbol counts


def brute_force(
    table: Table, sentence: int, max_length: int, alpha: float, suppressed: Ids = ()
) -> Outcome:
    """Every output there is, the best first."""
    tokens = [t for t in range(table.vocab_size) if t != END and t not in suppressed]
    found = []
    for length in range(max_length + 1):
        for ids in itertools.product(tokens, repeat=length):
            following = (*ids, END)
            score = sum(
                table.log_probabilities(sentence, ids[:i])[token]
                for i, token in enumerate(following)
            )
            found.append((ids, penalized(score, length, alpha)))
    return sorted(found, key=lambda pair: -pair[1])


def plain_beam_search(
    table: Table, sentence: int, max_length: int, alpha: float, beam: int, suppressed: Ids = ()
) -> Outcome:
    """The search in `seq2seq/paper/README.md`; goes on to the end, whatever has finished."""

    def log_probabilities(ids: Ids) -> dict[int, float]:
        found = enumerate(table.log_probabilities(sentence, ids))
        return {token: value for token, value in found if token not in suppressed}

    return PAGE["beam_search"](log_probabilities, END, max_length, beam, alpha)[0]


def assert_same(found: list[Hypothesis], expected: Outcome) -> None:
    assert [tuple(hypothesis.token_ids) for hypothesis in found] == [ids for ids, _ in expected]
    scores = [score for _, score in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx(scores, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    tables,
    st.integers(1, 6),
    st.floats(0, 3),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.data(),
)
def test_stopping_early_never_changes_the_result(
    table: Table, beam: int, alpha: float, max_lengths: list[int], data: st.DataObject
) -> None:
    nbest = data.draw(st.integers(1, beam), label="nbest")
    kind = data.draw(st.sampled_from([Beams, FastBeams]), label="kind")
    how = {"alpha": alpha, "suppressed": data.draw(st.sampled_from([(), (START,)]))}
    found = search(table, max_lengths, kind, beam_size=beam, nbest=nbest, **how)
    for sentence, max_length in enumerate(max_lengths):
        expected = plain_beam_search(table, sentence, max_length, beam=beam, **how)
        assert_same(found[sentence], expected[:nbest])


@pytest.mark.parametrize("short", [0.7, 0.733])
def test_a_long_output_may_still_overtake_a_finished_one(short: float) -> None:
    """The rest, then certainty until the length penalty has made it good: at 0.733 only just."""

    def logits(sentence: int, prefix: Ids) -> list[float]:
        if not prefix:
            return [-60.0, math.log(short), math.log(1 - short)]
        return [-60.0, 0.0, -60.0] if len(prefix) == 20 else [-60.0, -60.0, 0.0]

    table = Table(1, vocab_size=3)
    table.logits = logits
    found = search(table, [20], beam_size=2, alpha=1.0, nbest=2)
    assert [hypothesis.token_ids for hypothesis in found[0]] == [[2] * 20, []]
    expected = [math.log(1 - short) / (26 / 6), math.log(short)]
    assert [hypothesis.score for hypothesis in found[0]] == pytest.approx(expected)
    assert_same(found[0], plain_beam_search(table, 0, 20, 1.0, 2)[:2])


@pytest.mark.parametrize("alpha", [0.6, 1.0, 2.5])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"kind": FastBeams},
        {"by": partial(constrained_search, terms=[[]] * 2, continuing=())},
    ],
    ids=["beam", "fast beam", "constrained"],
)
def test_the_search_goes_on_while_the_longest_output_can_win_by_one_percent(
    alpha: float, how: dict[str, Any]
) -> None:
    """To end at once is the best output but for that of the maximum length, another per sentence.

    One token less, or a bound a tenth lower, and it could not win.
    """
    limits, shorts = [20, 12], []
    for limit in limits:
        penalty = ((6 + limit) / 6) ** alpha
        shares = np.linspace(0.5, 1 - 1e-9, 1_000_000)
        # The longer one's log-probability, penalized, is 0.99 times the shorter one's.
        better = np.log(1 - shares) / penalty > 0.99 * np.log(shares)
        shorts.append(float(shares[better][-1]))

    def logits(sentence: int, prefix: Ids) -> list[float]:
        if not prefix:
            return [-60.0, math.log(shorts[sentence]), math.log(1 - shorts[sentence])]
        end = len(prefix) == limits[sentence]
        return [-60.0, 0.0, -60.0] if end else [-60.0, -60.0, 0.0]

    table = Table(1, vocab_size=3)
    table.logits = logits
    kind = how.get("kind")
    given = (kind,) if kind else ()
    others = {name: value for name, value in how.items() if name != "kind"}
    found = search(table, limits, *given, beam_size=2, alpha=alpha, **others)
    for sentence, limit in enumerate(limits):
        assert [hypothesis.token_ids for hypothesis in found[sentence]] == [[2] * limit]
        assert_same(found[sentence], plain_beam_search(table, sentence, limit, alpha, 2)[:1])


def test_the_search_stops_as_soon_as_no_live_hypothesis_can_win() -> None:
    """At once: `</s>` has 0.99, and no other token is worth as much at the greatest length."""
    table = Table(1, vocab_size=4, sharpness=0.5, end=6.0)
    lengths, logits = set(), table.logits
    table.logits = lambda sentence, prefix: lengths.add(len(prefix)) or logits(sentence, prefix)
    search(table, [1000])
    assert lengths == {0}


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("vocab_size", "suppressed"), [(4, ()), (6, (START, 5))])
def test_a_wide_beam_finds_what_brute_force_finds(
    alpha: float, vocab_size: int, suppressed: Ids
) -> None:
    table, how = Table(11, vocab_size), {"suppressed": suppressed, "alpha": alpha}
    for sentence, found in enumerate(search(table, [4] * 5, beam_size=81, nbest=5, **how)):
        assert_same(found, brute_force(table, sentence, 4, **how)[:5])


@pytest.mark.parametrize("size", [1, 127, 1280, 8000])
@pytest.mark.parametrize("count", [1, 8])
def test_the_best_of_blocks_are_the_best_of_all(size: int, count: int) -> None:
    generator = torch.Generator().manual_seed(size)
    scores = torch.randn(20, size, generator=generator)
    scores[:, ::3] = -math.inf
    scores[10:] = scores[10:].round()  # ties: any of the equals will do
    count = min(count, size)
    best, indices = topk_by_blocks(scores, count)
    assert torch.equal(best, scores.topk(count).values)
    assert torch.equal(scores.gather(1, indices), best)
    assert all(len(set(row)) == count for row in indices.tolist())


def test_candidates_of_a_few_sentences_at_a_time_are_those_of_all() -> None:
    sentences, beam, vocab_size = 5, 2, 2**17  # two sentences at a time
    config, limits = SearchConfig(beam_size=beam), torch.tensor([9, 9, 9, 9, 3])
    beams = FastBeams(limits, config, {"start_id": START, "end_id": END, "suppressed_ids": (7,)})
    torch.manual_seed(1)
    beams.live_scores, beams.length = torch.randn(sentences, beam), 3
    logits = torch.randn(sentences * beam, vocab_size)
    scores, parents, tokens = beams.candidates(logits)
    expected = logits.log_softmax(-1).view(sentences, beam, -1) + beams.live_scores.unsqueeze(2)
    expected[:, :, 7] = -math.inf
    expected[4, :, :END] = expected[4, :, END + 1 :] = -math.inf  # at its maximum length
    torch.testing.assert_close(scores, expected.flatten(1).topk(2 * beam).values)
    sentence = torch.arange(sentences).unsqueeze(1)
    torch.testing.assert_close(scores, expected[sentence, parents, tokens])


@pytest.mark.parametrize(
    "how",
    [
        {"beam_size": 1},
        {"beam_size": 3},
        {"by": partial(sample, keys=[[0], [1]]), "config": SamplingConfig, "top_k": 2},
        {"by": partial(constrained_search, terms=[[Term("", "", ((2,),))], []], continuing=())},
    ],
    ids=["greedy", "beam", "sampling", "constrained"],
)
@pytest.mark.parametrize("logit", [math.nan, -math.inf])
def test_an_output_without_probability_is_an_error(how: dict[str, Any], logit: float) -> None:
    table = Table(1, vocab_size=5)
    table.logits = lambda sentence, prefix: [0.0, logit, 0.0, 0.0, 0.0]
    with pytest.raises(UserError, match="NaN, or no token"):
        search(table, [3, 5], **how)


@pytest.mark.parametrize(
    ("config", "choices", "complaint"),
    [
        (SearchConfig, {"beam_size": 0}, "beam_size=0"),
        (SearchConfig, {"beam_size": 10**20}, "must be at least 1 and at most 1,000"),
        (SearchConfig, {"max_extra_tokens": 10**20}, "must be at least 1 and at most 10,000"),
        (SearchConfig, {"nbest": 5}, "nbest=5: must be at most beam_size=4"),
        (SearchConfig, {"alpha": math.nan}, "alpha=nan"),
        (SamplingConfig, {"temperature": 0.0}, "temperature=0.0: must be above 0"),
        (SamplingConfig, {"top_p": math.nan}, "top_p=nan"),
        (SamplingConfig, {"seed": 2**32}, "seed=4294967296"),
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(
    config: type[DecodingConfig], choices: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        config(**choices)
