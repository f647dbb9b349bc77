"""Several processes against one: real ones, started by torchrun, on the same batches."""

import subprocess
import sys
from collections import Counter
from typing import Any, NamedTuple

import pytest
import torch

from seq2seq.machine.processes import OneProcess, Processes
from tests.machine import rank
from tests.toy import encoded_corpus

pytestmark = pytest.mark.posix  # torchrun is tested there alone


class Job(NamedTuple):
    """What each of several processes has recorded, and one that is alone."""

    ranks: list[dict[str, Any]]
    alone: dict[str, Any]


# 4 micro-batches of a step are divided unevenly among 3 processes, which cut them into parts.
PROCESSES, MICRO_BATCHES, MOST_TOKENS = 3, 4, 17


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("job")
    corpus = folder / "train.ids"
    encoded_corpus(corpus, 60, 40)
    torchrun = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(PROCESSES)]
    words = [rank.__file__, str(corpus), str(folder), str(MICRO_BATCHES), str(MOST_TOKENS)]
    done = subprocess.run(
        [sys.executable, "-m", *torchrun, *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(folder / f"{n}.pt", weights_only=False) for n in range(PROCESSES)]
    return Job(ranks, rank.train(corpus, MICRO_BATCHES, OneProcess(), MOST_TOKENS))


def test_several_processes_train_as_one_does(job: Job) -> None:
    """After 20 steps with dropout, in float64: only the order of the sums differs."""
    for recorded in job.ranks:
        assert recorded["losses"] == pytest.approx(job.alone["losses"], abs=1e-9)
        assert recorded["tokens"] == job.alone["tokens"]
        torch.testing.assert_close(recorded["weights"], job.alone["weights"], rtol=0, atol=1e-7)
        torch.testing.assert_close(recorded["weights"], job.ranks[0]["weights"], rtol=0, atol=0)


def test_work_is_shared_out(job: Job) -> None:
    """One process saves, all validate, and exchange gradients once a step."""
    main, *others = (recorded["calls"] for recorded in job.ranks)
    assert job.alone["calls"] == {"validate": 3, "save": 3}
    assert main == job.alone["calls"] | Counter(sum=rank.STEPS)
    assert others == [{"validate": 3, "sum": rank.STEPS}] * len(others)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_no_thread_outlives_the_process_group(job: Job) -> None:
    """One that still held a tensor when the interpreter ended would abort a finished training."""
    for recorded in job.ranks:
        before, after = recorded["threads"]
        assert after < before


class Three(Processes):
    """The second of three processes, whose clocks and signals are known."""

    def gather(self, *numbers: float) -> list[list[float]]:
        return [[5.0, 0.0], [*numbers], [7.0, 15.0]]


def test_processes_agree_on_the_clock_of_the_main_one_and_on_a_signal_to_any() -> None:
    assert Three(rank=1, size=3).agree(6.0, None) == (5.0, 15)
