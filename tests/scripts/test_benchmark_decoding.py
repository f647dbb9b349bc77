"""The decoding benchmark, on a model and a text that take no time."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from seq2seq.data.tokenizer import Tokenizer
from seq2seq.model import Transformer
from seq2seq.storage.model_folder import save_model
from seq2seq.storage.trained_model import TrainedModel

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark_decoding.py"


def test_it_prints_a_row_for_each_system(
    make_model: Callable[..., Transformer],
    tokenizer: Tokenizer,
    sentences: list[str],
    tmp_path: Path,
) -> None:
    model = make_model(vocab_size=tokenizer.vocab_size).float()
    save_model(tmp_path / "model", TrainedModel(model, tokenizer, "a", "b"))
    (tmp_path / "text").write_text("\n".join(sentences[:4]))
    words = ["--model", tmp_path / "model", "--source", tmp_path / "text"]
    words += ["--reference", tmp_path / "text", "--rounds", "1", "--single", "2", "--beam", "2"]
    done = subprocess.run(
        [
            sys.executable,
            SCRIPT,
            *map(str, words),
            "--only",
            "ours, fp32, 1",
            "CTranslate2, int8, 2 x 1, 16",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ours")]
    assert len(rows) == 1
    low, speed, high = (
        float(x) for x in (rows[0][2].split()[0], rows[0][1], rows[0][2].split()[2])
    )
    assert 0 < low <= speed <= high
    assert "2 x 1, 16 a batch" in done.stdout
