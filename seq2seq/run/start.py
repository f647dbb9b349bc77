"""The start of a run: its data, its initial model, its trainer, and what the log says of them."""

import copy
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from seq2seq import model_folder
from seq2seq.batches import make_batching
from seq2seq.config import Positions
from seq2seq.data.checks import check_lengths
from seq2seq.data.encoding import SampledCorpus
from seq2seq.data.preparation import TRAIN_TEXT_FILE, PreparedData, prepare
from seq2seq.device import Compute, oom_as_user_error
from seq2seq.errors import UsageError, UserError
from seq2seq.files import read_manifest
from seq2seq.machine import resources
from seq2seq.machine.processes import OneProcess, StopSignals
from seq2seq.model_folder import TrainedModel, checkpoints, class_name, find_model
from seq2seq.run.config import (
    Config,
    check_budget,
    cost_on_cpu,
    excessive_epochs,
    read_config,
    risky_start,
    unfinished_dropout,
)
from seq2seq.score import suited_tokenizer
from seq2seq.settings import SettingKind, settings_of
from seq2seq.trainer import Trainer
from seq2seq.transformer import Transformer
from seq2seq.update import DivergenceError, Updater

logger = logging.getLogger("seq2seq")

T = TypeVar("T")


def prepare_data(config: Config, world: OneProcess, initial: TrainedModel | None) -> PreparedData:
    """Prepare the data in the main process, then open it in the others."""
    tokenizer = None if initial is None else initial.tokenizer
    cache = user_cache() if config.cache is None else Path(config.cache)
    data = world.main_first(lambda: prepare(config.data, cache, logger.info, tokenizer))
    if data.folder.name != world.on_main(lambda: data.folder.name):
        raise UserError("the text is not the same on all machines")
    if config.model.positions is Positions.learned:
        limit = config.model.max_learned_positions
        check_lengths("train", data.train, limit)
        for valid in data.valid_sets.values():
            check_lengths(valid.split.name, valid.corpus, limit)
    return data


def user_cache() -> Path:
    """Return the folder of files that this program can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seq2seq"


def make_trainer(
    config: Config,
    data: PreparedData,
    initial: TrainedModel | None,
    compute: Compute,
    world: OneProcess,
    make_updater: Callable[..., Updater],
    micro_batches: int,
    model_class: type[Transformer] | None = None,
) -> Trainer:
    """Make the model, its batches and the trainer of both."""
    if micro_batches < world.size:
        raise UsageError(
            f"a step of this run has {micro_batches} micro-batch{'es' * (micro_batches > 1)}, which"
            f" {world.size:,} processes can't share: start at most {micro_batches}"
        )
    resources.make_deterministic(config.deterministic)
    torch.manual_seed(config.seed)
    tokenizer = data.tokenizer
    sizes = (tokenizer.vocab_size, tokenizer.source_vocab_size)
    init_std = config.training.init_std
    model = model_folder.new_transformer(config.model, *sizes, init_std, model_class)
    model = model.to(compute.device)
    if initial is not None:
        start_from(model, initial.model, f"init_from={config.init_from}")
    train = data.train
    if config.data.samples_text:
        train = SampledCorpus(
            train,
            data.folder / TRAIN_TEXT_FILE,
            tokenizer,
            rate=config.data.tokenizer.sampling,
            noise=config.data.noise,
            languages=(config.data.source_language, config.data.target_language),
            seed=config.seed,
            share=world.share_file,
        )
    batching = make_batching(
        config.training,
        train,
        seed=config.seed,
        micro_batches=micro_batches,
        pairs_of_epoch=None if data.mixture is None else data.mixture.epoch,
    )
    updater = make_updater(
        model,
        batching,
        config.training,
        compute=compute,
        seed=config.seed,
        world=world,
        micro_batches=micro_batches,
    )
    return Trainer(updater, signals=StopSignals(second_ends=world.size == 1))


def start_from(model: Transformer, initial: Transformer, origin: str) -> None:
    """Copy the weights of an initial model, which may be the paper's for one of an own class."""
    shapes = [{n: tuple(v.shape) for n, v in m.state_dict().items()} for m in (model, initial)]
    if shapes[0] != shapes[1]:
        name = min(n for n in {**shapes[0], **shapes[1]} if shapes[0].get(n) != shapes[1].get(n))
        ours, theirs = (each.get(name, "absent") for each in shapes)
        raise UserError(
            f"{origin}: its {name} is {theirs}, that of a new {class_name(type(model))} is {ours}:"
            " only a model with the same weights can be the start"
        )
    model.load_state_dict(initial.state_dict())


