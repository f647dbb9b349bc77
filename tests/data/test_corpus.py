"""Pairs are the same from every kind of file, and errors name the place."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data.corpus import DataConfig, Split, SplitConfig, training_splits
from seq2seq.errors import UserError
from seq2seq.text import SentencePair

EN_DE = DataConfig(source_language="en", target_language="de")


def of_files(folder: Path, source: bytes, target: bytes) -> DataConfig:
    (folder / "text.en").write_bytes(source)
    (folder / "text.de").write_bytes(target)
    return training_on(source=str(folder / "text.en"), target=str(folder / "text.de"))


def training_on(**place: str | None) -> DataConfig:
    return replace(EN_DE, train=SplitConfig(**place))


def of_pairs(path: Path, text: str) -> DataConfig:
    path.write_text(text, encoding="utf-8", newline="")
    return training_on(pairs=str(path))


def read(config: DataConfig) -> list[SentencePair]:
    return list(Split(config, "train").pairs())


def refusal(config: DataConfig) -> str:
    with pytest.raises(UserError) as caught:
        read(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


text = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\t\0\ufeff"))


@given(st.lists(st.tuples(text, text), max_size=8))
def test_the_same_pairs_from_files_tsv_and_json_lines(
    tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    sources = targets = tsv = jsonl = ""
    for source, target in pairs:
        sources += f"{source}\n"
        targets += f"{target}\n"
        tsv += f"{source}\t{target}\n"
        jsonl += json.dumps({"de": target, "en": source}, ensure_ascii=False) + "\n"
    tsv += '"\t5\n'  # an unpaired mark, else a few fields may be quoted as by a spreadsheet
    assert read(of_files(tmp_path, sources.encode(), targets.encode())) == pairs
    assert read(of_pairs(tmp_path / "text.tsv", tsv)) == [*pairs, ('"', "5")]
    assert read(of_pairs(tmp_path / "text.jsonl", jsonl)) == pairs


def test_a_pair_is_named_by_its_line_also_after_blank_lines(tmp_path: Path) -> None:
    row = '{"en": "a", "de": "b"}\n'
    split = Split(of_pairs(tmp_path / "text.jsonl", f"\n{row} \n\n{row}"), "train")
    assert len(list(split.pairs())) == 2
    assert [split.locate(number) for number in (1, 2)] == [f"{split}:2", f"{split}:5"]


cell = st.text(st.sampled_from('"\t, aü'), max_size=4)
cells = st.lists(st.tuples(cell, cell), min_size=1)


@given(cells, st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_a_spreadsheet_s_file_gives_what_was_in_its_cells(
    tmp_path: Path, pairs: list[tuple[str, str]], quoting: Any
) -> None:
    sheet = io.StringIO()
    csv.writer(sheet, "excel-tab", quoting=quoting).writerows([("English", "Deutsch"), *pairs])
    split = Split(of_pairs(tmp_path / "text.tsv", sheet.getvalue()), "train")
    assert list(split.pairs()) == pairs
    assert split.locate(1) == f"{split}:2"
    assert split.remarks()[0].startswith(f"{split}:1: a header, left out: ")


def test_a_spreadsheet_s_cell_may_be_long_and_have_carriage_returns(tmp_path: Path) -> None:
    pairs = [('a "b"', "c" * 200_000), ("d\re", "f")]
    config = of_pairs(tmp_path / "text.tsv", f'"a ""b"""\t{pairs[0][1]}\nd\re\tf\n')
    assert list(Split(config, "train").pairs()) == pairs


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ('"Hi, Tom."\tHallo.\nBye.\t"Gut, Tom."', "Hi, Tom."),  # Excel quotes for a comma, too
        ('"Hi, Tom."\tHallo.\nYes, Tom.\tJa.', '"Hi, Tom."'),
        ('"Hi."\t"Hallo."\nBye.\tTschüss.', '"Hi."'),
        ('"a ""b"""\tc\n5" wide\td', '"a ""b"""'),
        ("en-GB\tde\na\tb", "a"),
        ("SOURCE TEXT\tGerman translation\na\tb", "a"),
        ("Englisch\tFrançais (FR)\na\tb", "a"),
        ("No.\tEs.\na\tb", "No."),
        ("No\tNo\na\tb", "No"),
    ],
)
def test_a_tsv_is_plain_text_unless_all_of_it_is_a_spreadsheet_s(
    tmp_path: Path, text: str, first: str
) -> None:
    config = of_pairs(tmp_path / "text.tsv", text)
    assert read(config)[0].source == first
    assert bool(Split(config, "train").remarks()) == (not text.startswith(first))


