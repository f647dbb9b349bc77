"""Text in, text out: encode, search, decode (section 6.1)."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seq2seq.controls import control_ids
from seq2seq.decoder import StepDecoder, incremental_decoder
from seq2seq.device import Compute, copy_to_device
from seq2seq.model_folder import TrainedModel
from seq2seq.search import Hypothesis, Rules, SearchConfig, beam_search, pad
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID
from seq2seq.transformer import Transformer

_BATCH_TOKENS = 2048


@dataclass(frozen=True)
class SearchInput:
    """One input of the model."""

    source_ids: list[int]  # token ids, beginning with the control symbols and ending with `</s>`
    max_length: int  # the maximum length of its translation in tokens, `</s>` not counted


class Engine:
    """Searches with a model in evaluation mode.

    Another engine overrides `search`, and `rounded` if its batches should have certain sizes.
    """

    rounded: Callable[[int], int] = int
    """Rounds the number of sentences of a full batch."""
    max_positions: int | None = None
    """The most positions of a text that the engine has; None if the model alone limits them."""

    def __init__(self, model: Transformer) -> None:
        self.device = model.embedding.weight.device
        self.decoder: StepDecoder = incremental_decoder(model)

    def search(self, inputs: Sequence[SearchInput], config: SearchConfig) -> list[list[Hypothesis]]:
        """Find the hypotheses of each input, the best first."""
        state, max_lengths, rules = self.begin(inputs)
        return beam_search(self.decoder.step, state, max_lengths, config, **rules)

    def begin(self, inputs: Sequence[SearchInput]) -> tuple[Any, Tensor, Rules]:
        """Start a search: its state, the maximum lengths (B,), and what outputs contain."""
        limits = torch.tensor([each.max_length for each in inputs])
        max_lengths = copy_to_device(limits, self.device)  # (B,)
        source = copy_to_device(pad([each.source_ids for each in inputs]), self.device)  # (B, S)
        rules = Rules(start_id=START_ID, end_id=END_ID, suppressed_ids=(PADDING_ID, START_ID))
        return self.decoder.begin(source), max_lengths, rules


class PlainTranslator:
    """Translates lines as they are, each as one sentence.

    `seq2seq.Translator` divides lines into sentences and columns, and is faster.
    """

    def __init__(self, trained: TrainedModel, compute: Compute, search: SearchConfig) -> None:
        self.trained, self.search = trained, search
        model = copy.deepcopy(trained.model).to(compute.device, compute.dtype).eval()
        self.engine = Engine(model)

    @torch.inference_mode()
    def translate(
        self,
        lines: Sequence[str],
        *,
        to: str | None = None,
        on_batch: Callable[[int, int], None] = lambda finished, lines: None,
    ) -> list[str]:
        """Translate lines into the model's language, or one of its several; blank ones stay blank.

        `on_batch` is called after each batch, with how many lines are translated, and of how many.
        """
        tokenizer = self.trained.tokenizer
        controls = control_ids(tokenizer.controls, to, None, self.trained.target_language)
        sources = tokenizer.encode_source([line.strip() for line in lines])
        inputs = {}
        for i, ids in enumerate(sources):
            if ids:
                limit = len(ids) + self.search.max_extra_tokens
                inputs[i] = SearchInput([*controls, *ids, END_ID], limit)
        # The longest first: a batch is as wide as its first line.
        order = sorted(inputs, key=lambda i: -len(sources[i]))
        translations, finished = [""] * len(lines), 0
        while finished < len(order):
            count = max(1, _BATCH_TOKENS // len(sources[order[finished]]))
            batch = order[finished : finished + count]
            outputs = self.engine.search([inputs[i] for i in batch], self.search)
            texts = tokenizer.decode([hypotheses[0].token_ids for hypotheses in outputs])
            for i, text in zip(batch, texts, strict=True):
                translations[i] = text
            finished += len(batch)
            on_batch(finished, len(order))
        return translations
