"""The log-probability of given translations under a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seq2seq.data.batching import pad
from seq2seq.data.tokenizer import PADDING_ID, START_ID
from seq2seq.decoding.search import impossible_error, output_log_probabilities
from seq2seq.device import send
from seq2seq.model import Transformer


@dataclass(frozen=True)
class TargetScore:
    """The log-probability of a given translation, or of several together."""

    log_probability: float
    """In nats, `</s>` included."""
    tokens: int
    """Number of target tokens, `</s>` included."""

    @property
    def perplexity(self) -> float:
        """The exponential of the mean negative log-probability of a token; 1 without tokens."""
        return math.exp(min(-self.log_probability / max(self.tokens, 1), 700.0))

    @classmethod
    def total(cls, scores: "Sequence[TargetScore]") -> "TargetScore":
        """Return the score of all translations together."""
        log_probability = math.fsum(score.log_probability for score in scores)
        return cls(log_probability, sum(score.tokens for score in scores))


@torch.inference_mode()
def score_targets(
    model: Transformer,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    chunk_elements: int = 8 * 2**20,
) -> list[TargetScore]:
    """Score a batch of pairs in one forward pass; log-probabilities are at least float32.

    Args:
        model: in evaluation mode.
        sources: token ids, each ending with `</s>`.
        targets: token ids, each ending with `</s>`.
        chunk_elements: elements of the logits in memory at a time; by default 32 MB of float32.

    Returns:
        The score of each pair.

    Raises:
        UserError: if the model predicts NaN, or gives a translation the probability zero.
    """
    device = next(model.parameters()).device
    source = send(pad([np.array(ids) for ids in sources]), device)  # (B, S)
    target_input = pad([np.array([START_ID, *ids[:-1]]) for ids in targets])  # (B, T)
    target_output = pad([np.array(ids) for ids in targets])  # (B, T)
    counted = (target_output != PADDING_ID).flatten().nonzero().squeeze(1)  # (tokens,)
    states = model.decoder_states(source, send(target_input, device))  # (B, T, D)
    states = states.flatten(0, 1).index_select(0, send(counted, device))  # (tokens, D)
    target_ids = send(target_output.flatten()[counted], device)  # (tokens,)
    rows = max(1, chunk_elements // model.vocab_size)
    gathered = []
    for chunk, ids in zip(torch.split(states, rows), torch.split(target_ids, rows), strict=True):
        log_probabilities = output_log_probabilities(model.project(chunk))  # (rows, V)
        gathered.append(log_probabilities.gather(1, ids.unsqueeze(1)).squeeze(1).double())
    of_sentences = torch.split(torch.cat(gathered).cpu(), [len(ids) for ids in targets])
    scores = [TargetScore(float(tokens.sum()), len(tokens)) for tokens in of_sentences]
    for score in scores:
        if not math.isfinite(score.log_probability):
            raise impossible_error(score.log_probability)
    return scores
