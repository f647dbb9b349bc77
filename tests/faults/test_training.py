"""Runs that are killed, signalled, poisoned or left without disk, each in a real process."""

import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq.cli import training
from seq2seq.cli.main import main
from seq2seq.files import check_listed_file
from seq2seq.model_folder import MODEL_FILES, checkpoints, find_model, load_model
from seq2seq.run.checkpoint import newest_good, progress_file
from seq2seq.system import signals
from tests.faults.conftest import Trial, Trials
from tests.faults.test_strangers import edit
from tests.toy import TINY_MODEL, data_words, reversing, weights

resource: Any = pytest.importorskip("resource")  # faults of Windows are not known yet
pytestmark = pytest.mark.posix

FILES = (*MODEL_FILES, "optimizer.safetensors", "progress.json", "validated.json")
SIGNALS = signals("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
# A process that has imported all and forks: a trial costs no start of Python and PyTorch.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["seq2seq.cli.train", "torch._dynamo", "torch.utils.tensorboard", "matplotlib.figure", "pytest"]
)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that train on a tiny corpus, which is prepared once."""
    folder = tmp_path_factory.mktemp("toy")
    chance = random.Random(3)
    for split, count in (("train", 300), ("valid", 3)):
        lines = [" ".join(chance.choices("abcdefgh", k=chance.randint(1, 5))) for _ in range(count)]
        reversing(folder, split, lines)
    words = ["train", *data_words(folder), *TINY_MODEL, f"cache={folder / 'cache'}"]
    words += ["data.tokenizer.vocab_size=20"]
    words += ["training.source_tokens=128", "training.target_tokens=128", "search.beam_size=1"]
    words += ["training.micro_batch_tokens=64", "training.checkpoint_minutes=null"]
    words += ["training.keep_checkpoints=2", "training.average_checkpoints=1"]
    words += ["training.warmup_steps=40", "precision=fp32", "device=cpu"]
    return words


def _lift_limit(record: logging.LogRecord) -> bool:
    """After the memory probe: threads that start later need addresses, though no memory."""
    if record.getMessage().startswith("memory: "):
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return True


def _child(
    words: list[str],
    log: str,
    *,
    limit: int | None = None,
    memory: int | None = None,
    poisoned_call: int | None = None,
) -> None:
    torch.set_num_threads(1)
    training.write_report = lambda *_, **__: None
    # A shell starts its background jobs with Ctrl-C ignored; here it counts as on a terminal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 2)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        logging.getLogger("seq2seq").addFilter(_lift_limit)
    if poisoned_call is not None:
        calls = iter(range(1_000_000))

        def poison(module: torch.nn.Module, _: Any, output: Any) -> Any:
            if isinstance(module, torch.nn.LayerNorm) and module.training:
                return output * float("nan") if next(calls) == poisoned_call else output
            return output

        torch.nn.modules.module.register_module_forward_hook(poison)
    sys.exit(main(words))


class Training:
    """The command in a process of its own."""

    def __init__(self, words: list[str], log: Path, **faults: Any) -> None:
        log.unlink(missing_ok=True)
        self.log = log
        self.process = _context.Process(target=_child, args=(words, str(log)), kwargs=faults)
        self.process.start()
        while not log.exists() and self.process.is_alive():
            time.sleep(0.005)

    def send(self, number: int) -> None:
        if self.process.is_alive() and self.process.pid:
            os.kill(self.process.pid, number)

    def wait(self) -> int:
        self.process.join(300)  # a training takes seconds, beside other work a minute
        if self.process.is_alive():
            self.process.kill()
            pytest.fail(f"still running: {self.stderr()}")
        assert self.process.exitcode is not None
        assert "Traceback" not in self.stderr(), self.stderr()
        return self.process.exitcode

    def complete(self) -> "Training":
        """Let it end well."""
        assert self.wait() == 0, self.stderr()
        return self

    def wait_for(self, words: str) -> None:
        while self.process.is_alive() and words not in self.stderr():
            time.sleep(0.005)

    def stderr(self) -> str:
        return self.log.read_text()


Start = Callable[..., Training]


@pytest.fixture
def start(toy: list[str], tmp_path: Path) -> Start:
    """Start the training of a folder, or resume it, with more words and with faults."""

    def start_in(run: Path, *words: str, **faults: Any) -> Training:
        resume = ["resume=true"] if checkpoints(run) else []
        return Training([*toy, f"run_dir={run}", *resume, *words], tmp_path / "log", **faults)

    return start_in


def assert_all_readable(run: Path) -> None:
    for folder in checkpoints(run):
        for name in FILES[:-1]:
            check_listed_file(folder, name, sys.maxsize)
        progress_file(folder)
    if checkpoints(run):
        load_model(find_model(run))


def newest_step(run: Path) -> int:
    return int(checkpoints(run)[-1].name.removeprefix("step_"))


def last_recorded(run: Path) -> int:
    lines = (run / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
    return max((json.loads(line)["step"] for line in lines), default=0)


def test_kill(start: Start, tmp_path: Path, trial: Trial, trials: Trials) -> None:
    run, chance = tmp_path / "run", random.Random(1)
    words = ["training.max_steps=1000000", "training.checkpoint_steps=2", "training.log_steps=1"]
    for _ in range(trials(2, 200)):
        with trial("kill -9 while training or saving"):
            if not checkpoints(run) and run.exists():
                run.rename(tmp_path / f"without{time.monotonic_ns()}")
            training = start(run, *words)
            time.sleep(chance.uniform(0.1, 1.0))
            training.send(signal.SIGKILL)
            assert training.wait() == -signal.SIGKILL, training.stderr()
            assert_all_readable(run)
            if checkpoints(run):
                assert last_recorded(run) - newest_step(run) <= 2
    reports: list[str] = []
    if checkpoints(run):
        assert newest_good(run, reports.append) == checkpoints(run)[-1]
        # It has removed what the kills left; without a checkpoint, the next start would.
        assert not [*run.glob("checkpoints/.*")]
        assert {path.name for path in run.glob(".*")} <= {".lock"}
    assert not reports


def result(run: Path) -> tuple[bytes, bytes, list[dict[str, Any]], dict[str, Any]]:
    """Weights, moments, metrics and progress, without what a clock decides."""
    newest = checkpoints(run)[-1]
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        for name in ("train/tokens_per_second", "train/waiting_for_data"):
            record.pop(name, None)
    progress = json.loads(progress_file(newest).read_bytes())["progress"]
    unrecorded = progress["unrecorded"]
    del progress["seconds"], progress["validated_seconds"]
    del unrecorded["seconds"], unrecorded["data_wait_seconds"]
    files = (newest / name for name in ("model.safetensors", "optimizer.safetensors"))
    return (*(file.read_bytes() for file in files), records, progress)


def test_resume(start: Start, tmp_path: Path, trial: Trial, trials: Trials) -> None:
    chance = random.Random(2)
    words = ["training.max_steps=30", "training.checkpoint_steps=8", "training.log_steps=5"]
    start(tmp_path / "whole", *words).complete()
    expected = result(tmp_path / "whole")
    for number in range(trials(1, 20)):
        with trial("stopped up to three times and resumed"):
            run = tmp_path / f"run{number}"
            for _ in range(3):
                training = start(run, *words)
                training.wait_for("an epoch:")
                time.sleep(chance.uniform(0, 0.4))
                training.send(signal.SIGTERM)
                assert training.wait() in (0, 128 + signal.SIGTERM), training.stderr()
            start(run, *words).complete()
            assert result(run) == expected


def test_signals(start: Start, tmp_path: Path, trial: Trial, trials: Trials) -> None:
    chance, run = random.Random(3), tmp_path / "run"
    words = ["training.max_steps=1000000", "training.checkpoint_steps=2", "training.log_steps=1"]
    for _ in range(trials(2, 100)):
        with trial("a signal at any moment"):
            if not checkpoints(run) and run.exists():
                run.rename(tmp_path / f"without{time.monotonic_ns()}")
            number = chance.choice(SIGNALS)
            training = start(run, *words)
            if number == signal.SIGINT:  # a library that is being imported may swallow Python's own
                training.wait_for("data: ")
            time.sleep(chance.uniform(0.0, 1.0))
            training.send(number)
            # Before the command has begun, the signal itself ends the process.
            assert training.wait() in (128 + number, -number), training.stderr()
            assert_all_readable(run)
            if "saved at step" in training.stderr():
                newest = newest_step(run)
                assert f"saved at step {newest};" in training.stderr()
                assert last_recorded(run) == newest


def test_a_signal_while_preparing_leaves_nothing(
    start: Start, tmp_path: Path, trial: Trial, trials: Trials
) -> None:
    chance = random.Random(7)
    for side in ("source", "target"):
        lines = (" ".join(chance.choices("abcdefgh", k=9)) for _ in range(40_000))
        (tmp_path / side).write_text("\n".join(lines) + "\n")
    words = [f"data.train.{side}={tmp_path / side}" for side in ("source", "target")]
    words.append(f"cache={tmp_path / 'cache'}")
    for number in SIGNALS[: trials(1, len(SIGNALS))]:
        with trial("a signal while preparing the data"):
            training = start(tmp_path / "run", *words)
            training.wait_for("data: preparing")
            training.send(number)
            assert training.wait() == 128 + number, training.stderr()
            assert training.stderr().splitlines()[-1] == (
                f"seq2seq: stopped at once by {signal.Signals(number).name}"
            )
            assert not list((tmp_path / "cache").iterdir())
            assert not (tmp_path / "run").exists()


def test_a_signal_does_not_wait_for_a_validation(
    start: Start, tmp_path: Path, trial: Trial
) -> None:
    for side in ("source", "target"):
        (tmp_path / side).write_text("a b c d e f g h\n" * 10_000)
    words = [f"data.valid.{side}={tmp_path / side}" for side in ("source", "target")]
    words += [f"cache={tmp_path / 'cache'}", "training.max_steps=2", "training.log_steps=1"]
    run = tmp_path / "run"
    with trial("a signal while validating"):
        training = start(run, *words)
        training.wait_for("step 2,")
        time.sleep(0.1)
        training.send(signal.SIGTERM)
        assert training.wait() == 128 + signal.SIGTERM, training.stderr()
        assert "stopped and saved at step 2" in training.stderr()
        assert '"valid/bleu"' not in (run / "metrics.jsonl").read_text()
        words[-1] = "search.max_extra_tokens=1"  # what was given up is done now, and quickly
        start(run, *words, "training.log_steps=1").complete()
        assert (run / "metrics.jsonl").read_text().count('"valid/bleu"') == 1


@pytest.mark.slow
def test_a_second_ctrl_c_exits_at_once(start: Start, tmp_path: Path, trial: Trial) -> None:
    words = ["training.max_steps=1000000", "model.d_ff=20000", "training.log_steps=1"]
    with trial("a second Ctrl-C"):
        training = start(tmp_path / "run", *words)
        training.wait_for("step 1,")
        for _ in range(2):
            training.send(signal.SIGINT)
            time.sleep(0.02)
        assert training.wait() == 128 + signal.SIGINT, training.stderr()


def test_poison(start: Start, tmp_path: Path, trial: Trial, trials: Trials) -> None:
    chance = random.Random(4)
    words = ["training.max_steps=1000", "training.checkpoint_steps=3"]
    for number, step in enumerate(chance.sample(range(4, 30), trials(1, 10))):
        with trial("a non-finite loss"):
            run = tmp_path / f"run{number}"
            # Five layer norms a micro-batch, two micro-batches a step, one for the trial before.
            training = start(run, *words, poisoned_call=10 * step)
            assert training.wait() == 1
            line = training.stderr().splitlines()[-1]
            assert f"step {step}: the loss (nan)" in line
            assert len(checkpoints(run)) == min(2, (step - 1) // 3)
            for folder in checkpoints(run):
                assert all(value.isfinite().all() for value in weights(folder).values())
                assert folder == checkpoints(run)[0] or str(folder) in line


def test_a_kill_before_the_best_model_is_written_does_not_lose_it(
    start: Start, tmp_path: Path, trial: Trial, trials: Trials
) -> None:
    words = ["training.max_steps=6", "training.checkpoint_steps=3"]
    start(tmp_path / "whole", *words).complete()
    expected = weights(tmp_path / "whole" / "best")
    for number in range(trials(1, 20)):
        with trial("kill -9 before the best model is written"):
            run = tmp_path / f"run{number}"
            training = start(run, *words)
            while training.process.is_alive() and not checkpoints(run):
                pass
            training.send(signal.SIGKILL)
            training.wait()
            start(run, *words).complete()
            found = weights(run / "best")
            assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_run_that_failed_before_its_first_checkpoint_is_started_again(
    start: Start, tmp_path: Path, trial: Trial
) -> None:
    run = tmp_path / "run"
    words = ["training.max_steps=3", "training.log_steps=1"]
    with trial("an end before the first checkpoint"):
        failed = start(run, *words, poisoned_call=20)
        assert failed.wait() == 1
        assert not checkpoints(run)
        start(run, *words).complete()
        lines = (run / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 3]


def test_a_checkpoint_of_a_newer_version_is_kept_under_another_name(
    start: Start, tmp_path: Path, trial: Trial
) -> None:
    run = tmp_path / "run"
    words = ["training.checkpoint_steps=2"]
    start(run, *words, "training.max_steps=4").complete()
    newest = checkpoints(run)[-1]
    edit("config.json", '"format": ', '"format": 9')(newest)
    content = {path.name: path.read_bytes() for path in newest.iterdir()}
    with trial("a newest checkpoint that can't be read"):
        resumed = start(run, *words, "training.max_steps=8").complete()
        assert "written in format 9" in resumed.stderr()
        aside = newest.with_name(f"unread_{newest.name}")
        assert {path.name: path.read_bytes() for path in aside.iterdir()} == content
        assert newest_step(run) == 8


@pytest.mark.slow
def test_a_start_that_fails_keeps_the_end_of_the_training_before(
    start: Start, tmp_path: Path, trial: Trial
) -> None:
    run = tmp_path / "run"
    words = ["training.checkpoint_steps=2", "training.average_checkpoints=2"]
    start(run, *words, "training.max_steps=4").complete()
    (run / "averaged").mkdir(exist_ok=True)  # it validates no worse, or is put there
    (run / "metrics.jsonl").rename(run / "kept")
    (run / "metrics.jsonl").mkdir()
    words.append("training.max_steps=6")
    with trial("a resumed run that fails at its start"):
        failed = start(run, *words)
        assert failed.wait() == 1
        assert "metrics.jsonl: not a regular file" in failed.stderr().splitlines()[-1]
        assert (run / "averaged").exists()
        assert (run / "finished.json").exists()
        (run / "metrics.jsonl").rmdir()
        start(run, *words).complete()
        assert json.loads((run / "finished.json").read_bytes())["step"] == 6


def test_full_disk(start: Start, tmp_path: Path, trial: Trial, trials: Trials) -> None:
    chance, run = random.Random(6), tmp_path / "run"
    words = ["training.checkpoint_steps=2", "training.log_steps=1"]
    start(run, *words, "training.max_steps=2").complete()
    largest = max((checkpoints(run)[0] / name).stat().st_size for name in FILES)
    for _ in range(trials(1, 10)):
        with trial("a disk that is full while saving"):
            limited = start(
                run, *words, "training.max_steps=100", limit=chance.randrange(2000, largest)
            )
            assert limited.wait() == 1, limited.stderr()
            assert str(run) in limited.stderr().splitlines()[-1]
            assert_all_readable(run)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
def test_where_memory_does_not_suffice_a_step_is_computed_in_parts(
    start: Start, tmp_path: Path, trial: Trial
) -> None:
    words = ["model.d_ff=100000", "training.source_tokens=500", "training.target_tokens=500"]
    words += ["training.micro_batch_tokens=500", "training.max_steps=1"]
    run = tmp_path / "run"
    with trial("memory that runs out"):
        limited = start(run, *words, memory=2**30).complete()
        assert limited.stderr().count("target tokens at once don't fit") == 1, limited.stderr()
        assert len(checkpoints(run)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
def test_memory_for_less_than_one_pair_is_reported_before_the_first_step(
    start: Start, tmp_path: Path, trial: Trial
) -> None:
    words = ["model.d_ff=1000000", "training.max_steps=1"]
    with trial("memory that runs out"):
        limited = start(tmp_path / "run", *words, memory=2**29)
        assert limited.wait() == 1
        assert "out of memory with a single pair of" in limited.stderr().splitlines()[-1]
        assert not (tmp_path / "run").exists()