def try_update(updater: Updater, epoch: int) -> float:
    """Do an update of a copy of the model, so that memory runs out here, or never.

    Returns the seconds that the largest micro-batch of the epoch took.
    """
    batching, started = updater.batching, time.perf_counter()
    largest = max(batching.epoch(epoch), key=batching.corpus.padded_tokens)
    with torch.random.fork_rng([updater.compute.device] if updater.compute.on_gpu else []):
        tried = replace(updater, model=copy.deepcopy(updater.model))
        with oom_as_user_error(), suppress(DivergenceError):
            tried.update(1, tried.collate([largest] * updater.world.size))
    return time.perf_counter() - started


def describe(trainer: Trainer, config: Config, data: PreparedData, seconds: float) -> None:
    """Log the model and its batches, and warn of settings that are likely to fail.

    `seconds` are those that the largest micro-batch took.
    """
    training, processes = config.training, trainer.world.size
    parameters = sum(map(torch.Tensor.numel, trainer.model.parameters()))
    logger.info(
        f"model: {parameters:,} parameters, vocabulary {data.tokenizer.vocab_size:,};"
        f" device {trainer.updater.compute}, {torch.get_num_threads()} threads"
        + (f" in each of {processes} processes" if processes > 1 else "")
    )
    short = unfinished_dropout(training, training.max_steps)
    for risk in (risky_start(config.model, training), short):
        if risk:
            logger.warning(risk)
    for valid in data.valid_sets.values():
        name = suited_tokenizer([pair.target for pair in valid.pairs])
        if config.bleu_tokenizer is None and name:
            logger.warning(
                "bleu_tokenizer is not set: BLEU by 13a means little, because it can't tell the"
                f" words of the validation references apart; set bleu_tokenizer={name}"
            )
    batches = trainer.batching.epoch(trainer.progress.epoch)
    statistics = trainer.world.on_main(lambda: trainer.batching.statistics(batches))
    count = trainer.updater.micro_batches
    check_budget(training, statistics, count)
    if excess := excessive_epochs(training, statistics, count):
        logger.warning(excess)
    if count % processes:
        logger.warning(
            f"{processes} processes share the {count} micro-batches of a step unevenly, and wait"
            f" for one another: a number that divides {count} is faster"
        )
    logger.info(
        f"a step: {count} micro-batch{'es' if count > 1 else ''}, on average"
        f" {count * statistics.source_tokens:,.0f} source and"
        f" {count * statistics.target_tokens:,.0f} target tokens in"
        f" {count * statistics.sentences:,.0f} pairs;"
        f" an epoch: {statistics.batches / count:,.1f} steps"
    )
    if not trainer.updater.compute.on_gpu:
        logger.info(cost_on_cpu(training, seconds * count / processes))


def describe_initial_model(
    config: Config, run: Path, model_class: type[Transformer] | None = None
) -> tuple[TrainedModel, str | None]:
    """Read the model of `init_from`, or of a resumed run, without weights, and their sum."""
    if config.resume and checkpoints(run):
        sha256 = read_config(run).init_sha256
    else:
        sha256 = read_manifest(_initial_folder(config)).get(model_folder.WEIGHTS_FILE)
    if config.init_sha256 not in (None, sha256):
        raise UserError(
            f"init_from={config.init_from}: the sha256 of its {model_folder.WEIGHTS_FILE} is"
            f" {sha256}, not init_sha256={config.init_sha256}: give the model with that sum"
        )
    return _read(config, run, model_folder.read_description, model_class), sha256


def load_initial_model(
    config: Config, run: Path, model_class: type[Transformer] | None = None
) -> TrainedModel:
    """Load the model of `init_from`; of a run that is resumed, its newest checkpoint."""
    initial = _read(config, run, model_folder.load_model, model_class)
    sizes = dict(settings_of(initial.model.config, SettingKind.fixed))
    for name, value in settings_of(config.model, SettingKind.fixed):
        if value != sizes[name]:
            raise UserError(
                f"init_from={config.init_from}: model.{name}={value} is not the model's"
                f" {sizes[name]}: remove model.*"
            )
    return initial


def _read(
    config: Config,
    run: Path,
    read: Callable[[Path, type[Transformer] | None], T],
    model_class: type[Transformer] | None,
) -> T:
    """Read the initial model; of a run that is resumed, its newest checkpoint that can be read."""
    for folder in reversed(checkpoints(run)) if config.resume else ():
        with suppress(UserError):  # corrupt; the run, too, goes back to the one before
            return read(folder, model_class)
    folder = _initial_folder(config)
    is_own = model_folder.read_class_name(folder) is not None
    return read(folder, model_class if is_own else None)


def _initial_folder(config: Config) -> Path:
    assert config.init_from is not None
    return find_model(Path(config.init_from).expanduser())
