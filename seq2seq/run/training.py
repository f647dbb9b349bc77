"""One run: prepare, train, validate, save, average the last checkpoints (6.1)."""

import json
import logging
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from seq2seq import model_folder
from seq2seq.device import Compute
from seq2seq.errors import OutOfMemoryError, UsageError, UserError
from seq2seq.files import MAX_BYTES, remove_folder, write_file
from seq2seq.machine import resources
from seq2seq.machine.processes import OneProcess, exit_on_signals
from seq2seq.model_folder import TrainedModel, checkpoints, class_name
from seq2seq.run import checkpoint
from seq2seq.run.config import MAX_CONFIG_BYTES, Config, unfinished_dropout
from seq2seq.run.data_record import data_record
from seq2seq.run.folder import RunFolder, move_user_files_aside, translate_command
from seq2seq.run.lock import lock_run_folder
from seq2seq.run.records import describe_validation
from seq2seq.run.resume import (
    RunState,
    data_changes,
    default_settings,
    saved_micro_batches,
    settings_of_run,
)
from seq2seq.run.sessions import add_session, changed_program, read_sessions, this_session
from seq2seq.run.start import describe, load_initial_model, make_trainer, prepare_data, try_update
from seq2seq.run.validation import (
    Failure,
    Guessing,
    SetShare,
    summarize,
    validate_share,
)
from seq2seq.score import ScoreConfig, bleu_metric
from seq2seq.settings import flat
from seq2seq.trainer import Recorder
from seq2seq.transformer import Transformer
from seq2seq.update import DivergenceError, Updater

logger = logging.getLogger("seq2seq")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a run that its caller may choose; by default, it is plain and not recorded."""

    make_updater: Callable[..., Updater] = Updater
    """Makes the plain updater, or another form of it."""
    fit_memory: Callable[[Any, int], float] = try_update
    """Tries the largest micro-batch of an epoch, and returns the seconds that it took."""
    recorder: Recorder = field(default_factory=Recorder)
    report: Callable[[RunFolder, torch.device], None] = lambda run, device: None
    """Called once the models of a finished run are saved."""
    model_class: type[Transformer] | None = None
    """The class that `Config.model_class` names."""
    trials: str = ""
    """The fast forms on trial, which the record of each start names."""


PLAIN = Parts()


def run_training(
    config: Config,
    folder: Path,
    yaml: str,
    world: OneProcess,
    parts: Parts = PLAIN,
    *,
    command: str = "",
    resume_hint: str | None = None,
) -> float:
    """Train until the configuration or a signal ends it, average, and log the next command.

    `yaml` is the configuration to save, and `command` what was typed. `resume_hint` has the
    overrides that continue the runs of a --multirun after a signal, when SystemExit is raised.
    Returns the best validation's figure.
    """
    # The folder is the main process's, and a cache may be a machine's own.
    shared = flat(asdict(replace(config, run_dir=None, cache=None)))
    if other := differences(shared, world.on_main(lambda: shared)):
        raise UserError(
            f"not all processes have the same settings: {other} in the first one: start them by"
            " one command"
        )
    # The sweeper of a --multirun may try the same values twice at once.
    is_swept = resume_hint is not None
    with (
        exit_on_signals() as received,
        lock_run_folder(folder, world, resume=config.resume, wait=is_swept) as resume,
    ):
        # Prepare: a failure leaves no folder behind.
        run = TrainingRun(config, folder, world, parts, resume=resume)
        if received:  # a library has swallowed the exception
            raise SystemExit(128 + received[0])
        before = run.restore() if resume else None
        if run.trainer.limit_reached() and not run.trainer.progress.validation_pending:
            if world.is_main:
                run.finish_again()
            return run.result(is_swept=is_swept)
        seconds = parts.fit_memory(run.trainer.updater, run.trainer.progress.epoch)
        if before is not None:
            run.warn_of_changes(before)
        describe(run.trainer, config, run.data, seconds)

        # Train.
        world.on_main(lambda: run.open_folder(yaml, command))
        if run.initial is not None and before is None:  # as step 0, the first to be validated
            run.trainer.progress.validation_pending = True
            world.on_main(run.save)
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
    return run.result(is_swept=is_swept)


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Name the settings that are not the same, with their values."""
    keys = [key for key in {**theirs, **ours} if ours.get(key) != theirs.get(key)]
    return ", ".join(f"{key}={ours.get(key)!r} here, {theirs.get(key)!r}" for key in keys[:3])


