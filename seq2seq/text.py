r"""Text: lines of files and URLs, and pairs of sentences from files, before they are encoded.

A line ends at the byte ``\n`` and nowhere else. One ``\r`` before it belongs to the ending, a
byte order mark at the start of the text is dropped, and a last line without an ending counts.
U+2028, U+0085, vertical tabs, lone carriage returns and the like are characters of a sentence: a
reader that breaks lines there shifts every pair that follows.

Unequal line counts, malformed rows and bytes that are not UTF-8 are errors that name file and line,
and are never skipped: one line lost on one side would shift every pair after it.
"""

import bz2
import csv
import gzip
import hashlib
import io
import json
import locale
import lzma
import os
import re
import sys
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

from seq2seq.errors import UserError
from seq2seq.files import errors_as_user_errors, output_file

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


COMPRESSIONS: dict[str, Any] = {".gz": gzip, ".xz": lzma, ".bz2": bz2, ".zst": zstd}

_STREAMS: dict[str, Callable[[], Any]] = {
    ".xz": lzma.LZMADecompressor,
    ".bz2": bz2.BZ2Decompressor,
    ".zst": zstd.ZstdDecompressor,
}
_BUFFER_BYTES = 1 << 18


def is_url(path: str | Path) -> bool:
    """Return whether fsspec opens a path, such as ``s3://bucket/train.en``."""
    return "://" in str(path)


def open_raw(path: str | Path) -> io.BufferedReader:
    """Open a file, or a URL of any protocol of fsspec, for reading as it is stored."""
    try:
        if not is_url(path):
            return Path(path).expanduser().open("rb")
        import fsspec  # late, because the import takes a tenth of a second

        return io.BufferedReader(fsspec.open(str(path), "rb").open(), _BUFFER_BYTES)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; give the path of a file") from None
    except Exception as error:  # those of networks share no class
        raise UserError(f"{path}: can't be read: {reason_of(error)}") from None


def open_binary(path: str | Path) -> BinaryIO:
    """Open a file or a URL for reading, decompressed as its suffix says (.gz, .xz, .zst, .bz2)."""
    file, suffix = open_raw(path), Path(path).suffix.lower()
    if suffix in COMPRESSIONS and not file.peek(1):
        file.close()
        raise UserError(f"{path}: an empty file is not a {suffix} archive; copy it again")
    read: Callable[[int], bytes] = file.read
    if suffix == ".gz":
        read = gzip.GzipFile(fileobj=file).read
    elif suffix in _STREAMS:
        read = _StreamReader(file, _STREAMS[suffix]).read
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


def why_not_text(raw: bytes) -> str:
    """Say what in a line is not text in UTF-8, and what to do."""
    if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "UTF-16, not UTF-8; convert the text: iconv -f utf-16 -t utf-8"
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return (
            f"byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line is not UTF-8;"
            " convert the text, or if it is compressed, let its name say so, as .gz does"
        )
    return "a NUL character, which no text has; remove it, or convert the text from UTF-16"


class _NamedReader(io.RawIOBase):
    """What is read of a file; failures are user errors that name it."""

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


class _StreamReader:
    """Decompress streams; unlike Python's readers, fail on a later one that is corrupt."""

    def __init__(self, file: BinaryIO, new_stream: Callable[[], Any]) -> None:
        self._file, self._new_stream = file, new_stream
        self._stream = new_stream()

    def read(self, size: int, /) -> bytes:
        while True:
            compressed = b""
            if self._stream.eof:
                # Zeros may stand between streams, and after the last one.
                compressed = self._stream.unused_data.lstrip(b"\0")
                while not compressed:
                    if not (more := self._file.read(_BUFFER_BYTES)):
                        return b""
                    compressed = more.lstrip(b"\0")
                self._stream = self._new_stream()
            elif self._stream.needs_input and not (compressed := self._file.read(_BUFFER_BYTES)):
                raise EOFError
            if block := self._stream.decompress(compressed, size):
                return bytes(block)


def _compressor(file: BinaryIO, suffix: str) -> AbstractContextManager[BinaryIO]:
    if suffix not in COMPRESSIONS:
        return nullcontext(file)
    if suffix == ".gz":  # without a name and the time, so that equal content makes equal files
        return cast(AbstractContextManager[BinaryIO], gzip.GzipFile("", "wb", 9, file, mtime=0))
    return cast(AbstractContextManager[BinaryIO], COMPRESSIONS[suffix].open(file, "wb"))


