"""Hydra's plugins as they are documented: sweepers, launchers; `seq2seq runs` lists their runs."""

import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import pytest
import yaml

from seq2seq.run.config import Config
from seq2seq.run.records import read_metrics
from seq2seq.text import open_raw

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
    train: Callable, seq2seq: Callable, tmp_path: Path
) -> None:
    words = ["--multirun", "hydra/sweeper=optuna", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    words.append("training.max_steps=2")
    words += ["training.select_by=loss", "hydra.sweeper.direction=minimize", "resume=auto"]
    words += ["hydra.sweeper.n_trials=2", "hydra.sweeper.sampler.seed=1", "seed=choice(1,2,3)"]
    result = train(*words)
    assert result.code == 0, result.err
    found = yaml.safe_load((tmp_path / "sweep" / "optimization_results.yaml").read_text())
    folders = [path for path in (tmp_path / "sweep").iterdir() if path.is_dir()]
    records = chain.from_iterable(read_metrics(folder / "metrics.jsonl") for folder in folders)
    assert found["best_value"] == min(record.get("valid/loss", 9.9) for record in records)
    # A search that is started again goes on with the trials that there are.
    again = train(*words)
    assert again.code == 0, again.err
    assert again.err.count("nothing to train") == 2
    rows = json.loads(seq2seq("runs", "--format", "json", tmp_path / "sweep").out)
    assert rows[0]["seed"] == found["best_params"]["seed"]


def test_values_that_are_tried_twice_at_once_are_one_run(train: Callable, tmp_path: Path) -> None:
    words = ["--multirun", "training.max_steps=1", "resume=auto", "seed=choice(1)"]
    words += ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=2"]
    result = train(*words, "hydra/launcher=joblib", f"hydra.sweep.dir={tmp_path}")
    assert result.code == 0, result.err
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["seed=1"]


def test_a_setting_that_only_one_run_has_is_listed(
    corpus, trained: Path, train: Callable, seq2seq: Callable, tmp_path: Path
) -> None:
    more = [f"data.corpora.more.{side}={corpus / f'valid.{side}'}" for side in SIDES]
    assert train(*more, "training.max_steps=1", f"run_dir={tmp_path / 'run'}").code == 0
    for folders in ((trained, tmp_path / "run"), (tmp_path / "run", trained)):
        rows = json.loads(seq2seq("runs", "--format", "json", *folders).out)
        assert rows[0]["data.corpora.more.weight"] is None


@pytest.mark.parametrize(
    "launcher", ["basic", "joblib", pytest.param("submitit_local", marks=pytest.mark.posix)]
)
def test_a_run_that_fails_is_told_and_the_others_go_on(
    launcher: str, train: Callable, tmp_path: Path
) -> None:
    sweep = tmp_path / "a, b=c"
    words = [f"hydra/launcher={launcher}", "training.max_steps=1", f"hydra.sweep.dir={sweep}"]
    result = train("--multirun", *words, "model.num_heads=5,2")
    assert result.code == 2
    assert "does not divide into 5 heads" in result.err.splitlines()[-1]
    assert (sweep / "model.num_heads=2" / "finished.json").exists()


def test_what_is_wrong_with_runs_is_told_before_the_first_starts(
    corpus, train: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(config: Config, folder: Path, *_: object, **__: object) -> float:
        print("started", folder.name, file=sys.stderr)
        return 0.0

    monkeypatch.setattr("seq2seq.cli.train.start_training", start)
    sources = f"data.train.source={corpus / 'train.source'},{tmp_path / 'gone.en'}"
    words = ["--multirun", f"run_dir={tmp_path / 'sweep'}", sources, "model.num_heads=2,5"]
    result = train(*words)
    assert result.code == 2  # as that of the first run that fails
    assert len([line for line in result.err.splitlines() if line.startswith("started")]) == 2
    before = result.err.partition("started")[0]
    told = [line for line in before.splitlines() if line.startswith("seq2seq: ")]
    assert ["model.num_heads=5" in line for line in told] == [True, False, True]
    assert "no such file" in told[1]


def test_a_sweep_without_a_run_that_can_start_tells_why_once(
    train: Callable, tmp_path: Path
) -> None:
    gone = f"data.train.source={tmp_path / 'gone.en'}"
    result = train("--multirun", f"run_dir={tmp_path / 'sweep'}", gone, "seed=1,2")
    assert result.code == 2
    *told, last = [line for line in result.err.splitlines() if line.startswith("seq2seq: ")]
    assert [line.split(": ")[1] for line in told] == ["seed=1", "seed=2"]
    assert all("no such file" in line for line in told)
    assert last == "seq2seq: no run of this sweep can start"
    assert not list((tmp_path / "sweep").glob("seed=*"))


def test_the_text_of_runs_with_equal_data_is_opened_once_before_the_first_starts(
    corpus, train: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def note(path: str) -> BinaryIO:
        opened.append(path)
        return open_raw(path)

    monkeypatch.setattr("seq2seq.data.corpus.open_raw", note)
    monkeypatch.setattr("seq2seq.cli.train.start_training", lambda *_, **__: 0.0)
    assert train("--multirun", f"run_dir={tmp_path / 'sweep'}", "seed=1,2,3").code == 0
    assert sorted(opened) == sorted(set(opened))
    assert str(corpus / "train.source") in opened


def test_runs_that_would_share_a_folder_are_refused(
    train: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--multirun", f"run_dir={tmp_path / 'sweep'}", "cache=a/x,a-x"]
    result = train(*words)
    assert result.code == 2
    assert "cache=a/x and cache=a-x would have the same folder" in result.err.splitlines()[-1]
    assert not list(tmp_path.glob("sweep/cache*"))


def test_a_search_goes_on_after_a_trial_that_fails_and_tells_it(
    train: Callable, tmp_path: Path
) -> None:
    words = ["--multirun", f"hydra.sweep.dir={tmp_path}"]
    words += ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=8", "hydra.sweeper.n_jobs=1"]
    words += ["hydra.sweeper.sampler.seed=1", "hydra.sweeper.max_failure_rate=1", "resume=auto"]
    words += ["training.max_steps=1", "model.dropout=choice(2,0)"]
    result = train(*words)
    assert result.code == 0
    assert "seq2seq: model.dropout=2: " in result.err
    assert (tmp_path / "model.dropout=0" / "finished.json").exists()
    assert (tmp_path / "optimization_results.yaml").exists()


def test_a_folder_that_can_t_be_made_is_named(train: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = train("--multirun", f"hydra.sweep.dir={tmp_path / 'file' / 'sweep'}", "seed=1,2")
    says = f"seq2seq: {tmp_path / 'file' / 'sweep'}: Not a directory\n"
    assert (result.code, result.err) == (2, says)


@pytest.mark.posix
def test_a_launcher_s_own_handler_is_called_once_all_is_saved(
    train: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        words = ("training.max_steps=9", f"hydra.sweep.dir={tmp_path}", "seed=1,2")
        assert train("--multirun", *words).code == -1
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert called == [True]


def test_a_sweep_that_is_stopped_before_a_checkpoint_names_its_folder(
    train: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = lambda *_: signal.raise_signal(signal.SIGTERM)  # noqa: E731
    monkeypatch.setattr("seq2seq.run.start.prepare", stop)
    result = train("--multirun", f"hydra.sweep.dir={tmp_path}", "seed=1,2")
    assert result.code == 128 + signal.SIGTERM
    says = f"continue with the same command and hydra.sweep.dir={tmp_path} resume=auto"
    assert result.err.splitlines()[-1] == says
