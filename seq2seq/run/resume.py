"""The settings with which a run may be resumed from a checkpoint, and their changes."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from seq2seq import files
from seq2seq.data.preparation import PreparedData
from seq2seq.errors import UserError
from seq2seq.model_folder import checkpoints
from seq2seq.run.checkpoint import read_progress
from seq2seq.run.config import Config, read_config
from seq2seq.settings import Setting, SettingKind, flat, settings_of
from seq2seq.trainer import Progress, Trainer

FORMAT = 2

_GO_ON = "; a new run goes on from this model, with other text, by init_from"
_DATA_HINT = (
    "; no key of data has changed since config.yaml was written, so the text itself has, or"
    f" data.valid{_GO_ON}"
)
_NAMED_CHANGES = 3  # in an error
_MAX_CHANGES = 200  # in a checkpoint: a run may be resumed without end


@dataclass(frozen=True)
class RunState:
    """All that is saved in addition to weights and moments, so that a run can be resumed."""

    progress: Progress
    fixed: dict[str, Setting]
    """Settings that a resumed run must share: text, seed, batches, model."""
    changeable: dict[str, Setting]
    """Settings that may change, but then the result differs from that of an uninterrupted run."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"format": FORMAT, **asdict(self)}

    def restored(
        self,
        path: Path,
        saved: dict[str, Any],
        defaults: Mapping[str, Setting],
        data_changes: str = "",
    ) -> "RunState":
        """Return a saved state, if this one may resume from it.

        Settings that it doesn't name, because an earlier version wrote it, had their defaults.
        `data_changes` names the keys that other data may follow from.
        """
        content = dict(saved)
        if (number := content.pop("format", None)) != FORMAT:
            written = repr(number)[:100]
            raise UserError(f"{path}: written in format {written}, this version reads {FORMAT}")
        before: RunState = files.parse_json(path, json.dumps(content).encode(), RunState)
        for ours, theirs in ((self.fixed, before.fixed), (self.changeable, before.changeable)):
            for name in ours.keys() & defaults.keys():
                theirs.setdefault(name, defaults[name])
        for name in {**self.fixed, **before.fixed}:
            then, now = before.fixed.get(name), self.fixed.get(name)
            if then != now:
                change = f"{name[:100]}={repr(then)[:100]}, now {now!r}"
                hint = _DATA_HINT if name == "data" else ""
                if name == "data" and data_changes:
                    change, hint = data_changes, _GO_ON
                raise UserError(
                    f"{path}: was trained with {change}: resume with what it was trained with, or"
                    f" start a new run_dir{hint}"
                )
        return before

    def record_changes(self, before: "RunState") -> list[str]:
        """Describe each changed setting in one line; the progress keeps the newest lines."""
        changes = []
        for name, now in self.changeable.items():
            then = before.changeable.get(name)
            if then != now:
                changes.append(f"{name}: {then} before, {now} now")
        recorded = self.progress.changes
        recorded += [f"{change}, from step {before.progress.step:,}" for change in changes]
        del recorded[:-_MAX_CHANGES]
        return changes


def settings_of_run(
    config: Config, data: PreparedData, trainer: Trainer
) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """Return the settings that a resumed run has to keep, and those that it may change."""
    processes = trainer.world.size
    changeable = named_settings(config, SettingKind.changeable) | {
        # None is 0 in all checkpoints.
        "dropout_warmup_steps": config.training.dropout_warmup_steps or 0,
        "processes": processes,
        "threads": torch.get_num_threads(),
        "dtype": str(trainer.updater.compute.dtype).removeprefix("torch."),
        "tokens at once": "{} and {}".format(*trainer.batching.most_tokens),
        "compiled": False,
        **trainer.updater.settings(),
    }
    text, rate = data.folder.name, config.data.tokenizer.sampling
    fixed = named_settings(config, SettingKind.fixed) | {
        "data": f"{text} sampled at {rate}" if rate else text,
        "micro_batches": trainer.updater.micro_batches,
    }
    if data.mixture is not None:
        weights = data.mixture.weights.items()
        fixed["weights"] = ", ".join(f"{name} {weight}" for name, weight in weights)
    # The best BLEU so far can be compared with one of the same tokens on the same sets alone.
    if (select := config.training.select) != "valid":
        digests = []
        for name, valid in sorted(data.valid_sets.items()):
            if name != "valid" and select in (name, "mean"):
                digests.append(f"{name} {valid.split.fingerprint[:16]}")
        fixed["valid_sets"] = ", ".join(digests)
    return fixed, changeable


def data_changes(run: Path, config: Config) -> str:
    """Name what differs from a run's `config.yaml` and gives other data, with values."""
    try:
        saved = read_config(run)
    except UserError:
        return ""
    if (saved.init_from is None) != (config.init_from is None):  # it gives the vocabulary
        return f"init_from={saved.init_from}, now {config.init_from}"
    before, now = flat(asdict(saved.data)), flat(asdict(config.data))
    changes = [
        f"data.{key}={before.get(key)!r}, now {now.get(key)!r}"
        for key in sorted({**before, **now}, key=_is_place)  # the text counts, not its place
        if before.get(key) != now.get(key) and not key.startswith(_NOT_TRAINED_ON)
    ]
    unnamed = len(changes) - _NAMED_CHANGES
    more = [f"{unnamed} more changes"] if unnamed > 0 else []
    return "; ".join([*changes[:_NAMED_CHANGES], *more])


_NOT_TRAINED_ON = ("name", "valid_sets.", "test.", "test_sets.")


def _is_place(key: str) -> bool:
    return key.rpartition(".")[2] in ("source", "target", "pairs", "split")


def saved_micro_batches(run: Path) -> int:
    """Return the number of micro-batches of a run's steps; 0 if no checkpoint can be read."""
    for folder in reversed(checkpoints(run)):
        with suppress(UserError):
            fixed = read_progress(folder).get("fixed")
            number = fixed.get("micro_batches") if isinstance(fixed, dict) else None
            if type(number) is int and number > 0:
                return number
    return 0


def named_settings(config: Config, kind: SettingKind) -> dict[str, Setting]:
    """Return the settings of a class by the last part of their names, as checkpoints have them."""
    return {name.rpartition(".")[2]: value for name, value in settings_of(config, kind)}


def default_settings() -> dict[str, Setting]:
    """Return the defaults of the settings that a checkpoint has."""
    default = Config()
    return named_settings(default, SettingKind.fixed) | named_settings(
        default, SettingKind.changeable
    )
