"""One training in its folder: prepare, train, validate, save, average."""

import json
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch

from seq2seq.config import Config
from seq2seq.data.batching import Batching
from seq2seq.data.preparation import PreparedData, prepare
from seq2seq.decoding.translator import Translator
from seq2seq.device import choose_device, choose_precision
from seq2seq.errors import UserError
from seq2seq.evaluation.validation import Validation, validate
from seq2seq.kernels.memory import retain_freed_memory
from seq2seq.model import TransformerConfig
from seq2seq.storage.atomic import check_writable, remove_folder, write_file
from seq2seq.storage.checkpoint import (
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
from seq2seq.storage.strict import check_schema
from seq2seq.training.display import Display, describe_validation
from seq2seq.training.distributed import World
from seq2seq.training.log_file import DeferredFileHandler, deferred_file_handler
from seq2seq.training.optimizer import risky_start
from seq2seq.training.progress import Progress
from seq2seq.training.recorder import Metrics
from seq2seq.training.trainer import DivergenceError, Trainer

logger = logging.getLogger("seq2seq")

_FINISHED = "finished.json"
# What may change between two parts of a training, and is then said.
_CHANGEABLE = ("dropout", "attention_dropout", "relu_dropout")
_RECIPE = ("warmup_steps", "learning_rate_scale", "label_smoothing")


class Run:
    """One training in its folder."""

    def __init__(self, config: Config, folder: Path, yaml: str, world: World) -> None:
        self.config = config
        self.folder = folder
        self.yaml = yaml
        self.world = world

    def execute(self) -> int:
        """Prepare, train, average, and say what to type next.

        Returns:
            0, or 128 + the signal that ended it early.
        """
        world = self.world
        self.device = world.own_device(choose_device(self.config.device))
        self.precision = world.on_main(lambda: choose_precision(self.config.precision, self.device))
        world.on_main(self._check_folder)
        retain_freed_memory()
        with (
            _leaving_on_signals() as left,
            _named_os_errors(self.folder),
            deferred_file_handler(logger) as said,
        ):
            data = self._prepare()
            trainer = self._make_trainer(data)
            if left:  # a library has swallowed what the signal raised
                raise SystemExit(128 + left[0])
            if self.config.resume:
                self._resume(trainer, data)
            reason = trainer.limit_reached()
            if reason and not trainer.progress.validation_pending:
                if (self.folder / _FINISHED).exists():
                    logger.info(f"nothing to do: {reason}")
                elif world.first:  # a signal came after the last step
                    self._finish(trainer, data)
                return 0
            trainer.try_largest()
            # Only now is there anything to keep: a failure so far leaves no folder behind.
            world.on_main(lambda: self._open_folder(said))
            self._describe(trainer, data)
            self._train(trainer, data)
            if trainer.signal is not None:
                logger.info(
                    f"stopped and saved at step {trainer.progress.step}; go on with the same"
                    f" command and run_dir={self.folder} resume=true"
                )
                return 128 + trainer.signal
            logger.info(f"finished: {trainer.progress.ended}")
            if world.first:
                self._finish(trainer, data)
        return 0

    def _prepare(self) -> PreparedData:
        """The data, made by the first process and opened by the others after it."""
        cache = _cache_folder(self.config)
        made: list[PreparedData] = []
        self.world.on_main(lambda: made.append(prepare(self.config.data, cache, logger.info)))
        data = made[0] if made else prepare(self.config.data, cache, logger.info)
        if data.folder.name != self.world.on_main(lambda: data.folder.name):
            raise UserError("the text is not the same on all machines")
        return data

    def _open_folder(self, said: DeferredFileHandler) -> None:
        write_file(self.folder / "config.yaml", self.yaml.encode())
        said.write_to(self.folder / "train.log")
        # The mean of an earlier end is none of what this run is about to become.
        remove_folder(self.folder / "averaged")
        (self.folder / _FINISHED).unlink(missing_ok=True)

    def _train(self, trainer: Trainer, data: PreparedData) -> None:
        training, first = self.config.training, self.world.first
        metrics = Metrics(self.folder, trainer.progress.step) if first else cast(Metrics, _Deaf())
        display = Display(trainer.progress, training.max_steps, training.max_minutes, shown=first)
        try:
            with self.world.watched(
                self.config.heartbeat_timeout, alarmed=lambda: trainer.caught is not None
            ):
                trainer.train(
                    metrics,
                    display,
                    validate=lambda: self._validate(trainer.model, data),
                    save=lambda best: self._save(trainer, data, best=best),
                )
        except DivergenceError as error:
            newest = newest_good(self.folder, logger.warning) if first else None
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
            for path in folder.iterdir():
                # What is written here must not end up elsewhere.
                if path.is_symlink() or not (path.is_file() or path.is_dir()):
                    raise UserError(f"{path}: a link or a device in the run folder; remove it")
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(
                f"{folder}: is there already; choose another run_dir, or add resume=true to go on"
            )
        check_writable(folder)

    def _make_trainer(self, data: PreparedData) -> Trainer:
        config = self.config
        torch.manual_seed(config.seed)
        model = new_transformer(config.model, data.tokenizer.vocab_size).to(self.device)
        batching = config.training.batching(data.train, seed=config.seed, devices=self.world.size)
        return Trainer(
            model,
            batching,
            config.training,
            device=self.device,
            precision=self.precision,
            seed=config.seed,
            world=self.world,
        )

    def _describe(self, trainer: Trainer, data: PreparedData) -> None:
        parameters = sum(p.numel() for p in trainer.model.parameters())
        logger.info(
            f"model: {parameters:,} parameters, vocabulary {data.tokenizer.vocab_size:,}; device"
            f" {self.device}, {str(self.precision).removeprefix('torch.')},"
            f" {torch.get_num_threads()} threads"
            + (f" in each of {self.world.size} processes" if self.world.size > 1 else "")
        )
        if risk := risky_start(
            num_layers=trainer.model.config.num_layers,
            d_model=trainer.model.config.d_model,
            warmup_steps=trainer.config.warmup_steps,
            scale=trainer.config.learning_rate_scale,
        ):
            logger.warning(risk)
        statistics = trainer.batching.statistics(trainer.batching.epoch(0))
        trainer.config.check_budget(statistics, devices=self.world.size)
        parts = trainer.micro_batches
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
        model = _plain(config.model)
        changeable = {name: model.pop(name) for name in _CHANGEABLE}
        return {
            "progress": asdict(trainer.progress),
            "data": data.folder.name,
            "seed": config.seed,
            "batches": trainer.config.budget(self.world.size),
            "model": model,
            "recipe": changeable | {name: getattr(config.training, name) for name in _RECIPE},
            "processes": self.world.size,
            "threads": torch.get_num_threads(),
            "precision": str(self.precision).removeprefix("torch."),
        }

    def _resume(self, trainer: Trainer, data: PreparedData) -> None:
        newest = self.world.on_main(lambda: newest_good(self.folder, logger.warning))
        if newest is None:
            raise UserError(f"{self.folder}: no undamaged checkpoint to resume from")
        saved = restore_checkpoint(newest, trainer.model, trainer.optimizer)
        now = self._state(trainer, data)
        check_schema(newest / "progress.json", saved, now)
        for name in ("data", "model", "seed", "batches"):
            if saved[name] != now[name]:
                raise UserError(
                    f"{newest}: was trained with other {name} ({saved[name]}, now {now[name]}):"
                    " resume with what it was trained with, or start a new run_dir"
                )
        before, after = (state | state["recipe"] for state in (saved, now))
        for name in ("threads", "precision", "processes", *now["recipe"]):
            if before[name] != after[name]:
                logger.warning(
                    f"{name}: {before[name]} so far, {after[name]} now; the result will not be bit"
                    " for bit that of an uninterrupted run"
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


class _Deaf:
    """Takes the place of the metrics in all processes but the first."""

    def write(self, step: int, figures: Mapping[str, float]) -> None: ...
    def draw(self) -> None: ...
    def close(self) -> None: ...


def _plain(config: TransformerConfig) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(
        json.dumps(asdict(config), default=lambda choice: choice.value)
    )
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
            logger.info(f"seq2seq: stopped at once by {signal.Signals(number).name}")
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


def _validation_batches(data: PreparedData) -> Batching:
    longest = int(max(data.valid.source_lengths.max(), data.valid.target_lengths.max()))
    budget = max(2048, longest)
    return Batching(data.valid, source_tokens=budget, target_tokens=budget, seed=0)


def _cache_folder(config: Config) -> Path:
    if config.cache is not None:
        return Path(config.cache)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seq2seq"
