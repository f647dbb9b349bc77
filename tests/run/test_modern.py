"""A model of modern layers goes where the paper's goes: from training to every command."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from seq2seq.model_folder import checkpoints, find_model, load_model
from seq2seq.zoo.modern import modern_choices
from tests.conftest import Result
from tests.toy import TINY_MODEL, data_words, reversing, weights


def test_a_modern_model_is_resumed_averaged_searched_scored_drawn_and_reported(
    sentences: list[str], tmp_path: Path, seq2seq: Callable[..., Result]
) -> None:
    reversing(tmp_path, "train", sentences[10:])
    source, target = (tmp_path / f"valid.{side}" for side in ("source", "target"))
    reversing(tmp_path, "valid", sentences[:10])
    words = ["train", *data_words(tmp_path), "model=modern_small", *TINY_MODEL, "model.num_heads=4"]
    words += ["data.tokenizer.vocab_size=60", f"cache={tmp_path / 'cache'}", "device=cpu"]
    words += ["training.source_tokens=200", "training.target_tokens=200", "precision=bf16"]
    words += ["training.warmup_steps=4", "training.checkpoint_steps=1", "search.beam_size=2"]
    words.append("search.max_extra_tokens=5")
    run, other = tmp_path / "run", tmp_path / "other"
    for more in (
        [f"run_dir={run}", "training.max_steps=4"],
        [f"run_dir={other}", "training.max_steps=2"],
        [f"run_dir={other}", "training.max_steps=4", "resume=true"],
        ["average", "--model", run, "--last", "2", "-o", tmp_path / "mean"],
        ["translate", "--model", run, "-i", source, "-o", tmp_path / "out"],
        ["translate", "--model", run, "--model", other, "-i", source, "-o", tmp_path / "both"],
        ["translate", "--model", run, "--sample", "-i", source, "-o", tmp_path / "sampled"],
        ["rescore", "--model", run, "-s", source, "-i", target],
        ["score", "--model", run, "-s", source, "-r", target],
        ["fidelity", "--model", run],
        ["report", run, "-o", tmp_path / "report.html"],
        ["attention", "--model", run, "--source", "a man", "--kind", "decoder", "--json"],
    ):
        done = seq2seq(*(words + more if "run_dir" in str(more[0]) else more))
        assert done.code == 0, (more, done.err)
    assert (tmp_path / "report.html").exists()
    assert len(json.loads(done.out)["weights"][0]) == 4  # of each head of queries
    found, expected = (weights(checkpoints(folder)[-1]) for folder in (other, run))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    # Two equal models together are as one.
    assert (tmp_path / "both").read_text() == (tmp_path / "out").read_text()
    assert len(modern_choices(load_model(find_model(run)).model.config)) == 6
