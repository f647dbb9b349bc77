"""The log-probability of given translations under a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seq2seq.decoding.ensemble import mean_log_probabilities
from seq2seq.device import copy_to_device
from seq2seq.search import impossible_error, output_log_probabilities, pad
from seq2seq.tokenizer import PADDING_ID, START_ID
from seq2seq.transformer import Transformer


@dataclass(frozen=True)
class TargetScore:
    """The log-probability of a given translation, or of several together."""

    log_probability: float  # in nats, `</s>` included
    tokens: int  # number of target tokens, `</s>` included

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
    models: Sequence[Transformer],
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    chunk_elements: int = 8 * 2**20,
) -> list[TargetScore]:
    """Score each pair of a batch, whose token ids end with `</s>`, in one forward pass.

    The models are in evaluation mode; a token's probability is the mean of theirs. At most
    `chunk_elements` of the logits are in memory at a time, by default 32 MB of float32.
    """
    device = next(models[0].parameters()).device
    source = copy_to_device(pad(sources), device)  # (B, S)
    target_input = pad([[START_ID, *ids[:-1]] for ids in targets])  # (B, T)
    target_output = pad(targets).flatten()  # (B * T,)
    # Selected on the host, since a GPU would have to be asked for their number.
    rows = (target_output != PADDING_ID).nonzero().squeeze(1)  # (tokens,)
    target_input, rows, target_ids = (
        copy_to_device(tensor, device) for tensor in (target_input, rows, target_output[rows])
    )
    tokens = mean_log_probabilities(
        [
            _token_log_probabilities(model, source, target_input, rows, target_ids, chunk_elements)
            for model in models
        ]
    )
    of_sentences = torch.split(tokens.cpu(), [len(ids) for ids in targets])
    scores = [TargetScore(float(tokens.sum()), len(tokens)) for tokens in of_sentences]
    for score in scores:
        if not math.isfinite(score.log_probability):
            raise impossible_error(score.log_probability)
    return scores


def _token_log_probabilities(
    model: Transformer,
    source: Tensor,
    target_input: Tensor,
    target_rows: Tensor,
    target_ids: Tensor,
    chunk_elements: int,
) -> Tensor:
    """Compute the log-probability of each target token, padding skipped: (tokens,), float64."""
    states = model.decoder_states(source, target_input)  # (B, T, D)
    states = states.flatten(0, 1).index_select(0, target_rows)  # (tokens, D)
    rows = max(1, chunk_elements // model.vocab_size)
    gathered = []
    for chunk, ids in zip(torch.split(states, rows), torch.split(target_ids, rows), strict=True):
        log_probabilities = output_log_probabilities(model.project(chunk))  # (rows, V)
        gathered.append(log_probabilities.gather(1, ids.unsqueeze(1)).squeeze(1).double())
    return torch.cat(gathered)