def reason_of(error: Exception) -> str:
    """Return the first line of what an error says."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason.splitlines()[0] if reason else type(error).__name__


# Lines with tabs: plain, or as a spreadsheet writes them.


Languages: TypeAlias = tuple[str, str]
"""Codes of the source language and of the target language."""

_FIELD = r'"(?:[^"]|"")*"|[^"\t\r]+'
_FIELDS, _ROW = re.compile(_FIELD), re.compile(rf"(?:{_FIELD})?(?:\t(?:{_FIELD})?)*")
# What headers consist of, besides the codes and names of languages that Python knows.
_WORDS = """
  source target src tgt term original translation text sentence sentences language eng deu ger fra
  fre spa ita por nld rus jpn zho us gb br british american brazilian simplified traditional chinese
  ukrainian persian hindi latin latvian esperanto indonesian vietnamese irish welsh serbian
  englisch französisch spanisch italienisch russisch anglais allemand espagnol español inglés
  alemán italiano português nederlands polski русский українська čeština svenska norsk suomi
  magyar türkçe 中文 日本語 bengali swahili quelle ziel hans hant germany france
"""
_HEADER = {*locale.locale_alias, *_WORDS.split()}


class TsvForm(NamedTuple):
    """How a file is read."""

    is_quoted: bool = False
    """Whether quotation marks around fields are a spreadsheet's, and no text."""
    header: str = ""
    """The first line, if it names two languages, and so is no pair."""


def tsv_form(path: str, languages: Languages) -> TsvForm:
    """Find how a file is read, from the whole of it."""
    codes = "\t".join(languages).casefold()
    with closing(read_text_lines(path)) as lines:
        first = next(lines, "")
    has_header = is_header(first) or first.replace('"', "").casefold() == codes
    return TsvForm(is_quoted(path), first if has_header else "")


def is_quoted(path: str) -> bool:
    """Return whether all quotation marks of a file are a spreadsheet's.

    They stand around fields, and are doubled within. As a plain text may have such fields, one of
    them must hold a quotation mark or a tab, or all fields are quoted, or just those with a comma.
    Where nine lines in ten have quoted fields alone, one that breaks the quoting is an error.
    """
    is_needed, kinds = False, set[tuple[bool, bool]]()
    all_quoted, broken = 0, 0  # lines of quoted fields alone, and the first line that is no row
    number = 0
    for number, line in enumerate(read_text_lines(path), start=1):
        if '"' not in line:
            kinds.add((False, "," in line))
        elif not _ROW.fullmatch(line):
            broken = broken or number
        else:
            fields = _FIELDS.findall(line)
            kinds.update((field[0] == '"', "," in field) for field in fields)
            is_needed = is_needed or any(re.search('""|\t', field[1:-1]) for field in fields)
            all_quoted += all(field[0] == '"' for field in fields)
    if broken and all_quoted > 0.9 * number:
        raise UserError(
            f"{path}:{broken}: a quotation mark that is not doubled, or a line break within a cell,"
            " in a file of quoted cells: repair the cell"
        )
    quoted, with_comma = zip(*kinds, strict=True) if kinds else ((), ())
    return not broken and (is_needed or (any(quoted) and (all(quoted) or quoted == with_comma)))


