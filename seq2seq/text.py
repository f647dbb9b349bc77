r"""Text: lines of files and URLs, and pairs of sentences from files, before they are encoded.

A line ends at the byte ``\n`` and nowhere else. One ``\r`` before it belongs to the ending, a
byte order mark at the start of the text is dropped, and a last line without an ending counts.
U+2028, U+0085, vertical tabs, lone carriage returns and the like are characters of a sentence: a
reader that breaks lines there shifts every pair that follows.

Unequal line counts, malformed rows and bytes that are not UTF-8 are errors that name file and line,
and are never skipped: one line lost on one side would shift every pair after it.
"""

import bz2
import gzip
import io
import locale
import lzma
import os
import re
import sys
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from seq2seq.errors import UserError, reason_of
from seq2seq.files import errors_as_user_errors, output_file

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


COMPRESSIONS: dict[str, Any] = {".gz": gzip, ".xz": lzma, ".bz2": bz2, ".zst": zstd}

_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    ".bz2": bz2.BZ2Decompressor,
    ".zst": zstd.ZstdDecompressor,
}
_BEGINNINGS = {
    ".gz": re.compile(rb"\x1f\x8b"),
    ".xz": re.compile(rb"\xfd7zXZ"),
    ".bz2": re.compile(rb"BZh[1-9]1AY&SY"),
    ".zst": re.compile(rb"\x28\xb5\x2f\xfd"),
}
"""How compressed files begin."""

_BUFFER_BYTES = 1 << 18

_SECRET = re.compile(
    r"([?&](?=[^\s?=&#'\"]*?(?:auth|credential|key|passw|pwd|secret|sig|token))[^\s?=&#'\"]*+=)"
    r"[^\s&#'\"]+",
    re.IGNORECASE,
)
"""A parameter of a URL, such as `?token=`."""


def is_url(path: str | Path) -> bool:
    """Return whether fsspec opens a path, such as ``s3://bucket/train.en``."""
    return "://" in str(path)


def without_secrets(text: str) -> str:
    """Replace by `***` what URLs in a text have of names with passwords, and of keys and tokens."""
    text = re.sub(r"(\w://)[^\s/?#'\"]*@", r"\1***@", text)
    return _SECRET.sub(r"\1***", text)


def open_raw(path: str | Path) -> io.BufferedReader:
    """Open a file, or a URL of any protocol of fsspec, for reading as it is stored."""
    try:
        if not is_url(path):
            return Path(path).expanduser().open("rb")
        import fsspec  # late, because the import takes a tenth of a second

        return io.BufferedReader(fsspec.open(str(path), "rb").open(), _BUFFER_BYTES)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except Exception as error:  # those of networks share no class
        raise UserError(f"{path}: can't be read: {reason_of(error)}") from None


def open_binary(path: str | Path) -> BinaryIO:
    """Open a file or a URL for reading, decompressed as its suffix says (.gz, .xz, .zst, .bz2)."""
    file, suffix = open_raw(path), Path(path).suffix.lower()
    read: Callable[[int], bytes] = file.read
    if suffix == ".gz":
        read = gzip.GzipFile(fileobj=file).read
    elif suffix in _DECOMPRESSORS:
        read = _Streams(file, _DECOMPRESSORS[suffix]).read
    return io.BufferedReader(_NamedReader(read, file, str(path)), _BUFFER_BYTES)


