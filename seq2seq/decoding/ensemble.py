"""Several models as one decoder, and the log-probability of given translations under models.

Each step's distribution is the mean of the models' probabilities.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from seq2seq.changes import changed_code
from seq2seq.decoder import StepDecoder
from seq2seq.device import copy_to_device, exact_dtype
from seq2seq.errors import UserError
from seq2seq.model_folder import TrainedModel
from seq2seq.search import SearchState, nan_error, output_log_probabilities, pad
from seq2seq.tokenizer import PADDING_ID, START_ID
from seq2seq.transformer import Transformer


class EnsembleState(list[SearchState]):
    """The state of a search between two steps: the caches of all decoders."""

    def reorder(self, parents: Tensor) -> None:
        """See `DecoderCache.reorder`."""
        for cache in self:
            cache.reorder(parents)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """See `DecoderCache.keep`."""
        for cache in self:
            cache.keep(sentences, rows)


class Ensemble:
    """Predicts the next token with several models of one vocabulary, as an `IncrementalDecoder`."""

    def __init__(self, decoders: Sequence[StepDecoder]) -> None:
        self.decoders = decoders

    def begin(self, source: Tensor) -> EnsembleState:
        """See `IncrementalDecoder.begin`."""
        return EnsembleState(decoder.begin(source) for decoder in self.decoders)

    def step(self, token_ids: Tensor, state: EnsembleState) -> Tensor:
        """Read the newest token of each hypothesis (N,), and return the next one's logits (N, V).

        They are the logarithms of the models' mean probabilities, at least float32.
        """
        pairs = zip(self.decoders, state, strict=True)
        logits = (decoder.step(token_ids, cache) for decoder, cache in pairs)
        return mean_log_probabilities(list(map(output_log_probabilities, logits)))


def mean_log_probabilities(log_probabilities: Sequence[Tensor]) -> Tensor:
    """Compute the logarithm of the mean of probabilities, of which none underflows."""
    return reduce(torch.logaddexp, log_probabilities) - math.log(len(log_probabilities))


def check_ensemble(models: Sequence[TrainedModel]) -> None:
    """Check that models can translate together."""
    first = models[0]
    languages = (first.source_language, first.target_language)
    for number, model in enumerate(models[1:], start=2):
        if model.tokenizer.files() != first.tokenizer.files():
            raise UserError(
                f"model {number} has another tokenizer than model 1: an ensemble needs models of"
                " one vocabulary, such as runs on the same text with different seeds"
            )
        if (model.source_language, model.target_language) != languages:
            raise UserError(
                f"model {number} translates from {model.source_language} to"
                f" {model.target_language}, model 1 from {' to '.join(languages)}: they can't"
                " translate together"
            )


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
    pairs: Sequence[tuple[list[int], list[int]]],
    *,
    chunk_elements: int = 8 * 2**20,
) -> list[TargetScore]:
    """Score each target of a batch of sources and targets, whose ids end with `</s>`, in one pass.

    The models are in evaluation mode; a token's probability is the mean of theirs. At most
    `chunk_elements` of the logits are in memory at a time, by default 32 MB of float32.
    """
    device = next(models[0].parameters()).device
    sources, targets = zip(*pairs, strict=True)
    source = copy_to_device(pad(sources), device)  # (B, S)
    target_input = pad([[START_ID, *ids[:-1]] for ids in targets])  # (B, T)
    target_output = pad(targets).flatten()  # (B * T,)
    # Selected on the host, since a GPU would have to be asked for their number.
    rows = (target_output != PADDING_ID).nonzero().squeeze(1)  # (tokens,)
    target_ids = copy_to_device(target_output[rows], device)
    target_input, rows = copy_to_device(target_input, device), copy_to_device(rows, device)

    def of_model(model: Transformer) -> Tensor:
        """Compute the log-probability of each target token: (tokens,), if possible float64."""
        own_forward = "transformer.Transformer.forward()" in changed_code(model)
        read = model if own_forward else model.decoder_states
        states = read(source, target_input)  # (B, T, D), or (B, T, V) by a user's own `forward`
        states = states.flatten(0, 1).index_select(0, rows)  # (tokens, D or V)
        size = max(1, chunk_elements // model.vocab_size)
        gathered = []
        chunks = zip(torch.split(states, size), torch.split(target_ids, size), strict=True)
        for chunk, ids in chunks:
            logits = chunk if own_forward else model.project(chunk)  # (size, V)
            log_probabilities = output_log_probabilities(logits)
            of_tokens = log_probabilities.gather(1, ids.unsqueeze(1)).squeeze(1)  # (size,)
            gathered.append(of_tokens.to(exact_dtype(device)))
        return torch.cat(gathered)

    tokens = mean_log_probabilities(list(map(of_model, models)))
    scores = []
    for of_sentence in torch.split(tokens.cpu(), list(map(len, targets))):
        score = TargetScore(float(of_sentence.sum()), len(of_sentence))
        if not math.isfinite(score.log_probability):
            raise nan_error()
        scores.append(score)
    return scores
