"""The end of a run: the mean of its last checkpoints (6.1), its report, its models' cards."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from seq2seq.errors import UserError
from seq2seq.files.atomic import add_file, write_file
from seq2seq.model import Transformer
from seq2seq.reporting.card import facts_of_run, model_card
from seq2seq.reporting.page import draw_page
from seq2seq.reporting.run_report import PAGE_FILE, make_report
from seq2seq.storage.checkpoint import average
from seq2seq.storage.model_folder import CARD_FILE, check_weights, read_description
from seq2seq.storage.trained_model import TrainedModel
from seq2seq.training.config import TrainingConfig
from seq2seq.training.recorder import describe_validation

logger = logging.getLogger("seq2seq")

AVERAGED = "averaged"


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


def is_reported(folder: Path) -> bool:
    """Return whether the page of a run and the cards of its models are there."""
    models = [folder / name for name in ("best", AVERAGED) if (folder / name).exists()]
    return all(path.exists() for path in (folder / PAGE_FILE, *(m / CARD_FILE for m in models)))


def write_report(folder: Path, device: str) -> None:
    """Write the page of a run and the cards of its models; if that fails, warn."""
    path = folder / PAGE_FILE
    logger.info("report: translating the validation sets and reading the training text")
    try:
        report = make_report(folder, [], device=device)
        write_file(path, draw_page(report).encode())
        logger.info(f"report: {path}")
        for model, number in ((folder / "best", 0), (folder / AVERAGED, report.averaged)):
            if model.exists():
                path = model / CARD_FILE
                card = model_card(facts_of_run(report, averaged=number))
                add_file(model, CARD_FILE, card.encode())
    except Exception as error:  # whatever it is, the model is trained and saved
        reason = str(UserError(error)).removeprefix(f"{path}: ")[:300]
        logger.warning(f"{path}: not written: {reason}")
