"""Bytes to characters and back: as a file says, or as is found, and out as it came in."""

import codecs
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from seq2seq.errors import UserError

_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32-le",  # begins as that of UTF-16 does
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
XML = re.compile(rb"<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([^\"']*)")
HTML = re.compile(rb"<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([^\s\"'/>;]+)", re.IGNORECASE)
PO = re.compile(
    rb"^(?:msgstr\s+)?\"Content-Type:[^\"\n]*?charset=([^\s\\\";]+)", re.MULTILINE | re.IGNORECASE
)
_DECLARED_WITHIN = 4096  # bytes of a file in which it says its encoding
# Python's own, in which no file is written; some take time by the square of its size.
_PYTHONS_OWN = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
_SAMPLE = "<a b='0'>"  # the same bytes in all encodings that contain ASCII
# What the HTML standard reads in place of these, because of what is found under these names.
_AS_WINDOWS = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874",
    "tis-620": "cp874", "gb2312": "gbk", "big5": "big5hkscs", "shift_jis": "cp932",
    "euc_kr": "cp949",
}  # fmt: skip


def _write_java_escapes(error: UnicodeError) -> tuple[str, int]:
    r"""Write characters that an encoding lacks as `\u` escapes of their UTF-16 units."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)), error.end


JAVA_ESCAPES = "seq2seq.java"
codecs.register_error(JAVA_ESCAPES, _write_java_escapes)


@dataclass(frozen=True)
class Encoding:
    """How the characters of a file are written."""

    codec: str
    bom: bytes = b""
    errors: str = "strict"
    """How a character that the encoding lacks is written, as the argument of `str.encode`."""

    def encode(self, text: str) -> bytes:
        """Return the bytes of a text, or refuse a character that can't be written."""
        try:
            return self.bom + text.encode(self.codec, self.errors)
        except UnicodeEncodeError as error:
            lacking = text[error.start]
            raise UserError(
                f"the file is in {self.codec}, which has no {lacking!r}: convert it to UTF-8 first"
            ) from None


def decode(
    content: bytes,
    *,
    declared: re.Pattern[bytes] | None = None,
    usual: Sequence[str] = ("utf-8",),
    errors: str = "strict",
) -> tuple[str, Encoding]:
    """Return the text of a file, without its mark of byte order, and how it was encoded.

    `declared` finds the name of the encoding in the file; without one it is the first of `usual`
    that fits. Encoded again, the text is the same file.
    """
    codecs_and_boms = _find_codecs(content, declared, usual)
    for codec, bom in codecs_and_boms:
        encoding = Encoding(codec, bom, errors)
        with suppress(UnicodeError):
            text = content[len(bom) :].decode(codec)
            if bom + text.encode(codec) == content:
                return text, encoding
    names = " or ".join(dict(codecs_and_boms))
    raise UserError(f"the file is not {names}: convert it to UTF-8 first, for example with iconv")


def _find_codecs(
    content: bytes, declared: re.Pattern[bytes] | None, usual: Sequence[str]
) -> list[tuple[str, bytes]]:
    """List the encodings that a file may have, and the mark of byte order that stands in it."""
    for bom, codec in _BOMS.items():
        if content.startswith(bom):
            return [(codec, bom)]
    # Without a mark of byte order, markup and nearly all texts begin with two ASCII characters.
    for codec, zero in (("utf-16-le", 1), ("utf-16-be", 0)):
        if len(content) >= 4 and content[zero] == content[zero + 2] == 0 != content[1 - zero]:
            return [(codec, b"")]
    match = declared.search(content[:_DECLARED_WITHIN]) if declared else None
    if match is None or match[1] == b"CHARSET":  # as a template of gettext has it
        return [(codec, b"") for codec in usual]
    try:
        codec = codecs.lookup(match[1].decode()).name
        if codec in _PYTHONS_OWN:
            raise LookupError
        if _SAMPLE.encode(codec) != _SAMPLE.encode():
            return [("utf-8", b"")]  # the declaration was read as ASCII, so it is wrong
    except (LookupError, ValueError):  # a name may have NUL
        raise UserError(
            f"the file says that its encoding is {match[1]!r:.50}, which is not known: convert it"
            " to UTF-8 first"
        ) from None
    return [(_AS_WINDOWS.get(codec, codec) if declared is HTML else codec, b""), (codec, b"")]
