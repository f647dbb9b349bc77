"""The settings of a training that its checkpoints remember."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from seq2seq.config import Config, read_config
from seq2seq.data.config import DataConfig
from seq2seq.data.preparation import PreparedData
from seq2seq.errors import UserError
from seq2seq.model.config import DROPOUTS
from seq2seq.training.config import TrainingConfig
from seq2seq.training.run_state import Setting

_LISTED = 5
_SHAPING = ("model.", "training.", "search.")
# When a run ends, what it keeps, and how it goes about its work.
_FREE = {
    f"training.{name}"
    for name in (
        *("max_steps", "max_minutes", "patience", "log_steps", "micro_batch_tokens"),
        *("checkpoint_steps", "checkpoint_minutes", "keep_checkpoints"),
    )
}


def settings(
    config: Config,
    data: PreparedData,
    *,
    processes: int,
    dtype: torch.dtype,
    slices: int,
    compiled: bool,
) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """Return the settings that a resumed training has to keep, and those that it may change.

    Args:
        config: the configuration.
        data: the prepared data.
        processes: the number of processes that share the work.
        dtype: the precision of the matrix products.
        slices: the number of parts in which a micro-batch is computed.
        compiled: whether compiled forms are used.
    """
    model = config.model.settings()
    changeable: dict[str, Setting] = {name: model.pop(name) for name in DROPOUTS}
    changeable |= {
        "warmup_steps": config.training.warmup_steps,
        "learning_rate_scale": config.training.learning_rate_scale,
        "label_smoothing": config.training.label_smoothing,
        "dropout_warmup_steps": config.training.dropout_warmup_steps or 0,
        "validate_mean": config.training.validate_mean,
        "beam_size": config.search.beam_size,
        "alpha": config.search.alpha,
        "processes": processes,
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "slices": slices,
        "compiled": compiled,
    }
    budget = config.training.budget(processes)
    text, rate = data.folder.name, config.data.tokenizer.sampling
    source = f"{text} sampled at {rate}" if rate else text
    fixed: dict[str, Setting] = {"data": source, "seed": config.seed, **budget, **model}
    if data.mixture is not None:
        weights = data.mixture.weights.items()
        fixed["weights"] = ", ".join(f"{name} {weight}" for name, weight in weights)
    # The best BLEU so far can be compared with one of the same tokens on the same sets alone.
    if config.bleu_tokenizer is not None:
        fixed["bleu_tokenizer"] = config.bleu_tokenizer
    if (select := config.training.select) != "valid":
        sets = sorted(data.valid_sets.items())
        digests = [f"{name} {s.digest[:16]}" for name, s in sets if select in (name, "mean")]
        fixed |= {"select": select, "valid_sets": ", ".join(digests)}
    return fixed, changeable


def way_to_micro_batches(training: TrainingConfig, before: object, processes: int) -> str:
    """Say how as many micro-batches as before are reached on this number of processes.

    Args:
        training: the options of now.
        before: the number of micro-batches of a step, from a file.
        processes: the number of processes that share the work.
    """
    if not isinstance(before, int) or before < 1:
        return ""
    if before % processes:
        return f" (the number of processes must divide {before}, and {processes} does not)"
    tokens = math.ceil(max(training.source_tokens, training.target_tokens) / before)
    same = replace(training, micro_batch_tokens=tokens).micro_batches_on(processes) == before
    return f" (training.micro_batch_tokens={tokens})" if same else ""


def changes_of_data(run: Path, now: DataConfig) -> str:
    """Name the keys of `data` that are no longer those of a run's config.yaml, for a message."""
    try:
        before = read_config(run).data
    except UserError:  # damaged; what is to be explained is in the checkpoint
        return ""
    keys = list(_differing(asdict(before), asdict(now), "data."))
    if not keys:
        return "; the keys of data are the same, but the text has changed"
    return f"; changed: {_listed(keys)}"


def settings_not_used(run: Path, now: Config) -> str:
    """Name the settings of now with which a finished run was not trained; empty if there are none.

    The data is left out: a resumed run compares its text, whatever the keys say.
    """
    try:
        before = read_config(run)
    except UserError:  # damaged
        return ""
    keys = _differing(asdict(before), asdict(now), "")
    return _listed([k for k in keys if k not in _FREE and k.startswith(_SHAPING)])


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys[:_LISTED]) + (", ..." if len(keys) > _LISTED else "")


def _differing(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name in {**before, **now}:
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) or isinstance(other, dict):
            yield from _differing(one or {}, other or {}, f"{prefix}{name}.")
        elif one != other:
            yield f"{prefix}{name}"