@contextmanager
def create_binary(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for writing, compressed as its suffix says (.gz, .xz, .zst, .bz2).

    It gets its name only when it is complete; see `output_file`.
    """
    if os.path.basename(path) in ("", "."):  # which Path would drop
        raise UserError(f"{path}: names a folder; give the path of a file")
    path = Path(path).expanduser()
    with (
        errors_as_user_errors(path),
        output_file(path) as file,
        _compressor(file, path.suffix.lower()) as stream,
    ):
        yield stream


def iterate_lines(stream: Iterable[bytes], *, keep_returns: bool = False) -> Iterator[bytes]:
    """Yield the lines of a binary stream without their endings, or with a carriage return."""
    mark = BOM_UTF8
    for line in stream:
        text = line.removeprefix(mark).removesuffix(b"\n")
        yield text if keep_returns else text.removesuffix(b"\r")
        mark = b""


def count_lines(path: str | Path) -> int:
    """Count the lines of a file, whatever its bytes."""
    with open_binary(path) as stream:
        return sum(1 for _ in iterate_lines(stream))


def read_text_lines(path: str | Path) -> Generator[str]:
    """Yield the lines of a UTF-8 file or URL; what is not UTF-8, or NUL, is an error."""
    with open_binary(path) as stream:
        for number, raw in enumerate(iterate_lines(stream), start=1):
            line, replaced = decode_leniently(raw)
            if replaced:
                raise UserError(f"{path}:{number}: {why_not_text(raw)}")
            yield line


def decode_leniently(raw: bytes) -> tuple[str, bool]:
    """Decode any bytes, and say whether any, not UTF-8 or NUL, was replaced by U+FFFD."""
    text = raw.decode(errors="replace").replace("\0", "\ufffd")
    return text, "\ufffd" in text and text.encode() != raw


def why_archive(raw: bytes) -> str:
    """Say what the first line of an archive or a compressed file is, and what to do; or ""."""
    if raw[257:262] == b"ustar":
        return "a tar archive, not text; extract its files: tar -xf"
    if raw.startswith(b"PK\3\4"):
        return "a ZIP archive, not text; extract its files: unzip"
    for suffix, beginning in _BEGINNINGS.items():
        if beginning.match(raw):
            return (
                f"compressed, not text; let its name end in {suffix}, or if it is an archive, such"
                " as .tgz, extract its files: tar -xf"
            )
    return ""


def why_not_text(raw: bytes) -> str:
    """Say what in a line is not text in UTF-8, and what to do."""
    if reason := why_archive(raw):
        return reason
    if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "UTF-16, not UTF-8; convert the text: iconv -f utf-16 -t utf-8"
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return (
            f"byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line is not UTF-8;"
            " convert the text, such as by iconv -f latin1 -t utf-8"
        )
    return "a NUL character, which no text has; remove it, or convert the text from UTF-16"


NOT_PLAIN = "begins as markup, data or a program, not as lines of text"
_CODE = re.compile(
    r"\s*(?:<(?:[?!]|[a-zA-Z][^<>]*(?:\n|\Z|>\s*(?:[\n<]|\Z)))"  # XML and HTML
    r"|\{\s*(?:[\"}\n]|\Z)|\[\s*(?:[\"{\[\]\n]|\Z)"  # JSON
    r"|#!|%!|//|/\*|\(\*|;;|#include"
    r"|(?:using|use|package|import|namespace) [\w.:\\]+\s*(?:\{|;\s*\n)"
    r"|---[ \r]*\n|\\[a-z]+[{\[]|WEBVTT|(?:\d+\s+)?[\d:.,]+ -->)"  # YAML, TeX, subtitles
)


def why_packed(beginning: bytes) -> str:
    """Say why the text of a file that begins so must be taken out of it first, or return ""."""
    if beginning.startswith((b"%PDF-", b"{\\rtf")):
        return "PDF or RTF, not plain text; extract its text first"
    return why_archive(beginning)


def begins_as_code(content: str) -> bool:
    """Tell whether a file begins as markup, data or a program."""
    return bool(_CODE.match(content))


class _NamedReader(io.RawIOBase):
    """The decompressed content of a file; failures are user errors that name it."""

    def __init__(self, read: Callable[[int], bytes], file: BinaryIO, path: str) -> None:
        self._read, self._file, self._path = read, file, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            block = self._read(len(buffer))
        except EOFError:
            raise UserError(f"{self._path}: the archive is cut short; copy it again") from None
        except Exception as error:  # those of compressions and networks share no class
            raise UserError(f"{self._path}: can't be read: {reason_of(error)}") from None
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Streams:
    """The content of a file of compressed streams, one after the other, also with NULs between.

    `open` of lzma and bz2 takes a stream that is damaged at its beginning for the end of the file.
    """

    def __init__(self, file: BinaryIO, decompressor: Callable[[], Any]) -> None:
        self._file, self._new = file, decompressor
        self._stream = decompressor()

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end of the file."""
        while True:
            data = b""
            if self._stream.eof:
                data = self._stream.unused_data.lstrip(b"\0")
                while not data:
                    if not (block := self._file.read(_BUFFER_BYTES)):
                        return b""
                    data = block.lstrip(b"\0")
                self._stream = self._new()
            elif self._stream.needs_input and not (data := self._file.read(_BUFFER_BYTES)):
                raise EOFError
            if content := self._stream.decompress(data, size):
                return cast(bytes, content)


def _compressor(file: BinaryIO, suffix: str) -> AbstractContextManager[BinaryIO]:
    if suffix not in COMPRESSIONS:
        return nullcontext(file)
    if suffix == ".gz":  # without a name and the time, so that equal content makes equal files
        return cast(AbstractContextManager[BinaryIO], gzip.GzipFile("", "wb", 9, file, mtime=0))
    return cast(AbstractContextManager[BinaryIO], COMPRESSIONS[suffix].open(file, "wb"))


class SentencePair(NamedTuple):
    """A sentence and its translation, as they stand in the corpus."""

    source: str
    target: str


def has_text(pair: SentencePair) -> bool:
    """Return whether a pair has text on both sides."""
    return all(map(str.strip, pair))


def read_two_files(source: str, target: str) -> Iterator[SentencePair]:
    """Stream the pairs of two files, line by line."""
    with closing(read_text_lines(source)) as sources, closing(read_text_lines(target)) as targets:
        for number, (source_line, target_line) in enumerate(zip_longest(sources, targets), start=1):
            if source_line is None or target_line is None:
                raise UserError(
                    f"{source} has {count_lines(source):,} lines and {target} has"
                    f" {count_lines(target):,} lines: line {number:,} is the first without a"
                    " partner; give files where line k of one belongs to line k of the other"
                )
            yield SentencePair(source_line, target_line)


# Words of headers, besides the codes and names of languages that Python knows.
_WORDS = """
  source target src tgt term original translation text sentence sentences language eng deu ger fra
  fre spa ita por nld rus jpn zho us gb br british american brazilian simplified traditional chinese
  ukrainian persian hindi latin latvian esperanto indonesian vietnamese irish welsh serbian
  englisch französisch spanisch italienisch russisch anglais allemand espagnol español inglés
  alemán italiano português nederlands polski русский українська čeština svenska norsk suomi
  magyar türkçe 中文 日本語 bengali swahili quelle ziel hans hant germany france
"""
_HEADER = {*locale.locale_alias, *_WORDS.split()}


def is_header(line: str) -> bool:
    """Tell whether the two columns of a line name two languages."""
    cells = [re.findall(r"[^\W_]+", cell) for cell in line.casefold().split("\t")]
    return (
        len(cells) == 2
        and cells[0] != cells[1]
        and all(cell and _HEADER.issuperset(cell) for cell in cells)
        and re.fullmatch(r'[\w\s"():/-]+', line) is not None
    )


_FIELD = r'"(?:[^"]|"")*"|[^"\t\r]+'
_FIELDS, _ROW = re.compile(_FIELD), re.compile(rf"(?:{_FIELD})?(?:\t(?:{_FIELD})?)*")
_CELLS = re.compile(rf"(?:\A|\t)({_FIELD}|)")


def is_quoted(path: str | Path, lines: Iterable[tuple[int, str]]) -> bool:
    """Return whether all quotation marks of a file's lines, given by number, are a spreadsheet's.

    They stand around fields, and are doubled within. As a plain text may have such fields, one of
    them must hold a quotation mark or a tab, or all fields are quoted, or just those with a comma.
    Where nine lines in ten have quoted fields alone, one that breaks the quoting is an error.
    """
    is_needed, kinds = False, set[tuple[bool, bool]]()
    count, all_quoted, broken = 0, 0, 0  # lines, those of quoted fields alone, the first no row
    for number, line in lines:
        count += 1
        if '"' not in line:
            kinds.add((False, "," in line))
        elif not _ROW.fullmatch(line):
            broken = broken or number
        else:
            fields = _FIELDS.findall(line)
            kinds.update((field[0] == '"', "," in field) for field in fields)
            is_needed = is_needed or any(re.search('""|\t', field[1:-1]) for field in fields)
            all_quoted += all(field[0] == '"' for field in fields)
    if broken and all_quoted > 0.9 * count:
        raise UserError(
            f"{path}:{broken}: a quotation mark that is not doubled, or a line break within a cell,"
            " in a file of quoted cells: repair the cell"
        )
    quoted, with_comma = zip(*kinds, strict=True) if kinds else ((), ())
    return not broken and (is_needed or (any(quoted) and (all(quoted) or quoted == with_comma)))


def split_cells(line: str, *, quoted: bool) -> list[str]:
    """Return the cells of a line, of which a spreadsheet may have quoted some."""
    if not quoted or '"' not in line:
        return line.split("\t")
    cells: list[str] = _CELLS.findall(line)
    return [cell[1:-1].replace('""', '"') if cell[:1] == '"' else cell for cell in cells]
