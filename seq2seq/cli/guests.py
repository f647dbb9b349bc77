"""What a training is given beside the plain code: fast updates, records, a report at its end."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from seq2seq.data.preparation import PreparedData
from seq2seq.device import Compute
from seq2seq.errors import UserError
from seq2seq.fast.training import can_compile
from seq2seq.fast.updates import FastUpdater, fit_memory, make_updater
from seq2seq.files import add_file, write_file
from seq2seq.machine.processes import OneProcess
from seq2seq.machine.resources import keep_few_compiled_matmuls, retain_freed_memory
from seq2seq.model_folder import (
    ALIGNMENT_FILE,
    CARD_FILE,
    load_model,
    save_alignment,
)
from seq2seq.report.card import facts_of_run, model_card
from seq2seq.report.page import draw_page
from seq2seq.report.record import data_record, record_scores
from seq2seq.report.run_report import choose_alignment, make_report, score_record
from seq2seq.run.config import Config
from seq2seq.run.records import DeferredFileHandler, FileRecorder, deferred_log_file
from seq2seq.run.training import Guests, run_training, try_update, user_cache
from seq2seq.score import Score
from seq2seq.transformer import Transformer
from seq2seq.update import Updater

logger = logging.getLogger("seq2seq")


def start_training(
    config: Config,
    folder: Path,
    yaml: str,
    world: OneProcess,
    *,
    command: str = "",
    resume_hint: str | None = None,
    model_class: type[Transformer] | None = None,
) -> float:
    """Call `run_training` with fast updates, or plain ones for `forms=plain`, and records."""
    retain_freed_memory()
    keep_few_compiled_matmuls()
    with deferred_log_file(logger) as log_file:
        recorder = ReportingRecorder(folder, log_file, model_class)
        guests = Guests(recorder=recorder, model_class=model_class)
        if config.forms == "fast":

            def make(*given: Any, compute: Compute, **chosen: Any) -> Updater:
                compiled = _compiles(config, compute.device)
                return make_updater(*given, compute=compute, compiled=compiled, **chosen)

            def fit(updater: Updater, epoch: int) -> float:
                if isinstance(updater, FastUpdater):
                    return fit_memory(updater, epoch)
                return try_update(updater, epoch)

            guests = replace(guests, make_updater=make, fit_memory=fit)
        return run_training(
            config, folder, yaml, world, guests, command=command, resume_hint=resume_hint
        )


def _compiles(config: Config, device: torch.device) -> bool:
    """Return whether to compile, and let the compiler keep its work in the user's cache."""
    if not (config.compile and can_compile(device)):
        return False
    compiled = user_cache() / "compiled"
    compiled.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(compiled)
    logger.info("compiling, so the first steps take longer")
    return True


class ReportingRecorder(FileRecorder):
    """Also records the data, and reports at the end."""

    def __init__(
        self, folder: Path, log_file: DeferredFileHandler, model_class: type[Transformer] | None
    ) -> None:
        super().__init__(folder, log_file)
        self.model_class = model_class

    def record_data(self, data: PreparedData) -> None:
        """Write what the report says of the data."""
        write_file(self.folder.data, data_record(data))

    def report(self, device: str) -> None:
        """Write the page of a run and the cards of its models; if that fails, warn."""
        path = self.folder.page
        logger.info("report: translating validation and test sets and reading the training text")
        try:
            report = make_report(self.folder.path, [], device=device, model_class=self.model_class)
            record_scores(self.folder.path, score_record(report))
            for one in report.sets:
                if one.name.partition("/")[0] == "test":
                    logger.info(f"{one.name}: {', '.join(map(_named, one.scores[:2]))}")
            write_file(path, draw_page(report).encode())
            logger.info(f"report: {path}")
            for model, number in ((self.folder.best, 0), (self.folder.averaged, report.averaged)):
                if model.exists():
                    path = model / CARD_FILE
                    card = model_card(facts_of_run(report, averaged=number))
                    add_file(model, CARD_FILE, card.encode())
                    path = model / ALIGNMENT_FILE
                    step = choose_alignment(self.folder.path, load_model(model, self.model_class))
                    save_alignment(model, step)
        except Exception as error:  # whatever it is, the model is trained and saved
            reason = str(UserError(error)).removeprefix(f"{path}: ")[:300]
            logger.warning(f"{path}: not written: {reason}")


def _named(score: Score) -> str:
    return f"{score.name} {score.value:.2f} ({score.signature})"