def test_a_line_break_in_a_cell_is_refused(tmp_path: Path) -> None:
    config = of_pairs(tmp_path / "text.tsv", 'en\tde\n"c ""d""\ne"\t"f\ng"\n')
    assert f"{config.train.pairs}:2: has 0 tabs; " in refusal(config)
    assert "line breaks within cells" in refusal(config)


@pytest.mark.parametrize("line", ['"5" wide"\t"5 Zoll"', '"a\nb"\t"c"'])
def test_a_line_that_breaks_the_quoting_of_a_spreadsheet_is_named(
    tmp_path: Path, line: str
) -> None:
    rows = ['"Hi."\t"Hallo."', *['"Bye."\t"Gut."'] * 20]
    config = of_pairs(tmp_path / "text.tsv", "\n".join([*rows, line, *rows]))
    assert f"{config.train.pairs}:22: a quotation mark that is not doubled" in refusal(config)


@pytest.mark.parametrize("header", ["en\tTum", '"en"\t"tum"'])
def test_a_header_of_the_languages_of_the_run_is_no_pair(tmp_path: Path, header: str) -> None:
    config = of_pairs(tmp_path / "text.tsv", f"{header}\na\tb\n")
    assert len(read(config)) == 2
    config = replace(config, source_language="en", target_language="tum")
    assert [tuple(pair) for pair in Split(config, "train").pairs()] == [("a", "b")]


@given(cells, st.integers(1, 5))
def test_valid_is_cut_from_the_training_text(
    tmp_path: Path, pairs: list[tuple[str, str]], number: int
) -> None:
    def words(pair: tuple[str, str]) -> str:
        return " ".join(pair[0].split())

    rows = [json.dumps({"en": source, "de": target}) + "\n" for source, target in pairs]
    cut = replace(EN_DE, valid_from_train=number)
    config = replace(cut, train=of_pairs(tmp_path / "text.jsonl", "".join(rows)).train)
    valid = Split(config, "valid")
    if number >= len({words(pair) for pair in pairs if all(map(str.strip, pair))}):
        with pytest.raises(UserError, match="so that some are left for training"):
            valid.pairs()
        return
    chosen = list(valid.pairs())
    sources = set(map(words, chosen))
    assert len(sources) == len(chosen) == number
    located = [f"{config.train.pairs}:{pairs.index(pair) + 1}" for pair in chosen]
    assert [valid.locate(i + 1) for i in range(number)] == located
    expected = [("", "") if words(pair) in sources else pair for pair in pairs]
    assert list(training_splits(config)[0].pairs()) == expected
    # The order of the file doesn't matter.
    of_pairs(tmp_path / "text.jsonl", "".join(reversed(rows)))
    assert set(map(words, Split(config, "valid").pairs())) == sources


@pytest.mark.parametrize(
    "row",
    [
        {"en": "a", "de": "b"},
        {"translation": {"en": "a", "de": "b"}},
        {"id": 7, "target": "b", "source": "a"},
        {"source": "news", "target": "web", "en": "a", "de": "b"},
    ],
    ids=["languages", "translation", "source and target", "languages first"],
)
def test_shapes_of_a_row(tmp_path: Path, row: object) -> None:
    config = of_pairs(tmp_path / "text.jsonl", json.dumps(row) + "\n\n")
    assert read(config) == [("a", "b")]


