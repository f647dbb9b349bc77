"""`seq2seq train`: the Hydra application, from raw text to a trained model."""

import datetime
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from logging.handlers import MemoryHandler
from pathlib import Path
from types import FrameType
from typing import Any, cast

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.checkpoint import (
    TrainedModel,
    average,
    checkpoints,
    new_transformer,
    newest_good,
    remove_old,
    restore_checkpoint,
    save_checkpoint,
    save_model,
)
from seq2seq.cli.config import Config, config_path, explain, register
from seq2seq.data.batching import Batching
from seq2seq.data.preparation import PreparedData, prepare
from seq2seq.decoding.translator import Translator
from seq2seq.device import choose_device, choose_precision, keep_freed_memory
from seq2seq.errors import UsageError, UserError
from seq2seq.evaluation.validation import Validation, validate
from seq2seq.folders import check_writable, remove_folder, write_file
from seq2seq.model import TransformerConfig
from seq2seq.training.display import Display, describe_validation
from seq2seq.training.metrics import Metrics
from seq2seq.training.optimizer import risky_start
from seq2seq.training.progress import Progress
from seq2seq.training.trainer import DivergenceError, Trainer

logger = logging.getLogger("seq2seq")

_FINISHED = "finished.json"
# What may change between two parts of a training, and is then said.
_CHANGEABLE = ("dropout", "attention_dropout", "relu_dropout")
_RECIPE = ("warmup_steps", "learning_rate_scale", "label_smoothing")


def train(words: list[str]) -> int:
    """Run the application with Hydra's command line.

    Raises:
        UsageError: an override that names nothing or has no valid value.
        UserError: bad data or a bad run.
    """
    register()
    # Hydra would print its errors and leave; with this it raises them, and they become one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # Hydra takes its flags before or after all overrides, not among them.
    overrides = [word for word in words if not word.startswith("-") and "=" in word]
    flags = [word for word in words if word not in overrides]
    before, sys.argv = sys.argv, ["seq2seq train", *flags, *overrides]
    exit_codes: list[int] = []
    errors: list[UserError] = []

    @hydra.main(version_base="1.3", config_path=str(config_path()), config_name="train")
    def application(chosen: DictConfig) -> None:
        if any(code > 128 for code in exit_codes):  # a signal is for all runs of a --multirun
            return
        try:
            config = cast(Config, OmegaConf.to_object(chosen))
            exit_codes.append(Run(config, _run_folder(config), _as_yaml(chosen)).execute())
        except UserError as error:
            # Raised below, where Hydra has no word to add; the other runs of a --multirun go on.
            if errors:
                logger.error(f"seq2seq: {errors[-1]}")
            errors.append(error)

    try:
        application()
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(explain(error)) from error
    finally:
        sys.argv = before
    if errors:
        raise errors[-1]
    return max(exit_codes, default=0)


def _as_yaml(chosen: DictConfig) -> str:
    return OmegaConf.to_yaml(chosen, resolve=True)


def _run_folder(config: Config) -> Path:
    """The folder as given, or a name made from what was chosen and the date."""
    application = HydraConfig.get()
    if application.mode is RunMode.MULTIRUN:
        # What all runs share was typed as it is; what differs was typed as a list, or a glob.
        swept = [item for item in application.overrides.task if item not in sys.argv]
        name = ",".join(item.lstrip("+").replace("/", "-") for item in swept) or "run"
        return Path(application.sweep.dir) / (config.run_dir or name)
    if config.run_dir is not None:
        return Path(config.run_dir)
    if config.resume:
        raise UsageError("resume=true needs to know what: give run_dir=...")
    chosen = application.runtime.choices
    date = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return Path("runs") / f"{chosen['data']}-{chosen['model']}-{date}"


