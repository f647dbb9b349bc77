"""`progress.json` of a checkpoint: the progress of the training, and its settings."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from seq2seq.errors import UserError
from seq2seq.storage.strict import check_schema
from seq2seq.training.metrics import RunningMetrics
from seq2seq.training.progress import Progress

FORMAT = 2

Setting: TypeAlias = str | int | float | None


class ChangedSettingError(UserError):
    """A setting that a resumed training must share with its checkpoint is another one.

    Attributes:
        name: of the setting.
        before: its value in the checkpoint.
    """

    def __init__(self, path: Path, name: str, before: object, now: object) -> None:
        super().__init__(
            f"{path}: was trained with {name[:100]}={repr(before)[:100]}, now {now!r}:"
            " resume with what it was trained with, or start a new run_dir"
        )
        self.name = name
        self.before = before


@dataclass(frozen=True)
class RunState:
    """All that is saved beside weights and moments, so that a training can be resumed."""

    progress: Progress
    fixed: dict[str, Setting]
    """Settings that a resumed training must share: text, seed, batches, model."""
    changeable: dict[str, Setting]
    """Settings that may change, but then the result is not that of the uninterrupted training."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"format": FORMAT, **asdict(self)}

    def restored(self, path: Path, saved: dict[str, Any]) -> "RunState":
        """Return the saved state, if a training in this state may resume from it.

        Args:
            path: the file's path, for messages.
            saved: the file's content, in this format or an earlier one.

        Raises:
            UserError: if the content is not a run state.
            ChangedSettingError: if a setting in `fixed` differs.
        """
        if "format" not in saved:
            saved = _from_format_1(path, saved)
        if saved["format"] != FORMAT:
            written = repr(saved["format"])[:100]
            raise UserError(f"{path}: written in format {written}, this version reads {FORMAT}")
        if isinstance(changeable := saved.get("changeable"), dict):
            added = {name: _ADDED[name] for name in _ADDED if name in self.changeable}
            saved = {**saved, "changeable": added | changeable}
        if isinstance(progress := saved.get("progress"), dict):
            added_later = {"changes": list[str](), "validated_seconds": progress.get("seconds")}
            saved = {**saved, "progress": added_later | progress}
        # The values in `fixed` are compared, so their types need no check.
        check_schema(path, {**saved, "fixed": {}}, {**self.to_json(), "fixed": {}})
        fixed = saved["fixed"]
        if not isinstance(fixed, dict):
            raise UserError(f"{path}: damaged, no keys and values in fixed")
        for name in {**self.fixed, **fixed}:
            # Keys without a value are left out, and so are those of later versions.
            before, now = fixed.get(name), self.fixed.get(name)
            if before != now:
                raise ChangedSettingError(path, name, before, now)
        unrecorded = RunningMetrics(**saved["progress"]["unrecorded"])
        try:
            progress = Progress(**{**saved["progress"], "unrecorded": unrecorded})
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        return RunState(progress, fixed, saved["changeable"])

    def changes(self, before: "RunState") -> list[str]:
        """Describe each changed setting in one line."""
        return [
            f"{name}: {before.changeable[name]} before, {now} now"
            for name, now in self.changeable.items()
            if before.changeable[name] != now
        ]


# Settings that earlier versions didn't save, and what they were then.
_ADDED: dict[str, Setting] = {
    "compiled": False,
    "dropout_warmup_steps": 0,
    "validate_mean": False,
    "beam_size": 4,
    "alpha": 0.6,
}
# Names of format 1, whose files have no "format" key, and their names now.
_RENAMED = {
    "checks_without_gain": "validations_without_improvement",
    "unchecked": "validation_pending",
    "longer_side": "count_longer_side",
}


def _from_format_1(path: Path, saved: dict[str, Any]) -> dict[str, Any]:
    """Convert the content of a file in format 1 to this format."""

    def renamed(section: dict[str, Any]) -> dict[str, Any]:
        return {_RENAMED.get(name, name): value for name, value in section.items()}

    try:
        return {
            "format": FORMAT,
            "progress": renamed(saved["progress"]),
            "fixed": {
                "data": saved["data"],
                "seed": saved["seed"],
                **renamed(saved["batches"]),
                **saved["model"],
            },
            "changeable": {
                **saved["recipe"],
                "processes": saved["processes"],
                "threads": saved["threads"],
                "dtype": saved["precision"],
                "slices": 1,
            },
        }
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: damaged, not the state of a training") from None
