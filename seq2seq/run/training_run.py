"""One run in its folder: prepare, train, validate, save, average."""

import json
import logging
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from seq2seq.config import Config
from seq2seq.decoding.plain import PlainTranslator
from seq2seq.device import Compute, choose_device, choose_precision, processor_name
from seq2seq.errors import UserError
from seq2seq.evaluation.scores import ScoreConfig, bleu_metric
from seq2seq.files.atomic import remove_folder, write_file
from seq2seq.model import Transformer
from seq2seq.run.ending import best_mean
from seq2seq.run.folder import default_settings, lock_run_folder, settings_of_run
from seq2seq.run.setup import describe, load_initial_model, make_trainer, prepare_data
from seq2seq.run.validation import MakeTranslator, SetShare, summarize, validate_share
from seq2seq.storage.checkpoint import (
    newest_good,
    progress_file,
    read_mean,
    read_progress,
    remove_old,
    rename_newer,
    restore_checkpoint,
    save_checkpoint,
    save_validation,
)
from seq2seq.storage.model_folder import holds_model, move_user_files_aside, save_model
from seq2seq.storage.run_folder import RunFolder, checkpoints
from seq2seq.storage.trained_model import TrainedModel, translate_command
from seq2seq.training.distributed import World
from seq2seq.training.forms import Forms
from seq2seq.training.optimizer import unfinished_dropout
from seq2seq.training.recorder import Recorder
from seq2seq.training.signals import exit_on_signals
from seq2seq.training.state import RunState
from seq2seq.training.step import DivergenceError

logger = logging.getLogger("seq2seq")


@dataclass(frozen=True, kw_only=True)
class Guests:
    """What a run may be given: other forms of its computations, and someone who records it."""

    make_forms: Callable[[torch.device], Forms] = lambda device: Forms()
    make_translator: MakeTranslator = PlainTranslator
    recorder: Recorder = field(default_factory=Recorder)


def run_training(
    config: Config,
    folder: Path,
    yaml: str,
    world: World,
    guests: Guests | None = None,
    *,
    resume_hint: str | None = None,
) -> float:
    """Train until the configuration or a signal ends it, average, and log the next command.

    `yaml` is the configuration to save. `resume_hint` has the overrides that continue the runs of
    a --multirun after a signal, when SystemExit is raised. Returns the best validation's figure.
    """
    # The folder is the main process's, and a cache may be a machine's own.
    shared = replace(config, run_dir=None, cache=None)
    if shared != world.on_main(lambda: shared):
        raise UserError("not all processes have the same settings: start them by one command")
    # The sweeper of a --multirun may try the same values twice at once.
    wait = resume_hint is not None
    with (
        exit_on_signals() as received,
        lock_run_folder(folder, world, resume=config.resume, wait=wait) as resume,
    ):
        # Prepare: a failure leaves no folder behind.
        run = TrainingRun(config, folder, world, guests)
        if received:  # a library has swallowed the exception
            raise SystemExit(128 + received[0])
        before = run.restore() if resume else None
        if run.trainer.limit_reached() and not run.trainer.progress.validation_pending:
            run.write_missing_outputs()
            return run.best_figure()
        run.trainer.fit_memory()
        if before is not None:
            run.warn_of_changes(before)
        describe(run.trainer, config, run.data)

        # Train.
        world.on_main(lambda: run.open_folder(yaml))
        if before is None:
            run.save_step_zero()
        run.fit()
        if run.trainer.signal is not None:
            resume_hint = resume_hint or f"{shlex.quote(f'run_dir={folder}')} resume=true"
            logger.info(
                f"stopped and saved at step {run.trainer.progress.step}; continue with the same"
                f" command and {resume_hint}"
            )
            raise SystemExit(128 + run.trainer.signal)

        # Average and report.
        logger.info(f"finished: {run.trainer.progress.ended}")
        if world.is_main:
            run.finish()
    return run.best_figure()


