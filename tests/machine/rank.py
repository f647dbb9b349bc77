"""The processes of a training, in the environment of torchrun: each saves its record.

python rank.py PROCESSES CORPUS OUTPUT MICRO_BATCHES MOST_TOKENS

They are copies of one process, whose imports take several times as long as the training.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import distributed

from seq2seq.batches import Batching
from seq2seq.encoded_corpus import EncodedCorpus
from seq2seq.machine.processes import OneProcess, from_environment
from tests.core import records

STEPS = 20


def train(corpus: Path, micro_batches: int, world: OneProcess, most: int) -> dict[str, Any]:
    """Train with dropout; return losses, tokens and weights, and how often it did something."""
    batching = Batching(EncodedCorpus(corpus), source_tokens=24, target_tokens=28, seed=3)
    tokens = {"source_tokens": micro_batches, "target_tokens": micro_batches}
    trainer = records.make_trainer(
        batching,
        double=True,
        dropout=0.2,
        parts={"world": world, "micro_batches": micro_batches},
        max_steps=STEPS,
        checkpoint_steps=8,
        **tokens,
    )
    trainer.updater.set_most_tokens((most, most))
    calls: Counter[str] = Counter()

    def counted(name: str, function: Any) -> Any:
        def count(*given: Any) -> Any:
            calls[name] += 1
            return function(*given)

        return count

    validate, save = (lambda: {"valid/bleu": 1.0}), (lambda: None)
    with mock.patch.object(distributed, "all_reduce", counted("sum", distributed.all_reduce)):
        found = records.train(trainer, counted("validate", validate), counted("save", save))
    return {
        "losses": found.of("train/loss"),
        "tokens": found.of("train/target_tokens"),
        "weights": trainer.model.state_dict(),
        "calls": calls,
    }


def gloo_threads() -> int:
    """Threads that run collectives, where Linux lists them."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("pt_gloo") for name in names)


def run(corpus: Path, output: Path, micro_batches: int, most: int) -> None:
    """Train as the process that the environment names."""
    world = from_environment()
    with world.process_group():
        recorded = train(corpus, micro_batches, world, most)
        before = gloo_threads()
    recorded["threads"] = before, gloo_threads()
    torch.save(recorded, output / f"{world.rank}.pt")


def main(processes: int, *job: Any) -> int:
    """Return how many of the processes have failed."""
    torch.set_num_threads(1)
    size = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    store = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "localhost"}
    os.environ |= size | store | {"TORCHELASTIC_RESTART_COUNT": "0"}
    read, write = os.pipe()
    started = []
    for rank in range(processes):
        started.append(os.fork())
        if not started[-1]:
            port = os.read(read, 5).decode()
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": port}
            run(*job)
            return 0
    # It has threads, which the copies of a process would lack.
    kept = distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    os.write(write, b"%05d" % kept.port * processes)
    return sum(os.waitpid(process, 0)[1] != 0 for process in started)


if __name__ == "__main__":
    import torch._dynamo  # an optimizer imports it

    count, corpus, output, *numbers = sys.argv[1:]
    sys.exit(main(int(count), Path(corpus), Path(output), *map(int, numbers)))
