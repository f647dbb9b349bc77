"""The tokens of a step, filled or refused; options with which no run is possible."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from seq2seq.batches import BatchStatistics, make_batching
from seq2seq.cli.fidelity import compose_config
from seq2seq.config import TrainingConfig
from seq2seq.errors import UserError
from seq2seq.run.config import check_budget, excessive_epochs
from tests.toy import PairLengths


def news(pairs: int, *, mean_length: float, max_length: int) -> PairLengths:
    """Log-normal lengths, with newstest2013's deviations: 0.6 of a text, 0.17 of a pair's ratio."""
    random = np.random.default_rng(1)
    common, own = random.normal(0.0, 0.6, (pairs, 1)), random.normal(0.0, 0.12, (pairs, 2))
    lengths = np.exp(common + own)
    lengths *= mean_length / lengths.mean(axis=0)
    return PairLengths(np.clip(np.rint(lengths), 2, max_length))


@pytest.mark.parametrize("count_longer_side", [False, True])
def test_a_large_corpus_meets_the_papers_budget(count_longer_side: bool) -> None:
    config = TrainingConfig(count_longer_side=count_longer_side)
    batching = make_batching(config, news(50_000, mean_length=27, max_length=200), seed=1)
    check_budget(config, batching.statistics(batching.epoch(0)), config.micro_batches())


def test_a_long_schedule_for_a_small_corpus_is_warned_about() -> None:
    corpus = news(20_000, mean_length=20, max_length=60)
    config = TrainingConfig()
    batching = make_batching(config, corpus, seed=1)
    statistics = batching.statistics(batching.epoch(0))
    assert "epochs of this corpus: training.patience" in excessive_epochs(config, statistics, 7)
    for shorter in (TrainingConfig(max_steps=5000), TrainingConfig(patience=10)):
        assert excessive_epochs(shorter, statistics, 7) == ""


@pytest.mark.parametrize(("devices", "micro_batches"), [(1, 7), (2, 8), (7, 7), (8, 8), (16, 16)])
def test_each_device_gets_the_same_number_of_micro_batches(
    devices: int, micro_batches: int
) -> None:
    assert TrainingConfig().micro_batches(devices) == micro_batches


def test_micro_batches_together_hold_the_tokens_of_a_step() -> None:
    """25,001 tokens in micro-batches of at most 5,000 are six of 4,167, which is rounded up."""
    corpus = news(100, mean_length=27, max_length=200)
    for sides in ({"source_tokens": 25_001}, {"target_tokens": 25_001}):
        config = TrainingConfig(micro_batch_tokens=5000, **sides)
        batching = make_batching(config, corpus, seed=1)
        assert config.micro_batches() == 6
        budgets = {"source_tokens": batching.source_tokens, "target_tokens": batching.target_tokens}
        assert budgets == {"source_tokens": 4167, "target_tokens": 4167}


@pytest.mark.parametrize(
    ("count_longer_side", "share", "refused"),
    [(False, 0.79, True), (False, 0.81, False), (True, 0.49, True), (True, 0.51, False)],
)
def test_a_step_of_less_than_four_fifths_or_half_by_the_longer_side_is_refused(
    count_longer_side: bool, share: float, refused: bool
) -> None:
    config = TrainingConfig(
        source_tokens=1000, target_tokens=1000, count_longer_side=count_longer_side
    )
    tokens = 1000 * share
    found = BatchStatistics(batches=9, sentences=10.0, source_tokens=tokens, target_tokens=tokens)
    with pytest.raises(UserError, match="can't be filled") if refused else nullcontext():
        check_budget(config, found, config.micro_batches())


@pytest.mark.parametrize(
    ("schedule", "advice"),
    [("paper", "; use schedule=small_data, or"), ("small_data", "; add text")],
)
def test_the_schedule_that_is_chosen_is_not_advised(schedule: str, advice: str) -> None:
    config = compose_config([f"schedule={schedule}"]).training
    batching = make_batching(config, news(9, mean_length=20, max_length=60), seed=1)
    with pytest.raises(UserError, match=advice):
        check_budget(config, batching.statistics(batching.epoch(0)), config.micro_batches())


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"source_tokens": 0}, "source_tokens=0"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ({"max_steps": None}, "nothing ends the training"),
        (
            {"patience": 2, "checkpoint_steps": None, "checkpoint_minutes": None},
            "patience=2 counts validations, and there are none",
        ),
        ({"keep_checkpoints": 4}, "average_checkpoints=5: must be at most .*=4$"),
    ],
    ids=str,
)
def test_options_with_which_no_run_is_possible_are_refused(
    choices: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        TrainingConfig(**choices)
