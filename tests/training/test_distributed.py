"""Several processes against one: real ones, started by torchrun, on the same batches."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from seq2seq.data.encoded import EncodedCorpusWriter
from seq2seq.errors import UserError
from seq2seq.training.config import TrainingConfig
from seq2seq.training.distributed import World

SCRIPT = Path(__file__).with_name("rank.py")


def rank_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rank", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Job(NamedTuple):
    """A training by several processes, and the same by one."""

    processes: int
    parts: int
    """Micro-batches of a step."""
    figures: list[dict[str, Any]]
    weights: list[dict[str, torch.Tensor]]
    alone: dict[str, Any]
    weights_alone: dict[str, torch.Tensor]


# Asked for as many micro-batches as these: 4 is no multiple of 3, so it becomes 6.
@pytest.fixture(scope="module", params=[(2, 4, 4), (3, 4, 6)], ids=["two", "three"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    processes, asked, parts = request.param
    folder = tmp_path_factory.mktemp("job")
    corpus = folder / "train.arrow"
    chance = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 10, (40,), generator=chance).tolist()
    sources = [torch.randint(4, 60, (n,), generator=chance).tolist() for n in lengths]
    with EncodedCorpusWriter(corpus, 60) as writer:
        writer.write(sources, [source[::-1] + source[:1] for source in sources])
    torchrun = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    words = [str(SCRIPT), str(corpus), str(folder), str(asked)]
    done = subprocess.run(
        [sys.executable, "-m", *torchrun, *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    rank = rank_module()
    trainer = rank.make_trainer(corpus, parts, World())
    alone = rank.run(trainer)
    ranks = range(processes)
    return Job(
        processes,
        parts,
        [json.loads((folder / f"{number}.json").read_text()) for number in ranks],
        [load_file(folder / f"{number}.safetensors") for number in ranks],
        alone,
        trainer.model.state_dict(),
    )


def test_several_processes_train_as_one_does(job: Job) -> None:
    """After 20 steps with dropout, in float64: only the order of the sums differs."""
    for figures, weights in zip(job.figures, job.weights, strict=True):
        assert figures["losses"] == pytest.approx(job.alone["losses"], abs=1e-9)
        assert figures["tokens"] == job.alone["tokens"]
        for name, value in job.weights_alone.items():
            torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-7)


def test_all_processes_hold_the_same_weights_to_the_bit(job: Job) -> None:
    for weights in job.weights[1:]:
        assert all(torch.equal(job.weights[0][name], value) for name, value in weights.items())


def test_gradients_are_exchanged_once_a_step(job: Job) -> None:
    steps = len(job.alone["losses"])
    assert [figures["all_reduces"] for figures in job.figures] == [steps] * job.processes


def test_the_first_process_alone_validates_and_saves(job: Job) -> None:
    calls = [(figures["validate"], figures["save"]) for figures in job.figures]
    assert calls == [(3, 3)] + [(0, 0)] * (job.processes - 1)
    assert (job.alone["validate"], job.alone["save"]) == (3, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_no_thread_outlives_what_gathers_figures(job: Job) -> None:
    """One that still held a tensor when the interpreter ended would abort a finished training."""
    for figures in job.figures:
        assert 0 < figures["threads_after"] < figures["threads_before"]


def test_one_process_alone_needs_nobody() -> None:
    world = World()
    with world.joined(), world.watched(1.0, lambda: False):
        assert world.on_main(lambda: 7) == 7
        assert world.gather(1.0, 2.0) == [[1.0, 2.0]]
    module = torch.nn.Linear(1, 1)
    assert world.wrap_ddp(module) is module
    assert not torch.distributed.is_initialized()


def test_one_named_gpu_is_not_for_several_processes() -> None:
    with pytest.raises(UserError, match="cuda:1: one GPU for 4 processes"):
        World(rank=2, size=4, local_rank=2).own_device(torch.device("cuda:1"))


@pytest.mark.parametrize(("devices", "parts"), [(1, 7), (2, 8), (7, 7), (8, 8), (16, 16)])
def test_each_device_has_as_many_micro_batches_of_a_step(devices: int, parts: int) -> None:
    assert TrainingConfig().micro_batches_on(devices) == parts
