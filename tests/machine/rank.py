"""One process of a training that the tests start with torchrun: trains and saves its record.

python -m torch.distributed.run --nproc_per_node N rank.py CORPUS OUTPUT MICRO_BATCHES MOST_TOKENS
"""

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


def main(corpus: Path, output: Path, micro_batches: int, most: int) -> None:
    torch.set_num_threads(1)
    world = from_environment()
    with world.process_group():
        recorded = train(corpus, micro_batches, world, most)
        before = gloo_threads()
    recorded["threads"] = before, gloo_threads()
    torch.save(recorded, output / f"{world.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
