"""The configuration in a run folder."""

from dataclasses import asdict
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq.config import TrainingConfig
from seq2seq.data.corpus import CorpusConfig
from seq2seq.errors import UsageError, UserError
from seq2seq.run.config import MAX_CONFIG_BYTES, Config, read_config
from seq2seq.settings import SettingKind, flat, settings_of


def test_a_configuration_is_read_as_it_was_written(tmp_path: Path) -> None:
    config = Config(training=TrainingConfig(max_steps=7), distributed_timeout=9.0, seed=3)
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))
    assert read_config(tmp_path) == config


def test_the_configuration_of_hundreds_of_languages_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 3".ljust(MAX_CONFIG_BYTES - 1) + "\n")
    assert read_config(tmp_path) == Config(seed=3)


def test_a_key_of_earlier_versions_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("training: {average_alternatives: [2, 3], max_steps: 7}")
    assert read_config(tmp_path) == Config(training=TrainingConfig(max_steps=7))


def test_each_setting_has_a_class() -> None:
    for config in (Config(), CorpusConfig()):
        names = {name for kind in SettingKind for name, _ in settings_of(config, kind)}
        assert flat(asdict(config)).keys() <= names
    assert dict(settings_of(Config(run_dir="a"), SettingKind.place)) == {
        "run_dir": "a",
        "resume": False,
        "cache": None,
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "not a configuration") for text in ("- a\n", "7\n", "training: 1\n")),
        ("training: [longer_side]\n", "not a configuration"),
        ("training: {longer_side: true}\n", "no key training.longer_side: remove the line"),
        ("seed: -1", "seed=-1"),
    ],
)
def test_an_invalid_configuration_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=says):
        read_config(tmp_path)


def test_a_seed_has_63_bits() -> None:
    assert Config(seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(UsageError, match=f"seed={2**63}"):
        Config(seed=2**63)
