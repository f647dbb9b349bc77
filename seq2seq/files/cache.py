"""The user's cache: files that this program can rebuild."""

import os
import stat
from pathlib import Path

from seq2seq.errors import UserError


def user_cache() -> Path:
    """Return the folder of the cache, `$XDG_CACHE_HOME/seq2seq` or `~/.cache/seq2seq`."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seq2seq"
    except RuntimeError:
        raise UserError(
            "you have no home folder: give cache=FOLDER, or set XDG_CACHE_HOME to a folder"
        ) from None


def private_cache(name: str) -> Path:
    """Return a folder of the cache that nobody else can write to; make it if it is missing."""
    folder = user_cache() / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise UserError(f"{folder}: can't be made: {error.strerror}") from None
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or writable:
        raise UserError(
            f"{folder}: not a folder that only you can write to; remove it, or set XDG_CACHE_HOME"
        )
    return folder
