"""Lines are the same from every kind of file and stream, and are written as they are read."""

import bz2
import gzip
import io
import lzma
import random
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data.checks import FilterCounts
from seq2seq.data.pairs import PairsFile
from seq2seq.errors import UserError
from seq2seq.text import (
    COMPRESSIONS,
    count_lines,
    create_binary,
    decode_leniently,
    iterate_lines,
    open_binary,
    read_text_lines,
    without_secrets,
)

# Each is a line break to some reader: str.splitlines, csv, universal newlines.
SEPARATORS = ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r", "\n\r", "\r\r"]

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda raw: raw,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": COMPRESSIONS[".zst"].compress,
}


def split(raw: bytes) -> list[bytes]:
    return list(iterate_lines(io.BytesIO(raw)))


def rule(raw: bytes) -> list[bytes]:
    """The same rule, stated of the whole text at once."""
    lines = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if raw.endswith(b"\n") or raw == b"":
        lines.pop()
    return [line[:-1] if line.endswith(b"\r") else line for line in lines]


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_only_a_newline_ends_a_line(tmp_path: Path, suffix: str) -> None:
    text = "right".join(f"left{separator}" for separator in SEPARATORS)
    expected = [*f"{text}right".split("\n"), "x" * 3_000_000, "last"]
    path = tmp_path / f"text{suffix}"
    path.write_bytes(COMPRESSORS[suffix]("\n".join(expected).encode() + b"\n"))
    assert list(read_text_lines(path)) == expected
    assert count_lines(path) == len(expected)


@given(st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"a", b"\x00", b"\xff"])))
def test_lines_follow_the_rule(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    if raw == b"\xef\xbb\xbf":
        raw += b"\n"  # a mark alone: whether that is a line is nobody's concern
    assert split(raw) == rule(raw)


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"b\xffd", "byte 0xff at position 2"),
        (gzip.compress(b"a"), "compressed, not text; let its name end in .gz"),
        ("a".encode("utf-16-le"), "NUL"),
        ("a".encode("utf-16"), "iconv -f utf-16 -t utf-8"),
    ],
    ids=["utf8", "gzip", "nul", "utf16"],
)
def test_bad_text_names_file_and_line(tmp_path: Path, suffix: str, bad: bytes, says: str) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(COMPRESSORS[suffix](b"fine\n" + bad + b"\nfine\n"))
    with pytest.raises(UserError) as caught:
        list(read_text_lines(path))
    assert f"{path}:2: " in str(caught.value)
    assert says in str(caught.value)


