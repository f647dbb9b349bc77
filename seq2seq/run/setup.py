"""The start of a run: its data, its model and its trainer, made from the configuration."""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch

from seq2seq.config import Config, read_config
from seq2seq.data.checks import check_lengths
from seq2seq.data.encoded import SampledCorpus
from seq2seq.data.preparation import TRAIN_TEXT_FILE, PreparedData, prepare
from seq2seq.device import Compute, make_deterministic, too_old
from seq2seq.errors import UserError
from seq2seq.evaluation.scores import suited_tokenizer
from seq2seq.files.strict import read_manifest
from seq2seq.model.config import Positions
from seq2seq.settings import Kind, settings
from seq2seq.storage.checkpoint import find_model
from seq2seq.storage.model_folder import WEIGHTS_FILE, load_model, read_description
from seq2seq.storage.run_folder import checkpoints
from seq2seq.storage.trained_model import TrainedModel, new_transformer
from seq2seq.training.distributed import World
from seq2seq.training.forms import Forms
from seq2seq.training.optimizer import risky_start, start_moments, unfinished_dropout
from seq2seq.training.trainer import Trainer

logger = logging.getLogger("seq2seq")


def prepare_data(config: Config, world: World, initial: TrainedModel | None) -> PreparedData:
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
    world: World,
    forms: Forms,
) -> Trainer:
    """Make the model, its batches and the trainer of both."""
    make_deterministic(config.deterministic)
    torch.manual_seed(config.seed)
    tokenizer = data.tokenizer
    sizes = (tokenizer.vocab_size, tokenizer.source_vocab_size)
    model = new_transformer(config.model, *sizes, config.training.init_std).to(compute.device)
    if initial is not None:
        model.load_state_dict(initial.model.state_dict())
    train = data.train
    if rate := config.data.tokenizer.sampling:
        text = data.folder / TRAIN_TEXT_FILE
        train = SampledCorpus(
            train, text, tokenizer, rate=rate, seed=config.seed, share=world.share_file
        )
    batching = config.training.batching(
        train, seed=config.seed, devices=world.size, mixture=data.mixture
    )
    batching.share = world.share_file
    trainer = Trainer(
        model,
        batching,
        config.training,
        compute=compute,
        seed=config.seed,
        world=world,
        forms=forms,
    )
    if initial is not None:
        start_moments(trainer.optimizer)
    return trainer


def describe(trainer: Trainer, config: Config, data: PreparedData) -> None:
    """Log the model and its batches, and warn of settings that are likely to fail."""
    training, processes = config.training, trainer.world.size
    parameters = sum(p.numel() for p in trainer.model.parameters())
    logger.info(
        f"model: {parameters:,} parameters, vocabulary {data.tokenizer.vocab_size:,};"
        f" device {trainer.compute}, {torch.get_num_threads()} threads"
        + (f" in each of {processes} processes" if processes > 1 else "")
    )
    if older := too_old(trainer.compute.device):
        logger.warning(older)
    if risk := risky_start(trainer.model.config, training):
        logger.warning(risk)
    if unfinished := unfinished_dropout(training, training.max_steps):
        logger.warning(unfinished)
    for valid in data.valid_sets.values():
        name = suited_tokenizer([pair.target for pair in valid.pairs])
        if config.bleu_tokenizer is None and name:
            logger.warning(
                "bleu_tokenizer is not set: BLEU by 13a means little, because it can't tell the"
                f" words of the validation references apart; set bleu_tokenizer={name}"
            )
    batches = trainer.batching.epoch(trainer.progress.epoch)
    statistics = trainer.world.on_main(lambda: trainer.batching.statistics(batches))
    training.check_budget(statistics, devices=processes)
    if excess := training.excessive_epochs(statistics, devices=processes):
        logger.warning(excess)
    count = trainer.micro_batches
    logger.info(
        f"a step: {count} micro-batch{'es' if count > 1 else ''}, on average"
        f" {count * statistics.source_tokens:,.0f} source and"
        f" {count * statistics.target_tokens:,.0f} target tokens in"
        f" {count * statistics.sentences:,.0f} pairs;"
        f" an epoch: {statistics.batches / count:,.1f} steps"
    )


T = TypeVar("T")


def describe_initial_model(config: Config, run: Path) -> tuple[TrainedModel, str | None]:
    """Read the model of `init_from`, or of a resumed run, without weights, and their sum."""
    if config.resume and checkpoints(run):
        sha256 = read_config(run).init_sha256
    else:
        sha256 = read_manifest(_initial_folder(config)).get(WEIGHTS_FILE)
    if config.init_sha256 not in (None, sha256):
        raise UserError(
            f"init_from={config.init_from}: the sha256 of its {WEIGHTS_FILE} is {sha256}, not"
            f" init_sha256={config.init_sha256}: give the model with that sum"
        )
    return _read(config, run, read_description), sha256


def load_initial_model(config: Config, run: Path) -> TrainedModel:
    """Load the model of `init_from`; of a run that is resumed, its newest checkpoint."""
    initial = _read(config, run, load_model)
    sizes = dict(settings(initial.model.config, Kind.fixed))
    for name, value in settings(config.model, Kind.fixed):
        if value != sizes[name]:
            raise UserError(
                f"init_from={config.init_from}: model.{name}={value} is not the model's"
                f" {sizes[name]}: remove model.*"
            )
    return initial


def _read(config: Config, run: Path, read: Callable[[Path], T]) -> T:
    """Read the initial model; of a run that is resumed, its newest checkpoint that can be read."""
    for folder in reversed(checkpoints(run)) if config.resume else ():
        with suppress(UserError):  # corrupt; the run, too, goes back to the one before
            return read(folder)
    return read(_initial_folder(config))


def _initial_folder(config: Config) -> Path:
    assert config.init_from is not None
    return find_model(Path(config.init_from).expanduser())
