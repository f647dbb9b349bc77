"""Hugging Face datasets in local folders give the pairs that the same text gives in files."""

import gzip
import json
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seq2seq.data.config import DataConfig, SplitConfig
from seq2seq.data.corpus import Split
from seq2seq.data.pair_files import SentencePair
from seq2seq.errors import UserError

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import datasets

# The library leaves some of what it opens to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

PAIRS = [
    SentencePair("A house.", "Ein Haus."),
    SentencePair("no\u2028break \x85 here\v", 'ein "Wort", noch eins'),
    SentencePair("None", "null"),
    SentencePair("NA", "nan"),
    SentencePair("", "blank"),
    SentencePair("  spaces  stay ", "\ufeffmark in mid-text"),
]
EN_DE = DataConfig(source_language="en", target_language="de")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def of_folder(folder: Path, split: str = "train") -> DataConfig:
    return replace(EN_DE, dataset=str(folder), train=SplitConfig(split=split))


def flat() -> Any:
    return datasets.Dataset.from_list([{"en": a, "de": b} for a, b in PAIRS])


def nested() -> Any:
    return datasets.Dataset.from_list(
        [{"id": 1, "translation": {"en": a, "de": b}} for a, b in PAIRS]
    )


def save(folder: Path, kind: str) -> None:
    folder.mkdir()
    if kind == "parquet":
        flat().to_parquet(folder / "train.parquet")
    elif kind == "nested parquet":
        nested().to_parquet(folder / "train-00000-of-00001.parquet")
    elif kind == "json":
        rows = [json.dumps({"en": a, "de": b}, ensure_ascii=False) for a, b in PAIRS]
        (folder / "train.jsonl").write_text("\n".join(rows), encoding="utf-8", newline="")
    elif kind == "csv":
        flat().to_csv(folder / "train.csv", index=False)
    elif kind == "saved dataset":
        nested().save_to_disk(folder)
    else:
        datasets.DatasetDict({"train": flat(), "other": flat().select([0])}).save_to_disk(folder)


@pytest.mark.parametrize(("name", "separator"), [("train.tsv", "\t"), ("train.csv.gz", ",")])
def test_words_that_look_like_missing_cells_are_read(
    tmp_path: Path, name: str, separator: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [("en", "de"), ("None", "NA"), ("hello", "null")]
    text = "".join(separator.join(row) + "\n" for row in rows).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert list(Split(of_folder(folder), "train").pairs()) == rows[1:]


def test_other_files_in_a_folder_do_not_matter(tmp_path: Path) -> None:
    save(folder := tmp_path / "data", "json")
    before = list(Split(of_folder(folder), "train").pairs())
    (folder / "notes.csv").write_text("a,b\n1,2\n")
    (folder / os.fsdecode(b"caf\xe9.txt")).touch()
    assert list(Split(of_folder(folder), "train").pairs()) == before
    assert Split(of_folder(folder), "train").fingerprint


KINDS = ["parquet", "nested parquet", "json", "csv", "saved dataset", "saved splits"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_local_folder_equals_the_files(tmp_path: Path, kind: str) -> None:
    save(tmp_path / "data", kind)
    place = SplitConfig(source=str(tmp_path / "source"), target=str(tmp_path / "target"))
    for side in ("source", "target"):
        lines = "".join(getattr(pair, side) + "\n" for pair in PAIRS)
        (tmp_path / side).write_text(lines, encoding="utf-8", newline="")
    files = replace(EN_DE, train=place)
    config = of_folder(tmp_path / "data")
    assert list(Split(config, "train").pairs()) == list(Split(files, "train").pairs()) == PAIRS
    assert Split(config, "train").fingerprint == Split(config, "train").fingerprint


def test_a_changed_folder_is_never_served_from_a_copy(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    config = of_folder(folder)
    prints = set()
    for word in ("one", "two"):
        (folder / "train.jsonl").write_text(json.dumps({"en": word, "de": word}) + "\n")
        os.utime(folder / "train.jsonl", (0, 0))
        assert list(Split(config, "train").pairs()) == [SentencePair(word, word)]
        prints.add(Split(config, "train").fingerprint)
    assert len(prints) == 2


def test_a_folder_inside_the_dataset(tmp_path: Path) -> None:
    for name, rows in (("de-en", flat()), ("fr-en", flat().select([0]))):
        inner = tmp_path / "data" / name / "train"
        inner.mkdir(parents=True)
        rows.to_parquet(inner / "0000.parquet")
    config = replace(of_folder(tmp_path / "data"), dataset_folder="de-en")
    assert list(Split(config, "train").pairs()) == PAIRS


@pytest.mark.parametrize("kind", ["saved dataset", "saved splits"])
def test_a_slice_of_a_saved_split(tmp_path: Path, kind: str) -> None:
    save(tmp_path / "data", kind)
    config = of_folder(tmp_path / "data", "train[1:3]+train[-1:]")
    assert list(Split(config, "train").pairs()) == [*PAIRS[1:3], PAIRS[-1]]
    assert (
        Split(config, "train").fingerprint
        != Split(of_folder(tmp_path / "data"), "train").fingerprint
    )
    with pytest.raises(UserError, match="split valid: can't be loaded: Unknown split"):
        list(Split(of_folder(tmp_path / "data", "valid"), "train").pairs())


def test_saved_splits_of_any_name(tmp_path: Path) -> None:
    part = datasets.Dataset.from_dict({"en": ["a"], "de": ["b"]}, split="train[:1]")
    part.save_to_disk(tmp_path / "part")
    datasets.DatasetDict({"test-unseen": part}).save_to_disk(tmp_path / "parts")
    for folder, split in (("part", "train"), ("parts", "test-unseen")):
        assert list(Split(of_folder(tmp_path / folder, split), "train").pairs()) == [("a", "b")]


def test_refusals_name_the_dataset(tmp_path: Path) -> None:
    save(tmp_path / "data", "json")
    with pytest.raises(UserError, match="split other: can't be loaded"):
        list(Split(of_folder(tmp_path / "data", "other"), "train").pairs())
    with pytest.raises(UserError, match="no such folder"):
        list(Split(of_folder(tmp_path / "absent"), "train").pairs())
    config = replace(of_folder(tmp_path / "data"), target_language="fr")
    with pytest.raises(UserError, match=r"row 1: has no keys 'en' and 'fr'"):
        list(Split(config, "train").pairs())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.jsonl", '{"en": "a", "de": "b"}\n{"en": "a", "de": \n'),
        ("train.csv", "en,de\na,b\na,b,c,d\n"),
    ],
)
def test_a_file_that_is_malformed_is_refused_in_one_line(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=r"split train: can't be read: .*repair the file") as raised:
        list(Split(of_folder(tmp_path), "train").pairs())
    assert "\n" not in str(raised.value)


def test_a_dataset_of_the_hub_is_requested_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[tuple[Any, ...]] = []

    def load_dataset(path: str, name: str | None, **options: Any) -> Any:
        requested.append((path, name, options))
        return nested()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    config = replace(
        EN_DE,
        dataset="wmt/wmt14",
        dataset_config="de-en",
        revision="0" * 40,
        train=SplitConfig(split="train"),
    )
    assert list(Split(config, "train").pairs()) == PAIRS
    options = {"data_dir": None, "split": "train", "revision": "0" * 40}
    assert requested == [("wmt/wmt14", "de-en", options)]