class Run:
    """One training in its folder."""

    def __init__(self, config: Config, folder: Path, yaml: str) -> None:
        self.config = config
        self.folder = folder
        self.yaml = yaml

    def execute(self) -> int:
        """Prepare, train, average, and say what to type next.

        Returns:
            0, or 128 + the signal that ended it early.
        """
        self.device = choose_device(self.config.device)
        self.precision = choose_precision(self.config.precision, self.device)
        self._check_folder()
        keep_freed_memory()
        with (
            _leaving_on_signals() as left,
            _named_os_errors(self.folder),
            _remembered_log() as said,
        ):
            data = prepare(self.config.data, _cache_folder(self.config), logger.info)
            trainer = self._make_trainer(data)
            if left:  # a library has swallowed what the signal raised
                raise SystemExit(128 + left[0])
            if self.config.resume:
                self._resume(trainer, data)
            reason = trainer.limit_reached()
            if reason and not trainer.progress.unchecked:
                if (self.folder / _FINISHED).exists():
                    logger.info(f"nothing to do: {reason}")
                else:  # a signal came after the last step
                    self._finish(trainer, data)
                return 0
            trainer.try_largest()
            # Only now is there anything to keep: a failure so far leaves no folder behind.
            write_file(self.folder / "config.yaml", self.yaml.encode())
            said.write_to(self.folder / "train.log")
            # The mean of an earlier end is none of what this run is about to become.
            remove_folder(self.folder / "averaged")
            (self.folder / _FINISHED).unlink(missing_ok=True)
            self._describe(trainer, data)
            self._train(trainer, data)
            if trainer.signal is not None:
                logger.info(
                    f"stopped and saved at step {trainer.progress.step}; go on with the same"
                    f" command and run_dir={self.folder} resume=true"
                )
                return 128 + trainer.signal
            logger.info(f"finished: {trainer.progress.ended}")
            self._finish(trainer, data)
        return 0

    def _train(self, trainer: Trainer, data: PreparedData) -> None:
        training = self.config.training
        metrics = Metrics(self.folder, trainer.progress.step)
        display = Display(trainer.progress, training.max_steps, training.max_minutes)
        try:
            trainer.train(
                metrics,
                display,
                validate=lambda: self._validate(trainer.model, data),
                save=lambda best: self._save(trainer, data, best=best),
            )
        except DivergenceError as error:
            newest = newest_good(self.folder, logger.warning)
            where = f"go on from {newest} with resume=true" if newest else "there is no checkpoint"
            raise UserError(f"{error}; {where}") from error
        finally:
            display.close()
            metrics.close()

    def _check_folder(self) -> None:
        folder = self.folder
        if self.config.resume:
            if not checkpoints(folder):
                raise UserError(f"{folder}: no checkpoint to resume from")
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(
                f"{folder}: is there already; choose another run_dir, or add resume=true to go on"
            )
        check_writable(folder)

    def _make_trainer(self, data: PreparedData) -> Trainer:
        config = self.config
        torch.manual_seed(config.seed)
        model = new_transformer(config.model, data.tokenizer.vocab_size).to(self.device)
        batching = config.training.batching(data.train, seed=config.seed)
        return Trainer(
            model,
            batching,
            config.training,
            device=self.device,
            precision=self.precision,
            seed=config.seed,
        )

    def _describe(self, trainer: Trainer, data: PreparedData) -> None:
        parameters = sum(p.numel() for p in trainer.model.parameters())
        logger.info(
            f"model: {parameters:,} parameters, vocabulary {data.tokenizer.vocab_size:,}; device"
            f" {self.device}, {str(self.precision).removeprefix('torch.')},"
            f" {torch.get_num_threads()} threads"
        )
        if risk := risky_start(
            num_layers=trainer.model.config.num_layers,
            d_model=trainer.model.config.d_model,
            warmup_steps=trainer.config.warmup_steps,
            scale=trainer.config.learning_rate_scale,
        ):
            logger.warning(risk)
        statistics = trainer.batching.statistics(trainer.batching.epoch(0))
        trainer.config.check_budget(statistics)
        parts = trainer.config.micro_batches
        logger.info(
            f"a step: {parts} micro-batch{'es' if parts > 1 else ''}, on average"
            f" {parts * statistics.source_tokens:,.0f} source and"
            f" {parts * statistics.target_tokens:,.0f} target tokens in"
            f" {parts * statistics.sentences:,.0f} pairs; padding {statistics.padding:.1%};"
            f" an epoch: {statistics.batches / parts:,.1f} steps"
        )

    def _state(self, trainer: Trainer, data: PreparedData) -> dict[str, Any]:
        """What is saved to go on from, and what must be the same then."""
        config = self.config
        return {
            "progress": asdict(trainer.progress),
            "data": data.folder.name,
            "seed": config.seed,
            "batches": trainer.config.budget,
            "model": _plain(config.model, without=_CHANGEABLE),
            "recipe": {
                **{name: getattr(config.model, name) for name in _CHANGEABLE},
                **{name: getattr(config.training, name) for name in _RECIPE},
            },
            "threads": torch.get_num_threads(),
            "precision": str(self.precision).removeprefix("torch."),
        }

    def _resume(self, trainer: Trainer, data: PreparedData) -> None:
        newest = newest_good(self.folder, logger.warning)
        if newest is None:
            raise UserError(f"{self.folder}: no undamaged checkpoint to resume from")
        saved = restore_checkpoint(newest, trainer.model, trainer.optimizer)
        now = self._state(trainer, data)
        for name in ("data", "model", "seed", "batches"):
            if saved.get(name) != now[name]:
                raise UserError(
                    f"{newest}: was trained with other {name} ({saved.get(name)}, now {now[name]}):"
                    " resume with what it was trained with, or start a new run_dir"
                )
        flat = [{**state, **state["recipe"]} for state in (saved, now)]
        for name in ("threads", "precision", *now["recipe"]):
            before, after = (state.get(name) for state in flat)
            if before != after:
                logger.warning(
                    f"{name}: {before} so far, {after} now; the result will not be bit for bit that"
                    " of an uninterrupted run"
                )
        trainer.progress = Progress(**saved["progress"])
        logger.info(f"going on from {newest}, epoch {trainer.progress.epoch + 1}")

    def _validate(self, model: Any, data: PreparedData) -> dict[str, float]:
        translator = Translator(
            self._trained(model, data), self.config.search, device=str(self.device)
        )
        sources = [pair.source for pair in data.valid_pairs]
        result: Validation = validate(
            model,
            _validation_batches(data),
            [pair.target for pair in data.valid_pairs],
            lambda: [translation.text for translation in translator.translate(sources)],
            device=self.device,
            precision=self.precision,
        )
        return {
            "valid/loss": result.loss,
            "valid/perplexity": result.perplexity,
            "valid/bleu": result.bleu,
        }

    def _save(self, trainer: Trainer, data: PreparedData, *, best: bool) -> None:
        trained = self._trained(trainer.model, data)
        newest = save_checkpoint(
            self.folder,
            trainer.progress.step,
            trained,
            trainer.optimizer,
            self._state(trainer, data),
        )
        if best:
            save_model(self.folder / "best", trained)
        remove_old(self.folder, newest, self.config.training.keep_checkpoints)

    def _trained(self, model: Any, data: PreparedData) -> TrainedModel:
        languages = (self.config.data.source_language, self.config.data.target_language)
        return TrainedModel(model, data.tokenizer, *languages)

    def _finish(self, trainer: Trainer, data: PreparedData) -> None:
        """Average the last checkpoints (6.1) and say what to type next."""
        last = checkpoints(self.folder)[-self.config.training.average_checkpoints :]
        if len(last) > 1:
            mean = average(last)
            figures = self._validate(mean.model.to(self.device), data)
            result = f"mean of the last {len(last)} checkpoints: {describe_validation(figures)}"
            # While a model still learns fast, a mean with its past is worse than its present.
            if figures["valid/bleu"] >= trainer.progress.best_bleu:
                save_model(self.folder / "averaged", mean)
                logger.info(f"{result}, kept as {self.folder / 'averaged'}")
            else:
                logger.info(f"{result}, below the best: not kept")
        ended = {"step": trainer.progress.step, "ended": trainer.progress.ended}
        write_file(self.folder / _FINISHED, json.dumps(ended).encode())
        logger.info(f"next: seq2seq translate --model {self.folder} < input > output")


