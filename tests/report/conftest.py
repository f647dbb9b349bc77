"""A run of four steps, whose text has markup in it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq.cli.main import main
from tests.toy import TINY_MODEL, data_words

HOSTILE = "</td><script>1</script> & \u202ea\u0007 <b>"


def copy_run(run: Path, folder: Path, settings: Mapping[str, object]) -> Path:
    """Copy a run, and change settings of its configuration, given by their dotted keys."""
    shutil.copytree(run, folder)
    config = OmegaConf.load(folder / "config.yaml")
    for key, value in settings.items():
        OmegaConf.update(config, key, value, force_add=True)
    OmegaConf.save(config, folder / "config.yaml")
    return folder


@pytest.fixture(scope="package")
def run(sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train for four steps on text with markup and bidi marks in it."""
    folder = tmp_path_factory.mktemp("report")
    parts = {"train": [*sentences[10:], HOSTILE], "valid": [HOSTILE, *sentences[:10]]}
    parts["test"] = [*sentences[:4], "the sea."]
    for split, lines in parts.items():
        (folder / f"{split}.source").write_text("\n".join(lines) + "\n")
        (folder / f"{split}.target").write_text("\n".join(lines[::-1]) + "\n")
    code = main(
        [
            "train", *data_words(folder), *TINY_MODEL,
            *(f"data.test.{side}={folder / f'test.{side}'}" for side in ("source", "target")),
            "data.tokenizer.vocab_size=80", "training.max_steps=4", "training.checkpoint_steps=2",
            "training.source_tokens=100", "training.target_tokens=100", "training.warmup_steps=4",
            "training.micro_batch_tokens=100", "license=cc-by-4.0", "search.max_extra_tokens=5",
            "device=cpu", "precision=fp32", f"cache={folder / 'cache'}",
            f"run_dir={folder / 'run'}",
        ]
    )  # fmt: skip
    assert code == 0
    return folder / "run"
