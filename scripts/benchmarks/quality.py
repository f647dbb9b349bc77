"""Measure the time in which Hugging Face's Marian reaches a validation BLEU in a plain loop.

    python scripts/benchmarks/quality.py RUN --bleu 34

RUN, a run of `seq2seq train`, gives data, vocabulary, sizes, batches and learning rates. The
loop computes under bf16 autocast with PyTorch's own label smoothing and Adam, and freed memory is
retained, as this project always does. The model is validated by greedy search. The clock stands
still meanwhile, and while a batch is made.
"""

import argparse
import time
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from training_systems import Marian, peer_loss

from seq2seq.batches import make_batching
from seq2seq.data.preparation import PreparedData
from seq2seq.device import Compute
from seq2seq.machine.processes import OneProcess
from seq2seq.machine.resources import (
    choose_device,
    choose_precision,
    keep_few_compiled_matmuls,
    retain_freed_memory,
)
from seq2seq.run.config import read_config
from seq2seq.run.start import prepare_data
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
    data = prepare_data(config, OneProcess(), None)
    if data.mixture is not None or config.data.tokenizer.sampling:
        parser.error(f"{words.run}: several corpora, or BPE-dropout, are not possible here")
    valid = data.valid_sets["valid"]
    if len(valid.corpus) != len(valid.pairs):
        parser.error(f"{words.run}: blank lines or too long ones in the validation set")
    device = choose_device(config.device)
    compute = Compute(device, choose_precision(config.precision, device))
    torch.manual_seed(config.seed)
    marian = Marian(config.model, data.tokenizer.vocab_size).to(device).train()
    adam = torch.optim.Adam(marian.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    training = config.training
    batching = make_batching(training, data.train, seed=config.seed)
    minutes, due, tokens = 0.0, words.every, 0
    for step, indices in enumerate(chain.from_iterable(map(batching.epoch, count())), start=1):
        batch = batching.collate(indices)
        started = time.perf_counter()
        adam.param_groups[0]["lr"] = learning_rate(
            step,
            d_model=config.model.d_model,
            warmup_steps=training.warmup_steps,
            scale=training.learning_rate_scale,
        )
        loss = peer_loss(marian, batch.to(device), compute, training.label_smoothing)
        adam.zero_grad()
        loss.backward()
        adam.step()
        minutes += (time.perf_counter() - started) / 60
        tokens += int(
            (batch.source != PADDING_ID).sum() + (batch.target_output != PADDING_ID).sum()
        )
        if minutes >= due:
            due += words.every
            found = validate(marian, data, compute, config.bleu_tokenizer)
            print(
                f"{minutes:.1f} min, step {step}, {tokens / minutes / 60:,.0f} tokens/s:"
                f" BLEU {found:.2f}",
                flush=True,
            )
            if found >= words.bleu or minutes >= words.minutes:
                return


@torch.inference_mode()
def validate(marian: Marian, data: PreparedData, compute: Compute, tokenize: str) -> float:
    """Translate the validation set greedily, and return its BLEU."""
    marian.eval()
    valid = data.valid_sets["valid"]
    order = np.argsort(valid.corpus.lengths()[0])
    texts = [""] * len(order)
    for start in range(0, len(order), _SENTENCES):
        indices = order[start : start + _SENTENCES]
        source = torch.from_numpy(valid.corpus.padded(indices)[0]).to(compute.device)
        with compute.autocast():
            found: Tensor = marian.model.generate(
                input_ids=source,
                attention_mask=source != PADDING_ID,
                num_beams=1,
                do_sample=False,
                max_new_tokens=source.size(1) + 50,
                eos_token_id=END_ID,
            )
        for index, text in zip(indices, data.tokenizer.decode(found.tolist()), strict=True):
            texts[index] = text
    marian.train()
    references = [pair.target for pair in valid.pairs]
    return bleu(texts, [references], ScoreConfig(tokenize=tokenize)).value


if __name__ == "__main__":
    main()
