"""ZIP archives of which some members are replaced; all other bytes stay as they are."""

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import pairwise

from seq2seq.errors import UserError

_MAX_XML = 100_000_000  # bytes of the members that are read, without compression
_LOCAL = struct.Struct("<4s2B4HL2L2H")
_MAX_32, _MAX_16 = 0xFFFFFFFF, 0xFFFF


class Archive:
    """A ZIP archive without tricks: no member twice, none inside another, none encrypted."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        try:
            with zipfile.ZipFile(BytesIO(content)) as archive:
                self._members = archive.infolist()
                self._directory = archive.start_dir
        except (zipfile.BadZipFile, struct.error, ValueError, RuntimeError, OSError) as error:
            raise UserError(
                f"not a ZIP archive ({error}): it is damaged, protected by a password, or has an"
                " older format"
            ) from None
        self._check()
        self._left = _MAX_XML

    @property
    def names(self) -> list[str]:
        """The names of the members, in their order."""
        return [member.filename for member in self._members]

    def _check(self) -> None:
        names = self.names
        if len(set(names)) < len(names):
            raise UserError("the archive has two members of one name")
        if self._content.rfind(b"PK\x06\x07", self._directory) >= 0:
            raise UserError("the archive is of the kind for more than 4 GiB (ZIP64)")
        for name in names:
            if name.startswith("/") or "\\" in name or ".." in name.split("/"):
                raise UserError(f"the archive has a member that lies outside it: {name!r:.100}")
        places = sorted(member.header_offset for member in self._members)
        sizes = {member.header_offset: member for member in self._members}
        for start, end in pairwise([*places, self._directory]):
            member = sizes[start]
            if member.flag_bits & 1:
                raise UserError("the archive is encrypted: save it without a password first")
            if _MAX_32 in (member.file_size, member.compress_size, member.header_offset):
                raise UserError("the archive is of the kind for more than 4 GiB (ZIP64)")
            data = self._find_data(member)
            if data is None or data + member.compress_size > end:
                raise UserError("the archive has members inside one another, or is damaged")

    def _find_data(self, member: zipfile.ZipInfo) -> int | None:
        """Return where the data of a member begin."""
        header = self._content[member.header_offset : member.header_offset + _LOCAL.size]
        if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
            return None
        name, extra = _LOCAL.unpack(header)[-2:]
        return member.header_offset + _LOCAL.size + int(name) + int(extra)

    def read(self, name: str) -> bytes:
        """Return a member without its compression, not one byte more than it says it has."""
        member = next(member for member in self._members if member.filename == name)
        start = self._find_data(member)
        assert start is not None
        data = self._content[start : start + member.compress_size]
        self._left -= member.file_size
        if self._left < 0:
            raise UserError(f"the archive has more than {_MAX_XML:,} bytes of text")
        if member.compress_type == zipfile.ZIP_DEFLATED:
            try:
                data = zlib.decompressobj(-15).decompress(data, member.file_size + 1)
            except zlib.error:
                data = b""
        elif member.compress_type != zipfile.ZIP_STORED:
            raise UserError("compressed in a way that is not known")
        if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
            raise UserError("damaged")
        return data

    def replace(self, new: Mapping[str, bytes]) -> bytes:
        """Return the archive with other content in some members."""
        if not new:
            return self._content
        ends = dict(pairwise(sorted([*(x.header_offset for x in self._members), self._directory])))
        parts: list[bytes] = [self._content[: min(ends)]]
        length = len(parts[0])
        moved: dict[str, tuple[int, bytes]] = {}  # where members begin, and what has changed
        for member in sorted(self._members, key=lambda member: member.header_offset):
            offset = member.header_offset
            part, numbers = self._content[offset : ends[offset]], b""
            if member.filename in new:
                part, numbers = self._rewrite(member, new[member.filename])
            moved[member.filename] = length, numbers
            parts.append(part)
            length += len(part)
        return b"".join([*parts, *self._write_directory(moved, length)])

    def _rewrite(self, member: zipfile.ZipInfo, data: bytes) -> tuple[bytes, bytes]:
        """Return a member anew, and its checksum and sizes."""
        packed = data
        if member.compress_type == zipfile.ZIP_DEFLATED:
            compressor = zlib.compressobj(wbits=-15)
            packed = compressor.compress(data) + compressor.flush()
        numbers = struct.pack("<3L", zlib.crc32(data), len(packed), len(data))
        header = self._content[member.header_offset : member.header_offset + _LOCAL.size]
        size = int(_LOCAL.unpack(header)[-2])
        name = self._content[member.header_offset + _LOCAL.size :][:size]
        flags = struct.pack("<H", struct.unpack("<H", header[6:8])[0] & ~8)  # sizes are here
        lengths = struct.pack("<2H", size, 0)
        return header[:6] + flags + header[8:14] + numbers + lengths + name + packed, numbers

    def _write_directory(
        self, moved: Mapping[str, tuple[int, bytes]], start: int
    ) -> Iterator[bytes]:
        """Write the list of members, and what follows it, for their new places."""
        place = self._directory
        for member in self._members:
            entry = self._content[place : place + 46]
            size = 46 + sum(struct.unpack("<3H", entry[28:34]))
            offset, numbers = moved[member.filename]
            flags = struct.unpack("<H", entry[8:10])[0] & ~(8 if numbers else 0)
            yield entry[:8] + struct.pack("<H", flags) + entry[10:16]
            yield (numbers or entry[16:28]) + entry[28:42] + struct.pack("<L", offset)
            yield self._content[place + 46 : place + size]
            place += size
        end = self._content.rindex(b"PK\x05\x06")
        yield self._content[place : end + 16] + struct.pack("<L", start)
        yield self._content[end + 20 :]
