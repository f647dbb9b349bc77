"""Training continues from an imported model, in its own vocabularies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq.cli.training import start_training
from seq2seq.interop.marian_import import import_marian
from seq2seq.machine.processes import OneProcess
from seq2seq.model_folder import checkpoints, load_model, save_model
from tests.interop.conftest import MakeFolder
from tests.toy import toy_config

# The library's own warnings.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kind", [{}, {"separate": True, "tie_word_embeddings": False}], ids=str)
def test_an_imported_model_learns_on_and_is_resumed(
    make_folder: MakeFolder, sentences: list[str], tmp_path: Path, kind: dict[str, Any]
) -> None:
    imported = import_marian(make_folder(**kind).path)
    save_model(tmp_path / "model", imported)
    # Letters that both vocabularies of the fixture have.
    known = str.maketrans("eat", "oos")
    config = toy_config(tmp_path, [line.translate(known) for line in sentences])
    to = "por" if imported.tokenizer.controls else None
    splits = {
        name: replace(getattr(config.data, name), target_language=to) for name in ("train", "valid")
    }
    own = replace(
        config,
        data=replace(config.data, **splits),
        model=imported.model.config,
        init_from=str(tmp_path / "model"),
    )
    run = tmp_path / "run"
    short = replace(own, training=replace(own.training, max_steps=1))
    start_training(short, run, "", OneProcess())
    start_training(replace(own, resume=True), run, "", OneProcess())
    assert [folder.name[-1] for folder in checkpoints(run)] == ["0", "1", "2", "3", "4"]
    first, last = load_model(checkpoints(run)[0]), load_model(checkpoints(run)[-1])
    assert first.tokenizer.files() == last.tokenizer.files() == imported.tokenizer.files()
    for name, value in imported.model.state_dict().items():
        assert torch.equal(first.model.state_dict()[name], value)
    assert not torch.equal(first.model.output_matrix, last.model.output_matrix)
