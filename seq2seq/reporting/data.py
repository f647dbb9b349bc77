"""What a training records of its data and its machine, for the report."""

import json
import platform
from pathlib import Path

import numpy as np

from seq2seq.data.config import DataConfig, SplitConfig
from seq2seq.data.corpus import describe, fingerprint, sha256_of_file
from seq2seq.data.preparation import PreparedData

DATA_FILE = "data.json"
PERCENTILES = (0, 5, 25, 50, 75, 95, 100)


def data_record(data: PreparedData, config: DataConfig) -> bytes:
    """Return the counts, the warnings, the lengths and the sums of a training's data, as JSON.

    `warnings` name overlaps of the splits and signs of misaligned text. `lengths` has, for each
    side, the tokens of a training sentence at each of the `percentiles`.
    """
    sides = {"source": data.train.source_lengths, "target": data.train.target_lengths}
    record = {
        "counts": {
            split: {"read": counts.read, "kept": counts.kept, "left_out": counts.dropped}
            for split, counts in data.counts.items()
        },
        "warnings": data.warnings,
        "sha256": _sums(config),
        "lengths": {
            "percentiles": PERCENTILES,
            **{
                side: [int(n) for n in np.percentile(lengths, PERCENTILES, method="nearest")]
                for side, lengths in sides.items()
            },
        },
    }
    return json.dumps(record, indent=2, ensure_ascii=False).encode()


def _sums(config: DataConfig) -> dict[str, str]:
    """Return the sha256 of each file, or the fingerprint of a data set's split."""
    places: dict[str, SplitConfig] = {"train": config.train, "valid": config.valid}
    places |= {f"corpora.{name}": place for name, place in config.corpora.items()}
    sums = {}
    for split, place in places.items():
        for path in (place.pairs, place.source, place.target):
            if path:
                file = Path(path).expanduser()
                sums[f"{split}: {file.name}"] = sha256_of_file(file)
        if place.split:
            sums[f"{split}: {describe(config, split)}"] = fingerprint(config, split)
    return sums


def machine() -> str:
    """Name the processor of this machine."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
