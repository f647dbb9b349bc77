"""Is the difference between two systems more than chance: paired tests by sacreBLEU."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from operator import ne

from sacrebleu.significance import PairedTest, Result

from seq2seq.errors import UsageError
from seq2seq.evaluation.scores import (
    ScoreConfig,
    bleu_metric,
    check_lines,
    chrf_metric,
    signature,
    ter_metric,
)


class Resampling(Enum):
    """What the systems' lines are put through to see how large a chance difference gets."""

    bootstrap = "bootstrap"
    """Test sets of lines drawn with replacement (Koehn 2004)."""
    randomization = "randomization"
    """The two systems' lines swapped at random (Riezler and Maxwell 2005)."""


_SACREBLEU_NAMES = {Resampling.bootstrap: "bs", Resampling.randomization: "ar"}


@dataclass(frozen=True)
class Comparison:
    """A system against the baseline by one metric."""

    system: str
    baseline: str
    metric: str
    value: float
    difference: float
    """The system's value minus the baseline's."""
    p_value: float
    """How likely a difference of this size is if the systems are alike; 1 for equal texts."""
    interval: tuple[float, float] | None
    """95 % of the resampled values of the system; bootstrap only."""
    differing_lines: int
    """Lines in which the two differ: where they are few, the p-value is too small.

    sacreBLEU counts the resamplings that exceed the difference, and not those that equal it.
    """
    signature: str


def compare(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
    *,
    resampling: Resampling = Resampling.bootstrap,
    samples: int | None = None,
    seed: int = 12345,
) -> list[Comparison]:
    """Compare systems with the first of them by BLEU, chrF and TER.

    Args:
        systems: a name and the lines of each; the first is the baseline.
        references: one or several lists of lines.
        config: of the metrics.
        resampling: which test.
        samples: how many times; if not given 1,000 for bootstrap, 10,000 for randomization.
        seed: equal seeds give equal values.

    Raises:
        UserError: fewer than two systems, no lines, unequal counts, a bad number of samples or
            seed, or a tokenizer that can't be had.
    """
    if len(systems) < 2:
        raise UsageError("a comparison needs two systems, each under its own name")
    check_sampling(samples, seed)
    for hypotheses in systems.values():
        check_lines(hypotheses, references)
    config = config or ScoreConfig()
    metrics = {"BLEU": bleu_metric(config), "chrF": chrf_metric(config), "TER": ter_metric(config)}
    with _sacrebleu_seed(seed):
        test = PairedTest(
            list(systems.items()),
            metrics,
            references,
            test_type=_SACREBLEU_NAMES[resampling],
            n_samples=samples or 0,
        )
    facts, results = test()
    (baseline, baseline_lines), *others = systems.items()
    comparisons = []
    for i, (system, lines) in enumerate(others, start=1):
        differing = sum(map(ne, lines, baseline_lines))
        for metric in facts:
            of_baseline, of_system = _result(results[metric][0]), _result(results[metric][i])
            comparison = Comparison(
                system=system,
                baseline=baseline,
                metric=metric,
                value=float(of_system.score),
                difference=float(of_system.score - of_baseline.score),
                p_value=float(of_system.p_value or 0.0) if differing else 1.0,
                interval=_interval(of_system),
                differing_lines=differing,
                signature=signature(facts[metric], config),
            )
            comparisons.append(comparison)
    return comparisons


def check_sampling(samples: int | None, seed: int) -> None:
    """Refuse what `compare` can't sample with.

    Raises:
        UsageError: a number of samples or a seed below 1.
    """
    if samples is not None and samples < 1:
        raise UsageError(f"--samples {samples}: must be at least 1")
    # sacreBLEU takes 0 to mean "not seeded".
    if seed < 1:
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
    """Hand the seed to sacreBLEU, which reads it from the environment and nowhere else."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
