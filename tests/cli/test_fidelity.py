"""`seq2seq fidelity` on the command line."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.run.config import Config
from seq2seq.tokenizer import Tokenizer
from tests.models import SIZES, save_untrained


@pytest.fixture
def verdicts(seq2seq_json: Callable) -> Callable[..., dict[str, tuple[str, str]]]:
    def run(*words: str | Path) -> dict[str, tuple[str, str]]:
        rows = seq2seq_json("fidelity", *words)
        return {row["detail"]: (row["verdict"], row["here"]) for row in rows}

    return run


def test_the_defaults_are_the_paper_s_and_where_it_is_silent_tensor2tensor_s(
    verdicts: Callable,
) -> None:
    for recipe in ("base_en_de", "big_en_de", "base_en_fr", "big_en_fr"):
        rows = verdicts(f"experiment=paper/{recipe}")
        assert len(rows) == 27
        assert not any(here for _, here in rows.values())
    assert verdicts()["label smoothing (5.4)"] == ("as tensor2tensor", "")
    assert "differs" not in dict(verdicts("variant=tensor2tensor").values())


def test_a_setting_is_named_at_each_detail_that_it_changes(
    verdicts: Callable, seq2seq: Callable
) -> None:
    rows = verdicts("model.norm_position=pre", "model.positions=concatenated")
    changed = {name: row for name, row in rows.items() if row[1]}
    assert changed == {
        "residual, norm, dropout (3.1, 5.4)": ("differs", "model.norm_position=pre"),
        "norm after the last layer (3.1)": ("differs", "model.norm_position=pre"),
        "positions (3.5)": ("as tensor2tensor", "model.positions=concatenated"),
    }
    lines = seq2seq("fidelity", "model.norm_position=pre").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-1].endswith("2 differ, 20 as the paper, 5 as tensor2tensor")
    numbers = [int(match[1]) for line in lines[:-1] if (match := re.match(r"(\d+) ", line))]
    assert numbers == list(range(1, 28))


def test_a_run_is_examined(tmp_path: Path, tokenizer: Tokenizer, verdicts: Callable) -> None:
    config = Config(model=TransformerConfig(**SIZES), training=TrainingConfig(max_steps=30))
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))
    save_untrained(tmp_path / "averaged", tokenizer)
    rows = verdicts("--model", tmp_path)
    assert rows["steps (5.2)"] == ("differs", "training.max_steps=30")
    assert rows["beam (6.1)"] == ("as the paper", "")
    alone = verdicts("--model", tmp_path / "averaged")
    assert alone.keys() < rows.keys()
    assert alone["sizes (Table 3)"][0] == "differs"
