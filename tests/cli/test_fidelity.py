"""`seq2seq fidelity` and `seq2seq table3` on the command line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from seq2seq.cli.main import main
from seq2seq.config import Config
from seq2seq.model_folder import TrainedModel, new_transformer, save_model
from seq2seq.sizes import TransformerConfig
from seq2seq.tokenizer import Tokenizer
from seq2seq.train import TrainingConfig

TINY = ["model.num_layers=1", "model.d_model=32", "model.d_ff=64", "model.num_heads=4"]
MODEL = TransformerConfig(num_layers=1, d_model=32, d_ff=64, num_heads=4)


def write_run(folder: Path, *, model: TransformerConfig = MODEL, bleu: float = 20.0) -> Path:
    folder.mkdir(parents=True)
    config = Config(model=model, training=TrainingConfig(max_steps=30))
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))
    records: list[dict[str, float]] = [
        {"step": 10, "train/loss": 3.0, "train/source_tokens": 900.0, "train/target_tokens": 950.0},
        {"step": 20, "valid/loss": 2.5, "valid/perplexity": 12.2, "valid/bleu": bleu / 2},
        {"step": 30, "valid/loss": 2.0, "valid/perplexity": 7.4, "valid/bleu": bleu},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(lines)
    return folder


def test_the_differences_of_a_small_model_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fidelity", "--json", "--strict", *TINY]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["number"] for row in rows] == list(range(1, 28))
    assert [row["number"] for row in rows if row["verdict"] == "differs"] == [27]
    # The paper's data, though training without a word of them would be on the embedded corpus.
    assert "wmt/wmt14" in rows[24]["here"]


def test_a_run_is_examined(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run")
    torch.manual_seed(2)
    model = new_transformer(MODEL, tokenizer.vocab_size)
    save_model(run / "averaged", TrainedModel(model, tokenizer, "en", "de"))
    assert main(["fidelity", "--json", "--model", str(run)]) == 0
    rows = json.loads(capsys.readouterr().out)
    here = [row["here"] for row in rows]
    assert here[0].startswith("LayerNorm(x + Dropout(Sublayer(x)))")
    assert here[16] == "25,000 + 25,000: 900 + 950 on average in the run"
    assert here[17].startswith("30 done, of 30 steps")
    assert [rows[i]["verdict"] for i in (16, 17)] == ["differs", "differs"]


def test_table_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        str(write_run(tmp_path / "named_anyhow", model=replace(MODEL, num_heads=1), bleu=19.0)),
        str(write_run(tmp_path / "A_h1")),
        str(write_run(tmp_path / "big", model=replace(MODEL, d_ff=32), bleu=18.0)),
    ]
    assert main(["table3", "--json", *runs]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["row"]["name"] for row in rows] == ["base", "A_h1", "C_dff1024"]
    assert [row["bleu"] for row in rows] == [20.0, 19.0, 18.0]
    assert [row["bleu_minus_base"] for row in rows] == [0.0, -1.0, -2.0]
    assert all((run["step"], run["perplexity"]) == (30, 7.4) for row in rows for run in row["runs"])
    assert main(["table3", *runs]) == 0
    text = capsys.readouterr().out
    assert "BLEU: 2 of 2 rows are on the same side of base as in the paper" in text
