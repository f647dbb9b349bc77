"""Sources in, hypotheses out: beam search with a model (section 6.1)."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID
from seq2seq.decoding.beam_search import beam_search
from seq2seq.decoding.config import SearchConfig
from seq2seq.decoding.search import Hypothesis, Rules, SearchInput, SearchState, pad
from seq2seq.device import copy_to_device
from seq2seq.model import Transformer
from seq2seq.model.incremental import incremental_decoder


class Decoder(Protocol):
    """What a search needs of one model, or of several."""

    def begin(self, source: Tensor, /) -> SearchState:
        """Encode padded sources (B, S), and start a search for their translations."""

    def step(self, token_ids: Tensor, state: Any, /) -> Tensor:
        """Read the newest token of each hypothesis (N,), and return the logits (N, V)."""


class Engine:
    """Searches with a model in evaluation mode."""

    rounded: Callable[[int], int] = int
    """Rounds the number of sentences of a full batch."""

    def __init__(self, model: Transformer) -> None:
        self.device = model.embedding.weight.device
        self.decoder: Decoder = incremental_decoder(model)

    def search(self, inputs: Sequence[SearchInput], config: SearchConfig) -> list[list[Hypothesis]]:
        """Find the hypotheses of each input, the best first."""
        state, max_lengths, rules = self.begin(inputs)
        return beam_search(self.decoder.step, state, max_lengths, config, **rules)

    def begin(self, inputs: Sequence[SearchInput]) -> tuple[Any, Tensor, Rules]:
        """Start a search: its state, the maximum lengths (B,), and what outputs contain."""
        limits = torch.tensor([each.max_length for each in inputs])
        max_lengths = copy_to_device(limits, self.device)  # (B,)
        source = copy_to_device(pad([each.source_ids for each in inputs]), self.device)  # (B, S)
        rules = Rules(
            start_id=START_ID,
            end_id=END_ID,
            suppressed_ids=(PADDING_ID, START_ID),
            prefixes=[each.prefix_ids for each in inputs],
        )
        return self.decoder.begin(source), max_lengths, rules
