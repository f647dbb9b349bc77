"""Processes of a run that die or stall, and data that doesn't divide evenly among them."""

import itertools
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from seq2seq.data.batching import Batching
from seq2seq.device import Compute
from seq2seq.fidelity.trace import SyntheticLengths
from seq2seq.model import TransformerConfig
from seq2seq.storage.trained_model import new_transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.distributed import World
from seq2seq.training.trainer import Trainer
from tests.toy import data_words, two_files

Trial = Callable[[str], AbstractContextManager[None]]
Trials = Callable[[int, int], int]


def test_all_ranks_get_the_same_number_of_micro_batches_and_none_is_skipped(
    trial: Trial, trials: Trials
) -> None:
    chance = random.Random(1)
    model = new_transformer(TransformerConfig(num_layers=1, d_model=4, d_ff=4, num_heads=1), 20)
    for _ in range(trials(50, 1000)):
        with trial("ranks with unequal data"):
            size, asked = chance.randint(1, 16), chance.randint(1, 20)
            batching = Batching(
                SyntheticLengths(chance.randint(1, 300), mean_length=6, max_length=16),
                source_tokens=chance.randint(16, 200),
                target_tokens=chance.randint(16, 200),
                seed=1,
            )
            trainer = Trainer(
                model,
                batching,
                TrainingConfig(source_tokens=asked, target_tokens=asked, micro_batch_tokens=1),
                compute=Compute(),
                seed=1,
            )
            count = trainer.micro_batches = trainer.config.micro_batches(size)
            alone = (batch for epoch in itertools.count() for batch in batching.epoch(epoch))
            for step in islice(trainer.steps(), 2):
                shares = [World(rank, size).share(step) for rank in range(size)]
                assert {len(share) for share in shares} == {count // size}
                dealt = dict(numbered for share in shares for numbered in share)
                for number, batch in enumerate(islice(alone, count)):
                    assert np.array_equal(dealt[number], batch)


def start(corpus: Path, run_dir: Path) -> subprocess.Popen[str]:
    """A long run by two processes, which has started."""
    words = [
        *(*data_words(corpus), "data.tokenizer.vocab_size=20", f"cache={corpus / 'cache'}"),
        *("model.num_layers=1", "model.d_model=32", "model.d_ff=64", "model.num_heads=4"),
        *("training.source_tokens=256", "training.target_tokens=256"),
        *("training.micro_batch_tokens=128", "training.log_steps=1", "distributed_timeout=5"),
        *("device=cpu", "precision=fp32", f"run_dir={run_dir}"),
    ]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    process = subprocess.Popen(
        [sys.executable, *torchrun, "-m", "seq2seq", "train", *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = run_dir / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") > 2:
            return process
        time.sleep(0.1)
    raise AssertionError(process.communicate()[1])


def processes_of(run_dir: Path) -> dict[int, int]:
    """Rank and number of the processes that train into a folder."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            rank = re.search(rb"(?:^|\0)RANK=(\d+)", (folder / "environ").read_bytes())
        except OSError:
            continue
        if rank and f"run_dir={run_dir}".encode() in words:
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
    ("fault", "number"),
    [
        ("a rank dies", signal.SIGKILL),
        pytest.param("a rank stalls", signal.SIGSTOP, marks=pytest.mark.slow),
    ],
)
def test_a_lost_rank_ends_all(
    corpus: Path, tmp_path: Path, trial: Trial, trials: Trials, fault: str, number: int
) -> None:
    """torchrun names a process that has died; one that stalls it ends after all others."""
    dies = number == signal.SIGKILL
    chance = random.Random(2)
    for attempt in range(trials(1, 20 if dies else 2)):
        with trial(fault):
            run_dir = tmp_path / str(attempt)
            torchrun = start(corpus, run_dir)
            ranks = processes_of(run_dir)
            assert set(ranks) == {0, 1}
            time.sleep(chance.random())
            lost = chance.randrange(2)
            os.kill(ranks[lost], number)
            _, err = torchrun.communicate(timeout=120)
            assert torchrun.returncode not in (0, None)
            assert not processes_of(run_dir)
            if dies:
                assert re.search(rf"rank +: {lost} ", err), err
                assert f"received by PID {ranks[lost]}" in err
            else:
                assert "seq2seq: rank " in err
                assert "another process is lost" in err
