"""Hydra's plugins as they are documented: sweepers, launchers; `seq2seq runs` lists their runs."""

import csv
import io
import json
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from seq2seq.run.records import read_metrics

SIDES = ("source", "target")

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def plugins() -> Iterator[None]:
    """The plugins, whose own code is deprecated in places."""
    for name in ("optuna_sweeper", "joblib_launcher", "submitit_launcher"):
        pytest.importorskip(f"hydra_plugins.hydra_{name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_the_best_value_of_optuna_is_the_best_line_of_runs(
    corpus, seq2seq: Callable, tmp_path: Path
) -> None:
    sweep = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    words = [*corpus.overrides(), "hydra/sweeper=optuna", sweep, "training.max_steps=2"]
    words += ["training.select_by=loss", "hydra.sweeper.direction=minimize", "resume=auto"]
    words += ["hydra.sweeper.n_trials=2", "hydra.sweeper.sampler.seed=1", "seed=choice(1,2,3)"]
    result = seq2seq("train", "--multirun", *words)
    assert result.code == 0, result.err
    found = yaml.safe_load((tmp_path / "sweep" / "optimization_results.yaml").read_text())
    folders = [path for path in (tmp_path / "sweep").iterdir() if path.is_dir()]
    losses = [
        min(r.get("valid/loss", 9.9) for r in read_metrics(f / "metrics.jsonl")) for f in folders
    ]
    assert found["best_value"] == min(losses)
    # A search that is started again goes on with the trials that there are.
    again = seq2seq("train", "--multirun", *words)
    assert again.code == 0, again.err
    assert again.err.count("nothing to do") == 2
    rows = json.loads(seq2seq("runs", "--format", "json", tmp_path / "sweep").out)
    assert rows[0]["seed"] == found["best_params"]["seed"]
    listed = list(csv.DictReader(io.StringIO(seq2seq("runs", "--format", "csv", *folders).out)))
    assert [row["run"] for row in listed] == [row["run"] for row in rows]


def test_values_that_are_tried_twice_at_once_are_one_run(
    corpus, seq2seq: Callable, tmp_path: Path
) -> None:
    words = [*corpus.overrides(), "training.max_steps=1", "resume=auto", "seed=choice(1)"]
    words += ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=2"]
    words += ["hydra/launcher=joblib", f"hydra.sweep.dir={tmp_path}"]
    result = seq2seq("train", "--multirun", *words)
    assert result.code == 0, result.err
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["seed=1"]


def test_a_setting_that_only_one_run_has_is_listed(
    corpus, trained: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    more = [f"data.corpora.more.{side}={corpus.folder / f'valid.{side}'}" for side in SIDES]
    words = [*corpus.overrides(), *more, "training.max_steps=1", f"run_dir={tmp_path / 'run'}"]
    assert seq2seq("train", *words).code == 0
    for folders in ((trained, tmp_path / "run"), (tmp_path / "run", trained)):
        rows = json.loads(seq2seq("runs", "--format", "json", *folders).out)
        assert rows[0]["data.corpora.more.weight"] is None


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_a_run_that_fails_in_another_process_is_told_and_the_others_go_on(
    corpus, launcher: str, seq2seq: Callable, tmp_path: Path
) -> None:
    words = [*corpus.overrides(), f"hydra/launcher={launcher}", "training.max_steps=1"]
    words.append(f"hydra.sweep.dir={tmp_path}")
    result = seq2seq("train", "--multirun", *words, "model.num_heads=5,2")
    assert result.code == 2
    assert "does not divide into 5 heads" in result.err.splitlines()[-1]
    assert "Error executing job" not in result.err
    assert (tmp_path / "model.num_heads=2" / "finished.json").exists()


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_search_goes_on_after_a_trial_that_fails_and_tells_it(
    corpus, launcher: str, seq2seq: Callable, tmp_path: Path
) -> None:
    words = [*corpus.overrides(), "training.max_steps=1", f"hydra.sweep.dir={tmp_path}"]
    words.append(f"hydra/launcher={launcher}")
    words += ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=8", "hydra.sweeper.n_jobs=1"]
    words += ["hydra.sweeper.sampler.seed=1"]
    words += ["hydra.sweeper.max_failure_rate=1", "model.dropout=choice(2,0)", "resume=auto"]
    result = seq2seq("train", "--multirun", *words)
    assert result.code == 2
    assert "model.dropout=2" in result.err.splitlines()[-1]
    assert (tmp_path / "model.dropout=0" / "finished.json").exists()
    assert (tmp_path / "optimization_results.yaml").exists()
    # If all fail, it is not Optuna's complaint that ends the command.
    result = seq2seq("train", "--multirun", *words, "model.dropout=choice(2)")
    assert result.code == 2
    assert "model.dropout=2" in result.err.splitlines()[-1]


def test_a_folder_that_can_t_be_made_is_named(corpus, seq2seq: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sweep = f"hydra.sweep.dir={tmp_path / 'file' / 'sweep'}"
    result = seq2seq("train", "--multirun", *corpus.overrides(), sweep, "seed=1,2")
    says = f"seq2seq: {tmp_path / 'file' / 'sweep'}: Not a directory\n"
    assert (result.code, result.err) == (2, says)


def test_a_launcher_s_own_handler_is_called_once_all_is_saved(
    corpus, seq2seq: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[bool] = []

    def requeue(number: int, _: object) -> None:
        called.append(bool(list((tmp_path / "seed=1" / "checkpoints").iterdir())))
        raise SystemExit(-1)

    monkeypatch.setattr(
        "seq2seq.trainer.Trainer.limit_reached",
        lambda trainer: signal.raise_signal(signal.SIGUSR2) if trainer.progress.step else "",
    )
    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        words = [*corpus.overrides(), "training.max_steps=9", f"hydra.sweep.dir={tmp_path}"]
        assert seq2seq("train", "--multirun", *words, "seed=1,2").code == -1
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert called == [True]
