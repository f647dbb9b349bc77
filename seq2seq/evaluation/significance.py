"""Paired significance tests between systems, by sacreBLEU."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from operator import ne

import numpy as np
from numpy.typing import NDArray
from sacrebleu import BLEU
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

from seq2seq.errors import UsageError
from seq2seq.evaluation.scores import (
    ScoreConfig,
    bleu_metric,
    check_lines,
    chrf_metric,
    signature,
    ter_metric,
    too_long_for_ter,
)


class Resampling(Enum):
    """The resampling that estimates which differences arise by chance."""

    bootstrap = "bootstrap"
    """Draw lines with replacement (Koehn 2004)."""
    randomization = "randomization"
    """Swap the two systems' lines at random (Riezler and Maxwell 2005)."""


_SEED = 12345  # sacreBLEU's
_SACREBLEU_NAMES = {Resampling.bootstrap: "bs", Resampling.randomization: "ar"}


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
    resampling: Resampling = Resampling.bootstrap,
    samples: int | None = None,
    seed: int | None = None,
) -> list[Comparison]:
    """Compare each system with the first one by BLEU, chrF and, if no line is too long, TER.

    Args:
        systems: the lines of each system, by name; the first is the baseline.
        references: one or more lists of lines.
        config: the options of the metrics.
        resampling: the test.
        samples: the number of resamplings; by default 1,000 (bootstrap) or 10,000 (randomization).
        seed: the seed of the test, by default 12345; equal seeds give equal values.

    Returns:
        A comparison for each other system and each metric.

    Raises:
        UsageError: if there are fewer than two systems, `samples` or `seed` is below 1, or the
            tokenizer is unknown.
        UserError: if there are no lines, if counts differ, or if the tokenizer is unavailable.
    """
    if len(systems) < 2:
        raise UsageError("a comparison needs two systems, each under its own name")
    check_sampling(samples, seed)
    for hypotheses in systems.values():
        check_lines(hypotheses, references)
    config = config or ScoreConfig()
    metrics: dict[str, Metric] = {"BLEU": bleu_metric(config), "chrF": chrf_metric(config)}
    if not too_long_for_ter([*systems.values(), *references]):
        metrics["TER"] = ter_metric(config)
    with _sacrebleu_seed(_SEED if seed is None else seed):
        test = PairedTest(
            list(systems.items()),
            metrics,
            references,
            test_type=_SACREBLEU_NAMES[resampling],
            n_samples=samples or 0,
        )
    signatures, results = test()
    (baseline, baseline_lines), *others = systems.items()
    comparisons = []
    for i, (system, lines) in enumerate(others, start=1):
        differing = sum(map(ne, lines, baseline_lines))
        for metric in signatures:
            of_baseline, of_system = _result(results[metric][0]), _result(results[metric][i])
            testable = len(lines) > 1 and of_system.score != of_baseline.score
            comparison = Comparison(
                system=system,
                baseline=baseline,
                metric=metric,
                value=float(of_system.score),
                difference=float(of_system.score - of_baseline.score),
                p_value=float(of_system.p_value or 0.0) if testable else 1.0,
                interval=_interval(of_system),
                differing_lines=differing,
                signature=signature(signatures[metric], config),
            )
            comparisons.append(comparison)
    return comparisons


def check_sampling(samples: int | None, seed: int | None) -> None:
    """Check the number of samples and the seed for `compare`.

    Raises:
        UsageError: if one of them is below 1.
    """
    if samples is not None and samples < 1:
        raise UsageError(f"--samples {samples}: must be at least 1")
    # sacreBLEU takes 0 as "no seed".
    if seed is not None and seed < 1:
        raise UsageError(f"--seed {seed}: must be at least 1")


def _result(cell: str | Result) -> Result:
    assert isinstance(cell, Result)
    return cell


def _interval(result: Result) -> tuple[float, float] | None:
    if result.mean is None or result.ci is None:
        return None
    return float(result.mean - result.ci), float(result.mean + result.ci)


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Pass the seed to sacreBLEU, which reads it only from the environment."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


SAMPLES = 1000


def words(line: str, tokenize: str | None = None) -> list[str]:
    """Split a line into the tokens that BLEU counts, by a tokenizer of sacreBLEU (default 13a)."""
    tokens: str = _metric(tokenize).tokenizer(line.rstrip())
    return tokens.split()


def line_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Compute the chrF2 of each line by itself."""
    metric = chrf_metric(ScoreConfig())
    return [
        metric.corpus_score([hypothesis], [[reference]]).score
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


class LineBleu:
    """The n-grams of each line as BLEU counts them, from which any lines together are scored.

    The counts of a text are the sums of its lines' counts, so each line is looked at only once,
    however many parts of the text and resampled texts are scored.

    Args:
        hypotheses: lines.
        references: lines, parallel to the hypotheses.
        config: the options of BLEU.

    Raises:
        UserError: if there are no lines or the counts differ.
    """

    def __init__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        config: ScoreConfig | None = None,
    ) -> None:
        check_lines(hypotheses, [references])
        config = config or ScoreConfig()
        self.tokenize = config.tokenize
        self._metric = bleu_metric(config)
        lines = zip(hypotheses, references, strict=True)
        results = [self._metric.corpus_score([h], [[r]]) for h, r in lines]
        self._counts = np.array([[r.sys_len, r.ref_len, *r.counts, *r.totals] for r in results])

    def score(self, lines: Sequence[int]) -> float:
        """Compute the BLEU of some lines, counted from 0."""
        return self._score(self._counts[lines].sum(axis=0))

    def interval(self, lines: Sequence[int] | None = None) -> tuple[float, float]:
        """Compute the 95 % interval of the BLEU of some lines, or of all.

        It is made of percentiles of the BLEU of resampled lines. Equal texts give equal intervals.
        """
        counts = self._counts if lines is None else self._counts[lines]
        return percentiles(np.array([self._score(drawn) for drawn in resample(counts)]))

    def _score(self, counts: NDArray[np.int64]) -> float:
        metric, order = self._metric, self._metric.max_ngram_order
        score = metric.compute_bleu(
            correct=counts[2 : 2 + order].tolist(),
            total=counts[2 + order :].tolist(),
            sys_len=int(counts[0]),
            ref_len=int(counts[1]),
            smooth_method=metric.smooth_method,
            smooth_value=metric.smooth_value,
            effective_order=metric.effective_order,
            max_ngram_order=order,
        ).score
        return float(score)


def resample(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum counts over lines drawn with replacement, as many as there are.

    Args:
        counts: (lines, columns).

    Returns:
        (SAMPLES, columns).
    """
    random = np.random.default_rng(_SEED)
    lines = len(counts)
    drawn = np.empty((SAMPLES, counts.shape[1]), dtype=np.int64)
    for sample in range(SAMPLES):  # one by one, because all at once would not fit into memory
        times = np.bincount(random.integers(lines, size=lines), minlength=lines)
        drawn[sample] = times @ counts
    return drawn


def percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


@lru_cache
def _metric(tokenize: str | None) -> BLEU:
    return bleu_metric(ScoreConfig(tokenize=tokenize))
