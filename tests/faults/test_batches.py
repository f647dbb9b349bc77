"""The same batches in the same order, by any number of workers and after any resume."""

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

from seq2seq.data.batching import Batch, Batching, Indices
from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter
from seq2seq.device import Compute
from seq2seq.model import TransformerConfig
from seq2seq.storage.trained_model import new_transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.state import Progress
from seq2seq.training.trainer import Trainer
from tests.training import records

VOCABULARY = 60
TOKENS = 120
SEED = 7


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of many small record batches."""
    file = tmp_path_factory.mktemp("batches") / "train.arrow"
    generator = random.Random(1)
    with EncodedCorpusWriter(file, VOCABULARY, rows_per_batch=37) as writer:
        for _ in range(200):
            sides = [
                [generator.randrange(4, VOCABULARY) for _ in range(generator.randint(1, 20))]
                for _ in range(2)
            ]
            writer.write(sides[:1], sides[1:])
    return file


def digest(batch: Batch) -> str:
    content = hashlib.sha256()
    for tensor in (batch.source, batch.target_input, batch.target_output):
        content.update(repr(tuple(tensor.shape)).encode() + tensor.numpy().tobytes())
    return content.hexdigest()


def make_batching(path: Path) -> Batching:
    return Batching(EncodedCorpus(path), source_tokens=TOKENS, target_tokens=TOKENS, seed=SEED)


@pytest.mark.parametrize("workers", [1, 4])
def test_concurrent_workers_build_the_same_batches(path: Path, workers: int, trial, trials) -> None:
    batching = make_batching(path)
    for epoch in range(trials(1, 20)):
        with trial(f"batches by a pool of {workers} thread{'s' * (workers > 1)}"):
            batches = batching.epoch(epoch)
            with ThreadPoolExecutor(workers) as pool:
                built = list(pool.map(lambda indices: digest(batching.collate(indices)), batches))
            assert built == [by_hand(batching.corpus, indices) for indices in batches]


def by_hand(corpus: EncodedCorpus, indices: Indices) -> str:
    """A batch made pair by pair."""
    sources = [corpus.source(int(i)).tolist() for i in indices]
    targets = [corpus.target(int(i)).tolist() for i in indices]
    rows = (sources, [[2, *target[:-1]] for target in targets], targets)
    padded = [
        torch.tensor([row + [0] * (max(map(len, side)) - len(row)) for row in side])
        for side in rows
    ]
    return digest(Batch(*padded))


class RecordedBatching(Batching):
    """Records the digest of each batch."""

    def __init__(self, path: Path) -> None:
        super().__init__(EncodedCorpus(path), source_tokens=TOKENS, target_tokens=TOKENS, seed=SEED)
        self.digests: list[str] = []

    def collate(self, indices: Indices) -> Batch:
        batch = super().collate(indices)
        self.digests.append(digest(batch))
        return batch


def train(path: Path, progress: Progress, steps: int) -> tuple[list[str], Progress]:
    """Train up to a step; return the digests of the batches and the progress."""
    batching = RecordedBatching(path)
    sizes = TransformerConfig(num_layers=1, d_model=4, d_ff=4, num_heads=1)
    config = TrainingConfig(
        source_tokens=2 * TOKENS,
        target_tokens=2 * TOKENS,
        micro_batch_tokens=TOKENS,
        max_steps=steps,
        checkpoint_minutes=None,
    )
    trainer = Trainer(
        new_transformer(sizes, VOCABULARY),
        batching,
        config,
        compute=Compute(),
        seed=SEED,
    )
    trainer.progress = progress
    records.train(trainer)
    return batching.digests, trainer.progress


def test_a_resumed_run_takes_the_batches_of_an_uninterrupted_one(path: Path, trial, trials) -> None:
    epoch = len(make_batching(path).epoch(0)) // 2
    steps = 2 * epoch + 5
    uninterrupted, _ = train(path, Progress(), steps)
    assert len(uninterrupted) == 2 * steps
    stops = np.random.default_rng(1).integers(1, steps, trials(1, 20)).tolist()
    for stop in (epoch, epoch + 1, *stops):
        with trial("batches after resume"):
            before, progress = train(path, Progress(), stop)
            after, _ = train(path, deepcopy(progress), steps)
            assert before + after == uninterrupted
