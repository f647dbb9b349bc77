"""The part of the cache from which code is run: nobody else can write to it."""

import os
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.files.cache import private_cache


def test_a_cache_that_others_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = private_cache("compiled")
    assert folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (folder.parent / "link").symlink_to(tmp_path / "elsewhere")
    for mode in (0o777, 0o720):
        folder.chmod(mode)
        with pytest.raises(UserError, match="only you can write to"):
            private_cache("compiled")
    with pytest.raises(UserError, match="only you can write to"):
        private_cache("link")
    folder.chmod(0o700)
    if os.geteuid() == 0:  # only root can give a folder away
        os.chown(folder, 12345, -1)
        with pytest.raises(UserError, match="only you can write to"):
            private_cache("compiled")
