"""Scores of single lines, and bootstrap intervals of one system's scores (Koehn 2004)."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sacrebleu import BLEU

from seq2seq.evaluation.scores import ScoreConfig, bleu_metric, check_lines, chrf_metric

SAMPLES = 1000
_SEED = 12345


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
