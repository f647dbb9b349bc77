"""Models of random parameters, and servers of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import TrainedModel, new_transformer, save_model
from seq2seq.sizes import TransformerConfig
from seq2seq.tokenizer import Tokenizer
from tests.models import perturb
from tests.server.live import Served, serve_models


@pytest.fixture(scope="session")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says something for every text."""
    torch.manual_seed(3)
    config = TransformerConfig(num_layers=2, d_model=16, d_ff=32, num_heads=2, dropout=0.0)
    model = new_transformer(config, tokenizer.vocab_size).eval()
    perturb(model)
    path = tmp_path_factory.mktemp("served") / "model"
    save_model(path, TrainedModel(model, tokenizer, "en", "de"))
    return path


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Served]:
    """A server of the model, with the default options."""
    options = TranslationOptions(device="cpu", workers=1, sentences=True)
    with serve_models({("en", "de"): Translator.load(folder, options)}) as served:
        yield served
