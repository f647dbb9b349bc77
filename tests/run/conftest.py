"""Fixtures of the tests of runs: one toy corpus."""

import pytest

from seq2seq.run.config import Config
from tests.toy import toy_config


@pytest.fixture(scope="session")
def toy(sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A run of four steps, each with a checkpoint; its corpus is prepared once."""
    return toy_config(tmp_path_factory.mktemp("corpus"), sentences)


@pytest.fixture(autouse=True)
def short_ends(no_report: None) -> None:
    """A test of the report calls for it."""
