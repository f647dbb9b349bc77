"""Models of random parameters, and servers of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import save_model
from tests.conftest import MakeTrained
from tests.server.live import Served, serve_models


@pytest.fixture(scope="session")
def folder(make_trained: MakeTrained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says something for every text."""
    path = tmp_path_factory.mktemp("served") / "model"
    save_model(path, make_trained(seed=3))
    return path


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Served]:
    """A server of the model, with the default options."""
    options = TranslationOptions(device="cpu", workers=1, sentences=True)
    with serve_models({("en", "de"): Translator.load(folder, options)}) as served:
        yield served
