"""One process of a training that the tests start with torchrun: trains, and writes what it saw.

python -m torch.distributed.run --nproc_per_node N rank.py CORPUS OUTPUT PARTS
"""

import json
import sys
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from seq2seq.data.batching import Batching
from seq2seq.data.encoded import EncodedCorpus
from seq2seq.model import TransformerConfig
from seq2seq.storage.checkpoint import new_transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.distributed import World
from seq2seq.training.trainer import Trainer

V = 60
STEPS = 20


class Notebook:
    """Stands for metrics and display."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.tokens: list[float] = []

    def write(self, step: int, figures: dict[str, float]) -> None:
        if "train/loss" in figures:
            self.losses.append(figures["train/loss"])
            self.tokens.append(figures["train/target_tokens"])

    def draw(self) -> None: ...
    def show(self, *_: object) -> None: ...
    def log(self, *_: object) -> None: ...
    def checkpoint(self, *_: object) -> None: ...


def make_trainer(corpus: Path, parts: int, world: World) -> Trainer:
    """Dropout on, and in each process another clock."""
    torch.manual_seed(1)
    config = TransformerConfig(num_layers=1, d_model=16, d_ff=24, num_heads=2, dropout=0.2)
    return Trainer(
        new_transformer(config, V).double(),
        Batching(EncodedCorpus(corpus), source_tokens=24, target_tokens=28, seed=3),
        TrainingConfig(
            source_tokens=parts,
            target_tokens=parts,
            micro_batch_tokens=1,
            warmup_steps=10,
            max_steps=STEPS,
            checkpoint_steps=8,
            log_steps=1,
        ),
        device=torch.device("cpu"),
        precision=torch.float32,
        seed=5,
        world=world,
    )


def run(trainer: Trainer) -> dict[str, Any]:
    """Train, and tell of it."""
    notebook, calls = Notebook(), {"validate": 0, "save": 0}

    def validate() -> dict[str, float]:
        calls["validate"] += 1
        return {"valid/bleu": 1.0}

    def save(best: bool) -> None:
        calls["save"] += 1

    both = cast(Any, notebook)
    trainer.train(both, both, validate=validate, save=save)
    return {"losses": notebook.losses, "tokens": notebook.tokens, **calls}


def gloo_threads() -> int:
    """Threads that work off collectives, where Linux tells of them."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("pt_gloo") for name in names)


def train(corpus: Path, parts: int, world: World) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is told of the training, and the weights."""
    trainer = make_trainer(corpus, parts, world)
    reduced = []
    assert isinstance(trainer.loss, DistributedDataParallel)
    group = trainer.loss.process_group
    trainer.loss.register_comm_hook(
        group, lambda group, bucket: reduced.append(1) or allreduce_hook(group, bucket)
    )
    figures = run(trainer) | {"all_reduces": len(reduced), "threads_before": gloo_threads()}
    return figures, trainer.model.state_dict()


def main(corpus: Path, output: Path, parts: int) -> None:
    torch.set_num_threads(1)
    world = World.of_environment()
    with world.joined():
        figures, weights = train(corpus, parts, world)
    figures["threads_after"] = gloo_threads()
    (output / f"{world.rank}.json").write_text(json.dumps(figures))
    save_file(weights, output / f"{world.rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
