"""Measure the time in which Hugging Face's Marian reaches a validation BLEU in a plain loop.

    python scripts/benchmarks/quality.py RUN --bleu 34

RUN, a run of `seq2seq train`, gives data, vocabulary, sizes, batches and learning rates. The
loop computes under bf16 autocast with PyTorch's own label smoothing and Adam, and freed memory is
retained, as this project always does. The model is validated by greedy search. The clock stands
still meanwhile, and while a batch is made.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from training_systems import Marian

from seq2seq.batches import Batch, Batching
from seq2seq.data.preparation import PreparedData
from seq2seq.device import Compute
from seq2seq.machine.processes import Processes
from seq2seq.machine.resources import (
    choose_device,
    choose_precision,
    keep_few_compiled_matmuls,
    retain_freed_memory,
)
from seq2seq.run.config import Config, read_config
from seq2seq.run.training import prepare_data
from seq2seq.score import ScoreConfig, bleu
from seq2seq.tokenizer import END_ID, PADDING_ID
from seq2seq.update import learning_rate

_SENTENCES = 64  # of the validation set at a time


def main() -> None:
    """Train until the BLEU or the time is reached, and print each validation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--bleu", type=float, required=True)
    parser.add_argument("--minutes", type=float, default=30.0, help="of training, at most")
    parser.add_argument("--every", type=float, default=1.0, help="minutes between validations")
    words = parser.parse_args()
    retain_freed_memory()
    keep_few_compiled_matmuls()
    config = read_config(words.run)
    # A step is one micro-batch in the recipes that are compared.
    config = replace(config, training=replace(config.training, micro_batch_tokens=10**6))
    data = prepare_data(config, Processes(), None)
    if data.mixture is not None or config.data.tokenizer.sampling:
        parser.error(f"{words.run}: several corpora, or BPE-dropout, are not possible here")
    valid = data.valid_sets["valid"]
    if len(valid.corpus) != len(valid.pairs):
        parser.error(f"{words.run}: blank lines or too long ones in the validation set")
    device = choose_device(config.device)
    compute = Compute(device, choose_precision(config.precision, device))
    torch.manual_seed(config.seed)
    loop = Loop(Marian(config.model, data.tokenizer.vocab_size).to(device), config, compute)
    batching = config.training.batching(data.train, seed=config.seed)
    minutes, due, tokens = 0.0, words.every, 0
    for batch in batches(batching):
        started = time.perf_counter()
        loop.update(batch.to(device))
        minutes += (time.perf_counter() - started) / 60
        tokens += int(
            (batch.source != PADDING_ID).sum() + (batch.target_output != PADDING_ID).sum()
        )
        if minutes >= due:
            due += words.every
            found = loop.validate(data)
            print(
                f"{minutes:.1f} min, step {loop.step}, {tokens / minutes / 60:,.0f} tokens/s:"
                f" BLEU {found:.2f}",
                flush=True,
            )
            if found >= words.bleu or minutes >= words.minutes:
                return


def batches(batching: Batching) -> Iterator[Batch]:
    """Yield the batches of all epochs."""
    epoch = 0
    while True:
        for indices in batching.epoch(epoch):
            yield batching.collate(indices)
        epoch += 1


class Loop:
    """A plain training loop, by the schedule and the smoothing of a configuration."""

    def __init__(self, marian: Marian, config: Config, compute: Compute) -> None:
        self.marian, self.config, self.compute = marian, config, compute
        self.adam = torch.optim.Adam(
            marian.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        self.step = 0

    def update(self, batch: Batch) -> None:
        """Do one update."""
        training = self.config.training
        self.step += 1
        for group in self.adam.param_groups:
            group["lr"] = learning_rate(
                self.step,
                d_model=self.config.model.d_model,
                warmup_steps=training.warmup_steps,
                scale=training.learning_rate_scale,
            )
        self.marian.train()
        with self.compute.autocast():
            logits = self.marian(batch.source, batch.target_input)
            loss = F.cross_entropy(
                logits.flatten(0, 1),
                batch.target_output.flatten(),
                ignore_index=PADDING_ID,
                label_smoothing=training.label_smoothing,
            )
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()

    @torch.inference_mode()
    def validate(self, data: PreparedData) -> float:
        """Translate the validation set greedily, and return its BLEU."""
        self.marian.eval()
        valid = data.valid_sets["valid"]
        order = np.argsort(valid.corpus.lengths()[0])
        texts = [""] * len(order)
        for start in range(0, len(order), _SENTENCES):
            indices = order[start : start + _SENTENCES]
            source = torch.from_numpy(valid.corpus.padded(indices)[0]).to(self.compute.device)
            with self.compute.autocast():
                found: Tensor = self.marian.model.generate(
                    input_ids=source,
                    attention_mask=source != PADDING_ID,
                    num_beams=1,
                    do_sample=False,
                    max_new_tokens=source.size(1) + 50,
                    eos_token_id=END_ID,
                )
            for index, text in zip(indices, data.tokenizer.decode(found.tolist()), strict=True):
                texts[index] = text
        references = [pair.target for pair in valid.pairs]
        return bleu(texts, [references], ScoreConfig(tokenize=self.config.bleu_tokenizer)).value


if __name__ == "__main__":
    main()
