"""Fixtures of the tests of runs: one toy corpus, and runs without pictures."""

import pytest

from seq2seq.run.config import Config
from tests.toy import toy_config


@pytest.fixture(autouse=True)
def no_learning_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time of a toy run."""
    monkeypatch.setattr("seq2seq.run.records.draw_learning_curve", lambda *_: None)


@pytest.fixture(scope="session")
def toy(sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A run of four steps, each with a checkpoint; its corpus is prepared once."""
    return toy_config(tmp_path_factory.mktemp("corpus"), sentences)
