"""Preparation: filters with counts, a cache that repairs itself, warnings about the text."""

import errno
import json
import os
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import Mock, patch

import numpy as np
import pytest

from seq2seq.data.checks import Findings, Sample
from seq2seq.data.corpus import CorpusConfig, DataConfig, FilterConfig, Split, SplitConfig
from seq2seq.data.encoding import PairChunk, encode, map_in_processes
from seq2seq.data.preparation import PreparedData, prepare
from seq2seq.encoded_corpus import EncodedCorpus
from seq2seq.errors import UserError
from seq2seq.text import SentencePair
from seq2seq.tokenizer import Tokenizer, TokenizerConfig
from tests.data.elsewhere import end_at_once_elsewhere, signal_elsewhere
from tests.toy import two_files

Pairs: TypeAlias = list[tuple[str, str]]
WORDS = ["house", "small", "tree", "green", "river", "stone", "light", "bread", "the", "a"]


def sentences(number: int, seed: int) -> Pairs:
    generator = random.Random(seed)
    drawn = [generator.choices(WORDS, k=generator.randint(5, 20)) for _ in range(number)]
    return [(" ".join(words), " ".join(reversed(words)).upper()) for words in drawn]


TRAIN, VALID = sentences(300, seed=1), sentences(20, seed=99)


