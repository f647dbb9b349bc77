"""Scores of single lines, and bootstrap intervals of one system's scores (Koehn 2004)."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sacrebleu import BLEU

from seq2seq.evaluation.scores import ScoreConfig, bleu_metric, check_lines, chrf_metric

SAMPLES = 1000
_SEED = 12345


def words(line: str) -> list[str]:
    """Split a line into the tokens that BLEU counts, by sacreBLEU's tokenizer 13a."""
    tokens: str = _metric().tokenizer(line.rstrip())
    return tokens.split()


def line_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Compute the chrF2 of each line by itself."""
    metric = chrf_metric(ScoreConfig())
    return [
        metric.corpus_score([hypothesis], [[reference]]).score
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


def bleu_interval(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
    """Compute the 95 % interval of BLEU: percentiles of its values on resampled lines.

    Equal texts give equal intervals.

    Raises:
        UserError: if there are no lines or the counts differ.
    """
    check_lines(hypotheses, [references])
    metric = bleu_metric(ScoreConfig())
    # Counts are additive over lines, so a resampled text needs no second look at its words.
    results = [metric.corpus_score([h], [[r]]) for h, r in zip(hypotheses, references, strict=True)]
    counts = np.array([[r.sys_len, r.ref_len, *r.counts, *r.totals] for r in results])
    order = metric.max_ngram_order
    values = [
        metric.compute_bleu(
            correct=drawn[2 : 2 + order].tolist(),
            total=drawn[2 + order :].tolist(),
            sys_len=int(drawn[0]),
            ref_len=int(drawn[1]),
            smooth_method=metric.smooth_method,
            smooth_value=metric.smooth_value,
            effective_order=metric.effective_order,
            max_ngram_order=order,
        ).score
        for drawn in resample(counts)
    ]
    return percentiles(np.array(values))


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
def _metric() -> BLEU:
    return bleu_metric(ScoreConfig(tokenize="13a"))
