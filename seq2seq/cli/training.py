"""A training as the command does it: with fast updates, records and a report at its end."""

import logging
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from seq2seq.device import Compute
from seq2seq.errors import UserError
from seq2seq.fast.training import can_compile
from seq2seq.fast.trials import chosen_trials
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
from seq2seq.report.record import record_scores
from seq2seq.report.run_report import choose_alignment, make_report, score_record
from seq2seq.run.config import Config
from seq2seq.run.folder import RunFolder
from seq2seq.run.records import FileRecorder, deferred_log_file
from seq2seq.run.start import try_update, user_cache
from seq2seq.run.training import Parts, run_training
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

    def make(*given: Any, compute: Compute, **chosen: Any) -> Updater:
        if not compute.has_fast_forms:
            logger.info(f"{compute.device} computes in the plain forms")
            return Updater(*given, compute=compute, **chosen)
        compiled = _compiles(config, compute.device)
        return make_updater(*given, compute=compute, compiled=compiled, **chosen)

    def fit(updater: Updater, epoch: int) -> float:
        if isinstance(updater, FastUpdater):
            return fit_memory(updater, epoch)
        return try_update(updater, epoch)

    retain_freed_memory()
    keep_few_compiled_matmuls()
    with deferred_log_file(logger) as log_file:
        parts = Parts(
            make_updater=make if config.forms == "fast" else Updater,
            fit_memory=fit,
            recorder=FileRecorder(folder, log_file),
            report=partial(write_report, model_class=model_class),
            model_class=model_class,
            trials=",".join(sorted(chosen_trials())),
        )
        return run_training(
            config, folder, yaml, world, parts, command=command, resume_hint=resume_hint
        )


def _compiles(config: Config, device: torch.device) -> bool:
    """Return whether to compile, and let the compiler keep its work in the user's cache."""
    if not config.compile or device.type != "cuda":
        return False
    compiled = user_cache() / "compiled"
    compiled.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(compiled)
    if not can_compile(device):
        return False
    logger.info("compiling, so the first steps take longer")
    return True


def write_report(
    run: RunFolder, device: torch.device, model_class: type[Transformer] | None = None
) -> None:
    """Write the page of a run and the cards of its models; if that fails, warn."""
    path = run.page
    logger.info("report: translating validation and test sets and reading the training text")
    try:
        report = make_report(run.path, [], device=str(device), model_class=model_class)
        for one in report.sets:
            if one.name.partition("/")[0] == "test":
                logger.info(f"{one.name}: {', '.join(map(_named, one.scores[:2]))}")
        for model, number in ((run.best, 0), (run.averaged, report.averaged)):
            if model.exists():
                path = model / CARD_FILE
                card = model_card(facts_of_run(report, averaged=number))
                add_file(model, CARD_FILE, card.encode())
                path = model / ALIGNMENT_FILE
                if step := choose_alignment(run.path, load_model(model, model_class)):
                    save_alignment(model, step)
        path = run.page
        write_file(path, draw_page(report).encode())
        logger.info(f"report: {path}")
        path = run.scores  # last: without them, a run that is resumed writes all of this again
        record_scores(run.path, score_record(report))
    except Exception as error:  # whatever it is, the model is trained and saved
        reason = str(UserError(error)).removeprefix(f"{path}: ")[:300]
        logger.warning(f"{path}: not written: {reason}")


def _named(score: Score) -> str:
    return f"{score.name} {score.value:.2f} ({score.signature})"
