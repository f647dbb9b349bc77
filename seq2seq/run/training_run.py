"""One training in its folder: prepare, fit, validate, save, average."""

import json
import logging
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seq2seq.config import Config
from seq2seq.device import Compute, choose_device, choose_precision
from seq2seq.errors import UserError
from seq2seq.evaluation.scores import check_tokenizer
from seq2seq.fast.process import keep_few_compiled_products, retain_freed_memory
from seq2seq.files.atomic import remove_folder, write_file
from seq2seq.model import Transformer
from seq2seq.model.size import meta_transformer
from seq2seq.reporting.record import (
    DATA_FILE,
    FINISHED_FILE,
    data_record,
    machine,
    read_object,
    translate_command,
)
from seq2seq.run.ending import AVERAGED, best_mean, is_reported, write_report
from seq2seq.run.folder import (
    changes_of_data,
    reserved,
    settings,
    settings_not_used,
    way_to_micro_batches,
)
from seq2seq.run.setup import describe, load_parent, make_trainer, prepare_data
from seq2seq.run.validation import Validation, validate_sets
from seq2seq.storage.checkpoint import (
    checkpoints,
    newest_good,
    progress_file,
    read_mean,
    read_progress,
    remove_old,
    restore_checkpoint,
    save_checkpoint,
    save_validation,
    set_aside_later,
)
from seq2seq.storage.model_folder import free_place_of_model, holds_model, save_model
from seq2seq.storage.trained_model import TrainedModel
from seq2seq.training.distributed import World
from seq2seq.training.recorder import (
    METRICS,
    DeferredFileHandler,
    NullRecorder,
    RunRecorder,
    deferred_log_file,
    describe_validation,
    read_metrics,
)
from seq2seq.training.signals import exit_on_signals
from seq2seq.training.state import ChangedSettingError, RunState
from seq2seq.training.step import DivergenceError

logger = logging.getLogger("seq2seq")


def run_training(
    config: Config, folder: Path, yaml: str, world: World, *, way_on: str | None = None
) -> int:
    """Train until the configuration or a signal ends it, average, and log the next command.

    Args:
        config: the configuration.
        folder: the run folder.
        yaml: the configuration as text, to save.
        world: the processes that share the work.
        way_on: the overrides that continue a training which a signal has ended; by default, those
            of a single run.

    Returns:
        0, or 128 + the signal that ended it early.

    Raises:
        UserError: if the data, the folder or the configuration can't be used, or training diverges.
    """
    retain_freed_memory()
    keep_few_compiled_products()
    resume = config.resume is True
    if config.resume == "auto":
        resume = world.on_main(lambda: bool(checkpoints(folder)))
    with (
        exit_on_signals() as received,
        _os_errors_as_user_errors(folder),
        reserved(folder, world, resume=resume) as has_its_name,
        deferred_log_file(logger) as log_file,
    ):
        run = TrainingRun(config, folder, world, has_its_name)
        if received:  # a library has swallowed the exception
            raise SystemExit(128 + received[0])
        before = run.restore() if resume else None
        if run.is_trained():
            run.finish_if_unfinished(log_file)
            return 0
        run.trainer.fit_memory()
        if before is not None:
            run.warn_of_changes(before)
        describe(run.trainer, config, run.data.tokenizer)
        # A failure so far leaves no folder behind.
        world.on_main(lambda: run.open_folder(yaml, log_file))
        if before is None:
            run.enter_parent()
        run.fit()
        if run.trainer.signal is not None:
            way_on = way_on or f"{shlex.quote(f'run_dir={folder}')} resume=true"
            logger.info(
                f"stopped and saved at step {run.trainer.progress.step}; continue with the same"
                f" command and {way_on}"
            )
            return 128 + run.trainer.signal
        logger.info(f"finished: {run.trainer.progress.ended}")
        if world.is_main:
            run.finish()
    return 0