@given(st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_unequal_files_name_both_counts(
    tmp_path: Path, sources: int, targets: int, ended: bool
) -> None:
    source = b"\n".join([b"a"] * sources) + b"\n" * (ended and sources > 0)
    config = of_files(tmp_path, source, b"b\n" * targets)
    if sources == targets:
        assert len(read(config)) == sources
        return
    message = refusal(config)
    assert f"{config.train.source} has {sources} lines" in message
    assert f"{config.train.target} has {targets} lines" in message
    assert f"line {min(sources, targets) + 1} is the first" in message


def test_pairs_stream(tmp_path: Path) -> None:
    pairs = Split(of_files(tmp_path, b"a\n" * 100_000, b"b\n" * 99_999), "train").pairs()
    assert isinstance(pairs, Iterator)
    assert next(pairs) == ("a", "b")


@pytest.mark.parametrize("line", ["no tab", "two\ttabs\there", ""])
def test_a_bad_tsv_line_is_named(tmp_path: Path, line: str) -> None:
    config = of_pairs(tmp_path / "text.tsv", f"a\tb\n{line}\nc\td\n")
    assert refusal(config).startswith(f"{config.train.pairs}:2: has {line.count(chr(9))} tabs")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"en": "a"}', "no keys 'en' and 'de'"),
        ('{"en": "a", "de": 3}', "'de' is not text but int"),
        (r'{"en": "a\ud800", "de": "b"}', "half a surrogate pair"),
        (r'{"en": "a\u0000", "de": "b"}', "NUL"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    config = of_pairs(tmp_path / "text.jsonl", f'{{"en": "a", "de": "b"}}\n{line}\n')
    message = refusal(config)
    assert f"{config.train.pairs}:2: " in message
    assert says in message


def test_the_error_names_what_is_missing(tmp_path: Path) -> None:
    assert "data.train.source=FILE data.train.target=FILE" in refusal(EN_DE)
    assert "data.train.split=NAME" in refusal(replace(EN_DE, dataset="name"))
    source = of_files(tmp_path, b"a\n", b"b\n").train.source
    assert "data.train.target=FILE" in refusal(training_on(source=source))
    assert "same file" in refusal(training_on(source=source, target=source))
    absent = str(tmp_path / "absent")
    assert f"{absent}: no such file" in refusal(training_on(source=source, target=absent))
    assert ".tsv (a tab in each line)" in refusal(training_on(pairs=source))


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    def fingerprint(folder: Path, source: bytes, target: bytes) -> str:
        return Split(of_files(folder, source, target), "train").fingerprint

    (tmp_path / "copy").mkdir()
    original = fingerprint(tmp_path, b"a\n", b"b\n")
    assert original == fingerprint(tmp_path / "copy", b"a\n", b"b\n")
    for texts in ((b"a\n", b"c\n"), (b"b\n", b"a\n"), (b"a\nb\n", b"")):
        assert original != fingerprint(tmp_path, *texts)


def test_a_split_at_a_url_is_that_of_the_same_files(tmp_path: Path) -> None:
    local = Split(of_files(tmp_path, b"a\n", b"b\n"), "train")
    urls = {side: f"memory://split/text.{side}" for side in ("source", "target")}
    for side, url in urls.items():
        with fsspec.open(url, "wb") as file:
            file.write(Path(local.files()[side]).read_bytes())
    remote = Split(training_on(**urls), "train")
    assert list(remote.pairs()) == list(local.pairs()) == [("a", "b")]
    assert (remote.files(), remote.sums) == (urls, local.sums)
    assert remote.fingerprint == local.fingerprint
    before = remote.file_states()
    assert before == remote.file_states()
    with fsspec.open(urls["source"], "wb") as file:
        file.write(b"other\n")
    assert before != remote.file_states()


def test_a_pinned_dataset_has_a_fingerprint_without_the_network() -> None:
    prints = set()
    for split, digit in product(("train", "validation"), "01"):
        config = replace(training_on(split=split), dataset="some/name", revision=digit * 40)
        prints.add(Split(config, "train").fingerprint)
    assert len(prints) == 4
