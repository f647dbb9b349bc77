"""Hugging Face datasets in local folders, of every kind of file, give the pairs written there."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seq2seq.data.corpus import DataConfig, Split, SplitConfig
from seq2seq.errors import UserError
from seq2seq.text import SentencePair

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import datasets

# The library leaves some of what it opens to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

PAIRS = [
    SentencePair("A house.", "Ein Haus."),
    SentencePair("no\u2028break \x85 here\v", 'ein "Wort", noch eins'),
    SentencePair("None", '"null'),
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


def read(config: DataConfig) -> list[SentencePair]:
    return list(Split(config, "train").pairs())


def flat() -> Any:
    return datasets.Dataset.from_list([{"en": a, "de": b} for a, b in PAIRS])


def nested() -> Any:
    return datasets.Dataset.from_list(
        [{"id": 1, "translation": {"en": a, "de": b}} for a, b in PAIRS]
    )


SAVED: dict[str, Callable[[Path], object]] = {
    "parquet": lambda folder: nested().to_parquet(folder / "train-00000-of-00001.parquet"),
    "csv": lambda folder: flat().to_csv(folder / "train.csv", index=False),
    "tsv": lambda folder: flat().to_csv(folder / "train.tsv", sep="\t", index=False),
    "json": lambda folder: flat().to_json(folder / "train.jsonl", force_ascii=False),
    "saved dataset": lambda folder: nested().save_to_disk(folder),
    "saved splits": lambda folder: datasets.DatasetDict(
        {"train": flat(), "other": flat().select([0])}
    ).save_to_disk(folder),
}


def save(folder: Path, kind: str) -> None:
    folder.mkdir()
    SAVED[kind](folder)


@pytest.mark.parametrize("kind", SAVED)
def test_a_local_folder_gives_its_pairs(tmp_path: Path, kind: str) -> None:
    save(tmp_path / "data", kind)
    (tmp_path / "data" / os.fsdecode(b"caf\xe9.txt")).touch()  # which does not matter
    config = of_folder(tmp_path / "data")
    assert read(config) == PAIRS
    assert Split(config, "train").fingerprint == Split(config, "train").fingerprint


def test_a_changed_folder_is_never_served_from_a_copy(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    config = of_folder(folder)
    prints = set()
    for word in ("one", "two"):
        (folder / "train.jsonl").write_text(json.dumps({"en": word, "de": word}) + "\n")
        os.utime(folder / "train.jsonl", (0, 0))
        assert read(config) == [SentencePair(word, word)]
        prints.add(Split(config, "train").fingerprint)
    assert len(prints) == 2


def test_a_folder_inside_the_dataset(tmp_path: Path) -> None:
    for name, rows in (("de-en", flat()), ("fr-en", flat().select([0]))):
        inner = tmp_path / "data" / name / "train"
        inner.mkdir(parents=True)
        rows.to_parquet(inner / "0000.parquet")
    config = replace(of_folder(tmp_path / "data"), dataset_folder="de-en")
    assert read(config) == PAIRS


@pytest.mark.parametrize("kind", ["parquet", "csv", "saved dataset"])
def test_slices_of_a_split_are_those_of_a_list(tmp_path: Path, kind: str) -> None:
    save(tmp_path / "data", kind)
    for split, rows in {
        "train[:50%]": PAIRS[:3],
        "train[2:4]": PAIRS[2:4],
        "train[-1:]+train[:1]": [PAIRS[-1], PAIRS[0]],
    }.items():
        assert read(of_folder(tmp_path / "data", split)) == rows


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_single_file_is_a_dataset_of_one_split(tmp_path: Path, kind: str) -> None:
    save(tmp_path / "data", kind)
    (file,) = (tmp_path / "data").iterdir()
    (tmp_path / "data" / "train-other.csv").write_text("en,de\na,b\n")  # which is not read
    assert read(of_folder(file)) == PAIRS
    assert list(Split(of_folder(file), "train").files().values()) == [str(file)]


@pytest.mark.parametrize("names", [("English", "German"), ("EN", "de-AT"), ("en_US", "DE")])
def test_columns_may_have_the_names_of_the_languages(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    flat().rename_columns(dict(zip(("en", "de"), names, strict=True))).to_parquet(
        folder / "train.parquet"
    )
    assert read(of_folder(folder)) == PAIRS
    with pytest.raises(UserError, match="rename the columns to 'source' and 'target'"):
        read(replace(of_folder(folder), target_language="fr"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("train.csv", b"en;de\na, b;c\n", r"train.csv:1: .*separated by ';': save"),
        ("train.csv", b"en\tde\na\tb\n", r"train.csv:1: .*separated by '.t': save"),
        ("train.csv", "en,de\na,b\nc,\xf6\n".encode("cp1252"), r"csv:3: byte 0xf6 .*iconv"),
        ("train.csv", "en,de\na,b\n".encode("utf-16"), r"csv:1: UTF-16, not UTF-8"),
        (
            "train.csv",
            b"translation\n\"{'en': 'a', 'de': 'b'}\"\n",
            "'translation' is a dictionary that was written as text",
        ),
        ("train.json", b'{"data": [{"en": "a", "de": "b"}]}', r"one per line: jq -c '\.data\[\]'"),
    ],
)
def test_a_file_that_the_library_reads_otherwise_is_named_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says):
        read(of_folder(tmp_path))


def test_refusals_name_the_dataset(tmp_path: Path) -> None:
    save(tmp_path / "data", "parquet")
    with pytest.raises(UserError, match="data: has no split other but train"):
        read(of_folder(tmp_path / "data", "other"))
    with pytest.raises(UserError, match="can't be loaded: Unrecognized instruction"):
        read(of_folder(tmp_path / "data", "train[:many]"))
    save(tmp_path / "saved", "saved splits")
    with pytest.raises(UserError, match="saved: has no split valid but train, other"):
        read(of_folder(tmp_path / "saved", "valid"))
    with pytest.raises(UserError, match="no such folder"):
        read(of_folder(tmp_path / "absent"))
    with pytest.raises(UserError, match="no such file"):
        read(of_folder(Path("absent.parquet")))
    config = replace(of_folder(tmp_path / "data"), target_language="fr")
    with pytest.raises(UserError, match=r"row 1: has no keys 'en' and 'fr'"):
        read(config)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,b\na,b,c,d\n", "split train: can't be read: .*repair the file"),
        ("a,b,c\nd,e,f\n", "can't be read: Length of header"),
    ],
)
def test_rows_that_have_more_fields_than_the_header_are_refused(
    tmp_path: Path, rows: str, message: str
) -> None:
    (tmp_path / "train.csv").write_text(f"en,de\n{rows}")
    with pytest.raises(UserError, match=message):
        read(of_folder(tmp_path))


@pytest.mark.integration
def test_a_hub_that_is_not_reached_is_tried_once(tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)}
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    words = ["train", "data=multi30k", "precision=fp32", f"run_dir={tmp_path / 'run'}"]
    command = [sys.executable, "-m", "seq2seq", *words, f"cache={tmp_path / 'cache'}"]
    tried = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (tried.returncode, tried.stderr.count("\n")) == (1, 1), tried.stderr
    assert "split validation: can't be loaded: Couldn't reach" in tried.stderr


def test_a_dataset_of_the_hub_is_requested_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[tuple[Any, ...]] = []

    def load_dataset(path: str, name: str | None, **options: Any) -> Any:
        requested.append((path, name, options))
        return nested()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    pinned = replace(EN_DE, dataset="wmt/wmt14", dataset_config="de-en", revision="0" * 40)
    config = replace(pinned, train=SplitConfig(split="train"))
    assert read(config) == PAIRS
    options = {"data_dir": None, "split": "train", "revision": "0" * 40}
    assert requested == [("wmt/wmt14", "de-en", options)]