def read_rows(path: str, form: TsvForm) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line but the header."""
    lines = read_text_lines(path)
    rows = csv.reader(lines, "excel-tab") if form.is_quoted else (s.split("\t") for s in lines)
    number = 0
    try:
        for number, row in enumerate(rows, start=1):
            if number > 1 or not form.header:
                yield number, row or [""]
    except csv.Error as error:  # a field that is too long
        raise UserError(f"{path}:{number + 1}: {error}") from None


def is_header(line: str) -> bool:
    """Tell whether the two columns of a line name two languages."""
    cells = [re.findall(r"[^\W_]+", cell) for cell in line.casefold().split("\t")]
    return (
        len(cells) == 2
        and cells[0] != cells[1]
        and all(cell and _HEADER.issuperset(cell) for cell in cells)
        and re.fullmatch(r'[\w\s"():/-]+', line) is not None
    )


# Pairs of sentences: two files of lines, .tsv, .jsonl and .tmx.


_BLOCK_BYTES = 1 << 16
_MAX_UNIT_BYTES = 1 << 20
"""The largest unit of a translation memory, which is held in memory, all languages together."""
_MAX_LANGUAGES = 20  # that an error names
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements within a segment whose content is formatting of another program, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}


class SentencePair(NamedTuple):
    """A sentence and its translation, as they stand in the corpus."""

    source: str
    target: str


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


def read_pairs_file(path: str, languages: Languages, form: TsvForm) -> Iterator[SentencePair]:
    """Stream the pairs of one file; `form` is that of a .tsv."""
    suffix = pairs_suffix(path)
    if suffix == ".tsv":
        return _read_tsv(path, form)
    if suffix == ".jsonl":
        return _read_json_lines(path, languages)
    if suffix == ".tmx":
        return read_tmx(path, languages)
    raise UserError(
        f"{path}: must end in .tsv (a tab in each line), .jsonl or .tmx, compressed or not; save a"
        " spreadsheet as text with tabs, in UTF-8"
    )


def pairs_suffix(path: str) -> str:
    """Return the suffix of a file of pairs, without that of its compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _read_tsv(path: str, form: TsvForm) -> Iterator[SentencePair]:
    for number, (source, *rest) in read_rows(path, form):
        if len(rest) != 1:
            raise UserError(
                f"{path}:{number}: has {len(rest)} tabs; a line is source, tab, target: save a"
                " spreadsheet as text with tabs, without other columns or line breaks within cells"
            )
        yield SentencePair(source, rest[0])


def _read_json_lines(path: str, languages: Languages) -> Iterator[SentencePair]:
    for number, line in enumerate(read_text_lines(path), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}:{number}: not JSON: {error}") from None
            yield pair_of(row, languages, f"{path}:{number}")


def pair_of(row: Any, languages: Languages, where: str) -> SentencePair:
    """Take the two sentences from a row, keyed by language code or by source and target."""
    if isinstance(row, Mapping) and isinstance(row.get("translation"), Mapping):
        row = row["translation"]
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: not a JSON object but {type(row).__name__}")
    for source_key, target_key in (languages, ("source", "target")):
        if source_key in row and target_key in row:
            return SentencePair(
                _text(row[source_key], source_key, where), _text(row[target_key], target_key, where)
            )
    raise UserError(
        f"{where}: has no keys {languages[0]!r} and {languages[1]!r} but"
        f" {', '.join(map(repr, row)) or 'none'}; set data.source_language and"
        " data.target_language"
    )


def _text(value: Any, key: str, where: str) -> str:
    if value is None:
        return ""  # how datasets store an empty cell: a blank side, which is filtered and counted
    if not isinstance(value, str):
        raise UserError(f"{where}: {key!r} is not text but {type(value).__name__}")
    # JSON can spell what a UTF-8 file can't hold.
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f"{where}: {key!r} holds a NUL or half a surrogate pair; repair the row")
    return value


def read_tmx(path: str, languages: Languages) -> Iterator[SentencePair]:
    """Stream the pairs of a translation memory; a side that a unit lacks is blank.

    `en` also stands for `en-GB` and the like, if a unit has no `en` itself. Formatting codes are
    skipped, and runs of white space, line breaks among them, become a space.
    """
    source, target = map(_normalized_code, languages)
    pairs = 0
    known: dict[str, None] = {}
    for texts in _read_units(path):
        pair = SentencePair(_side(texts, source, target), _side(texts, target, source))
        pairs += all(pair)
        if len(known) < _MAX_LANGUAGES:
            known |= dict.fromkeys(texts)
        yield pair
    if not pairs:
        raise UserError(
            f"{path}: no unit has text in both {languages[0]!r} and {languages[1]!r}; the"
            f" languages in it: {', '.join(known) or 'none'}; set data.source_language and"
            " data.target_language"
        )