class TrainingRun:
    """A run with its data, its model and its folder, in one of the processes."""

    def __init__(
        self, config: Config, folder: Path, world: World, guests: Guests | None = None
    ) -> None:
        guests = guests or Guests()
        bleu_metric(ScoreConfig(tokenize=config.bleu_tokenizer))  # refused before hours of training
        self.config = config
        self.folder = folder
        self.files = RunFolder(folder)
        self.world = world
        device = world.own_device(choose_device(config.device, processes=world.size))
        dtype = world.on_main(lambda: choose_precision(config.precision, device))
        self.compute = Compute(device, dtype)
        self.initial = None if config.init_from is None else load_initial_model(config, folder)
        self.data = prepare_data(config, world, self.initial)
        self.trainer = make_trainer(
            config,
            self.data,
            self.initial,
            compute=self.compute,
            world=world,
            forms=guests.make_forms(device),
        )
        self.make_translator = guests.make_translator
        self.newest: Path | None = None
        """The checkpoint that was restored or saved last."""
        self.recorder = guests.recorder if world.is_main else Recorder()
        self.cut_off = False
        """Whether time was over during the last validation."""

    def best_figure(self) -> float:
        """Return the best validation's measure of `training.select_by`."""
        progress, by_loss = self.trainer.progress, self.config.training.select_by == "loss"
        return progress.best_loss if by_loss else progress.best_score

    def state(self) -> RunState:
        """Return the state to save in addition to weights and moments."""
        settings = settings_of_run(self.config, self.data, self.trainer)
        return RunState(self.trainer.progress, *settings)

    def restore(self) -> RunState:
        """Restore the newest good checkpoint, and return its state."""
        self.newest = self.world.on_main(lambda: newest_good(self.folder, logger.warning))
        if self.newest is None:
            raise UserError(f"{self.folder}: no good checkpoint to resume from")
        before = self.state().restored(
            progress_file(self.newest), read_progress(self.newest), default_settings()
        )
        trainer, average = self.trainer, self.trainer.updater.average
        restore_checkpoint(self.newest, trainer.model, trainer.optimizer)
        if average is not None:
            average.load(read_mean(self.newest, trainer.model))
        trainer.progress = before.progress
        # A signal ended the run here, and now a lower limit does.
        if trainer.limit_reached() and not before.progress.ended:
            before.progress.validation_pending = True
        logger.info(f"continuing from {self.newest}, epoch {before.progress.epoch + 1}")
        return before

    def warn_of_changes(self, before: RunState) -> None:
        """Warn of each setting that has changed since the checkpoint."""
        for change in self.state().changes(before):
            logger.warning(f"{change}; the result will not equal an uninterrupted run bit for bit")
            self.trainer.progress.changes.append(f"{change}, from step {before.progress.step:,}")

    def open_folder(self, yaml: str) -> None:
        """Start to write."""
        write_file(self.files.config, yaml.encode())
        self.recorder.record_data(self.data)
        self.recorder.start_log()
        if self.newest is not None:
            rename_newer(self.folder, self.newest, logger.warning)

    def save_step_zero(self) -> None:
        """Save the model of `init_from`, if there is one, as step 0, the first to be validated."""
        if self.initial is not None:
            self.trainer.progress.validation_pending = True
            self.world.on_main(self.save)

    def fit(self) -> None:
        """Train, with everything recorded in the folder."""
        is_main, progress = self.world.is_main, self.trainer.progress
        lines = sum(len(valid.pairs) for valid in self.data.valid_sets.values())
        logger.info(f"each validation translates {lines:,} lines")
        self.recorder.open(progress, self.config.training, on_cpu=not self.compute.on_gpu)
        try:
            self.trainer.train(
                self.recorder,
                validate=lambda: self.validate_share(self.candidate(), self.world),
                summarize=self.summarize,
                save=self.save,
                save_validation=self.save_validation,
            )
        except DivergenceError as error:
            newest = newest_good(self.folder, logger.warning) if is_main else None
            hint = f"continue from {newest} with resume=true" if newest else "no checkpoint yet"
            raise UserError(f"{error}; {hint}") from error
        finally:
            self.recorder.close()

    def candidate(self) -> Transformer:
        """Return the model to validate, which may be the best: the trainer's, or its average."""
        model, average = self.trainer.model, self.trainer.updater.average
        return model if average is None else average.model

    def validate_share(self, model: Transformer, world: World) -> list[SetShare]:
        """Translate this process's share of the validation sets."""
        show, trained = self.recorder.show_validation, self._trained(model)
        return validate_share(
            trained, self.config, self.data, self.compute, world, self.make_translator, show
        )

    def summarize(self, shares: list[list[SetShare]]) -> dict[str, float]:
        """Compute loss, perplexity and BLEU on the validation sets from all shares."""
        metrics, self.cut_off = summarize(shares, self.config, self.data)
        return metrics

    def save(self) -> None:
        """Write a checkpoint, and remove the oldest and what an earlier end of the run has left."""
        trainer, average = self.trainer, self.trainer.updater.average
        self.files.finished.unlink(missing_ok=True)
        self.newest = save_checkpoint(
            self.folder,
            trainer.progress.step,
            self._trained(trainer.model),
            trainer.optimizer,
            self.state().to_json(),
            None if average is None else average.weights,
        )
        self._remove_averaged()
        # Where a signal stops a run is kept in addition, so that the mean of the last checkpoints
        # is that of an uninterrupted run.
        stopped = not trainer.progress.validation_pending
        remove_old(self.folder, self.config.training.keep_checkpoints + stopped)

    def save_validation(self, is_best: bool) -> None:
        """Write the model if it is the best, and only then the progress that says so."""
        assert self.newest is not None
        best = self.files.best
        if is_best:
            # A folder that never held a model is the user's: save_model refuses to replace it.
            if holds_model(best):
                move_user_files_aside(best, logger.warning)
            save_model(best, self._trained(self.candidate()))
        save_validation(self.newest, self.state().to_json())

    def finish(self) -> None:
        """Average the last checkpoints (6.1), write the report, and log the next command."""
        progress, averaged = self.trainer.progress, self.files.averaged
        training = self.config.training
        known_at_the_start = unfinished_dropout(training, training.max_steps)
        if not known_at_the_start and (short := unfinished_dropout(training, progress.step)):
            logger.warning(short)
        mean, means = best_mean(
            [] if self.cut_off else checkpoints(self.folder),
            training,
            lambda model: self.summarize(
                [self.validate_share(model.to(self.compute.device), World())]
            ),
        )
        finished = {"step": progress.step, "ended": progress.ended, "machine": processor_name()}
        finished |= {"means": means}
        if mean is not None:
            self._remove_averaged()
            # While a model still learns fast, its mean with earlier ones is worse.
            rank, number, trained = mean
            if progress.is_better(rank):
                save_model(averaged, trained)
                finished["averaged"] = number
                logger.info(f"kept the mean of {number} as {averaged}")
            else:
                logger.info("no mean is better than the best checkpoint: none is kept")
        write_file(self.files.finished, json.dumps(finished).encode())
        self.report()

    def write_missing_outputs(self) -> None:
        """Average and report if a signal has prevented it at the end of training."""
        if not self.world.is_main:
            return
        finished = self.files.read_finished()
        if finished and self.recorder.is_reported():
            logger.info(
                f"nothing to do: {self.trainer.limit_reached()}; to train with other settings,"
                " choose another run_dir"
            )
            return
        self.recorder.start_log()
        if finished:
            self.report()
        else:
            self.finish()

    def report(self) -> None:
        """Write the report, and log the next command."""
        if self.cut_off:
            logger.info(f"neither mean nor report: seq2seq report {self.folder} translates again")
        else:
            self.recorder.report(str(self.compute.device))
        languages = self._trained(self.trainer.model).target_languages
        logger.info(f"next: {translate_command(str(self.folder), languages)}")

    def _remove_averaged(self) -> None:
        """Remove the mean of an earlier end of this run, but no file of the user's."""
        move_user_files_aside(self.files.averaged, logger.warning)
        remove_folder(self.files.averaged)

    def _trained(self, model: Transformer) -> TrainedModel:
        languages = (self.config.data.source_language, self.config.data.target_language)
        return TrainedModel(model, self.data.tokenizer, *languages)
