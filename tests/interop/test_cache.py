"""The cache of exported models: by content, whole or not at all, the user's own."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from seq2seq.data.tokenizer import Tokenizer
from seq2seq.interop.ctranslate2 import cached_ctranslate2, content_key, ctranslate2_files
from seq2seq.model import Transformer
from seq2seq.storage.trained_model import TrainedModel

pytest.importorskip("ctranslate2")


@pytest.fixture
def trained(make_model: Callable[..., Transformer], tokenizer: Tokenizer) -> TrainedModel:
    return TrainedModel(make_model(vocab_size=tokenizer.vocab_size).float(), tokenizer, "en", "de")


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(logging.getLogger("seq2seq"), "propagate", True)
    return tmp_path / "seq2seq" / "ctranslate2"


def test_a_model_is_exported_once(trained: TrainedModel, folder: Path) -> None:
    expected = ctranslate2_files(trained)
    assert cached_ctranslate2(trained) == expected
    (entry,) = folder.iterdir()
    assert entry.name == content_key(trained)
    before = (entry / "model.bin").stat().st_ino
    assert cached_ctranslate2(trained) == expected
    assert (entry / "model.bin").stat().st_ino == before


def test_other_content_has_another_key(trained: TrainedModel) -> None:
    key = content_key(trained)
    assert content_key(replace(trained, source_language="fr")) == key
    with torch.no_grad():
        next(trained.model.parameters()).flatten()[0] += 1e-3
    assert content_key(trained) != key


@pytest.mark.parametrize("name", ["model.bin", "config.json", "manifest.json"])
def test_a_corrupt_model_is_made_again(
    trained: TrainedModel, folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = cached_ctranslate2(trained)
    (entry,) = folder.iterdir()
    content = bytearray((entry / name).read_bytes())
    content[len(content) // 2] ^= 1
    (entry / name).write_bytes(content)
    assert cached_ctranslate2(trained) == expected
    assert any("made again" in record.message for record in caplog.records)
    caplog.clear()
    assert cached_ctranslate2(trained) == expected
    if name != "manifest.json":  # without it, the folder may be another program's
        assert not caplog.records


def test_a_cache_that_others_can_write_to_is_not_used(
    trained: TrainedModel, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cached_ctranslate2(trained)
    (entry,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    (entry / "model.bin").write_bytes(b"hostile")
    (entry / "manifest.json").write_text("{}")
    for mode in (0o777, 0o720):
        folder.chmod(mode)
        assert cached_ctranslate2(trained) == ctranslate2_files(trained)
        assert "only you can write to" in caplog.records[-1].message
    assert (entry / "model.bin").read_bytes() == b"hostile"


def test_a_cache_that_is_a_link_is_not_used(
    trained: TrainedModel, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.parent.mkdir()
    folder.symlink_to(elsewhere)
    assert cached_ctranslate2(trained) == ctranslate2_files(trained)
    assert "exported at each start" in caplog.records[-1].message
    assert not any(elsewhere.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_stranger_s_cache_is_not_used(
    trained: TrainedModel, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, 12345, -1)
    assert cached_ctranslate2(trained) == ctranslate2_files(trained)
    assert not any(folder.iterdir())
    assert "only you can write to" in caplog.records[-1].message
