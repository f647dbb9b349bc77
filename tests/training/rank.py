"""One process of a training that the tests start with torchrun: trains and writes its record.

python -m torch.distributed.run --nproc_per_node N rank.py CORPUS OUTPUT MICRO_BATCHES MOST_TOKENS
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, distributed

from seq2seq.batches import Batching, EncodedCorpus
from seq2seq.device import Compute
from seq2seq.fast.training import FastForms
from seq2seq.machine.processes import Processes
from seq2seq.model_folder import new_transformer
from seq2seq.sizes import TransformerConfig
from seq2seq.trainer import Trainer
from seq2seq.update import TrainingConfig
from tests.training import records

V = 60
STEPS = 20


def make_trainer(corpus: Path, micro_batches: int, world: Processes, most: int) -> Trainer:
    """Dropout on, and in each process another clock."""
    torch.manual_seed(1)
    config = TransformerConfig(num_layers=1, d_model=16, d_ff=24, num_heads=2, dropout=0.2)
    trainer = Trainer(
        new_transformer(config, V).double(),
        Batching(EncodedCorpus(corpus), source_tokens=24, target_tokens=28, seed=3),
        TrainingConfig(
            source_tokens=micro_batches,
            target_tokens=micro_batches,
            micro_batch_tokens=1,
            warmup_steps=10,
            max_steps=STEPS,
            checkpoint_steps=8,
            log_steps=1,
        ),
        compute=Compute(),
        seed=5,
        world=world,
        forms=FastForms(),
    )
    trainer.updater.most_tokens = most, most
    trainer.batching.order_once = world.order_once
    return trainer


def run(trainer: Trainer) -> dict[str, Any]:
    """Train; the losses, the tokens, and how often it was validated and saved."""
    calls = {"validate": 0, "save": 0}

    def validate() -> dict[str, float]:
        calls["validate"] += 1
        return {"valid/bleu": 1.0}

    def save() -> None:
        calls["save"] += 1

    found = records.train(trainer, validate, save)
    losses, tokens = (found.of(f"train/{name}") for name in ("loss", "target_tokens"))
    return {"losses": losses, "tokens": tokens, **calls}


def gloo_threads() -> int:
    """Threads that run collectives, where Linux lists them."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("pt_gloo") for name in names)


def train(
    corpus: Path, micro_batches: int, world: Processes, most: int
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the records of the training, and the weights."""
    trainer = make_trainer(corpus, micro_batches, world, most)
    reduced, all_reduce = [], distributed.all_reduce
    distributed.all_reduce = lambda tensor: reduced.append(1) or all_reduce(tensor)
    order, ordered = trainer.batching._order, []
    trainer.batching._order = lambda *given: ordered.append(1) or order(*given)
    recorded = run(trainer) | {"all_reduces": len(reduced), "threads_before": gloo_threads()}
    recorded["ordered"] = len(ordered)
    return recorded, trainer.model.state_dict()


def main(corpus: Path, output: Path, micro_batches: int, most: int) -> None:
    torch.set_num_threads(1)
    world = Processes.from_environment()
    with world.process_group():
        recorded, weights = train(corpus, micro_batches, world, most)
    recorded["threads_after"] = gloo_threads()
    (output / f"{world.rank}.json").write_text(json.dumps(recorded))
    save_file(weights, output / f"{world.rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
