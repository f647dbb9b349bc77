"""What is recorded of a run, and what happens if recording fails."""

import json
import logging
import math
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.config import TrainingConfig
from seq2seq.run.records import (
    DeferredFileHandler,
    FileRecorder,
    deferred_log_file,
    read_metrics,
)
from seq2seq.trainer import Progress
from seq2seq.update import StepMetrics

METRICS = {
    "train/loss": 2.0,
    "train/learning_rate": 0.1,
    "train/tokens_per_second": 5.0,
    "train/waiting_for_data": 0.0,
}
VALIDATION = {"valid/loss": 3.0, "valid/perplexity": math.exp(3.0), "valid/bleu": 1.5}


def test_the_bar_shows_the_share_of_the_limit_that_is_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    display = FileRecorder(tmp_path)
    display.open(Progress(), TrainingConfig(max_steps=20_000, max_minutes=4.5))
    display.show_progress(Progress(step=26, seconds=202.5))
    assert display.bar.n == pytest.approx(0.75)
    newest = StepMetrics(2, smoothed=12.0, source_tokens=5, target_tokens=4, seconds=0.5)
    display.show_progress(Progress(step=18_000, seconds=203.0, unrecorded=newest))
    assert display.bar.n == pytest.approx(0.9)
    assert "loss 3.000, 18 tokens/s, " in display.bar.desc


def test_without_a_bar_a_validation_says_each_minute_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, said = 0.0, list[str]()
    monkeypatch.setattr("time.monotonic", lambda: seconds)
    recorder = recording(tmp_path, Progress())
    monkeypatch.setattr(logging.getLogger("seq2seq"), "info", said.append)
    for second in range(151):
        seconds = float(second)
        recorder.show_validation(second, 150)
    recorder.close()
    assert said == [f"validating: {done} of 150 lines translated" for done in (61, 122)]


def recording(folder: Path, progress: Progress) -> FileRecorder:
    recorder = FileRecorder(folder)
    recorder.open(progress, TrainingConfig())
    return recorder


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_records_of_steps_that_are_made_again_are_dropped(
    tmp_path: Path, warned: list[str]
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step, "a": 1.0}) + "\n" for step in range(1, 6)))
    recorder = recording(tmp_path, Progress(step=3))
    recorder.record_validation(Progress(step=4), VALIDATION, is_best=True)
    recorder.close()
    assert steps(path) == [1, 2, 3, 4]
    assert not warned


@pytest.mark.parametrize(
    "line",
    ['{"a": 1}', "7", '{"step": 1, "a": "b"}', '{"step": 1', "\x00"],
)
def test_lines_that_are_not_records_are_skipped_with_a_warning(
    tmp_path: Path, warned: list[str], line: str
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "a": 2.5}}\n{line}\n{{"step": 2, "a": 1.5}}\n')
    recording(tmp_path, Progress(step=3)).close()
    assert steps(path) == [1, 2]
    assert warned == [f"{path}: 1 lines are not records and are skipped"]


def test_what_can_t_be_written_is_warned_about_once(
    tmp_path: Path, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recording(tmp_path, Progress())
    full = Mock(side_effect=OSError("No space left on device"))
    monkeypatch.setattr(recorder.events, "add_scalar", full)
    for step in (1, 2):
        recorder.record_validation(Progress(step=step), VALIDATION, is_best=True)
    recorder.close()
    (warning,) = warned
    assert warning.startswith(f"{tmp_path / 'tensorboard'}: not written: No space left")
    assert steps(tmp_path / "metrics.jsonl") == [1, 2]


def test_a_recorder_that_can_t_begin_to_write_warns_and_lets_the_training_go_on(
    tmp_path: Path, warned: list[str]
) -> None:
    log = DeferredFileHandler(capacity=1)
    for name in ("train.log", "metrics.jsonl"):
        (tmp_path / name).mkdir()
    (tmp_path / "tensorboard").write_text("of the user's")
    recorder = FileRecorder(tmp_path, log)
    recorder.start_log()
    recorder.open(Progress(), TrainingConfig())
    recorder.record_metrics(Progress(step=1), METRICS)
    recorder.record_validation(Progress(step=1), VALIDATION, is_best=True)
    recorder.close()
    names = ("train.log", "metrics.jsonl", "tensorboard")
    starts = [f"{tmp_path / name}: not written: " for name in names]
    assert [line[: len(start)] for line, start in zip(warned, starts, strict=True)] == starts


def test_as_many_records_as_a_long_run_writes_are_read_again(
    tmp_path: Path, warned: list[str]
) -> None:
    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:  # a hole, which takes no disk
        file.write(b'{"step": 1, "a": 2.5}\n')
        file.seek(2**27)
        file.write(b'\n{"step": 2, "a": 1.5}\n')
    assert [record["step"] for record in read_metrics(path)] == [1, 2]
    assert not warned


def test_tensorboard_reads_the_scalars_and_drops_those_of_steps_that_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # TensorBoard reads files by the second of their names.
    seconds = count(1_000_000_000.0)
    monkeypatch.setattr("time.time", lambda: next(seconds))
    first = recording(tmp_path, Progress())
    for step in (1, 2, 3):
        first.record_metrics(Progress(step=step), METRICS)
    first.close()
    resumed = recording(tmp_path, Progress(step=1))
    resumed.record_validation(Progress(step=2), VALIDATION, is_best=True)
    resumed.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {*METRICS, *VALIDATION}
    (loss,) = events.Scalars("train/loss")
    assert (loss.step, loss.value) == (1, METRICS["train/loss"])
    (bleu,) = events.Scalars("valid/bleu")
    assert (bleu.step, bleu.value) == (2, VALIDATION["valid/bleu"])


def test_the_log_says_what_ended_the_run(tmp_path: Path) -> None:
    logger, path = logging.getLogger("tests"), tmp_path / "train.log"
    with suppress(ZeroDivisionError), deferred_log_file(logger) as file:
        logger.warning("begun")
        file.write_to(path)
        raise ZeroDivisionError("no tokens")
    messages = [line.split(maxsplit=2)[2] for line in path.read_text().splitlines()]
    assert messages == ["begun", "ended by an error: no tokens"]
