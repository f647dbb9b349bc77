"""What is on record after a training has been resumed."""

import json
from pathlib import Path

from seq2seq.training.config import TrainingConfig
from seq2seq.training.progress import Progress
from seq2seq.training.recorder import RunRecorder, read_metrics


def test_a_resumed_training_keeps_the_records_up_to_its_step_and_no_later_one(
    tmp_path: Path,
) -> None:
    lines = [json.dumps({"step": step, "train/loss": 1.0}) for step in (1, 2, 3, 4)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 5, "tra']))
    progress = Progress(step=3)
    recorder = RunRecorder(tmp_path, progress, TrainingConfig())
    progress.step = 4
    recorder.record_metrics(
        progress,
        {
            "train/loss": 0.5,
            "train/learning_rate": 1e-3,
            "train/tokens_per_second": 9.0,
            "train/waiting_for_data": 0.0,
        },
    )
    recorder.close()
    records = read_metrics(tmp_path / "metrics.jsonl")
    assert [(record["step"], record["train/loss"]) for record in records] == [
        (1, 1.0),
        (2, 1.0),
        (3, 1.0),
        (4, 0.5),
    ]