def _plain(config: TransformerConfig, without: tuple[str, ...]) -> dict[str, Any]:
    values = {name: value for name, value in asdict(config).items() if name not in without}
    plain: dict[str, Any] = json.loads(json.dumps(values, default=lambda choice: choice.value))
    return plain


@contextmanager
def _leaving_on_signals() -> Iterator[list[int]]:
    """While there is nothing to save, SIGTERM and Ctrl-C unwind, so that all is cleaned up.

    Returns:
        The signals that came.
    """
    left: list[int] = []

    def leave(number: int, _: FrameType | None) -> None:
        if not left:
            logger.error(f"seq2seq: stopped at once by {signal.Signals(number).name}")
        left.append(number)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield left
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _named_os_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror or error}") from error


class _Log(MemoryHandler):
    """Keeps what is said until there is a file for it."""

    def __init__(self) -> None:
        super().__init__(capacity=1, flushLevel=logging.CRITICAL + 1)

    def shouldFlush(self, record: logging.LogRecord) -> bool:  # noqa: N802
        return self.target is not None

    def write_to(self, path: Path) -> None:
        """Write all so far, and from now on each line, at the end of a file."""
        file = logging.FileHandler(path)
        logging.raiseExceptions = False  # a full disk would print a traceback for each line
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self.setTarget(file)
        self.flush()


@contextmanager
def _remembered_log() -> Iterator[_Log]:
    log = _Log()
    logger.addHandler(log)
    try:
        yield log
    finally:
        logger.removeHandler(log)
        if log.target is not None:
            log.target.close()
        log.close()


def _validation_batches(data: PreparedData) -> Batching:
    longest = int(max(data.valid.source_lengths.max(), data.valid.target_lengths.max()))
    budget = max(2048, longest)
    return Batching(data.valid, source_tokens=budget, target_tokens=budget, seed=0)


def _cache_folder(config: Config) -> Path:
    if config.cache is not None:
        return Path(config.cache)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seq2seq"
