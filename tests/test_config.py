"""The configuration in a run folder."""

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq.data.corpus import CorpusConfig
from seq2seq.errors import UserError
from seq2seq.run.config import Config, read_config
from seq2seq.settings import Kind, settings_of
from seq2seq.update import TrainingConfig


def test_a_configuration_is_read_as_it_was_written(tmp_path: Path) -> None:
    config = Config(training=TrainingConfig(max_steps=7), distributed_timeout=9.0, seed=3)
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))
    assert read_config(tmp_path) == config


def test_each_setting_has_a_class() -> None:
    def missing(kind: type, prefix: str) -> list[str]:
        names = []
        for field in fields(kind):
            default = field.default_factory() if callable(field.default_factory) else None
            if is_dataclass(default):
                names += missing(type(default), f"{prefix}{field.name}.")
            elif "kind" not in field.metadata:
                names.append(prefix + field.name)
        return names

    assert missing(Config, "") == []
    assert missing(CorpusConfig, "") == []
    assert dict(settings_of(Config(run_dir="a"), Kind.place)) == {
        "run_dir": "a",
        "resume": False,
        "cache": None,
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "not a configuration") for text in ("- a\n", "training: 1\n")),
        ("training: [longer_side]\n", "not a configuration"),
        ("training: {longer_side: true}\n", "no key training.longer_side: remove the line"),
        ("seed: -1", "seed=-1"),
    ],
)
def test_an_invalid_configuration_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=says):
        read_config(tmp_path)
