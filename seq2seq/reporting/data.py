"""What a training records of its data and its machine, for the report."""

import json
import platform
from pathlib import Path

import numpy as np

from seq2seq.data.config import DataConfig, split_place
from seq2seq.data.corpus import describe
from seq2seq.data.preparation import PreparedData
from seq2seq.reporting.buckets import LENGTHS

DATA_FILE = "data.json"
FINISHED_FILE = "finished.json"
"""Is there once training and averaging are finished, and says why they ended."""
PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
RATIOS = (0, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3)
"""Lower bounds of the histogram of target tokens per source token."""


def data_record(data: PreparedData, config: DataConfig) -> bytes:
    """Return the counts, the warnings, the lengths and the sums of a training's data, as JSON.

    `warnings` name overlaps of the splits and signs of misaligned text. `lengths` has, for each
    side, the tokens of a training sentence at each of the `percentiles`; `histogram` has, for each
    side, the sentences from each of the `bounds` to the next, and `ratios` has the same for the
    target tokens per source token of a pair.
    """
    sides = {"source": data.train.source_lengths, "target": data.train.target_lengths}
    ratios = sides["target"] / sides["source"]
    record = {
        "counts": {
            split: {"read": counts.read, "kept": counts.kept, "left_out": counts.dropped}
            for split, counts in data.counts.items()
        },
        "warnings": data.warnings,
        "sha256": _sums(data, config),
        "histogram": {
            "bounds": LENGTHS,
            **{
                side: np.histogram(lengths, [*LENGTHS, np.inf])[0].tolist()
                for side, lengths in sides.items()
            },
        },
        "ratios": {
            "bounds": RATIOS,
            "pairs": np.histogram(ratios, [*RATIOS, np.inf])[0].tolist(),
        },
        "lengths": {
            "percentiles": PERCENTILES,
            **{
                side: [int(n) for n in np.percentile(lengths, PERCENTILES, method="nearest")]
                for side, lengths in sides.items()
            },
        },
    }
    return json.dumps(record, indent=2, ensure_ascii=False).encode()


def _sums(data: PreparedData, config: DataConfig) -> dict[str, str]:
    """Return the sha256 of each file, or the digest of a data set's split."""
    sums = {}
    for split, digest in data.digests.items():
        place = split_place(config, split)
        if place.split:
            sums[f"{split}: {describe(config, split)}"] = digest
            continue
        sides = ("pairs",) if place.pairs else ("source", "target")
        for side, (file, file_sum) in zip(sides, data.file_sums[split].items(), strict=True):
            sums[f"{split}.{side}: {file.name}"] = file_sum
    return sums


def machine() -> str:
    """Name the processor of this machine."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
