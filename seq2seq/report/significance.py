"""Paired significance tests between systems, by sacreBLEU."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import ne
from typing import Any, Literal

from sacrebleu import CHRF
from sacrebleu.significance import PairedTest

from seq2seq.errors import UsageError
from seq2seq.score import ScoreConfig, all_metrics, bleu_metric, known_references, signature

Resampling = Literal["bootstrap", "randomization"]
"""Estimate which differences arise by chance: draw lines with replacement (Koehn 2004), or swap the
two systems' lines at random (Riezler and Maxwell 2005)."""

SAMPLES = 1000
"""Bootstrap samples of an interval."""
_SEED = 12345  # sacreBLEU's
_CHRF = CHRF()


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
        checked = known_references(hypotheses, references)
    config = config or ScoreConfig()
    metrics = all_metrics(config, [*systems.values(), *references])
    with _sacrebleu_seed(seed or _SEED):
        test = PairedTest(
            list(systems.items()),
            {str(i): metric for i, metric in enumerate(metrics)},
            checked,
            test_type={"bootstrap": "bs", "randomization": "ar"}[resampling],
            n_samples=samples or 0,
        )
    signatures, results = test()
    (baseline, baseline_lines), *rivals = systems.items()
    comparisons = []
    for i, (system, lines) in enumerate(rivals, start=1):
        differing = sum(map(ne, lines, baseline_lines))
        for metric, mark in signatures.items():
            of_baseline: Any = results[metric][0]
            result: Any = results[metric][i]
            bounds = None
            if result.ci is not None:
                bounds = float(result.mean - result.ci), float(result.mean + result.ci)
            testable = len(lines) > 1 and result.score != of_baseline.score
            comparison = Comparison(
                system=system,
                baseline=baseline,
                metric=metric,
                value=float(result.score),
                difference=float(result.score - of_baseline.score),
                p_value=float(result.p_value or 0.0) if testable else 1.0,
                interval=bounds,
                differing_lines=differing,
                signature=signature(mark, config),
            )
            comparisons.append(comparison)
    return comparisons


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set the seed where sacreBLEU reads it: in the environment alone."""
    before = os.environ.pop("SACREBLEU_SEED", None)
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        del os.environ["SACREBLEU_SEED"]
        if before is not None:
            os.environ["SACREBLEU_SEED"] = before


def check_sampling(samples: int | None, seed: int | None) -> None:
    """Check the number of samples and the seed for `compare`."""
    if samples is not None and samples < 1:
        raise UsageError(f"--samples {samples}: must be at least 1")
    # sacreBLEU takes 0 as "no seed".
    if seed is not None and seed < 1:
        raise UsageError(f"--seed {seed}: must be at least 1")


def bleu_interval(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None = None
) -> tuple[float, float]:
    """Compute the bounds of BLEU's 95 % interval by `SAMPLES` bootstrap samples."""
    # Forced, because `score_all` has given the warning of tokenized text.
    metric = bleu_metric(ScoreConfig(tokenize=tokenize), force=True)
    with _sacrebleu_seed(_SEED):
        result = metric.corpus_score(hypotheses, [references], n_bootstrap=SAMPLES)
    # Of few lines, the interval can reach beyond what a score can be.
    return max(0.0, result._mean - result._ci), min(100.0, result._mean + result._ci)


def line_chrf(hypothesis: str, reference: str) -> float:
    """Compute the chrF2 of a line by itself."""
    return _CHRF.sentence_score(hypothesis, [reference]).score
