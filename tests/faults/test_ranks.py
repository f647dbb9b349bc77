"""Processes of a run that die or stall."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.conftest import Trial, Trials
from tests.toy import data_words, two_files


def start(corpus: Path, run_dir: Path, timeout: int) -> subprocess.Popen[str]:
    """A long run by two processes, which has started."""
    words = [
        *(*data_words(corpus), "data.tokenizer.vocab_size=20", f"cache={corpus / 'cache'}"),
        *("model.num_layers=1", "model.d_model=32", "model.d_ff=64", "model.num_heads=4"),
        *("training.source_tokens=256", "training.target_tokens=256"),
        *(
            "training.micro_batch_tokens=128",
            "training.log_steps=1",
            f"distributed_timeout={timeout}",
        ),
        *("device=cpu", "precision=fp32", f"run_dir={run_dir}"),
    ]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    process = subprocess.Popen(
        [sys.executable, *torchrun, "-m", "seq2seq", "train", *words],
        cwd=run_dir.parent,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = run_dir / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") > 2:
            return process
        time.sleep(0.1)
    raise AssertionError(process.communicate()[1])


def processes_in(working_folder: Path) -> dict[int, int]:
    """Rank and number of the processes of a run that was started in a folder."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            rank = re.search(rb"(?:^|\0)RANK=(\d+)", (folder / "environ").read_bytes())
            works_here = (folder / "cwd").resolve() == working_folder.resolve()
        except OSError:
            continue
        if rank and works_here:
            found[int(rank[1])] = int(folder.name)
    return found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    chance = random.Random(5)
    for split, pairs in (("train", 500), ("valid", 10)):
        texts = ["".join(f"{chance.randrange(10)} " for _ in range(5)) for _ in range(pairs)]
        two_files(folder, split, texts, texts)
    return folder


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the ranks in /proc")
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("a rank dies", "SIGKILL"),
        pytest.param("a rank stalls", "SIGSTOP", marks=pytest.mark.slow),
    ],
)
def test_a_lost_rank_ends_all(
    corpus: Path, tmp_path: Path, trial: Trial, trials: Trials, fault: str, name: str
) -> None:
    """torchrun names a process that has died; one that stalls it ends after all others."""
    dies = name == "SIGKILL"
    chance = random.Random(2)
    for attempt in range(trials(1, 20 if dies else 2)):
        with trial(fault):
            run_dir = tmp_path / str(attempt)
            # What waits for a rank that is merely slow must not end.
            torchrun = start(corpus, run_dir, timeout=60 if dies else 10)
            ranks = processes_in(tmp_path)
            assert set(ranks) == {0, 1}
            time.sleep(chance.random())
            lost = chance.randrange(2)
            os.kill(ranks[lost], getattr(signal, name))
            _, err = torchrun.communicate(timeout=300)
            assert torchrun.returncode not in (0, None)
            assert not processes_in(tmp_path)
            if dies:
                assert re.search(rf"rank +: {lost} ", err), err
                assert f"received by PID {ranks[lost]}" in err
            else:
                assert "seq2seq: rank " in err
                assert "another process is lost" in err
