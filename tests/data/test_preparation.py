"""Preparation: filters with counts, a cache that repairs itself, warnings about the text."""

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, islice
from multiprocessing import parent_process
from pathlib import Path
from unittest.mock import patch

import pytest

from seq2seq.batches import EncodedCorpus
from seq2seq.data.corpus import DataConfig, FilterConfig, Split, SplitConfig
from seq2seq.data.corpus import sha256_of_file as sha256
from seq2seq.data.encoding import map_in_processes
from seq2seq.data.preparation import prepare
from seq2seq.errors import UserError
from seq2seq.text import SentencePair
from seq2seq.tokenizer import Tokenizer, TokenizerConfig

WORDS = ["house", "small", "tree", "green", "river", "stone", "light", "bread", "the", "a"]


def sentences(number: int, seed: int) -> list[SentencePair]:
    generator = random.Random(seed)
    drawn = [generator.choices(WORDS, k=generator.randint(5, 20)) for _ in range(number)]
    return [SentencePair(" ".join(words), " ".join(reversed(words)).upper()) for words in drawn]


def configure(
    folder: Path,
    train: list[SentencePair],
    valid: list[SentencePair] | None = None,
    **options: object,
) -> DataConfig:
    config = DataConfig(tokenizer=TokenizerConfig(vocab_size=80))
    for split, pairs in (("train", train), ("valid", valid or sentences(20, seed=99))):
        paths = {side: str(folder / f"{split}.{side}") for side in ("source", "target")}
        for side, path in paths.items():
            lines = "".join(getattr(pair, side) + "\n" for pair in pairs)
            Path(path).write_text(lines, encoding="utf-8", newline="")
        setattr(config, split, SplitConfig(**paths))
    return replace(config, **options)  # type: ignore[arg-type]


def contents(corpus: EncodedCorpus) -> list[tuple[list[int], list[int]]]:
    rows = range(len(corpus))
    return [(corpus.source(row).tolist(), corpus.target(row).tolist()) for row in rows]


