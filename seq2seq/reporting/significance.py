"""Paired significance tests between systems, by sacreBLEU."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import ne
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu import BLEU, CHRF
from sacrebleu.metrics.helpers import extract_all_word_ngrams
from sacrebleu.significance import PairedTest, Result, estimate_ci

from seq2seq.errors import UsageError
from seq2seq.score import ScoreConfig, all_metrics, bleu_metric, known_references, signature

Resampling = Literal["bootstrap", "randomization"]
"""Estimate which differences arise by chance: draw lines with replacement (Koehn 2004), or swap the
two systems' lines at random (Riezler and Maxwell 2005)."""

SAMPLES = 1000
"""Bootstrap samples of an interval."""
SEED = 12345
"""Of the bootstrap samples; sacreBLEU's default."""


@dataclass(frozen=True)
class Comparison:
    """A system compared with the baseline by one metric."""

    system: str
    baseline: str
    metric: str
    value: float
    difference: float
    """The system's value minus the baseline's."""
    p_value: float
    """The probability of such a difference if both systems are equally good; 1 for equal scores,
    and for a single line, which can't be resampled."""
    interval: tuple[float, float] | None
    """The system's 95 % confidence interval; bootstrap only."""
    differing_lines: int
    """Lines in which the two differ. If they are few, the p-value is too small, because sacreBLEU
    counts the resamplings that exceed the difference and not those that equal it."""
    signature: str


def compare(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
    *,
    resampling: Resampling = "bootstrap",
    samples: int | None = None,
    seed: int | None = None,
) -> list[Comparison]:
    """Compare each system with the first one by the metrics of `all_metrics`.

    The result has a comparison for each other system and each metric. The number of samples is by
    default 1,000 (bootstrap) or 10,000 (randomization). Equal seeds give equal values.
    """
    if len(systems) < 2:
        raise UsageError("a comparison needs two systems, each under its own name")
    check_sampling(samples, seed)
    for hypotheses in systems.values():
        known = known_references(hypotheses, references)
    config = config or ScoreConfig()
    metrics = all_metrics(config, [*systems.values(), *references])
    # The only place where sacreBLEU reads it.
    os.environ["SACREBLEU_SEED"] = str(SEED if seed is None else seed)
    test = PairedTest(
        list(systems.items()),
        {str(i): metric for i, metric in enumerate(metrics)},
        known,
        test_type={"bootstrap": "bs", "randomization": "ar"}[resampling],
        n_samples=samples or 0,
    )
    signatures, results = test()
    (baseline, baseline_lines), *others = systems.items()
    comparisons = []
    for i, (system, lines) in enumerate(others, start=1):
        differing = sum(map(ne, lines, baseline_lines))
        for metric in signatures:
            of_baseline, of_system = results[metric][0], results[metric][i]
            assert isinstance(of_baseline, Result)
            assert isinstance(of_system, Result)
            mean, half = of_system.mean, of_system.ci
            bounds = None
            if mean is not None and half is not None:
                bounds = float(mean - half), float(mean + half)
            testable = len(lines) > 1 and of_system.score != of_baseline.score
            comparisons.append(
                Comparison(
                    system=system,
                    baseline=baseline,
                    metric=metric,
                    value=float(of_system.score),
                    difference=float(of_system.score - of_baseline.score),
                    p_value=float(of_system.p_value or 0.0) if testable else 1.0,
                    interval=bounds,
                    differing_lines=differing,
                    signature=signature(signatures[metric], config),
                )
            )
    return comparisons


def check_sampling(samples: int | None, seed: int | None) -> None:
    """Check the number of samples and the seed for `compare`."""
    if samples is not None and samples < 1:
        raise UsageError(f"--samples {samples}: must be at least 1")
    # sacreBLEU takes 0 as "no seed".
    if seed is not None and seed < 1:
        raise UsageError(f"--seed {seed}: must be at least 1")


def bleu_with_interval(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None = None
) -> tuple[float, float, float]:
    """Compute BLEU and the bounds of its 95 % interval, by `SAMPLES` bootstrap samples."""
    known = known_references(hypotheses, [references])
    os.environ["SACREBLEU_SEED"] = str(SEED)
    result = _metric(tokenize).corpus_score(hypotheses, known, n_bootstrap=SAMPLES)
    return result.score, *_bounds(result._mean, result._ci)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the bounds of the 95 % interval of bootstrap samples, as sacreBLEU defines it."""
    return _bounds(*estimate_ci(values))


def _bounds(mean: float, half: float) -> tuple[float, float]:
    # Of few lines, the interval can reach beyond what a score can be.
    return max(0.0, float(mean - half)), min(100.0, float(mean + half))


def words(line: str, tokenize: str | None = None) -> list[str]:
    """Split a line into the tokens that BLEU counts, by a tokenizer of sacreBLEU (default 13a)."""
    return _metric(tokenize).tokenizer(line.rstrip()).split()


def ngrams(line: str, tokenize: str | None = None) -> Counter[tuple[str, ...]]:
    """Count the n-grams of a line that BLEU counts, of 1 to 4 words."""
    return extract_all_word_ngrams(" ".join(words(line, tokenize)), 1, 4)[0]


def line_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Compute the chrF2 of each line by itself."""
    chrf, pairs = CHRF(), zip(hypotheses, references, strict=True)
    return [chrf.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs]


@lru_cache
def _metric(tokenize: str | None) -> BLEU:
    # Forced, because sacreBLEU's warning of tokenized text would come again for each part.
    return bleu_metric(ScoreConfig(tokenize=tokenize), force=True)
