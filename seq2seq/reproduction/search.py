"""The details of the search (section 6.1), found by searching lookup tables."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID
from seq2seq.decoding.beam_search import SearchConfig, beam_search
from seq2seq.decoding.search import Hypothesis
from seq2seq.decoding.translator import TranslationOptions, Translator
from seq2seq.model import DecoderCache, Transformer, TransformerConfig
from seq2seq.reproduction.subject import Finding, Subject
from seq2seq.reproduction.synthetic import FIRST_WORD, synthetic_tokenizer
from seq2seq.storage.checkpoint import TrainedModel

_VOCAB_SIZE = 16
_UNLIKELY = 1e-30


@dataclass
class _Lookup:
    """A search state that remembers only how far the search is and how wide."""

    step: int = 0
    rows: int = 0

    def reorder(self, parents: Tensor) -> None: ...

    def keep(self, sentences: Tensor, rows: Tensor) -> None: ...


def _search(
    config: SearchConfig, end_probability: Callable[[int], float], longest: int
) -> tuple[list[Hypothesis], _Lookup]:
    """Search where `</s>` has a given probability at each step and the words share the rest."""
    state = _Lookup()

    def step(tokens: Tensor, state: _Lookup) -> Tensor:
        state.step, state.rows = state.step + 1, max(state.rows, len(tokens))
        end = end_probability(state.step)
        # Unequal words, so that no two hypotheses tie.
        words = torch.linspace(1.0, 2.0, _VOCAB_SIZE - FIRST_WORD, dtype=torch.float64)
        probabilities = torch.zeros(_VOCAB_SIZE, dtype=torch.float64)
        probabilities[FIRST_WORD:] = (1.0 - end) * words / words.sum()
        probabilities[END_ID] = end
        return probabilities.log().expand(len(tokens), -1)

    found = beam_search(
        step,
        state,
        torch.tensor([longest]),
        config,
        start_id=START_ID,
        end_id=END_ID,
        suppressed_ids=(PADDING_ID, START_ID),
    )
    return found[0], state


def beam(subject: Subject) -> Finding:
    """Row 21: how many hypotheses the search asks about, and how many candidates it looks at."""
    config = subject.search
    _, state = _search(config, lambda step: 0.01, longest=6)
    # At the second step `</s>` is every hypothesis' best continuation, yet a longer output may win
    # by the penalty. Of beam_size candidates none would stay alive, and the search would end.
    _, longer = _search(replace(config, alpha=2.0), lambda step: {2: 0.6}.get(step, 1e-3), 6)
    twice = longer.step > 2
    candidates = "2 x beam candidates a step" if twice else "fewer than 2 x beam candidates a step"
    alpha = _alpha(config)
    right = state.rows == 4 and math.isclose(alpha, 0.6, abs_tol=1e-6)
    return Finding(
        f"beam {state.rows}, alpha {alpha:.4g} (from the scores of two lengths); {candidates}",
        right,
        right and twice,
    )


def measured_penalty(config: SearchConfig, length: int) -> float:
    """Log-probability over score of an output of so many tokens, `</s>` counted."""
    outputs, _ = _search(
        config, lambda step: 1.0 - 1e-9 if step == length else _UNLIKELY, longest=length + 5
    )
    best = outputs[0]
    words = torch.linspace(1.0, 2.0, _VOCAB_SIZE - FIRST_WORD, dtype=torch.float64)
    logs = [math.log(float(words[i - FIRST_WORD] / words.sum())) for i in best.token_ids]
    assert len(logs) == length - 1
    return (sum(logs) + math.log(1.0 - 1e-9)) / best.score


def _alpha(config: SearchConfig) -> float:
    """The exponent that two penalties tell, whatever their common factor."""
    short, long = measured_penalty(config, 7), measured_penalty(config, 19)
    if math.isclose(short, 7**config.alpha, rel_tol=1e-4):
        return math.log(long / short) / math.log(19 / 7)
    return math.log(long / short) / math.log(24 / 12)


def length_penalties(subject: Subject) -> Finding:
    """Row 22: penalties told by the search's own scores."""
    alpha = subject.search.alpha
    lengths = (2, 10, 50)
    found = {n: measured_penalty(subject.search, n) for n in lengths}

    def is_all(penalty: Callable[[int], float]) -> bool:
        return all(math.isclose(found[n], penalty(n), rel_tol=1e-4) for n in lengths)

    counted = is_all(lambda n: ((5 + n) / 6) ** alpha)
    uncounted = is_all(lambda n: ((5 + n - 1) / 6) ** alpha)
    names = {
        "((5 + length) / 6)^alpha, </s> counted": counted,
        "((5 + length) / 6)^alpha, </s> not counted": uncounted,
        "length^alpha": is_all(lambda n: float(n**alpha)),
        "(length without </s>)^alpha": is_all(lambda n: float((n - 1) ** alpha)),
    }
    name = next((name for name, right in names.items() if right), "another formula")
    shown = ", ".join(f"{found[n]:.4f} at {n}" for n in lengths)
    return Finding(f"{name}: {shown}", counted or uncounted, counted)


class _Endless(Transformer):
    """A model that will not end a sentence until it has to."""

    def step(self, token_ids: Tensor, cache: DecoderCache) -> Tensor:
        logits = super().step(token_ids, cache)
        logits[:, END_ID] = -1e4
        return logits


def longest_output(subject: Subject) -> Finding:
    """Row 23: what the translator makes of a model that never ends, the search of one that does."""
    tokenizer = synthetic_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = _Endless(
            TransformerConfig(num_layers=1, d_model=16, d_ff=16, num_heads=2),
            vocab_size=tokenizer.vocab_size,
            padding_id=PADDING_ID,
            start_id=START_ID,
        )
    options = TranslationOptions(device="cpu", search=subject.search)
    translator = Translator(TrainedModel(model, tokenizer, "a", "b"), options)
    line = "a b c d"
    extra = len(translator.translate([line])[0].candidates[0].pieces) - len(
        tokenizer.encode([line])[0]
    )
    _, state = _search(subject.search, lambda step: 0.99, longest=60)
    early = state.step < 60
    right = extra == 50 and early
    stop = f"ends after {state.step} of 60 steps" if early else "does not end early"
    return Finding(f"input + {extra}, </s> not counted; {stop} where </s> is certain", right, right)