def contents(corpus: EncodedCorpus) -> list[tuple[list[int], list[int]]]:
    rows = range(len(corpus))
    return [(corpus.source(row).tolist(), corpus.target(row).tolist()) for row in rows]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Preparation(list[str]):
    """Prepares corpora of a folder, with one cache; the list has what was reported."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.cache = folder, folder / "cache"

    def configure(self, train: Pairs = TRAIN, valid: Pairs = VALID, **options: Any) -> DataConfig:
        config = DataConfig(tokenizer=TokenizerConfig(vocab_size=80))
        for split, pairs in (("train", train), ("valid", valid)):
            sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
            paths = two_files(self.folder, split, sources, targets)
            setattr(config, split, SplitConfig(**paths))
        return replace(config, **options)

    def of(self, config: DataConfig, tokenizer: Tokenizer | None = None) -> PreparedData:
        return prepare(config, self.cache, self.append, tokenizer)

    def __call__(self, *pairs: Pairs, **options: Any) -> PreparedData:
        return self.of(self.configure(*pairs, **options))

    def __contains__(self, text: object) -> bool:
        return any(str(text) in line for line in self)


@pytest.fixture
def run(tmp_path: Path) -> Preparation:
    return Preparation(tmp_path)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)


def test_only_a_run_that_samples_keeps_the_training_text(run: Preparation) -> None:
    train = [*sentences(60, seed=1), ("", "blank"), ("a", "b " * 300)]
    plain = run.configure(train)
    folders = [
        run.of(replace(plain, tokenizer=replace(plain.tokenizer, sampling=rate))).folder
        for rate in (0.0, 0.1, 0.3)
    ]
    assert folders[0] != folders[1] == folders[2]
    without, with_text = files(folders[0]), files(folders[1])
    del without["report.json"], with_text["report.json"]
    kept = [tuple(json.loads(line)) for line in with_text.pop("train.jsonl").splitlines()]
    assert kept == train[:60]
    assert with_text == without


def test_each_million_of_pairs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(numbered: PairChunk) -> Any:
        findings = Findings()
        findings.counts.read = len(numbered[1][0])
        return None, b"", findings

    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    said: list[str] = []
    pairs = repeat(SentencePair("a", "b"), 2_500_000)
    encode(pairs, count, lambda ids: None, said.append)  # type: ignore[arg-type]
    assert said == [f"data: {million},000,000 pairs encoded" for million in (1, 2)]


def test_filters_drop_whole_pairs_and_count_them(run: Preparation) -> None:
    bad = {
        "blank source": [("", "a"), (" \u2003\u00a0", "a"), ("", "")],
        "blank target": [("a", "\t ")],
        "too long": [("house " * 120, "a"), ("a", "TREE " * 120)],
        "length ratio": [("a", "THE " * 30)],
    }
    mixed = [*TRAIN[:100], *chain.from_iterable(bad.values()), *TRAIN[100:]]
    prepared = run(mixed, filter=FilterConfig(max_tokens=100, max_length_ratio=5))
    counts = prepared.counts["train"]
    assert counts.dropped == {reason: len(pairs) for reason, pairs in bad.items()}
    assert (counts.read, counts.kept) == (len(mixed), 300)
    for ids, pair in zip(contents(prepared.train), TRAIN, strict=True):
        assert prepared.tokenizer.decode([*ids]) == [*pair]
    assert (
        f"train: {len(mixed)} pairs read, 300 kept; skipped: 3 blank source, 1 blank target,"
        " 2 too long, 1 length ratio"
    ) in run


@pytest.mark.parametrize("limit", [40, 41])
def test_the_limits_are_inclusive_and_count_the_end(run: Preparation, limit: int) -> None:
    loose = run()
    tight = run(filter=FilterConfig(max_tokens=limit, max_length_ratio=1))
    expected = [pair for pair in contents(loose.train) if len(pair[0]) == len(pair[1]) <= limit]
    assert contents(tight.train) == expected
    assert 0 < len(expected) < len(TRAIN)


def test_validation_keeps_all_text_but_blank_pairs_and_drops_long_ones_for_the_loss(
    run: Preparation,
) -> None:
    valid = [("", "a"), ("a  house", "A\u2028B"), ("a", "TREE " * 12), ("a", "TREE " * 90)]
    prepared = run(TRAIN, valid, filter=FilterConfig(max_tokens=30, max_length_ratio=2))
    assert prepared.valid_sets["valid"].pairs == valid[1:]
    for ids, pair in zip(contents(prepared.valid_sets["valid"].corpus), valid[1:3], strict=True):
        assert [side[:-1] for side in ids] == prepared.tokenizer.encode_target([*pair])
    assert "valid: 4 pairs read, 2 kept; skipped: 1 blank source, 1 too long" in run


def test_the_tokenizer_sees_the_training_pairs_alone(run: Preparation) -> None:
    half_blank = [("Ω" * 9, ""), ("", "Ω" * 9)]
    prepared = run(TRAIN + half_blank, [("Ω", "Ω")])
    alone = Tokenizer.train(chain(*TRAIN), TokenizerConfig(vocab_size=80))
    assert prepared.tokenizer.model_bytes == alone.model_bytes


def test_the_same_content_is_prepared_once(
    run: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, pairs = run(), Split.pairs

    def without_train(split: Split) -> Iterator[Any]:
        assert split.name == "valid"
        return pairs(split)

    monkeypatch.setattr(Split, "pairs", without_train)
    (run.folder / "elsewhere").mkdir()
    second = run.of(Preparation(run.folder / "elsewhere").configure(name="another name"))
    assert f"reusing {first.folder}" in run
    assert contents(first.train) == contents(second.train)
    assert first.counts == second.counts
    assert first.warnings == second.warnings


def test_other_content_or_settings_get_another_folder(run: Preparation) -> None:
    base = run.configure()
    variants = [
        base,
        replace(base, source_language="en"),
        replace(base, filter=FilterConfig(max_tokens=40)),
        replace(base, tokenizer=TokenizerConfig(vocab_size=81)),
        replace(base, tokenizer=TokenizerConfig(vocab_size=80, normalization="nfkc")),
    ]
    folders = {run.of(config).folder for config in variants}
    folders |= {run(TRAIN[1:]).folder, run(TRAIN, VALID[1:]).folder}
    for number in (20, 30):
        prepared = run.of(replace(base, valid=SplitConfig(), valid_from_train=number))
        assert len(prepared.valid_sets["valid"].pairs) == number
        assert f"{300 - number} kept; skipped: {number} source in data.valid" in run
        assert prepared.warnings == []
        folders.add(prepared.folder)
    assert len(folders) == 9
    assert "reusing" not in run


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing", "foreign"])
def test_a_corrupt_folder_is_rebuilt(run: Preparation, damage: str) -> None:
    folder = run().folder
    sound = files(folder)
    ids = sound["train.ids"]
    if damage == "flipped":
        (folder / "train.ids").write_bytes(bytes([ids[0] ^ 1]) + ids[1:])
    elif damage == "cut":
        (folder / "train.ids").write_bytes(ids[: len(ids) // 2])
    elif damage == "missing":
        (folder / "train_pairs.npy").unlink()
    else:
        (folder / "report.json").write_text('{"sha256": {"x": "y"}}')
    assert files(run().folder) == sound
    assert "is corrupt, or of another version, and is rebuilt" in run
    assert [*run.cache.iterdir()] == [folder]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "can't be read: Cannot allocate memory"),
        (MemoryError("no memory"), "no memory"),
    ],
    ids=["the system", "Python"],
)
def test_a_folder_is_not_rebuilt_for_what_the_machine_lacks(
    run: Preparation, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    folder = run().folder
    sound = files(folder)
    with monkeypatch.context() as patched:
        patched.setattr(np, "memmap", Mock(side_effect=error))
        with pytest.raises((UserError, MemoryError), match=said):
            run()
    assert files(folder) == sound
    assert "is corrupt" not in run


@pytest.mark.parametrize("passes", [1, 2], ids=["tokenizer", "encoding"])
def test_an_interrupted_preparation_leaves_nothing(
    run: Preparation, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    config = run.configure()
    pairs, reads = Split.pairs, []

    def interrupted(split: Split) -> Iterator[Any]:
        reads.append(split.name)
        yield from islice(pairs(split), 150)
        if reads.count("train") == passes:
            raise KeyboardInterrupt

    monkeypatch.setattr(Split, "pairs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.of(config)
    assert list(run.cache.iterdir()) == []


@pytest.mark.parametrize("fails", [False, True], ids=["is made", "fails"])
def test_who_finds_another_one_preparing_waits_for_it(tmp_path: Path, fails: bool) -> None:
    first, second = Preparation(tmp_path), Preparation(tmp_path)
    config, waits = first.configure(), threading.Event()
    found: list[Path] = []

    def note_first(line: str) -> None:
        if "preparing" in line:
            thread.start()
            assert waits.wait(60)
            if fails:
                raise KeyboardInterrupt

    def note_second(line: str) -> None:
        list.append(second, line)
        if "waiting for it" in line:
            waits.set()

    first.append, second.append = note_first, note_second  # type: ignore[method-assign]
    thread = threading.Thread(target=lambda: found.append(second.of(config).folder))
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        first.of(config)
    thread.join()
    assert ("preparing" in second) == fails
    assert list(first.cache.iterdir()) == found


@pytest.mark.usefixtures("two_cores")
def test_processes_prepare_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = [*TRAIN, ("a", "b " * 300)] * 2
    monkeypatch.setattr("seq2seq.data.encoding._ENCODED_PAIRS", 50)
    made = []
    for few in (1, 100):
        monkeypatch.setattr("seq2seq.data.encoding._FEW_ITEMS", few)
        (tmp_path / str(few)).mkdir()
        run = Preparation(tmp_path / str(few))
        sampling = TokenizerConfig(vocab_size=80, sampling=0.1)  # so that the text is kept
        made.append(files(run(train, tokenizer=sampling).folder))
    assert made[0] == made[1]


@pytest.mark.usefixtures("two_cores")
def test_a_process_that_dies_is_told() -> None:
    assert list(map_in_processes(end_at_once_elsewhere, range(10))) == list(range(10))
    with pytest.raises(UserError, match="a process that encodes text has ended"):
        list(map_in_processes(end_at_once_elsewhere, range(30)))


@pytest.mark.posix
@pytest.mark.usefixtures("two_cores")
def test_a_signal_to_all_processes_is_the_parent_s() -> None:
    assert list(map_in_processes(signal_elsewhere, range(30))) == list(range(30))


@pytest.mark.integration
def test_a_process_of_joblib_starts_others() -> None:
    joblib = pytest.importorskip("joblib")
    (found,) = joblib.Parallel(2)([joblib.delayed(map_numbers)()])
    assert found == list(range(30))


def map_numbers() -> list[int]:
    with patch("os.sched_getaffinity", lambda process: {0, 1}, create=True):
        return list(map_in_processes(abs, range(30)))


def test_text_that_can_t_be_used_is_refused(run: Preparation) -> None:
    for train, says in (
        ([], "no pair has text on both sides"),
        ([("", "a"), ("b", " ")], "no pair has text on both sides"),
        (TRAIN, "no pair is left after the filters: 300 pairs read, 0 kept"),
        ([("a" * 5000, "b" * 5000)], "all 2 lines .* more than 4,192 bytes; write a sentence"),
        ([("a\rb" * 2000, "b\r" * 2500)], r"carriage returns alone end no line: tr '.r' '.n'"),
    ):
        config = run.configure(train, filter=FilterConfig(max_tokens=2))
        with pytest.raises(UserError, match=says):
            run.of(config)
    for side in ("source", "target"):
        (run.folder / f"valid.{side}").write_text("")
    with pytest.raises(UserError, match=r"valid\.target: is empty"):
        run.of(config)
    assert list(run.cache.iterdir()) == []


def test_a_test_set_without_text_is_refused_before_the_training_and_its_header_is_named(
    run: Preparation,
) -> None:
    config, path = run.configure(), run.folder / "test.tsv"
    for content in ("", "en\tde\n", "en\tde\n\ta\nb\t \n"):
        path.write_text(content)
        config = replace(config, test_sets={"more": SplitConfig(pairs=str(path))})
        with pytest.raises(UserError, match=r"data\.test_sets\.more: .* no pair has text on both"):
            run.of(config)
    path.write_text("en\tde\na\tA\n")
    run.of(config)
    assert f"{path}:1: a header, left out" in run


def test_pairs_shared_with_the_training_split_are_reported(run: Preparation) -> None:
    train, other_target = [*TRAIN, ("", "")], (TRAIN[5][0], "A OTHER")
    valid = [*train[:3], train[0], other_target, ("house", "A OTHER"), ("", "")]
    prepared = run(train, valid)
    assert "3 of 5 different valid pairs are training pairs too" in run
    run.clear()
    config = run.configure(train, valid)
    run.of(replace(config, test=config.valid, valid_sets={"more": config.valid}))
    assert prepared.warnings[0] in "\n".join(run)  # also when the folder is reused
    # The test split is no part of what is prepared, and is compared whenever it is given.
    assert "reusing" in run
    for name in ("test", "valid_sets.more"):
        assert f"3 of 5 different {name} pairs are training pairs too" in run
    run.clear()
    run.of(config)
    assert "test pairs" not in run
    absent = SplitConfig(source=str(run.folder / "absent"), target=config.train.target)
    with pytest.raises(UserError, match="absent"):
        run.of(replace(config, test=absent))


@pytest.mark.parametrize("back", [False, True], ids=["replaced", "and put back"])
def test_text_that_is_replaced_while_it_is_prepared_is_not_cached(
    run: Preparation, back: bool
) -> None:
    config = run.configure()
    source = Path(str(config.train.source))
    kept, other = source.with_suffix(".kept"), source.with_suffix(".other")
    other.write_text("".join(f"{line}\n" for line, _ in sentences(300, seed=2)))

    def replace_text(line: str) -> None:
        list.append(run, line)
        if "preparing" in line:
            source.rename(kept)
            other.rename(source)
            if back:
                source.rename(other)
                kept.rename(source)

    with pytest.raises(UserError, match="was changed while it was read"):
        prepare(config, run.cache, replace_text)
    assert list(run.cache.iterdir()) == []


@pytest.mark.posix
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_pipe_is_no_text_to_train_on(run: Preparation, split: str) -> None:
    config = run.configure()
    os.mkfifo(run.folder / "pipe")
    pipe = SplitConfig(source=str(run.folder / "pipe"), target=config.train.target)
    with pytest.raises(UserError, match="pipe: not a regular file"):
        run.of(replace(config, **{split: pipe}))


def test_sides_of_equal_lengths_are_not_reported(run: Preparation) -> None:
    targets = [target for _, target in sentences(700, seed=1)]
    run([("abc"[i % 3], target) for i, target in enumerate(targets)])
    assert "hardly correlate" not in run


def test_a_missing_target_line_is_reported(run: Preparation) -> None:
    pairs = sentences(8000, seed=1)
    run(pairs)
    assert "warning" not in run
    sources, targets = map(list, zip(*pairs, strict=True))
    del targets[4000]
    config = run.configure(list(zip(sources, targets, strict=False)))
    run.of(config)
    assert "hardly correlate in 4 of 8 windows" in run
    assert f"first at {config.train.source}:4001 to 5000" in run


def test_counts_and_lines_are_those_of_the_text_in_however_many_parts_it_is_encoded(
    run: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three corpora, of which one has three parts, against what the test has put into them."""
    monkeypatch.setattr("seq2seq.data.encoding._ENCODED_PAIRS", 1000)
    odd = {
        "blank source": (("", "A"), (7, 1501, 2600, 2601)),
        "blank target": (("a", " "), (999, 1000, 1001)),
        "too long": (("a", "THE " * 200), (1, 2700)),
    }
    equal = range(1300, 2400, 20)
    pairs = sentences(2700, seed=1)
    for pair, lines in odd.values():
        for line in lines:
            pairs[line - 1] = pair
    for line in equal:
        pairs[line - 1] = (f"a house {line}", f"a house {line}")
    base = run.configure(filter=FilterConfig(max_tokens=150, max_length_ratio=1e9))
    corpora = {}
    for name, of_corpus in (("long", pairs), ("short", TRAIN), ("last", TRAIN[:30])):
        paths = two_files(run.folder, name, *map(list, zip(*of_corpus, strict=True)))
        corpora[name] = CorpusConfig(**paths)
    prepared = run.of(replace(base, train=SplitConfig(), corpora=corpora))
    counts = prepared.counts["corpora.long"]
    assert counts.read == 2700
    dropped = {reason: len(lines) for reason, (_, lines) in odd.items()}
    assert {reason: n for reason, n in counts.dropped.items() if n} == dropped
    sizes = {"long": 2700 - sum(dropped.values()), "short": 300, "last": 30}
    for name, size in sizes.items():
        assert prepared.counts[f"corpora.{name}"].kept == size
    assert prepared.mixture is not None
    assert prepared.mixture.sizes == sizes
    assert len(prepared.train) == sum(sizes.values())
    (warning,) = [line for line in prepared.warnings if "equal to its source" in line]
    first = ", ".join(f"{corpora['long'].source}:{line}" for line in equal[:3])
    blank = dropped["blank source"] + dropped["blank target"]
    assert warning.startswith(f"{len(equal)} of {2700 - blank:,} training pairs have a target")
    assert f"first {first}: check" in warning


