"""The settings of a training that its checkpoints remember."""

import torch

from seq2seq.config import Config
from seq2seq.data.preparation import PreparedData
from seq2seq.run.parent import DROPOUTS
from seq2seq.training.run_state import Setting


def settings(
    config: Config, data: PreparedData, *, processes: int, dtype: torch.dtype, slices: int
) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """Return the settings that a resumed training has to keep, and those that it may change.

    Args:
        config: the configuration.
        data: the prepared data.
        processes: the number of processes that share the work.
        dtype: the precision of the matrix products.
        slices: the number of parts in which a micro-batch is computed.
    """
    model = config.model.settings()
    changeable: dict[str, Setting] = {name: model.pop(name) for name in DROPOUTS}
    changeable |= {
        "warmup_steps": config.training.warmup_steps,
        "learning_rate_scale": config.training.learning_rate_scale,
        "label_smoothing": config.training.label_smoothing,
        "processes": processes,
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "slices": slices,
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
