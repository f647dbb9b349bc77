"""Bytes to characters and back."""

import codecs

import pytest

from seq2seq.documents import encodings
from seq2seq.documents.encodings import decode
from seq2seq.errors import UserError

XML = "<?xml version='1.0' encoding='{}'?><a>é</a>"


@pytest.mark.parametrize(
    ("content", "declared", "codec"),
    [
        ("é".encode(), None, "utf-8"),
        (codecs.BOM_UTF8 + "é".encode(), None, "utf-8"),
        (codecs.BOM_UTF16_BE + "é".encode("utf-16-be"), None, "utf-16-be"),
        (codecs.BOM_UTF32_LE + "é".encode("utf-32-le"), None, "utf-32-le"),
        (codecs.BOM_UTF32_BE + "é".encode("utf-32-be"), None, "utf-32-be"),
        ("a = é".encode("utf-16-le"), None, "utf-16-le"),
        (XML.format("UTF-16").encode("utf-16-be"), encodings.XML, "utf-16-be"),
        (XML.format("utf-16").encode(), encodings.XML, "utf-8"),  # which it says, but is not
        (XML.format("latin1").encode("latin1"), encodings.XML, "iso8859-1"),
        (XML.format("KOI8-R").replace("é", "ж").encode("koi8-r"), encodings.XML, "koi8-r"),
        ("<meta charset=latin1>“é”".encode("cp1252"), encodings.HTML, "cp1252"),
        ("<meta charset=iso-8859-9>“ş”".encode("cp1254"), encodings.HTML, "cp1254"),
        ("<meta charset=tis-620>“ส”".encode("cp874"), encodings.HTML, "cp874"),
        ("<meta charset=iso-8859-11>“ส”".encode("cp874"), encodings.HTML, "cp874"),
        ("<meta charset=gb2312>朱镕基".encode("gbk"), encodings.HTML, "gbk"),
        ("<meta charset=big5>裏".encode("big5hkscs"), encodings.HTML, "big5hkscs"),
        ("<meta charset=shift_jis>①".encode("cp932"), encodings.HTML, "cp932"),
        ("<meta charset=euc-kr>똠".encode("cp949"), encodings.HTML, "cp949"),
        (b"<meta charset=latin1>\x81", encodings.HTML, "iso8859-1"),
        (b'"Content-Type: text/plain; charset=CHARSET\\n"', encodings.PO, "utf-8"),
        (b'"Content-Type: text/plain; charset=ISO-8859-2\\n"\xe9', encodings.PO, "iso8859-2"),
        (b"", None, "utf-8"),
    ],
)
def test_a_file_is_read_as_it_says_and_written_as_it_was(
    content: bytes, declared: None, codec: str
) -> None:
    text, encoding = decode(content, declared=declared)
    assert encoding.codec == codec
    assert not text.startswith("\ufeff")
    assert encoding.encode(text) == content


@pytest.mark.parametrize(
    ("content", "declared", "message"),
    [
        (b"caf\xe9", None, "not utf-8"),
        (codecs.BOM_UTF16_LE + b"a", None, "not utf-16-le"),
        (XML.format("utf-8").encode("latin1"), encodings.XML, "not utf-8"),
        (XML.format("x-mine").encode(), encodings.XML, "'x-mine', which is not known"),
        (XML.format("rot13").encode(), encodings.XML, "'rot13', which is not known"),
        # decoded without an error, but it would not be the same file
        (XML.format("iso-2022-jp").encode() + b"\x1b(B", encodings.XML, "not iso2022_jp"),
        # Python's own, some of which take time by the square of their size
        (XML.format("utf-7").encode(), encodings.XML, "'utf-7', which is not known"),
        (XML.format("punycode").encode(), encodings.XML, "'punycode', which is not known"),
        (XML.format("idna").encode(), encodings.XML, "'idna', which is not known"),
        (XML.format("utf-8\0").encode(), encodings.XML, "00', which is not known"),
    ],
)
def test_what_can_not_be_written_as_it_was_is_refused(
    content: bytes, declared: None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        decode(content, declared=declared)


def test_characters_that_the_encoding_lacks_are_escaped_or_refused() -> None:
    _, encoding = decode(b"a", usual=["ascii", "utf-8"], errors=encodings.JAVA_ESCAPES)
    assert encoding.encode("é😀") == rb"\u00e9\ud83d\ude00"
    _, encoding = decode(b"\xe9", usual=["latin1"])
    with pytest.raises(UserError, match="in latin1, which has no 'ж'"):
        encoding.encode("ж")
