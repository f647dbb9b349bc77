"""Segments in, hypotheses out: the native search."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from seq2seq.changes import changed_code, changed_functions, report_unused
from seq2seq.decoder import StepDecoder, incremental_decoder
from seq2seq.decoding.options import SamplingConfig
from seq2seq.decoding.segments import Segment
from seq2seq.device import Compute
from seq2seq.fast.decoder import TranslationKernels, use_translation_kernels
from seq2seq.fast.search import FastBeams, StaticSearch, full_batch
from seq2seq.search import Beams, Hypothesis, SearchConfig, beam_search
from seq2seq.transformer import Transformer
from seq2seq.translate import Engine, SearchInput

if TYPE_CHECKING:  # imported when they are asked for
    from seq2seq.decoding.glossary import Glossary, Term


class NativeEngine(Engine):
    """Searches with a model, or with several as an ensemble.

    The models are in the precision of `compute`. The layers that `kernels` names are replaced by
    fast forms; on a GPU, one model that runs one search at a time is searched in fixed shapes.
    Without kernels, decoder and beams are the plain ones of the core. The options of a later
    search may differ from the constructor's in `nbest` alone.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        compute: Compute,
        kernels: TranslationKernels | None,
        search: SearchConfig | SamplingConfig,
        workers: int,
        glossary: "Glossary | None",
    ) -> None:
        self.device, self.glossary = compute.device, glossary
        self.static: StaticSearch | None = None
        self._turn: AbstractContextManager[object] = nullcontext()
        self._beams: type[Beams] = Beams if kernels is None else FastBeams
        if kernels is None:
            decoders = list(map(incremental_decoder, models))
        else:
            decoders = self._fast_decoders(models, compute, kernels, search, workers)
        self.decoder = decoders[0]
        if len(decoders) > 1:
            from seq2seq.decoding.ensemble import Ensemble

            self.decoder = Ensemble(decoders)

    def _fast_decoders(
        self,
        models: Sequence[Transformer],
        compute: Compute,
        kernels: TranslationKernels,
        search: SearchConfig | SamplingConfig,
        workers: int,
    ) -> list[StepDecoder]:
        """Put the fast forms into the models; return their decoders."""
        buffers = graphs = None
        static = compute.on_gpu if kernels.static is None else kernels.static
        if own_search := changed_functions("search"):
            report_unused("the fast beam search", own_search)
            self._beams = Beams
        alone = workers == len(models) == 1 and self.glossary is None
        static = static and alone and not _is_modern(models[0])
        if static and (changed := changed_code(models[0]) + own_search):
            report_unused("the search in fixed shapes", changed)
            static = False
        if static and type(search) is SearchConfig:
            from seq2seq.fast.graphs import Buffers, Graphs

            buffers, self._turn = Buffers(), Lock()  # only one search at a time can have them
            self.rounded = partial(full_batch, beam_size=search.beam_size)
            graphs = Graphs(self.device) if compute.on_gpu else None
            self.static = StaticSearch(buffers, graphs)
        return [use_translation_kernels(m, compute.dtype, kernels, buffers, graphs) for m in models]

    def search(
        self, inputs: Sequence[SearchInput], config: SearchConfig | SamplingConfig
    ) -> list[list[Hypothesis]]:
        """See `Engine.search`; segments with terms are searched apart from the others."""
        groups: dict[bool, list[SearchInput]] = defaultdict(list)
        for each in inputs:
            groups[bool(_terms(each))].append(each)
        outputs = {key: iter(self._search(group, config)) for key, group in groups.items()}
        return [next(outputs[bool(_terms(each))]) for each in inputs]

    def _search(
        self, inputs: Sequence[SearchInput], config: SearchConfig | SamplingConfig
    ) -> list[list[Hypothesis]]:
        with self._turn:
            state, max_lengths, rules = self.begin(inputs)
            step = self.decoder.step
            if isinstance(config, SamplingConfig):
                from seq2seq.decoding.sampling import sample

                keys = [each.source_ids for each in inputs]
                return sample(step, state, max_lengths, config, keys=keys, **rules)
            terms = list(map(_terms, inputs))
            if self.glossary is not None and terms[0]:
                from seq2seq.decoding.glossary import constrained_search

                words = self.glossary.continuing
                # With less, no hypothesis is left that writes its terms where they belong.
                config = replace(config, beam_size=max(config.beam_size, SearchConfig.beam_size))
                return constrained_search(step, state, max_lengths, config, terms, words, **rules)
            if self.static is not None:
                return self.static(step, state, max_lengths, config, **rules)
            return beam_search(step, state, max_lengths, config, self._beams, **rules)


def _is_modern(model: Transformer) -> bool:
    from seq2seq.zoo.modern import modern_choices

    return bool(modern_choices(model.config))


def _terms(each: SearchInput) -> "Sequence[Term]":
    return each.terms if isinstance(each, Segment) else ()