def files(folder: Path) -> dict[str, bytes]:
    """The content of each file, without the times in the report."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    report = json.loads(found["report.json"])
    del report["states"], report["read"]
    return found | {"report.json": json.dumps(report).encode()}


class Log(list[str]):
    """What was reported."""

    __call__ = list.append

    def __contains__(self, text: object) -> bool:
        return any(str(text) in line for line in self)


@pytest.fixture
def log() -> Log:
    return Log()


def test_only_a_run_that_samples_keeps_the_training_text(tmp_path: Path, log: Log) -> None:
    train = [*sentences(60, seed=1), SentencePair("", "blank"), SentencePair("a", "b " * 300)]
    plain = configure(tmp_path, train)
    folders = [
        prepare(
            replace(plain, tokenizer=replace(plain.tokenizer, sampling=rate)), tmp_path / "c", log
        ).folder
        for rate in (0.0, 0.1, 0.3)
    ]
    assert folders[0] != folders[1] == folders[2]
    without, with_text = files(folders[0]), files(folders[1])
    del without["report.json"], with_text["report.json"]
    kept = [SentencePair(*json.loads(line)) for line in with_text.pop("train.jsonl").splitlines()]
    assert kept == train[:60]
    assert with_text == without


def test_the_pairs_come_out_as_they_went_in(tmp_path: Path, log: Log) -> None:
    train, valid = sentences(300, seed=1), sentences(30, seed=2)
    prepared = prepare(configure(tmp_path, train, valid), tmp_path / "cache", log)
    for corpus, pairs in ((prepared.train, train), (prepared.valid_sets["valid"].corpus, valid)):
        assert [
            tuple(prepared.tokenizer.decode([source, target]))
            for source, target in contents(corpus)
        ] == pairs
    assert prepared.valid_sets["valid"].pairs == valid
    assert prepared.tokenizer.vocab_size == 80
    assert "train: 300 pairs read, 300 kept" in log
    assert "valid: 30 pairs read, 30 kept" in log
    assert prepared.warnings == []


def test_filters_drop_whole_pairs_and_count_them(tmp_path: Path, log: Log) -> None:
    good = sentences(300, seed=1)
    bad = {
        "blank source": [
            SentencePair("", "a"),
            SentencePair(" \u2003\u00a0", "a"),
            SentencePair("", ""),
        ],
        "blank target": [SentencePair("a", "\t ")],
        "too long": [SentencePair("house " * 120, "a"), SentencePair("a", "TREE " * 120)],
        "length ratio": [SentencePair("a", "THE " * 30)],
    }
    mixed = [*good[:100], *chain.from_iterable(bad.values()), *good[100:]]
    config = configure(tmp_path, mixed, filter=FilterConfig(max_tokens=100, max_length_ratio=5))
    prepared = prepare(config, tmp_path / "cache", log)
    counts = prepared.counts["train"]
    assert counts.dropped == {reason: len(pairs) for reason, pairs in bad.items()}
    assert (counts.read, counts.kept) == (len(mixed), 300)
    expected = [
        (prepared.tokenizer.encode([source])[0], prepared.tokenizer.encode([target])[0])
        for source, target in good
    ]
    assert [(source[:-1], target[:-1]) for source, target in contents(prepared.train)] == expected
    assert (
        f"train: {len(mixed)} pairs read, 300 kept; skipped: 3 blank source, 1 blank target,"
        " 2 too long, 1 length ratio"
    ) in log


@pytest.mark.parametrize("limit", [40, 41])
def test_the_limits_are_inclusive_and_count_the_end(tmp_path: Path, log: Log, limit: int) -> None:
    train = sentences(300, seed=1)
    loose = prepare(configure(tmp_path, train), tmp_path / "cache", log)
    tight = prepare(
        configure(tmp_path, train, filter=FilterConfig(max_tokens=limit, max_length_ratio=1)),
        tmp_path / "cache",
        log,
    )
    expected = [
        (source, target)
        for source, target in contents(loose.train)
        if max(len(source), len(target)) <= limit and len(source) == len(target)
    ]
    assert contents(tight.train) == expected
    assert 0 < len(expected) < len(train)


def test_validation_keeps_its_text_and_drops_for_the_loss_only(tmp_path: Path, log: Log) -> None:
    valid = [
        SentencePair("", "a"),
        SentencePair("a  house", "A\u2028B"),
        SentencePair("a", "TREE " * 12),
        SentencePair("a", "TREE " * 90),
    ]
    limits = FilterConfig(max_tokens=30, max_length_ratio=2)
    config = configure(tmp_path, sentences(300, seed=1), valid, filter=limits)
    prepared = prepare(config, tmp_path / "cache", log)
    assert prepared.valid_sets["valid"].pairs == valid
    assert len(prepared.valid_sets["valid"].corpus) == 2
    assert prepared.counts["valid"].dropped["length ratio"] == 0


def test_the_tokenizer_sees_the_training_pairs_alone(tmp_path: Path, log: Log) -> None:
    train = sentences(300, seed=1)
    half_blank = [SentencePair("Ω" * 9, ""), SentencePair("", "Ω" * 9)]
    first = prepare(configure(tmp_path, train), tmp_path / "cache", log)
    second = prepare(
        configure(tmp_path, train + half_blank, [SentencePair("Ω", "Ω")]), tmp_path / "cache", log
    )
    assert first.tokenizer.model_bytes == second.tokenizer.model_bytes
    both_sides = [sentence for pair in train for sentence in pair]
    alone = Tokenizer.train(both_sides, TokenizerConfig(vocab_size=80))
    assert first.tokenizer.model_bytes == alone.model_bytes


def test_the_same_content_is_prepared_once(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = sentences(300, seed=1)
    cache = tmp_path / "cache"
    first = prepare(configure(tmp_path, train), cache, log)
    pairs = Split.pairs

    def without_train(split: Split) -> Iterator[SentencePair]:
        assert split.name == "valid"
        return pairs(split)

    monkeypatch.setattr(Split, "pairs", without_train)
    (tmp_path / "elsewhere").mkdir()
    copied = configure(tmp_path / "elsewhere", train, name="another name")
    second = prepare(copied, cache, log)
    assert f"reusing {first.folder}" in log
    assert contents(first.train) == contents(second.train)
    assert first.counts == second.counts
    assert first.warnings == second.warnings


def test_other_content_or_settings_get_another_folder(tmp_path: Path, log: Log) -> None:
    train, valid = sentences(300, seed=1), sentences(20, seed=2)
    base = configure(tmp_path, train, valid)
    variants = [
        base,
        replace(base, source_language="en"),
        replace(base, filter=FilterConfig(max_tokens=40)),
        replace(base, tokenizer=TokenizerConfig(vocab_size=81)),
        replace(base, tokenizer=TokenizerConfig(vocab_size=80, normalization="nfkc")),
    ]
    folders = {prepare(config, tmp_path / "cache", log).folder for config in variants}
    for changed in ((train[1:], valid), (train, valid[1:])):
        folders.add(prepare(configure(tmp_path, *changed), tmp_path / "cache", log).folder)
    for number in (20, 30):
        cut = replace(base, valid=SplitConfig(), valid_from_train=number)
        prepared = prepare(cut, tmp_path / "cache", log)
        assert len(prepared.valid_sets["valid"].pairs) == number
        assert f"{300 - number} kept; skipped: {number} source in data.valid" in log
        assert prepared.warnings == []
        folders.add(prepared.folder)
    assert len(folders) == 9
    assert "reusing" not in log


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing", "foreign"])
def test_a_corrupt_folder_is_rebuilt(tmp_path: Path, log: Log, damage: str) -> None:
    config = configure(tmp_path, sentences(300, seed=1))
    prepared = prepare(config, tmp_path / "cache", log)
    sound = files(prepared.folder)
    raw = bytearray(sound["train.ids"])
    middle = len(raw) // 2
    raw[middle] ^= 1
    if damage == "flipped":
        (prepared.folder / "train.ids").write_bytes(raw)
    elif damage == "cut":
        (prepared.folder / "train.ids").write_bytes(raw[:middle])
    elif damage == "missing":
        (prepared.folder / "train_pairs.npy").unlink()
    else:
        (prepared.folder / "report.json").write_text('{"sha256": {"x": "y"}}')
    again = prepare(config, tmp_path / "cache", log)
    assert "is corrupt, or of another version, and is rebuilt" in log
    assert files(again.folder) == sound
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [again.folder.name]


@pytest.mark.parametrize("passes", [1, 2], ids=["tokenizer", "encoding"])
def test_an_interrupted_preparation_leaves_nothing(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    config = configure(tmp_path, sentences(300, seed=1))
    pairs, reads = Split.pairs, []

    def interrupted(split: Split) -> Iterator[SentencePair]:
        reads.append(split.name)
        yield from islice(pairs(split), 150)
        if reads.count("train") == passes:
            raise KeyboardInterrupt

    monkeypatch.setattr(Split, "pairs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(config, tmp_path / "cache", log)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("fails", [False, True], ids=["is made", "fails"])
def test_who_finds_another_one_preparing_waits_for_it(tmp_path: Path, fails: bool) -> None:
    config, cache = configure(tmp_path, sentences(300, seed=1)), tmp_path / "cache"
    logs, waits = (Log(), Log()), threading.Event()
    found: list[Path] = []

    def first(line: str) -> None:
        logs[0](line)
        if "preparing" in line:
            thread.start()
            assert waits.wait(60)
            if fails:
                raise KeyboardInterrupt

    def second(line: str) -> None:
        logs[1](line)
        if "waiting for it" in line:
            waits.set()

    thread = threading.Thread(target=lambda: found.append(prepare(config, cache, second).folder))
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        prepare(config, cache, first)
    thread.join()
    assert ("preparing" in logs[1]) == fails
    assert list(cache.iterdir()) == found


def test_processes_prepare_what_one_does(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(tmp_path, [*sentences(300, seed=1), SentencePair("a", "b " * 300)] * 2)
    config.tokenizer.sampling = 0.1  # so that the text is kept
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setattr("seq2seq.data.encoding._ENCODED_PAIRS", 50)
    made = []
    for few in (1, 100):
        monkeypatch.setattr("seq2seq.data.encoding._FEW_ITEMS", few)
        made.append(files(prepare(config, tmp_path / str(few), log).folder))
    assert made[0] == made[1]


def end_at_once_elsewhere(number: int) -> int:
    if parent_process():
        os._exit(1)
    return number


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert list(map_in_processes(end_at_once_elsewhere, range(10))) == list(range(10))
    with pytest.raises(UserError, match="a process that encodes text has ended"):
        list(map_in_processes(end_at_once_elsewhere, range(30)))


def signal_elsewhere(number: int) -> int:
    if parent_process():
        os.kill(os.getpid(), signal.SIGUSR1)
    return number


def test_a_signal_to_all_processes_is_the_parent_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert list(map_in_processes(signal_elsewhere, range(30))) == list(range(30))


@pytest.mark.integration
def test_a_process_of_joblib_starts_others() -> None:
    joblib = pytest.importorskip("joblib")
    (found,) = joblib.Parallel(2)([joblib.delayed(map_numbers)()])
    assert found == list(range(30))


def map_numbers() -> list[int]:
    with patch("os.sched_getaffinity", lambda process: {0, 1}, create=True):
        return list(map_in_processes(abs, range(30)))


def test_text_is_read_again_only_if_it_may_have_changed(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, cache = configure(tmp_path, sentences(300, seed=1)), tmp_path / "cache"
    first = prepare(config, cache, log)
    hashed: list[str] = []
    monkeypatch.setattr(
        "seq2seq.data.corpus.sha256_of_file", lambda path: hashed.append(path) or sha256(path)
    )
    # Of the cache's own files, there is no sum to compute.
    monkeypatch.setattr("seq2seq.data.preparation.sha256_of_file", None)
    assert prepare(config, cache, log).folder == first.folder
    assert not hashed
    monkeypatch.setattr("seq2seq.data.preparation.sha256_of_file", sha256)
    source = Path(str(config.train.source))
    before, text = source.stat(), source.read_text()
    source.write_text(text.replace("tree", "moss"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert prepare(config, cache, log).folder != first.folder
    assert hashed == [str(source)]


def test_text_that_can_t_be_used_is_refused(tmp_path: Path, log: Log) -> None:
    blank = [SentencePair("", "a"), SentencePair("b", " ")]
    for train, says in (
        ([], "no pair has text on both sides"),
        (blank, "no pair has text on both sides"),
        (sentences(300, seed=1), "no pair is left after the filters: 300 pairs read, 0 kept"),
    ):
        config = configure(tmp_path, train, filter=FilterConfig(max_tokens=2))
        with pytest.raises(UserError, match=says):
            prepare(config, tmp_path / "cache", log)
    (tmp_path / "valid.source").write_text("")
    (tmp_path / "valid.target").write_text("")
    with pytest.raises(UserError, match=r"valid\.target: is empty"):
        prepare(config, tmp_path / "cache", log)
    assert list((tmp_path / "cache").iterdir()) == []


def test_pairs_shared_with_the_training_split_are_reported(tmp_path: Path, log: Log) -> None:
    train = sentences(300, seed=1)
    other_target = SentencePair(train[5].source, "A OTHER")
    valid = [*train[:3], train[0], other_target, SentencePair("house", "A OTHER")]
    for pairs in (train, valid):
        pairs.append(SentencePair("", ""))
    prepared = prepare(configure(tmp_path, train, valid), tmp_path / "cache", log)
    assert "3 of 5 different valid pairs are training pairs too" in log
    log.clear()
    config = configure(tmp_path, train, valid)
    more = replace(config, test=config.valid, valid_sets={"more": config.valid})
    prepare(more, tmp_path / "cache", log)
    assert prepared.warnings[0] in "\n".join(log)  # also when the folder is reused
    # The test split is no part of what is prepared, and is compared whenever it is given.
    assert "reusing" in log
    for name in ("test", "valid_sets.more"):
        assert f"3 of 5 different {name} pairs are training pairs too" in log
    log.clear()
    prepare(config, tmp_path / "cache", log)
    assert "test pairs" not in log
    absent = SplitConfig(source=str(tmp_path / "absent"), target=str(tmp_path / "absent2"))
    with pytest.raises(UserError, match="absent"):
        prepare(replace(config, test=absent), tmp_path / "cache", log)


@pytest.mark.parametrize("back", [False, True], ids=["replaced", "and put back"])
def test_text_that_is_replaced_while_it_is_prepared_is_not_cached(
    tmp_path: Path, log: Log, back: bool
) -> None:
    config = configure(tmp_path, sentences(300, seed=1))
    source = Path(str(config.train.source))
    kept, other = source.with_suffix(".kept"), source.with_suffix(".other")
    other.write_text("".join(f"{pair.source}\n" for pair in sentences(300, seed=2)))

    def replace_text(line: str) -> None:
        log(line)
        if "preparing" in line:
            source.rename(kept)
            other.rename(source)
            if back:
                source.rename(other)
                kept.rename(source)

    with pytest.raises(UserError, match="was changed while it was read"):
        prepare(config, tmp_path / "cache", replace_text)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_pipe_is_no_text_to_train_on(tmp_path: Path, log: Log, split: str) -> None:
    config = configure(tmp_path, sentences(300, seed=1))
    os.mkfifo(tmp_path / "pipe")
    pipe = SplitConfig(source=str(tmp_path / "pipe"), target=config.train.target)
    with pytest.raises(UserError, match="pipe: not a regular file"):
        prepare(replace(config, **{split: pipe}), tmp_path / "cache", log)


def shifted(pairs: list[SentencePair], start: int) -> list[SentencePair]:
    """One target line is missing at ``start``, so that all later ones move up."""
    targets = [pair.target for pair in pairs]
    del targets[start]
    return [SentencePair(pair.source, target) for pair, target in zip(pairs, targets, strict=False)]


def test_a_shifted_corpus_is_reported(tmp_path: Path, log: Log) -> None:
    pairs = sentences(8000, seed=1)
    prepare(configure(tmp_path, pairs), tmp_path / "cache", log)
    assert "warning" not in log
    config = configure(tmp_path, shifted(pairs, 4000))
    prepare(config, tmp_path / "cache", log)
    assert "hardly correlate in 4 of 8 windows" in log
    assert f"first at {config.train.source}:4001 to 5000" in log


def test_extreme_length_ratios_are_reported_with_their_lines(tmp_path: Path, log: Log) -> None:
    pairs = sentences(400, seed=1)
    extreme = SentencePair("a", "THE " * 60)
    for line in (11, 12, 200, 300):
        pairs[line - 1] = SentencePair("", "A")
    for line in (20, 30, 40, 50, 60):
        pairs[line - 1] = extreme
    config = configure(tmp_path, pairs)
    prepare(config, tmp_path / "cache", log)
    places = ", ".join(f"{config.train.source}:{line}" for line in (20, 30, 40))
    assert "5 of 396 training pairs have one side over 9 times as long" in log
    assert f"first {places}: check" in log


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
    tmp_path: Path, log: Log, vocabulary: str, remedy: str | None
) -> None:
    pairs = sentences(300, seed=1)
    valid = [*sentences(18, seed=98), SentencePair("a", " A  B"), SentencePair("a", "A RIVER，")]
    options = TokenizerConfig(
        normalization="nmt_nfkc" if vocabulary == "normalized" else "identity"
    )
    options.vocab_size = 60
    given = Tokenizer.train(chain(*pairs), options) if vocabulary == "given" else None
    train = pairs if vocabulary == "of other text" else pairs + valid
    config = configure(tmp_path, train, valid, tokenizer=options)
    config.valid_sets["more"] = config.valid
    prepare(config, tmp_path / "cache", log)
    log.clear()
    prepare(config, tmp_path / "cache", log, given)  # also when the folder is reused
    for name in ("valid", "valid_sets.more"):
        message = f"5.0% of the references of {name} can't be written by the tokenizer, first"
        assert (f"{message} {config.valid.target}:20 ('，'): {remedy}" in log) == bool(remedy)


@pytest.mark.parametrize(
    ("pair", "number", "message"),
    [
        (("a {} X", "a {} X"), 150, "have a target equal to its source, first {0}:2, {0}:4"),
        (("a {} &#39;b", "C"), 150, "have HTML entities such as &quot;, first {0}:2, {0}:4"),
        (("a {}", "&amp;quot;B"), 150, "have HTML entities such as &quot;, first {0}:2, {0}:4"),
        (("a {}", '"A ""b"""'), 150, "are quoted as by a spreadsheet, first {0}:2, {0}:4"),
        (("the a", "A THE"), 149, "are copies of another one: check"),
    ],
)
def test_pairs_that_teach_errors_are_reported(
    tmp_path: Path, log: Log, pair: tuple[str, str], number: int, message: str
) -> None:
    pairs = sentences(300, seed=1)
    for line in range(2, 302, 2):
        pairs[line - 1] = SentencePair(*(side.format(line) for side in pair))
    config = configure(tmp_path, pairs)
    [warning] = prepare(config, tmp_path / "cache", log).warnings
    assert warning.startswith(
        f"{number} of 300 training pairs {message.format(config.train.source)}"
    )