def test_a_line_that_is_missing_in_a_later_part_of_the_text_is_reported(
    run: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq.data.encoding._ENCODED_PAIRS", 1000)
    sources, targets = map(list, zip(*sentences(3000, seed=1), strict=True))
    del targets[2100]
    config = run.configure(list(zip(sources, targets, strict=False)))
    (warning,) = run.of(config).warnings
    assert "hardly correlate in 1 of 3 windows" in warning
    assert f"first at {config.train.source}:2001 to 2999" in warning


def test_extreme_length_ratios_are_reported_with_their_lines(run: Preparation) -> None:
    pairs = sentences(400, seed=1)
    for line in (11, 12, 200, 300):
        pairs[line - 1] = ("", "A")
    for line in (20, 30, 40, 50, 60):
        pairs[line - 1] = ("a", "THE " * 60)
    config = run.configure(pairs)
    run.of(config)
    places = ", ".join(f"{config.train.source}:{line}" for line in (20, 30, 40))
    assert "5 of 396 training pairs have one side over 9 times as long" in run
    assert f"first {places}: check" in run


@pytest.mark.parametrize(
    ("vocabulary", "remedy"),
    [
        ("learned", None),
        ("normalized", "set data.tokenizer.normalization=identity"),
        ("of other text", "set data.tokenizer.byte_fallback=true"),
        ("given", "the vocabulary is that of init_from"),
    ],
)
def test_references_that_can_t_be_written_are_reported(
    run: Preparation, vocabulary: str, remedy: str | None
) -> None:
    lines = [*sentences(17, seed=98), ("a", " A  B"), ("a", "A RIVER，，")]
    valid = [("a", "A\nB"), *lines]  # a translation has no such end of a line
    normalization = "nmt_nfkc" if vocabulary == "normalized" else "identity"
    options = TokenizerConfig(vocab_size=60, normalization=normalization)
    given = Tokenizer.train(chain(*TRAIN), options) if vocabulary == "given" else None
    train = TRAIN if vocabulary == "of other text" else TRAIN + lines
    path = run.folder / "valid.jsonl"
    rows = (json.dumps(dict(zip(("source", "target"), pair, strict=True))) for pair in valid)
    path.write_text("\n".join(rows))
    config = run.configure(train, tokenizer=options)
    config.valid = SplitConfig(pairs=str(path))
    config.valid_sets["more"] = config.valid
    run.of(config)
    run.clear()
    run.of(config, given)  # also when the folder is reused
    for name in ("valid", "valid_sets.more"):
        message = f"5.0% of the references of {name} can't be written by the tokenizer, first"
        assert (f"{message} {path}:20 ('，'): {remedy}" in run) == bool(remedy)


def test_the_time_to_check_a_pair_grows_with_its_length() -> None:
    def seconds(unit: str, count: int) -> float:
        start = time.thread_time()
        Findings().check(0, [[unit * count + "x"], ["a"]], np.array([[2], [2]]), max_ratio=9.0)
        return time.thread_time() - start

    for unit in ('"', "&#1", "&", "@"):
        # The square of four times the length takes 16 times as long.
        assert any(seconds(unit, 8000) < 9 * seconds(unit, 2000) for _ in range(3)), unit


@pytest.mark.parametrize(
    ("pair", "number", "message"),
    [
        (("a {} X", "a {} X"), 150, "have a target equal to its source, first {0}:2, {0}:4"),
        (("a {} &#39;b", "C"), 150, "have HTML entities such as &quot;, first {0}:2, {0}:4"),
        (("a {}", "&amp;quot;B"), 150, "have HTML entities such as &quot;, first {0}:2, {0}:4"),
        (("a {}", '"A ""b"""'), 150, "are quoted as by a spreadsheet, first {0}:2, {0}:4"),
        (("a hou@@ se {}", "B"), 150, "have pieces of words in them (@@ or ▁), first {0}:2"),
        (("a {}", "▁A ▁B"), 150, "have pieces of words in them (@@ or ▁), first {0}:2"),
        (("the a", "A THE"), 149, "are copies of another one: check"),
    ],
)
def test_pairs_that_teach_errors_are_reported(
    run: Preparation, pair: tuple[str, str], number: int, message: str
) -> None:
    pairs = [*TRAIN]
    for line in range(2, 302, 2):
        pairs[line - 1] = (pair[0].format(line), pair[1].format(line))
    config = run.configure(pairs)
    warning, *_ = run.of(config).warnings
    assert warning.startswith(
        f"{number} of 300 training pairs {message.format(config.train.source)}"
    )


@pytest.mark.parametrize(
    ("swapped", "share"), [(range(300), "100%"), (range(1, 300, 3), "33%"), (range(2), None)]
)
def test_sides_that_are_swapped_against_the_validation_are_reported(
    run: Preparation, swapped: range, share: str | None
) -> None:
    pairs = [pair[::-1] if i in swapped else pair for i, pair in enumerate(TRAIN)]
    config = run.configure([("", ""), *pairs])
    warnings = run.of(config).warnings
    assert len(warnings) == bool(share)
    if share:
        first = ", ".join(f"{config.train.source}:{i + 2}" for i in swapped[:3])
        assert warnings[0].startswith(f"{share} of the pairs of train seem to have source and")
        assert f"first {first}: check" in warnings[0]


def test_the_first_pairs_of_a_sample_are_named_in_the_order_of_their_file(run: Preparation) -> None:
    config = run.configure([pair[::-1] for pair in TRAIN])
    sample = Sample(Split(config, "train"), size=100)
    assert len(list(sample.pairs())) == 300
    (warning,) = sample.warnings([SentencePair(*pair) for pair in TRAIN], run.of(config).tokenizer)
    assert warning.startswith("100% of the pairs")
    lines = [int(line) for line in re.findall(r"train\.source:(\d+)", warning)]
    assert len(lines) == 3
    # Of the first 15 lines, all but one in 400 samples of a third have three.
    assert lines == sorted(lines)[:3]
    assert lines[-1] <= 15


def test_sides_of_the_same_words_are_never_swapped(run: Preparation) -> None:
    reverse = [(line, " ".join(reversed(line.split()))) for line, _ in TRAIN]
    assert run([pair[::-1] for pair in reverse], reverse[:40]).warnings[1:] == []


@pytest.mark.parametrize("side", [0, 1])
def test_one_sentence_for_many_others_is_reported(run: Preparation, side: int) -> None:
    pairs = [*TRAIN]
    for line in range(11, 111):
        source, target = TRAIN[line]
        pairs[line - 1] = (source, "a house") if side else ("a house", target)
    config = run.configure(pairs)
    warning = run.of(config).warnings[-1]
    this, other = ("source", "target")[:: 1 - 2 * side]
    says = f"100 of 300 pairs of train have the same {this} with different {other}s, first"
    assert warning.startswith(f"{says} {config.train.source}:11: check")
