"""Section 6.1: beam search, its length penalty, and its end."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seq2seq.fidelity.detail import Finding, Subject, detail
from seq2seq.fidelity.trace import FIRST_WORD
from seq2seq.search import Hypothesis, SearchConfig, beam_search
from seq2seq.tokenizer import END_ID, START_ID

# The shares of the words of the lookup table; unequal, so that no two hypotheses tie.
_WORDS = torch.linspace(1.0, 2.0, 12, dtype=torch.float64)
_WORDS /= _WORDS.sum()


@dataclass
class _Lookup:
    """A search state that records only the number of steps and the largest number of rows."""

    step: int = 0
    rows: int = 0

    def reorder(self, parents: Tensor) -> None: ...
    def keep(self, sentences: Tensor, rows: Tensor) -> None: ...


def _search(
    config: SearchConfig, end_probability: Callable[[int], float], max_length: int
) -> tuple[list[Hypothesis], _Lookup]:
    """Search a table in which `</s>` has a given probability per step and the words the rest."""
    state = _Lookup()

    def step(token_ids: Tensor, state: _Lookup) -> Tensor:
        state.step, state.rows = state.step + 1, max(state.rows, len(token_ids))
        end = end_probability(state.step)
        probabilities = torch.zeros(FIRST_WORD, dtype=torch.float64)
        probabilities[END_ID] = end
        probabilities = torch.cat((probabilities, (1.0 - end) * _WORDS))
        return probabilities.log().expand(len(token_ids), -1)

    found = beam_search(
        step, state, torch.tensor([max_length]), config, start_id=START_ID, end_id=END_ID
    )
    return found[0], state


@detail(
    "beam (6.1)", paper="beam 4, alpha 0.6", tensor2tensor="the same, 2 x beam candidates per step"
)
def beam(subject: Subject) -> Finding:
    """Count the hypotheses and the candidates of a search."""
    config = subject.search
    _, state = _search(config, lambda step: 0.01, max_length=6)
    # At the second step `</s>` is the best continuation of every hypothesis, yet by the penalty a
    # longer output may win. With beam_size candidates none would stay live: the search would end.
    generous = replace(config, alpha=2.0)
    _, longer = _search(generous, lambda step: 0.6 if step == 2 else 1e-3, max_length=6)
    twice = longer.step > 2
    penalties = [_measured_penalty(config, length) for length in (7, 19)]
    alpha = math.log(penalties[1] / penalties[0]) / math.log(24 / 12)
    right = state.rows == 4 and math.isclose(alpha, 0.6, abs_tol=1e-6)
    return Finding(
        f"beam {state.rows}, alpha {alpha:.4g} (from the scores of two lengths);"
        f" {'' if twice else 'fewer than '}2 x beam candidates per step",
        right,
        right and twice,
    )


def _measured_penalty(config: SearchConfig, length: int) -> float:
    """Measure log-probability / score of an output of `length` tokens, `</s>` counted."""
    outputs, _ = _search(
        config, lambda step: 1.0 - 1e-9 if step == length else 1e-30, max_length=length + 5
    )
    words = [float(_WORDS[i - FIRST_WORD]) for i in outputs[0].token_ids]
    assert len(words) == length - 1
    return (sum(map(math.log, words)) + math.log(1.0 - 1e-9)) / outputs[0].score


@detail(
    "length penalty (6.1)",
    paper="((5 + length) / 6)^alpha (Wu et al. 2016)",
    tensor2tensor="the same, </s> counted",
)
def length_penalties(subject: Subject) -> Finding:
    """Compare the scores of outputs with their log-probabilities."""
    alpha = subject.search.alpha
    found = {n: _measured_penalty(subject.search, n) for n in (2, 10, 50)}
    right = all(math.isclose(found[n], ((5 + n) / 6) ** alpha, rel_tol=1e-4) for n in found)
    name = "((5 + length) / 6)^alpha, </s> counted" if right else "another formula"
    shown = ", ".join(f"{penalty:.4f} at {n}" for n, penalty in found.items())
    return Finding.both(f"{name}: {shown}", right)


@detail(
    "longest output, early stop (6.1)",
    paper="input + 50; ends early when possible",
    tensor2tensor="ends when no live hypothesis can beat a finished one",
)
def longest_output(subject: Subject) -> Finding:
    """Read the maximum length, and search a table where `</s>` is certain."""
    extra = subject.search.max_extra_tokens
    _, state = _search(subject.search, lambda step: 0.99, max_length=60)
    early = state.step < 60
    stop = f"ends after {state.step} of 60 steps" if early else "does not end early"
    return Finding.both(
        f"input + {extra}, </s> not counted; {stop} where </s> is certain", extra == 50 and early
    )
