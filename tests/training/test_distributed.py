"""Several processes against one: real ones, started by torchrun, on the same batches."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from seq2seq.machine.processes import Processes
from tests.toy import encoded_corpus
from tests.training import rank

SCRIPT = Path(__file__).with_name("rank.py")


class Job(NamedTuple):
    """A run by several processes, and the same by one."""

    processes: int
    recorded: list[dict[str, Any]]
    weights: list[dict[str, torch.Tensor]]
    alone: dict[str, Any]
    weights_alone: dict[str, torch.Tensor]


# Processes, micro-batches asked for and made (4 is no multiple of 3), most tokens at once.
CASES = {"two": (2, 4, 4, 17), "three": (3, 4, 6, 999)}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    processes, asked, micro_batches, most = request.param
    folder = tmp_path_factory.mktemp("job")
    corpus = folder / "train.ids"
    encoded_corpus(corpus, 60, 40)
    torchrun = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    words = [str(SCRIPT), str(corpus), str(folder), str(asked), str(most)]
    done = subprocess.run(
        [sys.executable, "-m", *torchrun, *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    trainer = rank.make_trainer(corpus, micro_batches, Processes(), most)
    alone = rank.run(trainer)
    ranks = range(processes)
    return Job(
        processes,
        [json.loads((folder / f"{number}.json").read_text()) for number in ranks],
        [load_file(folder / f"{number}.safetensors") for number in ranks],
        alone,
        trainer.model.state_dict(),
    )


def test_several_processes_train_as_one_does(job: Job) -> None:
    """After 20 steps with dropout, in float64: only the order of the sums differs."""
    for recorded, weights in zip(job.recorded, job.weights, strict=True):
        assert recorded["losses"] == pytest.approx(job.alone["losses"], abs=1e-9)
        assert recorded["tokens"] == job.alone["tokens"]
        for name, value in job.weights_alone.items():
            torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-7)


def test_all_processes_hold_the_same_weights_to_the_bit(job: Job) -> None:
    for weights in job.weights[1:]:
        assert all(torch.equal(job.weights[0][name], value) for name, value in weights.items())


def test_one_process_of_a_machine_orders_the_epochs(job: Job) -> None:
    first, *others = (recorded["ordered"] for recorded in job.recorded)
    assert first > 2
    assert others == [0] * (job.processes - 1)


def test_gradients_are_exchanged_once_a_step(job: Job) -> None:
    steps = len(job.alone["losses"])
    assert [recorded["all_reduces"] for recorded in job.recorded] == [steps] * job.processes


def test_all_processes_validate_and_the_main_one_saves(job: Job) -> None:
    calls = [(recorded["validate"], recorded["save"]) for recorded in job.recorded]
    assert calls == [(3, 3)] + [(3, 0)] * (job.processes - 1)
    assert (job.alone["validate"], job.alone["save"]) == (3, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_no_thread_outlives_the_process_group(job: Job) -> None:
    """One that still held a tensor when the interpreter ended would abort a finished training."""
    for recorded in job.recorded:
        assert recorded["threads_after"] < recorded["threads_before"]


class Three(Processes):
    """The second of three processes, whose clocks and signals are known."""

    def gather(self, *numbers: float) -> list[list[float]]:
        return [[5.0, 0.0], [*numbers], [7.0, 15.0]]


def test_processes_agree_on_the_clock_of_the_main_one_and_on_a_signal_to_any() -> None:
    assert Three(rank=1, size=3).agree(6.0, None) == (5.0, 15)