class TrainingRun:
    """A run with its data, its model and its folder, in one of the processes."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        world: OneProcess,
        parts: Parts = PLAIN,
        *,
        resume: bool = False,
    ) -> None:
        bleu_metric(ScoreConfig(tokenize=config.bleu_tokenizer))  # refused before hours of training
        self.model_class = parts.model_class
        name = None if self.model_class is None else class_name(self.model_class)
        if config.model_class != name:
            raise UsageError(f"model_class={config.model_class}: the class that is given is {name}")
        self.config = config
        self.folder = folder
        self.files = RunFolder(folder)
        self.world = world
        device = world.own_device(resources.choose_device(config.device, processes=world.size))
        dtype = world.on_main(lambda: resources.choose_precision(config.precision, device))
        self.compute = Compute(device, dtype)
        self.initial: TrainedModel | None = None
        if config.init_from is not None:
            self.initial = load_initial_model(config, folder, self.model_class)
        self.data = prepare_data(config, world, self.initial)
        # A step keeps its micro-batches, however many processes share them.
        saved = world.on_main(lambda: saved_micro_batches(folder)) if resume else 0
        count = saved or config.training.micro_batches(world.size)
        self.trainer = make_trainer(
            config,
            self.data,
            self.initial,
            self.compute,
            world,
            parts.make_updater,
            count,
            self.model_class,
        )
        model_folder.check_restorable(self._trained(self.trainer.model))
        self.guessing = Guessing.of(self.data.train, self.data.tokenizer.vocab_size)
        self.warned_of_loss = False
        self.newest: Path | None = None
        """The checkpoint that was restored or saved last."""
        self.recorder = parts.recorder if world.is_main else Recorder()
        self.report, self.trials = parts.report, parts.trials
        self.needs_memory = False
        """Whether validations need the memory that updates keep."""
        self.cut_off = False
        """Whether time was over during the last validation."""

    def failure(self) -> Failure | None:
        """Describe a best model that is no better than a guess; None if it is better."""
        progress = self.trainer.progress
        if progress.best_score > 0:  # more than chance, even if it overfits
            return None
        return self.guessing.failure(progress.best_loss, progress.train_loss)

    def result(self, *, is_swept: bool) -> float:
        """Return the best validation's measure of `training.select_by`.

        A sweeper is given that of a diverged training, too, and goes on.

        Raises:
            UserError: The best model is worse than guessing, though the rate has fully risen.

        """
        progress, training = self.trainer.progress, self.config.training
        failure, has_risen = self.failure(), progress.step >= training.warmup_steps
        if failure and failure.is_divergence and has_risen and not is_swept:
            raise UserError(f"{self.folder}: {failure.message}, and start with a new run_dir")
        return progress.best_loss if training.select_by == "loss" else progress.best_score

    def state(self) -> RunState:
        """Return the state to save in addition to weights and moments."""
        settings = settings_of_run(self.config, self.data, self.trainer)
        return RunState(self.trainer.progress, *settings)

    def restore(self) -> RunState:
        """Restore the newest good checkpoint, and return its state."""
        folder, world = self.folder, self.world
        newest = world.on_main(self.newest_good)
        if newest is None:
            raise UserError(f"{folder}: no good checkpoint to resume from")
        self.newest, saved = newest, checkpoint.read_progress(newest)
        path, defaults = checkpoint.progress_file(newest), default_settings()
        changes = data_changes(folder, self.config)
        before = self.state().restored(path, saved, defaults, changes)
        trainer, running_mean = self.trainer, self.trainer.updater.running_mean
        checkpoint.restore_checkpoint(newest, trainer.model, trainer.optimizer)
        if running_mean is not None:
            mean = checkpoint.read_mean(newest, trainer.model)
            buffers = dict(trainer.model.named_buffers())  # which have no mean
            running_mean.model.load_state_dict(buffers | mean, strict=False)
        trainer.progress = before.progress
        # A signal ended the run here, and now a lower limit does.
        if trainer.limit_reached() and not before.progress.ended:
            before.progress.validation_pending = True
        logger.info(f"continuing from {newest}, epoch {before.progress.epoch + 1}")
        return before

    def newest_good(self) -> Path | None:
        """Find the newest checkpoint that can be read, and log those that can't."""
        return checkpoint.newest_good(self.folder, logger.warning, self.model_class)

    def warn_of_changes(self, before: RunState) -> None:
        """Warn of each setting that has changed since the checkpoint."""
        for change in self.state().record_changes(before):
            logger.warning(f"{change}; the result will not equal an uninterrupted run bit for bit")

    def open_folder(self, yaml: str, command: str) -> None:
        """Start to write."""
        write_file(self.files.config, yaml.encode(), MAX_CONFIG_BYTES)
        step, processes = self.trainer.progress.step, self.world.size
        model, trials = self.trainer.model, self.trials
        session = this_session(
            command, self.compute, model, step=step, processes=processes, trials=trials
        )
        if change := changed_program(read_sessions(self.folder), session):
            logger.warning(f"{change}; the result may not equal an uninterrupted run")
        add_session(self.folder, session)
        write_file(self.files.data, data_record(self.data), MAX_BYTES)
        self.recorder.start_log()
        if self.newest is not None:
            checkpoint.rename_newer(self.folder, self.newest, logger.warning)

    def fit(self) -> None:
        """Train, with everything recorded in the folder."""
        is_main, progress = self.world.is_main, self.trainer.progress
        lines = sum(len(valid.pairs) for valid in self.data.valid_sets.values())
        logger.info(f"each validation translates {lines:,} lines")
        self.recorder.open(progress, self.config.training)
        try:
            self.trainer.train(self)
        except DivergenceError as error:
            newest = self.newest_good() if is_main else None
            hint = f"continue from {newest} with resume=true" if newest else "no checkpoint yet"
            raise UserError(f"{error}; {hint}") from error
        finally:
            self.recorder.close()

    def candidate(self) -> Transformer:
        """Return the model to validate, which may be the best: the trainer's, or its mean."""
        model, running_mean = self.trainer.model, self.trainer.updater.running_mean
        return model if running_mean is None else running_mean.model

    def validate(self) -> list[SetShare]:
        """Translate this process's share of the validation sets with the candidate.

        If memory runs out, this validation and later ones get the memory of the updates.
        """
        if self.needs_memory:
            self.trainer.updater.release_memory()
        try:
            return self.validate_share(self.candidate(), self.world)
        except OutOfMemoryError:
            if self.needs_memory or not self.trainer.updater.release_memory():
                raise
        # The error is gone, and with it all that the attempt had in memory.
        self.needs_memory = True
        logger.info("memory: a validation needs that of the updates, which it gets from now on")
        return self.validate_share(self.candidate(), self.world)

    def validate_share(self, model: Transformer, world: OneProcess) -> list[SetShare]:
        """Translate this process's share of the validation sets."""
        show, trained = self.recorder.show_validation, self._trained(model)
        return validate_share(trained, self.config, self.data, self.compute, world, show)

    def summarize(self, shares: list[list[SetShare]]) -> dict[str, float]:
        """Compute loss, perplexity and BLEU on the validation sets from all shares."""
        metrics, self.cut_off = summarize(shares, self.config, self.data)
        loss = metrics[f"{self.config.training.selecting_set}/loss"]
        failure = self.guessing.failure(loss, self.trainer.progress.train_loss)
        if failure and failure.is_divergence and not self.warned_of_loss:
            self.warned_of_loss = True
            logger.warning(failure.message)
        return metrics

    def save(self) -> None:
        """Write a checkpoint, and remove the oldest and what an earlier end of the run has left."""
        trainer, running_mean = self.trainer, self.trainer.updater.running_mean
        self.files.finished.unlink(missing_ok=True)
        self.files.scores.unlink(missing_ok=True)
        trained, state = self._trained(trainer.model), self.state().to_json()
        step, mean = trainer.progress.step, None if running_mean is None else running_mean.weights
        self.newest = checkpoint.save_checkpoint(
            self.folder, step, trained, trainer.optimizer, state, mean
        )
        self._remove_averaged()
        # Where a signal stops a run is kept in addition, so that the mean of the last checkpoints
        # is that of an uninterrupted run.
        stopped = not trainer.progress.validation_pending
        checkpoint.remove_old(self.folder, self.config.training.keep_checkpoints + stopped)

    def save_validation(self, is_best: bool) -> None:
        """Write the model if it is the best, and only then the progress that says so."""
        assert self.newest is not None
        best = self.files.best
        if is_best:
            # A folder that never held a model is the user's: save_model refuses to replace it.
            if model_folder.holds_model(best):
                move_user_files_aside(best, logger.warning)
            model_folder.save_model(best, self._trained(self.candidate()))
        checkpoint.save_validation(self.newest, self.state().to_json())

    def finish(self) -> None:
        """Average the last checkpoints (6.1), report, and log the next command."""
        progress, averaged = self.trainer.progress, self.files.averaged
        training = self.config.training
        known_at_the_start = unfinished_dropout(training, training.max_steps)
        if not known_at_the_start and (short := unfinished_dropout(training, progress.step)):
            logger.warning(short)
        is_whole = partial(_is_whole, model_class=self.model_class)
        whole = [] if self.cut_off else list(filter(is_whole, checkpoints(self.folder)))
        folders = whole[-training.average_checkpoints :]
        finished = {"step": progress.step, "ended": progress.ended}
        finished["machine"] = resources.machine_name(self.compute.device)
        if len(folders) > 1:
            self._remove_averaged()
            trained = model_folder.average(folders, self.model_class)
            alone = self.validate_share(trained.model.to(self.compute.device), OneProcess())
            metrics = self.summarize([alone])
            finished["means"] = {len(folders): metrics[f"{training.selecting_set}/bleu"]}
            said = f"mean of the last {len(folders)} checkpoints: {describe_validation(metrics)}"
            # While a model still learns fast, its mean with earlier ones is worse.
            if progress.is_better(training.rank(metrics)):
                model_folder.save_model(averaged, trained)
                finished["averaged"] = len(folders)
                logger.info(f"{said}; kept as {averaged}")
            else:
                logger.info(f"{said}, not better than the best checkpoint: not kept")
        write_file(self.files.finished, json.dumps(finished).encode())
        if self.cut_off:
            logger.info(f"neither mean nor report: seq2seq report {self.folder} translates again")
        else:
            self.report(self.files, self.compute.device)
        if failure := self.failure():
            logger.warning(failure.message)
            return
        languages = self._trained(self.trainer.model).target_languages
        command = translate_command(str(self.folder), languages, self.config.model_class)
        logger.info(f"next: {command}")

    def finish_again(self) -> None:
        """Finish, or report, if a signal has prevented it at the end of training."""
        if not self.files.read_finished():
            self.recorder.start_log()
            self.finish()
            return
        logger.info(
            f"nothing to train: {self.trainer.limit_reached()}; to train with other settings,"
            " choose another run_dir"
        )
        if not self.files.scores.exists():
            self.recorder.start_log()
            self.report(self.files, self.compute.device)

    def _remove_averaged(self) -> None:
        """Remove the mean of an earlier end of this run, but no file of the user's."""
        move_user_files_aside(self.files.averaged, logger.warning)
        remove_folder(self.files.averaged)

    def _trained(self, model: Transformer) -> TrainedModel:
        languages = (self.config.data.source_language, self.config.data.target_language)
        return TrainedModel(model, self.data.tokenizer, *languages)


def _is_whole(folder: Path, model_class: type[Transformer] | None) -> bool:
    """Check the weights of a checkpoint that is to be averaged; warn of a corrupt one."""
    try:
        model_folder.check_weights(folder, model_folder.read_description(folder, model_class).model)
    except UserError as error:
        logger.warning(f"{error}; this checkpoint is not averaged")
        return False
    return True
