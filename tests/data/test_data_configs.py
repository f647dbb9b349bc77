"""Every corpus of conf/data is one that the configuration's types accept."""

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq.data.config import DataConfig
from seq2seq.data.preparation import prepare

CHECKOUT = Path(__file__).parents[2]
CONFIGS = sorted((CHECKOUT / "conf" / "data").glob("*.yaml"))
EMBEDDED = CHECKOUT / "data"


@pytest.fixture(autouse=True)
def embedded() -> None:
    OmegaConf.register_new_resolver("embedded", lambda name: str(EMBEDDED / name), replace=True)


def load(path: Path) -> DataConfig:
    config = OmegaConf.merge(OmegaConf.structured(DataConfig), OmegaConf.load(path))
    data = OmegaConf.to_object(config)
    assert isinstance(data, DataConfig)
    return data


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_is_typed_and_pinned(path: Path) -> None:
    data = load(path)
    assert data.name.startswith(path.stem)
    if path.stem == "files":
        assert not any(split.is_configured for split in (data.train, data.valid, data.test))
        return
    assert all(split.is_configured for split in (data.train, data.valid, data.test))
    if data.dataset:
        assert re.fullmatch(r"[0-9a-f]{40}", data.revision or "")


def test_the_embedded_corpus_is_prepared_without_a_warning(tmp_path: Path) -> None:
    data = load(CHECKOUT / "conf" / "data" / "everyday.yaml")
    prepared = prepare(data, tmp_path, lambda line: None)
    assert prepared.tokenizer.vocab_size == data.tokenizer.vocab_size
    assert prepared.warnings == []
    assert prepared.counts["train"].kept == prepared.counts["train"].read > 0
