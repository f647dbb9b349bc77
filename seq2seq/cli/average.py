"""`seq2seq average`: the mean of several checkpoints (section 6.1)."""

import argparse
from contextlib import suppress
from pathlib import Path
from typing import Any

from seq2seq.cli.model_class import choose_classes
from seq2seq.cli.text import print_path
from seq2seq.errors import UsageError, UserError
from seq2seq.model_folder import (
    TrainedModel,
    average,
    check_model_path,
    checkpoints,
    save_alignment,
    save_model,
)
from seq2seq.report.card import card_of_model
from seq2seq.report.record import known_settings, record_average
from seq2seq.report.run_report import choose_alignment
from seq2seq.run.config import read_config
from seq2seq.run.data_record import read_data_record
from seq2seq.run.folder import RunFolder
from seq2seq.run.sessions import read_sessions


def run(arguments: argparse.Namespace) -> int:
    """Average checkpoints, and write the model with its card."""
    run_folder = Path(arguments.model)
    if arguments.last < 1:
        raise UsageError(f"--last {arguments.last}: must be at least 1")
    folders = checkpoints(run_folder)
    if not folders:
        raise UserError(f"{run_folder}: no checkpoints in it; give the run_dir of a run")
    if len(folders) < arguments.last:
        raise UserError(
            f"{run_folder}: has {len(folders)} checkpoints, not {arguments.last}: lower --last"
        )
    of_run = RunFolder(run_folder).averaged
    output = of_run if arguments.output is None else Path(arguments.output).expanduser()
    check_model_path(output)
    folders = folders[-arguments.last :]
    mean = average(folders, choose_classes(folders, arguments.model_class)[-1])
    card = _card(run_folder, mean, arguments.last)
    save_model(output, mean, card=card)
    with suppress(UserError):  # without the run's validation set, it is chosen at the first use
        if step := choose_alignment(run_folder, mean):
            save_alignment(output, step)
    if output.absolute() == of_run.absolute():
        record_average(run_folder, arguments.last)
    print_path(output)
    return 0


def _card(run_folder: Path, mean: TrainedModel, number: int) -> bytes:
    """Describe the mean, as far as its run is known: a folder may hold checkpoints alone."""
    origin = f"the mean of the last {number:,} checkpoints" if number > 1 else "the last checkpoint"
    facts: dict[str, Any] = {}
    with suppress(UserError):
        facts["config"] = known_settings(read_config(run_folder))
        facts["data"] = read_data_record(run_folder)
        facts["sessions"] = read_sessions(run_folder)
    return card_of_model(mean, run_folder.absolute().name, origin, **facts)
