"""A split of a Hugging Face dataset, on the hub or in a local folder."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seq2seq.data.config import DataConfig
from seq2seq.data.pair_files import Languages, SentencePair, pair_of
from seq2seq.errors import UserError

_CHUNK_ROWS = 1000


def read_dataset(config: DataConfig, split: str, languages: Languages) -> Iterator[SentencePair]:
    """Stream the pairs of a split, in order.

    Raises:
        UserError: if the split can't be loaded; while reading, if a row is malformed.
    """
    number = 0
    for columns in _chunks(config, split):
        for values in zip(*columns.values(), strict=True):
            number += 1
            row = dict(zip(columns, values, strict=True))
            yield pair_of(row, languages, row_name(config, split, number))


def _chunks(config: DataConfig, split: str) -> Iterator[dict[str, list[Any]]]:
    """Yield the columns of some rows at a time."""
    rows = _load_split(config, split)
    try:
        yield from rows.iter(batch_size=_CHUNK_ROWS)
    except Exception as error:  # the library's errors share no class
        raise UserError(
            f"dataset {config.dataset}, split {split}: can't be read: {_first_line(error)}; repair"
            " the file, or give other files instead (data=files)"
        ) from error


def row_name(config: DataConfig, split: str, number: int) -> str:
    """Name a row, counted from 1, for messages."""
    return f"{config.dataset} ({split}), row {number}"


def local_folder(dataset: str | None) -> Path | None:
    """Return the folder that a dataset's name denotes, or None for a name on the hub.

    Raises:
        UserError: if it is a path, but not that of a folder.
    """
    if dataset is None:
        return None
    folder = Path(dataset).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or dataset.startswith((".", "~")):
        raise UserError(f"data.dataset={dataset}: no such folder")
    return None


def library_fingerprint(config: DataConfig, split: str) -> str:
    """Return the library's own fingerprint of a split."""
    return str(_load_split(config, split)._fingerprint)


def _load_split(config: DataConfig, split: str) -> Any:
    """Open one split of a dataset of the hub or of a local folder, memory-mapped or streamed."""
    import datasets  # late, because the import takes more than a second

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    folder = local_folder(config.dataset)
    try:
        if folder is None:
            return datasets.load_dataset(
                config.dataset,
                config.dataset_config,
                data_dir=config.dataset_folder,
                split=split,
                revision=config.revision,
            )
        if any((folder / name).exists() for name in ("dataset_dict.json", "state.json")):
            return _saved_split(folder, split)
        builder = datasets.load_dataset_builder(
            str(folder), config.dataset_config, data_dir=config.dataset_folder
        )
        if hasattr(builder.config, "keep_default_na"):  # of CSV files
            # Else the sentences "None", "null" and "NA" would be missing values.
            builder.config.keep_default_na = False
        # Streamed: else the library keeps a copy and may serve it when files change.
        return builder.as_streaming_dataset(split)
    except Exception as error:  # the library's errors share no class
        raise UserError(
            f"dataset {config.dataset}, split {split}: can't be loaded: {_first_line(error)}; check"
            " the name, the split and the network, or give files instead (data=files)"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _saved_split(folder: Path, split: str) -> Any:
    """Open what `save_to_disk` wrote; a split may be a slice or a sum, as `train[:1000]+test`."""
    import datasets

    saved = datasets.load_from_disk(folder)
    if isinstance(saved, datasets.Dataset):
        name = str(saved.split)
        saved = {name if saved.split and name.isidentifier() else "train": saved}
    if split in saved:  # whatever its name
        return saved[split]
    lengths = {name: len(rows) for name, rows in saved.items()}
    parts = datasets.ReadInstruction.from_spec(split).to_absolute(lengths)
    return datasets.concatenate_datasets(
        [saved[part.splitname].select(range(part.from_, part.to)) for part in parts]
    )