@given(st.binary())
def test_lenient_decoding_never_fails(raw: bytes) -> None:
    text, replaced = decode_leniently(raw)
    assert "\0" not in text
    try:
        sound = "\0" not in raw.decode()
    except UnicodeDecodeError:
        sound = False
    assert replaced is not sound
    if sound:
        assert text.encode() == raw
    else:
        assert "\ufffd" in text


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst", ".bz2"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda stream: stream[:10],
        lambda stream: stream[:-1],
        lambda stream: stream + stream[:9],
        lambda stream: stream + bytes([stream[0] ^ 1]) + stream[1:],
        lambda stream: stream + bytes([0]) + stream[1:],
        lambda stream: stream + bytes(8) + stream[:2] + b"?" + stream[3:],
        lambda stream: stream + b"what is no stream",
    ],
    ids=["the start", "cut", "a second one cut", "byte 1", "byte 1 NUL", "byte 3", "no stream"],
)
def test_a_corrupt_archive_is_noticed(
    tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(damage(COMPRESSORS[suffix](b"".join(b"line %d\n" % i for i in range(5000)))))
    with pytest.raises(UserError, match=str(path)):
        list(read_text_lines(path))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_streams_are_read_as_one(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"".join(map(COMPRESSORS[suffix], (b"a\nb", b"", b"c\nd\n"))))
    assert list(read_text_lines(path)) == ["a", "bc", "d"]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst", ".bz2"])
@pytest.mark.parametrize("padding", [4, 1 << 19], ids=["few NULs", "many"])
def test_streams_are_read_as_one_with_padding_between_and_after(
    tmp_path: Path, suffix: str, padding: int
) -> None:
    path = tmp_path / f"text{suffix}"
    streams = map(COMPRESSORS[suffix], (b"a\nb", b"c\nd\n"))
    path.write_bytes(b"".join(stream + bytes(padding) for stream in streams))
    assert list(read_text_lines(path)) == ["a", "bc", "d"]


def test_what_parallel_zstd_writes_between_its_frames_is_skipped(tmp_path: Path) -> None:
    path, skippable = tmp_path / "text.zst", bytes.fromhex("502a4d18 04000000 12000000")
    frames = map(COMPRESSORS[".zst"], (b"a\nb", b"c\nd\n"))
    path.write_bytes(b"".join(skippable + frame for frame in frames))
    assert list(read_text_lines(path)) == ["a", "bc", "d"]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst", ".bz2"])
def test_a_url_is_read_like_a_file(suffix: str) -> None:
    url = f"memory://lines/text{suffix}"
    packed = COMPRESSORS[suffix](b"one\n") + COMPRESSORS[suffix](b"two\n")
    with fsspec.open(url, "wb") as file:
        file.write(packed)
    assert list(read_text_lines(url)) == ["one", "two"]
    with fsspec.open(url, "wb") as file:
        file.write(packed[:-1])
    with pytest.raises(UserError, match=re.escape(url)):
        list(read_text_lines(url))
    with pytest.raises(UserError, match="memory://absent: no such file"):
        open_binary("memory://absent")


@pytest.mark.parametrize("suffix", [*COMPRESSORS, ".GZ"])
def test_written_files_are_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    with create_binary(path) as file:
        file.write(b"one\ntwo\n")
    assert list(read_text_lines(path)) == ["one", "two"]
    assert path.read_bytes().startswith(b"one") == (suffix == "")
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(("name", "says"), [(".", "is a folder"), ("file/text", "Not a directory")])
def test_places_that_cannot_be_written_are_named(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=f"can't be written: .*{says}"),
        create_binary(tmp_path / name),
    ):
        pass
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_file_that_grows_too_large_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with (
            pytest.raises(UserError, match=f"text{re.escape(suffix)}: can't be written: File too"),
            create_binary(path) as file,
        ):
            file.write(random.Random(1).randbytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not path.exists()


def test_lines_come_before_the_stream_ends() -> None:
    def endless() -> Iterable[bytes]:
        yield b"first\n"
        raise AssertionError("asked for more than the first line")

    assert next(iterate_lines(endless())) == b"first"


def test_a_blank_last_line_of_a_tsv_is_no_pair_and_one_within_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\nc\td\n\n")
    assert list(PairsFile(str(path), ("en", "de")).pairs()) == [("a", "b"), ("c", "d")]
    path.write_text("a\tb\n\nc\td\n")
    with pytest.raises(UserError, match=r"pairs\.tsv:2: has 0 tabs"):
        list(PairsFile(str(path), ("en", "de")).pairs())


def test_many_skipped_pairs_are_a_warning_that_names_the_key() -> None:
    (warning,) = FilterCounts(read=120, dropped={"too long": 100}).warnings("train")
    assert "100 of 120 pairs of train are skipped" in warning
    assert "raise data.filter.max_tokens" in warning
    held_out = {"too long": 12, "source in data.valid": 90}
    assert FilterCounts(read=120, dropped=held_out).warnings("train") == []


def test_the_time_to_hide_secrets_grows_with_the_text() -> None:
    def seconds(unit: str, count: int) -> float:
        start = time.thread_time()
        assert without_secrets(unit * count) == unit * count
        return time.thread_time() - start

    for unit in ("?", "&", "key", "?key", "?a=b"):
        # The square of four times the count takes 16 times as long.
        assert any(seconds(unit, 4000) < 9 * seconds(unit, 1000) for _ in range(3)), unit
    assert without_secrets("a?b=c?d&my_Key=e&f") == "a?b=c?d&my_Key=***&f"