def _read_units(path: str) -> Iterator[dict[str, str]]:
    """Yield the text of each unit, by language, in bounded memory."""
    from lxml import etree

    parser = etree.XMLPullParser(
        ("end",),
        tag="tu",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
    )
    number = waiting = 0
    try:
        with closing(open_binary(path)) as stream:
            while block := stream.read(_BLOCK_BYTES):
                parser.feed(block)
                waiting += len(block)
                for _, unit in parser.read_events():
                    if number == 0:
                        _check_document(unit.getroottree())
                    yield _unit_texts(unit)
                    _forget(unit)
                    number, waiting = number + 1, 0
                if waiting > _MAX_UNIT_BYTES:
                    raise ValueError(f"more than {_MAX_UNIT_BYTES:,} bytes without its end")
            root = parser.close()
            if number == 0:
                _check_document(root.getroottree())
    except etree.XMLSyntaxError as error:
        errors = [(entry.line, entry.message) for entry in parser.feed_error_log]
        line, reason = errors[0] if errors else (1, error.msg)
        raise UserError(f"{path}:{line}: not a readable translation memory: {reason}") from None
    except ValueError as error:
        raise UserError(
            f"{path}, unit {number + 1:,}: not a readable translation memory: {error}"
        ) from None


def _check_document(document: Any) -> None:
    root, dtd = document.getroot(), document.docinfo.internalDTD
    if root.tag != "tmx":
        raise ValueError(f"the first element of the file is {root.tag[:100]!r}, not tmx")
    if dtd is not None and any(True for _ in dtd.iterentities()):
        raise ValueError("definitions in the DOCTYPE of the file, which could expand endlessly")


def _unit_texts(unit: Any) -> dict[str, str]:
    texts: dict[str, str] = {}
    for variant in unit.iter("tuv"):
        language = _normalized_code(variant.get(_XML_LANGUAGE) or variant.get("lang", ""))
        if not language:
            raise ValueError("a tuv without xml:lang")
        for segment in variant.iter("seg"):
            texts.setdefault(language, " ".join("".join(_segment_texts(segment)).split()))
    return texts


def _segment_texts(element: Any) -> Iterator[str]:
    """Yield the texts within an element, without formatting codes."""
    yield element.text or ""
    for inner in element:
        if not isinstance(inner.tag, str):
            raise ValueError(f"the entity {inner.text[:100]}: only XML's own, like &amp;, are read")
        if inner.tag not in _CODES:
            yield from _segment_texts(inner)
        yield inner.tail or ""


def _forget(unit: Any) -> None:
    """Remove a unit, and all that stands before it, from the document in memory."""
    unit.clear(keep_tail=True)
    for element in (unit, *unit.iterancestors()):
        while element.getprevious() is not None:
            del element.getparent()[0]


def _side(texts: Mapping[str, str], language: str, other_language: str) -> str:
    """Return the text in a language or one of its regions, but not the other side's."""
    regions = (code for code in texts if code.split("-")[0] == language and code != other_language)
    return texts.get(language if language in texts else next(regions, ""), "")


def _normalized_code(language: str) -> str:
    """Return one spelling of a code that may be written en_US or en-us."""
    return language.lower().replace("_", "-")


HeldOut: TypeAlias = dict[bytes, tuple[int, SentencePair]]
"""Pairs with their numbers in the training text, by digests of their sources."""


# Validation pairs that are cut from the training text, by hashes of their sources.


def hold_out(train: Iterable[SentencePair], number: int) -> HeldOut:
    """Choose pairs of different sources: of those with the lowest digests, the first ones."""
    held_out: HeldOut = {}
    for numbered in enumerate(train, start=1):
        if all(map(str.strip, numbered[1])):
            held_out.setdefault(source_digest(numbered[1]), numbered)
        if len(held_out) > 2 * number + 1:
            held_out = dict(sorted(held_out.items())[: number + 1])
    if len(held_out) <= number:
        raise UserError(
            f"data.valid_from_train={number}: data.train has {len(held_out):,} different sources:"
            " lower it, so that some are left for training"
        )
    return dict(sorted(sorted(held_out.items())[:number], key=lambda item: item[1][0]))


def source_digest(pair: SentencePair) -> bytes:
    """Return what pairs of equal sources, but for white space, have in common."""
    return hashlib.blake2b(" ".join(pair.source.split()).encode(), digest_size=8).digest()
