"""Paired significance tests between systems, by sacreBLEU.

The paired test is bootstrap resampling (Koehn 2004). Its seed is sacreBLEU's: 12345, or that in the
environment variable SACREBLEU_SEED.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Any

from sacrebleu import CHRF
from sacrebleu.significance import PairedTest

from seq2seq.errors import UsageError
from seq2seq.score import ScoreConfig, all_metrics, bleu_metric, known_references

SAMPLES = 1000
"""Bootstrap samples of a test and of an interval."""
SIGNIFICANT = 0.05
"""A difference with a smaller p-value is called significant."""
_CHRF = CHRF()


def check_seed() -> None:
    """Check the environment variable from which sacreBLEU takes the seed of its samples."""
    seed = os.environ.get("SACREBLEU_SEED", "none")
    if seed.lower() != "none" and not (seed.isascii() and seed.isdecimal()):
        raise UsageError(f"SACREBLEU_SEED={seed}: must be a whole number, or none")


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
    interval: tuple[float, float]
    """The system's 95 % confidence interval."""
    differing_lines: int
    """Lines in which the two differ. If they are few, the p-value is too small, because sacreBLEU
    counts the resamplings that exceed the difference and not those that equal it."""
    signature: str

    @property
    def better(self) -> str:
        """The system whose score is better by more than chance, or the empty string if none is."""
        if self.p_value >= SIGNIFICANT:
            return ""
        is_higher = self.difference > 0
        return self.system if is_higher != (self.metric == "TER") else self.baseline


def compare(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> list[Comparison]:
    """Compare each system with the first one by the metrics of `all_metrics`.

    The result has a comparison for each other system and each metric.
    """
    check_seed()
    if len(systems) < 2:
        raise UsageError("a comparison needs two systems, each under its own name")
    for hypotheses in systems.values():
        checked = known_references(hypotheses, references)
    metrics = all_metrics(config or ScoreConfig(), [*systems.values(), *references])
    test = PairedTest(
        list(systems.items()),
        {str(i): metric for i, metric in enumerate(metrics)},
        checked,
        test_type="bs",
        n_samples=SAMPLES,
    )
    signatures, results = test()
    (baseline, baseline_lines), *rivals = systems.items()
    comparisons = []
    for i, (system, lines) in enumerate(rivals, start=1):
        differing = sum(map(ne, lines, baseline_lines))
        for metric, signature in signatures.items():
            of_baseline: Any = results[metric][0]
            result: Any = results[metric][i]
            testable = len(lines) > 1 and result.score != of_baseline.score
            comparison = Comparison(
                system=system,
                baseline=baseline,
                metric=metric,
                value=float(result.score),
                difference=float(result.score - of_baseline.score),
                p_value=float(result.p_value or 0.0) if testable else 1.0,
                interval=_interval(result.mean, result.ci, metric),
                differing_lines=differing,
                signature=str(signature),
            )
            comparisons.append(comparison)
    return comparisons


def bleu_interval(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None = None
) -> tuple[float, float]:
    """Compute the bounds of BLEU's 95 % interval by `SAMPLES` bootstrap samples."""
    check_seed()
    metric = bleu_metric(ScoreConfig(tokenize=tokenize))
    result = metric.corpus_score(hypotheses, [references], n_bootstrap=SAMPLES)
    return _interval(result._mean, result._ci, "BLEU")


def _interval(mean: float, radius: float, metric: str) -> tuple[float, float]:
    """Return bounds within the range of a score, beyond which they can reach with few lines."""
    highest = math.inf if metric == "TER" else 100.0
    return max(0.0, float(mean - radius)), min(highest, float(mean + radius))


def line_chrf(hypothesis: str, reference: str) -> float:
    """Compute the chrF2 of a line by itself."""
    return _CHRF.sentence_score(hypothesis, [reference]).score
