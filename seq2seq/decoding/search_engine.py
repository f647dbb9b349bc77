"""Segments in, hypotheses out: models with the fast forms that suit their device."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch

from seq2seq.data.batching import pad
from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID
from seq2seq.decoding.alpha_sweep import sweep_alphas
from seq2seq.decoding.beam_search import beam_search
from seq2seq.decoding.config import SamplingConfig, SearchConfig, SweepConfig
from seq2seq.decoding.ensemble import Decoder, Ensemble
from seq2seq.decoding.sampling import sample
from seq2seq.decoding.search import Hypothesis
from seq2seq.decoding.segments import Segment
from seq2seq.decoding.static_search import StaticSearch, full_batch
from seq2seq.device import send
from seq2seq.kernels.buffers import Buffers
from seq2seq.kernels.compiled import can_compile
from seq2seq.kernels.graphs import Graphs
from seq2seq.kernels.topk import compiled_topk, plain_topk, topk_in_chunks
from seq2seq.kernels.translation import TranslationKernels, use_translation_kernels
from seq2seq.model import Transformer


class SearchEngine:
    """Searches with a model, or with several as an ensemble.

    On a GPU, one model that runs one search at a time is searched in fixed shapes.

    Args:
        models: the models, on the device. Their layers are replaced by fast forms.
        device: where they run.
        dtype: the precision of their matrix products.
        kernels: the fast forms to use.
        search: the options of the searches; later ones differ in `nbest` at most.
        workers: how many searches may run at a time.

    Raises:
        UserError: if the precision is not possible here.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        device: torch.device,
        dtype: torch.dtype,
        kernels: TranslationKernels,
        search: SearchConfig | SamplingConfig,
        *,
        workers: int,
    ) -> None:
        self.device = device
        self.topk = topk_in_chunks if kernels.topk else plain_topk
        if kernels.compiled and can_compile(device):
            self.topk = compiled_topk()
        self.beam_search: Callable[..., list[list[Hypothesis]]] = partial(
            beam_search, topk=self.topk
        )
        self.rounded: Callable[[int], int] = int
        """Rounds the number of sentences of a full batch."""
        self._turn: AbstractContextManager[object] = nullcontext()
        buffers = None
        on_gpu = device.type != "cpu"
        static = on_gpu if kernels.static is None else kernels.static
        if static and type(search) is SearchConfig and workers == len(models) == 1:
            buffers, self._turn = Buffers(), Lock()  # only one search at a time can have them
            self.rounded = partial(full_batch, beam_size=search.beam_size)
            graphs = Graphs(device) if kernels.graphs and on_gpu else None
            self.beam_search = StaticSearch(buffers, graphs, self.topk)
        decoders = [use_translation_kernels(model, dtype, kernels, buffers) for model in models]
        self.decoder: Decoder = decoders[0] if len(decoders) == 1 else Ensemble(decoders)

    def search(
        self, segments: list[Segment], search: SearchConfig | SamplingConfig
    ) -> list[list[Hypothesis]]:
        """Find the hypotheses of each segment, the best first.

        Raises:
            UserError: if the logits are NaN, or no output has a probability above zero.
        """
        sources = [segment.source_ids for segment in segments]
        rules: dict[str, Any] = {
            "start_id": START_ID,
            "end_id": END_ID,
            "suppressed_ids": (PADDING_ID, START_ID),
            "prefixes": [segment.prefix_ids for segment in segments],
        }
        with self._turn:
            limits = torch.tensor([segment.max_length for segment in segments])  # (B,)
            max_lengths = send(limits, self.device)
            source = send(pad([np.array(ids) for ids in sources]), self.device)  # (B, S)
            step, state = self.decoder.step, self.decoder.begin(source)
            if isinstance(search, SamplingConfig):
                return sample(step, state, max_lengths, search, keys=sources, **rules)
            if isinstance(search, SweepConfig):
                return sweep_alphas(step, state, max_lengths, search, topk=self.topk, **rules)
            return self.beam_search(step, state, max_lengths, search, **rules)