class TrainingRun:
    """A training with its data, its model and its folder, in one of the processes.

    Args:
        config: the configuration.
        folder: the run folder.
        world: the processes that share the work.
        has_its_name: returns whether the folder still has its name.

    Raises:
        UserError: if the data or the configuration can't be used.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        world: World,
        has_its_name: Callable[[], bool] = lambda: True,
    ) -> None:
        check_tokenizer(config.bleu_tokenizer)  # before hours of training
        self.config = config
        self.folder = folder
        self.has_its_name = has_its_name
        self.world = world
        device = world.own_device(choose_device(config.device, processes=world.size))
        dtype = world.on_main(lambda: choose_precision(config.precision, device))
        self.compute = Compute(device, dtype)
        self.parent = None if config.init_from is None else load_parent(config, folder)
        self.data = prepare_data(config, world, self.parent)
        self.trainer = make_trainer(
            config, self.data, self.parent, compute=self.compute, world=world
        )
        self.newest: Path | None = None
        """The checkpoint that was restored or saved last."""

    def state(self) -> RunState:
        """Return the state to save beside weights and moments."""
        fixed, changeable = settings(
            self.config,
            self.data,
            processes=self.world.size,
            dtype=self.compute.dtype,
            slices=self.trainer.updater.slices,
            compiled=self.trainer.kernels.compiled,
        )
        return RunState(self.trainer.progress, fixed, changeable)

    def restore(self) -> RunState:
        """Restore the newest undamaged checkpoint, and return its state.

        Raises:
            UserError: if there is none, or it was trained with other data or another model.
        """
        self.newest = self.world.on_main(lambda: newest_good(self.folder, logger.warning))
        if self.newest is None:
            raise UserError(f"{self.folder}: no undamaged checkpoint to resume from")
        try:
            before = self.state().restored(progress_file(self.newest), read_progress(self.newest))
        except ChangedSettingError as error:
            advice = ""  # for most settings, the name says it all
            if error.name == "data":
                advice = changes_of_data(self.folder, self.config.data)
            elif error.name == "micro_batches":
                training, processes = self.config.training, self.world.size
                advice = way_to_micro_batches(training, error.before, processes)
            raise UserError(f"{error}{advice}") from None
        restore_checkpoint(self.newest, self.trainer.model, self.trainer.optimizer)
        if self.trainer.updater.average is not None:
            self.trainer.updater.average.load(read_mean(self.newest, self.trainer.model))
        self.trainer.progress = before.progress
        # A signal ended the training here, and now a lower limit does.
        if self.trainer.limit_reached() and not before.progress.ended:
            before.progress.validation_pending = True
        logger.info(f"continuing from {self.newest}, epoch {before.progress.epoch + 1}")
        return before

    def is_trained(self) -> bool:
        """Return whether all steps and validations are done."""
        trainer = self.trainer
        return trainer.limit_reached() != "" and not trainer.progress.validation_pending

    def finish_if_unfinished(self, log_file: DeferredFileHandler) -> None:
        """Do what is missing of the end, averaging and report, if a signal has prevented it."""
        if not self.world.is_main:
            return
        finished = read_object(self.folder / FINISHED_FILE)
        if finished and is_reported(self.folder):
            logger.info(f"nothing to do: {self.trainer.limit_reached()}")
            if unused := settings_not_used(self.folder, self.config):
                logger.warning(
                    f"{self.folder} was trained with other values of {unused}: choose another"
                    " run_dir to train with these"
                )
            return
        log_file.write_to(self.folder / "train.log")
        if finished:
            self.report(int(finished.get("averaged", 0)))
        else:
            self.finish()

    def warn_of_changes(self, before: RunState) -> None:
        """Warn of each setting that has changed since the checkpoint."""
        for change in self.state().changes(before):
            logger.warning(
                f"{change}; the result will not be bit for bit that of an uninterrupted training"
            )
            self.trainer.progress.changes.append(f"{change}, from step {before.progress.step:,}")

    def open_folder(self, yaml: str, log_file: DeferredFileHandler) -> None:
        """Start to write.

        Raises:
            UserError: if the folder can't be written.
        """
        write_file(self.folder / "config.yaml", yaml.encode())
        write_file(self.folder / DATA_FILE, data_record(self.data))
        log_file.write_to(self.folder / "train.log")
        if self.newest is not None:
            set_aside_later(self.folder, self.newest, logger.warning)

    def enter_parent(self) -> None:
        """Make the model of `init_from`, if there is one, the first candidate for the best model.

        It is saved as step 0, and the training begins with its validation.

        Raises:
            UserError: if the folder can't be written.
        """
        if self.parent is None:
            return
        self.trainer.progress.validation_pending = True
        self.world.on_main(self.save)

    def fit(self) -> None:
        """Train, with everything recorded in the folder.

        Raises:
            UserError: if the loss is no longer finite, or the folder can't be written.
        """
        trainer, is_main = self.trainer, self.world.is_main
        recorder = (
            RunRecorder(self.folder, trainer.progress, self.config.training)
            if is_main
            else NullRecorder()
        )
        try:
            trainer.train(
                recorder,
                validate=lambda: self.validate(self.candidate()).metrics(),
                save=self.save,
                save_validation=self.save_validation,
            )
        except DivergenceError as error:
            newest = newest_good(self.folder, logger.warning) if is_main else None
            where = (
                f"continue from {newest} with resume=true" if newest else "there is no checkpoint"
            )
            raise UserError(f"{error}; {where}") from error
        finally:
            recorder.close()

    def candidate(self) -> Transformer:
        """Return the model to validate, which may be the best: that of the trainer, or its mean."""
        model, mean = self.trainer.model, self.trainer.updater.average
        if mean is None:
            return model
        candidate = meta_transformer(
            model.config,
            vocab_size=model.vocab_size,
            padding_id=model.padding_id,
            start_id=model.start_id,
            source_vocab_size=self.data.tokenizer.source_vocab_size,
        )
        candidate.load_state_dict(mean.weights, assign=True)
        return candidate.eval()

    def validate(self, model: Transformer) -> Validation:
        """Compute loss, perplexity and BLEU of a model on the validation sets.

        Raises:
            OutOfMemoryError: if memory does not suffice.
        """
        return validate_sets(self._trained(model), self.config, self.data, self.compute)

    def save(self) -> None:
        """Write a checkpoint, and remove the oldest one and what a resumed training had ended with.

        Raises:
            UserError: if the folder can't be written, or was moved or removed. The checkpoint is
                whole even then, unless another folder has the name by now.
        """
        if self.folder.exists() and not self.has_its_name():
            raise UserError(
                f"{self.folder}: another folder has this name now, and is left as it is; move the"
                " folder of this training back, and continue with resume=true"
            )
        trainer, state = self.trainer, self.state().to_json()
        (self.folder / FINISHED_FILE).unlink(missing_ok=True)
        self.newest = save_checkpoint(
            self.folder,
            trainer.progress.step,
            self._trained(trainer.model),
            trainer.optimizer,
            state,
            None if trainer.updater.average is None else trainer.updater.average.weights,
        )
        # The mean of earlier checkpoints is not that of this training's end.
        free_place_of_model(self.folder / AVERAGED, logger.warning)
        remove_folder(self.folder / AVERAGED)
        remove_old(self.folder, self.config.training.keep_checkpoints)
        if not self.has_its_name():
            raise UserError(
                f"{self.folder}: moved or removed while training; the newest checkpoint is"
                f" {self.newest}: move it to the others, and continue with resume=true"
            )

    def save_validation(self, is_best: bool) -> None:
        """Write the model if it is the best, and only then the progress that says so.

        Raises:
            UserError: if the folder can't be written, or was moved or removed.
        """
        assert self.newest is not None
        self._check_name()
        if is_best:
            # A folder that never held a model is the user's: save_model refuses to replace it.
            if holds_model(self.folder / "best"):
                free_place_of_model(self.folder / "best", logger.warning)
            save_model(self.folder / "best", self._trained(self.candidate()))
        save_validation(self.newest, self.state().to_json())

    def finish(self) -> None:
        """Average the last checkpoints (6.1), write the report, and log the next command."""
        progress = self.trainer.progress
        averaged = 0
        mean, means = best_mean(
            checkpoints(self.folder),
            self.config.training,
            lambda model: self.validate(model.to(self.compute.device)),
        )
        finished = {"step": progress.step, "ended": progress.ended, "machine": machine()}
        finished |= {"means": means}
        if mean is not None:
            self._check_name()
            free_place_of_model(self.folder / AVERAGED, logger.warning)
            # While a model still learns fast, its mean with earlier ones is worse.
            if mean.bleu >= progress.best_bleu:
                save_model(self.folder / AVERAGED, mean.trained)
                finished["averaged"] = averaged = mean.checkpoints
                logger.info(f"kept the mean of {mean.checkpoints} as {self.folder / AVERAGED}")
            else:
                remove_folder(self.folder / AVERAGED)  # of an earlier end, if any
                logger.info("no mean is as good as the best checkpoint: none is kept")
        if self.parent is not None:
            self._log_gain()
        write_file(self.folder / FINISHED_FILE, json.dumps(finished).encode())
        self.report(averaged)

    def report(self, averaged: int) -> None:
        """Write the report, and log the next command.

        Args:
            averaged: the number of checkpoints whose mean was kept, or 0.
        """
        write_report(self.folder, self.config, str(self.compute.device), averaged)
        languages = self._trained(self.trainer.model).target_languages
        logger.info(f"next: {translate_command(str(self.folder), languages)}")

    def _check_name(self) -> None:
        """Check that what has the folder's name after a validation is still this training's.

        Raises:
            UserError: if the folder was moved or removed.
        """
        if not self.has_its_name():
            raise UserError(
                f"{self.folder}: moved or removed while validating; move it back, and continue with"
                " resume=true"
            )

    def _log_gain(self) -> None:
        """Log the validations of the parent and of the best model."""
        with suppress(UserError):  # metrics that can't be written end no training
            records = {
                r["step"]: r for r in read_metrics(self.folder / METRICS) if "valid/loss" in r
            }
            for name, step in (("before", 0), ("best", self.trainer.progress.best_step)):
                if step in records:
                    logger.info(f"{name} (step {step}): {describe_validation(records[step])}")

    def _trained(self, model: Transformer) -> TrainedModel:
        languages = (self.config.data.source_language, self.config.data.target_language)
        return TrainedModel(model, self.data.tokenizer, *languages)


@contextmanager
def _os_errors_as_user_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror or error}") from error
