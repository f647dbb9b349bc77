"""Forced scoring: how probable a model finds translations that are given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seq2seq.data.batching import pad
from seq2seq.data.tokenizer import PADDING_ID, START_ID
from seq2seq.decoding.beam_search import no_numbers, output_log_probabilities
from seq2seq.model import Transformer

# Elements of the logits that are held at a time, 32 MB of float32.
_BLOCK_ELEMENTS = 8 * 2**20


@dataclass(frozen=True)
class TargetScore:
    """What a model makes of one given translation, or of several together."""

    log_probability: float
    """In nats, that of `</s>` included."""
    tokens: int
    """`</s>` counted."""

    @property
    def perplexity(self) -> float:
        """The exponential of the mean negative log-probability of a token; 1 without tokens."""
        return math.exp(min(-self.log_probability / max(self.tokens, 1), 700.0))

    @classmethod
    def total(cls, scores: "Sequence[TargetScore]") -> "TargetScore":
        """The score of all the translations together."""
        log_probability = math.fsum(score.log_probability for score in scores)
        return cls(log_probability, sum(score.tokens for score in scores))


@torch.inference_mode()
def score_targets(
    model: Transformer, sources: Sequence[list[int]], targets: Sequence[list[int]]
) -> list[TargetScore]:
    """Score a batch of pairs in one forward pass; log-probabilities are taken in float32 at least.

    Args:
        model: in evaluation mode.
        sources: token ids, each ending with `</s>`.
        targets: token ids, each ending with `</s>`.

    Raises:
        UserError: the model predicts no numbers.
    """
    device = next(model.parameters()).device
    source = pad([np.array(ids) for ids in sources]).to(device)
    target_input = pad([np.array([START_ID, *ids[:-1]]) for ids in targets]).to(device)
    target_output = pad([np.array(ids) for ids in targets]).to(device)
    states = model.decoder_states(source, target_input)  # (B, T, D)
    counted = target_output != PADDING_ID
    block = max(1, _BLOCK_ELEMENTS // model.vocab_size)
    gold = []
    for some, output in zip(
        torch.split(states[counted], block), torch.split(target_output[counted], block), strict=True
    ):
        log_probabilities = output_log_probabilities(model.project(some), never=())
        gold.append(log_probabilities.gather(1, output.unsqueeze(1)).squeeze(1).double())
    scores = [
        TargetScore(float(of_sentence.sum()), len(of_sentence))
        for of_sentence in torch.split(torch.cat(gold), [len(ids) for ids in targets])
    ]
    if not all(math.isfinite(score.log_probability) for score in scores):
        raise no_numbers()
    return scores
