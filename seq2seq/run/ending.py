"""The mean of a run's last checkpoints (6.1)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from seq2seq.errors import UserError
from seq2seq.model import Transformer
from seq2seq.storage.checkpoint import average
from seq2seq.storage.model_folder import check_weights, read_description
from seq2seq.storage.trained_model import TrainedModel
from seq2seq.training.config import TrainingConfig
from seq2seq.training.recorder import describe_validation

logger = logging.getLogger("seq2seq")

Rank: TypeAlias = tuple[float, float]


def best_mean(
    folders: Sequence[Path],
    training: TrainingConfig,
    validate: Callable[[Transformer], Mapping[str, float]],
) -> tuple[tuple[Rank, int, TrainedModel] | None, dict[int, float]]:
    """Average as many of the last checkpoints, oldest first, as validate best.

    Corrupt checkpoints are skipped, with a warning. Of equal means, the first that `training` names
    is chosen; None if it names single checkpoints only. It comes with its rank and its number of
    checkpoints. Also returns the BLEU of each mean on the selecting set, by that number.
    """
    folders = [folder for folder in folders if _is_whole(folder)]
    best: tuple[Rank, int, TrainedModel] | None = None
    scores: dict[int, float] = {}
    numbers = (training.average_checkpoints, *training.average_alternatives)
    for number in dict.fromkeys(min(number, len(folders)) for number in numbers):
        if number < 2:
            continue
        trained = average(folders[-number:])
        metrics = validate(trained.model)
        logger.info(f"mean of the last {number} checkpoints: {describe_validation(metrics)}")
        rank = training.rank(metrics)
        scores[number] = metrics[f"{training.selecting_set}/bleu"]
        if best is None or rank > best[0]:
            best = rank, number, trained
    return best, scores


def _is_whole(folder: Path) -> bool:
    try:
        check_weights(folder, read_description(folder).model)
    except UserError as error:
        logger.warning(f"{error}; this checkpoint is not averaged")
        return False
    return True
