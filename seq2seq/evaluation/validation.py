"""How good a model is on the validation set: loss, perplexity, BLEU."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from seq2seq.data.batching import Batching
from seq2seq.data.tokenizer import PADDING_ID
from seq2seq.device import autocast
from seq2seq.evaluation.scores import bleu
from seq2seq.model import Transformer


@dataclass(frozen=True)
class Validation:
    """The figures of one validation."""

    loss: float
    """Cross-entropy in nats per target token, `</s>` counted, without label smoothing."""
    bleu: float
    """sacreBLEU's, of the search's output against the untouched references."""

    @property
    def perplexity(self) -> float:
        """exp(loss), per target token."""
        return math.exp(min(self.loss, 700.0))


def validate(
    model: Transformer,
    batching: Batching,
    references: Sequence[str],
    translate: Callable[[], list[str]],
    *,
    device: torch.device,
    precision: torch.dtype,
) -> Validation:
    """Evaluate a model on the validation set.

    Args:
        model: left in the mode it was in.
        batching: the encoded pairs.
        references: target sides of all validation lines.
        translate: the search's output for all source sides, in their order.
        device: where the model is.
        precision: of the forward passes.
    """
    training = model.training
    model.eval()
    loss = cross_entropy(model, batching, device=device, precision=precision)
    score = bleu(translate(), [references]).value
    model.train(training)
    return Validation(loss, score)


@torch.inference_mode()
def cross_entropy(
    model: Transformer, batching: Batching, *, device: torch.device, precision: torch.dtype
) -> float:
    """Nats per target token given the reference before it, over all pairs."""
    total, tokens = 0.0, 0
    for indices in batching.in_order():
        batch = batching.collate(indices).to(device)
        with autocast(device, precision):
            logits = model(batch.source, batch.target_input)
        total += F.cross_entropy(
            logits.float().flatten(0, 1),
            batch.target_output.flatten(),
            ignore_index=PADDING_ID,
            reduction="sum",
        ).item()
        tokens += int((batch.target_output != PADDING_ID).sum())
    return total / tokens
