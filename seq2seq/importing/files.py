"""The files of a folder that another program wrote."""

from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.storage.strict import read_regular_file

MAX_SETTINGS_BYTES = 2**20
"""The largest file of settings that is read."""
MAX_VOCABULARY_BYTES = 64 * 2**20
"""The largest vocabulary or SentencePiece model that is read; OPUS-MT's have one or two MB."""

_POINTER = b"version https://git-lfs"


def read_file(path: Path, max_bytes: int) -> bytes:
    """Read a regular file, not a link, of at most `max_bytes` bytes.

    Raises:
        UserError: if it is missing, unreadable, too large, not a regular file, or a pointer of Git
            LFS in its place.
    """
    content = read_regular_file(path, max_bytes)
    if content.startswith(_POINTER):
        raise UserError(
            f"{path}: a pointer of Git LFS, not the file itself: fetch it with git lfs pull"
        )
    return content
