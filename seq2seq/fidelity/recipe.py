"""Sections 5.1, 5.2, 5.4 and 6.1: batches, steps, the dropout rate, and averaging."""

import math

from seq2seq.batches import BatchStatistics
from seq2seq.errors import UserError
from seq2seq.fidelity.detail import Finding, Subject, detail
from seq2seq.fidelity.layers import StructureError, dropout_rates
from seq2seq.fidelity.trace import SyntheticLengths
from seq2seq.files import RunFolder
from seq2seq.machine.records import read_metrics
from seq2seq.train import TrainingConfig

STEPS = {"base": 100_000, "big": 300_000}
_AVERAGED = {"base": 5, "big": 20}
# Roughly the mean length of a WMT 2014 sentence, in pieces of the paper's vocabulary.
_MEAN_LENGTH = 27.0
_PAIRS = 100_000


@detail(
    "batch (5.1)",
    paper="about 25,000 source and 25,000 target tokens, pairs of similar length together",
    tensor2tensor="8 x 4096 tokens of the longer side, padding counted",
)
def batch(subject: Subject) -> Finding:
    """Count the tokens of a step, in the run's metrics or in batches of synthetic pairs."""
    training = subject.training
    statistics, longest = synthetic_batches(training)
    micro_batches = training.micro_batches()
    source = micro_batches * statistics.source_tokens
    target = micro_batches * statistics.target_tokens
    where = f"on synthetic news; padding {statistics.padding:.1%}"
    sources, targets = (recorded(subject, f"train/{side}_tokens") for side in ("source", "target"))
    if sources and targets:
        source, target = sum(sources) / len(sources), sum(targets) / len(targets)
        where = "on average in the run"
    sides = (training.source_tokens, training.target_tokens)
    paper = (
        not training.count_longer_side
        and sides == (25_000, 25_000)
        and 0.9 <= (source + target) / 50_000 <= 1.05
        and statistics.padding < 0.25
    )
    tensor2tensor = (
        training.count_longer_side
        and (micro_batches, training.micro_batch_tokens) == (8, 4096)
        and longest <= 4096
    )
    budget = (
        f"{micro_batches} x {training.micro_batch_tokens:,} of the longer side, padding counted"
        if training.count_longer_side
        else f"{sides[0]:,} + {sides[1]:,}"
    )
    return Finding(f"{budget}: {source:,.0f} + {target:,.0f} {where}", paper, tensor2tensor)


def synthetic_batches(training: TrainingConfig) -> tuple[BatchStatistics, int]:
    """Batch synthetic pairs with the lengths of news text.

    Return the means over the micro-batches of an epoch, and the largest number of tokens, padding
    counted, of a micro-batch's longer side.
    """
    budget = min(training.source_tokens, training.target_tokens) // training.micro_batches()
    corpus = SyntheticLengths(_PAIRS, mean_length=_MEAN_LENGTH, max_length=max(1, min(250, budget)))
    batching = training.batching(corpus, seed=1)
    batches = batching.epoch(0)
    longest = max(len(b) * max(int(side.max()) for side in corpus.lengths(b)) for b in batches)
    return batching.statistics(batches), longest


def recorded(subject: Subject, name: str) -> list[float]:
    """Return the values of this metric that the run, if there is one, has recorded."""
    path = RunFolder(subject.run).metrics if subject.run else None
    if path is None or not path.is_file():
        return []
    values = [record[name] for record in read_metrics(path) if name in record]
    if not all(map(math.isfinite, values)):
        raise UserError(f"{path}: {name} has a value that is not finite")
    return values


@detail("steps (5.2)", paper="base 100,000, big 300,000", tensor2tensor=None)
def steps(subject: Subject) -> Finding:
    """Read the limits from the configuration; for a run, count the steps done."""
    training, expected = subject.training, STEPS[subject.recipe]
    limits = {
        f"{training.max_steps or 0:,} steps": training.max_steps,
        f"{training.max_minutes} minutes": training.max_minutes,
        f"{training.patience} validations without improvement": training.patience,
    }
    here = " or ".join(text for text, limit in limits.items() if limit is not None)
    right = [*limits.values()] == [expected, None, None]
    if done := recorded(subject, "step"):
        here, right = f"{done[-1]:,} done, of {here}", done[-1] == expected
    return Finding.both(f"{here}; the paper's {subject.recipe} model: {expected:,}", right)


@detail("dropout rate (5.4, 6.1)", paper="base 0.1, big 0.3, big En-Fr 0.1", tensor2tensor=None)
def dropout_rate(subject: Subject) -> Finding:
    """Measure the dropout rate of the model in training; read from the options if it rises."""
    french = subject.data.target_language == "fr"
    expected = 0.3 if subject.recipe == "big" and not french else 0.1
    try:
        rates = dropout_rates(subject.model)
    except StructureError:
        return Finding.both("none that can be measured", False)
    shown = ", ".join(f"{rate:.3g}" for rate in rates)
    right = len(rates) == 1 and math.isclose(rates[0], expected, abs_tol=2e-3)
    if steps := subject.training.dropout_warmup_steps:
        shown, right = f"{shown} after a rise over {steps:,} updates", False
    return Finding.both(f"{shown}; the paper's {subject.recipe} model: {expected:g}", right)


@detail(
    "averaging (6.1)",
    paper="the last 5 (base) or 20 (big) checkpoints, one every 10 minutes",
    tensor2tensor=None,
)
def averaging(subject: Subject) -> Finding:
    """Read the number and the interval from the configuration."""
    training, expected = subject.training, _AVERAGED[subject.recipe]
    minutes, steps = training.checkpoint_minutes, training.checkpoint_steps
    every = [f"{minutes:g} minutes"] if minutes else []
    every += [f"{steps:,} steps"] if steps else []
    numbers = [training.average_checkpoints, *training.average_alternatives]
    right = (numbers, minutes, steps) == ([expected], 10.0, 1500)
    running = ", validated as a running mean" if training.validate_mean else ""
    return Finding.both(
        f"the last {' or '.join(map(str, numbers))}, one every {' or '.join(every)}{running};"
        " the mean of their weights",
        right and not running,
    )
