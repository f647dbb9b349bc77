"""Several models as one decoder: each step's distribution is the mean of their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.decoder import DecoderCache, IncrementalDecoder
from seq2seq.errors import UserError
from seq2seq.model_folder import TrainedModel, TunedSearch, load_model, read_search
from seq2seq.run_folder import find_model
from seq2seq.search import SearchConfig, output_log_probabilities


@dataclass
class EnsembleState:
    """The state of a search between two steps: the caches of all decoders."""

    caches: list[DecoderCache]

    def reorder(self, parents: Tensor) -> None:
        """See `DecoderCache.reorder`."""
        for cache in self.caches:
            cache.reorder(parents)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """See `DecoderCache.keep`."""
        for cache in self.caches:
            cache.keep(sentences, rows)


class Ensemble:
    """Predicts the next token with several models of one vocabulary, as an `IncrementalDecoder`."""

    def __init__(self, decoders: Sequence[IncrementalDecoder]) -> None:
        self.decoders = decoders

    def begin(self, source: Tensor) -> EnsembleState:
        """See `IncrementalDecoder.begin`."""
        return EnsembleState([decoder.begin(source) for decoder in self.decoders])

    def step(self, token_ids: Tensor, state: EnsembleState) -> Tensor:
        """Read the newest token of each hypothesis (N,), and return the next one's logits (N, V).

        They are the logarithms of the models' mean probabilities, at least float32.
        """
        pairs = zip(self.decoders, state.caches, strict=True)
        return mean_log_probabilities(
            [output_log_probabilities(decoder.step(token_ids, cache)) for decoder, cache in pairs]
        )


def mean_log_probabilities(log_probabilities: Sequence[Tensor]) -> Tensor:
    """Compute the logarithm of the mean of probabilities, of which none underflows."""
    return reduce(torch.logaddexp, log_probabilities) - math.log(len(log_probabilities))


def load_models(runs: Sequence[str | Path]) -> list[TrainedModel]:
    """Load the models of run folders or model folders, which are to translate together."""
    folders = [find_model(Path(run)) for run in runs]
    models = [load_model(folder) for folder in folders]
    check_ensemble(models, folders)
    return models


def default_search(tuned: Sequence[TunedSearch | None]) -> SearchConfig:
    """Return the search of models, given what was tuned for each.

    An ensemble is another model than each of its models, so it has the paper's search.
    """
    if len(tuned) == 1 and tuned[0] is not None:
        return SearchConfig(beam_size=tuned[0].beam_size, alpha=tuned[0].alpha)
    return SearchConfig()


def saved_search(runs: Sequence[str | Path]) -> SearchConfig:
    """Read the search of run or model folders that translate together."""
    return default_search([read_search(find_model(Path(run))) for run in runs])


def check_ensemble(models: Sequence[TrainedModel], names: Sequence[object]) -> None:
    """Check that models can translate together; messages call them by their names."""
    first = models[0]
    languages = (first.source_language, first.target_language)
    for model, name in zip(models[1:], names[1:], strict=True):
        if model.tokenizer.files() != first.tokenizer.files():
            raise UserError(
                f"{name}: another tokenizer than {names[0]}: an ensemble needs models of one"
                " vocabulary, such as runs on the same text with different seeds"
            )
        if (model.source_language, model.target_language) != languages:
            raise UserError(
                f"{name}: translates from {model.source_language} to {model.target_language},"
                f" {names[0]} from {' to '.join(languages)}: they can't translate together"
            )
