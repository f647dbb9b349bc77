"""Every choice in conf/ composes into a typed configuration, and that into a model."""

import re
from dataclasses import asdict, replace
from functools import cache
from typing import cast

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from scripts.table3 import ROWS, PaperRow, Setting
from seq2seq.cli.hydra import GROUPS, choices, register, resource_folder
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.model_folder import new_transformer
from seq2seq.run.config import Config
from seq2seq.search import SearchConfig
from seq2seq.zoo.modern import modern_choices
from tests.models import ALL_MODERN


def table_settings(config: TransformerConfig, label_smoothing: float) -> dict[str, Setting]:
    derived = config.d_model // config.num_heads
    names = ("num_layers", "d_model", "d_ff", "num_heads", "dropout")
    return {
        **{name: getattr(config, name) for name in names},
        "d_k": None if config.key_width == derived else config.key_width,
        "d_v": None if config.value_width == derived else config.value_width,
        "label_smoothing": label_smoothing,
        "positions": config.positions.value,
    }


BASE = table_settings(TransformerConfig(), TrainingConfig.label_smoothing)


def experiments(group: str) -> list[str]:
    folder = resource_folder("conf") / "experiment" / group
    return sorted(path.stem for path in folder.glob("*.yaml"))


TABLE_3 = {row.name: row for row in ROWS}


@pytest.fixture(autouse=True)
def corpora(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPORA", "/texts")


@cache
def composed(*overrides: str) -> Config:
    """Compose what the words choose, once: no test changes it."""
    register()
    with initialize_config_dir(str(resource_folder("conf")), version_base="1.3"):
        return cast(Config, OmegaConf.to_object(compose("train", list(overrides))))


@pytest.mark.parametrize(
    "choice", [f"{group}={name}" for group in GROUPS for name in choices(group)]
)
def test_a_choice_composes(choice: str) -> None:
    config = composed(choice)
    if config.data.dataset:
        assert re.fullmatch(r"[0-9a-f]{40}", config.data.revision or "")
    with torch.device("meta"):
        new_transformer(config.model, config.data.tokenizer.vocab_size)


@pytest.mark.parametrize("name", experiments("results"))
def test_the_recipe_of_a_result_composes(name: str) -> None:
    config = composed(f"experiment=results/{name}")
    assert str(config.data.train.source).startswith("/texts/")
    assert config.model.num_layers < 6
    languages = ("data.source_language=cs", "data.target_language=fr")
    other = composed(f"experiment=results/{name}", *languages)
    for data in (config.data, other.data):
        corpora = [data.train, data.valid, *data.corpora.values(), *data.valid_sets.values()]
        for text in corpora:
            assert str(text.source).endswith(f".{data.source_language}.gz")
            assert str(text.target).endswith(f".{data.target_language}.gz")


def test_the_numbers_that_the_files_show_are_the_defaults_of_the_package() -> None:
    config = composed()
    assert config == composed("model=base", "schedule=paper", "variant=paper")
    assert config.model == TransformerConfig()
    assert config.training == TrainingConfig()
    assert config.search == SearchConfig()


def test_every_row_of_table_3_is_an_experiment() -> None:
    assert experiments("table3") == sorted(TABLE_3)


@pytest.mark.parametrize("name", TABLE_3)
def test_an_experiment_changes_what_the_table_says(name: str) -> None:
    config = composed(f"experiment=table3/{name}")
    settings = table_settings(config.model, config.training.label_smoothing)
    assert settings == BASE | TABLE_3[name].settings
    steps = 300_000 if name == "big" else 100_000
    expected = asdict(TrainingConfig(average_checkpoints=1, max_steps=steps))
    expected["label_smoothing"] = config.training.label_smoothing
    assert asdict(config.training) == expected
    assert config.search == SearchConfig()
    # As an appended choice, which is how a multirun names it, it is the same.
    assert composed(f"+experiment/table3={name}") == config


@pytest.mark.parametrize("row", ROWS[:-1], ids=lambda row: row.name)
def test_a_row_at_a_quarter_has_its_widths_divided_by_four(row: PaperRow) -> None:
    expected = {**BASE, **row.settings}
    for width in ("d_model", "d_ff", "d_k"):
        size = expected[width]
        expected[width] = None if size is None else cast(int, size) // 4
    config = composed("experiment=table3_quarter", *row.overrides(4))
    assert table_settings(config.model, config.training.label_smoothing) == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_on_kftt_has_the_size_of_the_table(row: PaperRow) -> None:
    config = composed("experiment=table3_kftt", *row.overrides())
    settings = table_settings(config.model, config.training.label_smoothing)
    assert settings == {**BASE, **row.settings}
    training = config.training
    assert (training.average_checkpoints, training.validate_mean) == (1, False)
    assert (training.dropout_warmup_steps, training.patience) == (None, None)


@pytest.mark.parametrize("change", [*ALL_MODERN, "all", "paper"])
def test_a_modern_experiment_changes_the_model_alone(change: str) -> None:
    config, paper = (composed(f"experiment=modern/{name}") for name in (change, "paper"))
    names = [choice.partition("=")[0] for choice in modern_choices(config.model)]
    assert names == {"paper": [], "all": [*ALL_MODERN]}.get(change, [change])
    settings = {name: getattr(paper.model, name) for name in names}
    assert replace(config, model=replace(config.model, **settings)) == paper


@pytest.mark.parametrize(
    ("name", "target", "pieces", "steps", "dropout", "averaged"),
    [
        ("base_en_de", "de", 37_000, 100_000, 0.1, 5),
        ("big_en_de", "de", 37_000, 300_000, 0.3, 20),
        ("base_en_fr", "fr", 32_000, 100_000, 0.1, 5),
        ("big_en_fr", "fr", 32_000, 300_000, 0.1, 20),
    ],
)
def test_the_papers_recipes(
    name: str, target: str, pieces: int, steps: int, dropout: float, averaged: int
) -> None:
    config = composed(f"experiment=paper/{name}")
    assert (config.data.source_language, config.data.target_language) == ("en", target)
    assert config.data.dataset == "wmt/wmt14"
    assert config.data.tokenizer.vocab_size == pieces
    assert config.model.dropout == dropout
    assert config.model.d_model == (1024 if name.startswith("big") else 512)
    training = config.training
    assert (training.source_tokens, training.target_tokens) == (25_000, 25_000)
    assert training.max_steps == steps
    assert (training.max_minutes, training.patience) == (None, None)
    assert (training.checkpoint_minutes, training.checkpoint_steps) == (10.0, 1500)
    assert training.keep_checkpoints >= training.average_checkpoints == averaged
    assert (config.search.beam_size, config.search.alpha) == (4, 0.6)
