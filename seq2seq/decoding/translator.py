"""Text in, text out: the Python interface to a trained model."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from seq2seq.controls import control_ids
from seq2seq.decoding.capitals import Cased, known_case
from seq2seq.decoding.engines import NativeEngine
from seq2seq.decoding.many import Chunk, in_order, make_chunks
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.segments import Segment, length_limits, make_batches, make_segments
from seq2seq.decoding.translation import Candidate, Translation, make_candidates
from seq2seq.device import Compute
from seq2seq.errors import UserError
from seq2seq.fast.decoder import TranslationKernels
from seq2seq.machine.resources import (
    choose_device,
    choose_precision,
    parallel_map,
    process_lock,
    worker_threads,
)
from seq2seq.model_folder import AlignmentStep, TrainedModel, find_model, load_model
from seq2seq.search import SearchConfig, nan_error
from seq2seq.tokenizer import END_ID
from seq2seq.transformer import Transformer
from seq2seq.translate import Engine

if TYPE_CHECKING:  # imported when they are asked for
    from seq2seq.decoding.alignment import Alignment
    from seq2seq.decoding.attention import AttentionMaps
    from seq2seq.decoding.ensemble import TargetScore
    from seq2seq.decoding.glossary import Glossary

T = TypeVar("T")
R = TypeVar("R")

_USUAL_ROWS = 8  # hypotheses of a sentence for which there is memory in every batch


class Translator:
    """Translates lines; it keeps no state between calls.

    Calls from several threads take turns; `workers` run within a call. The model is a copy,
    optimized for this machine: training the original further changes no translation. Several models
    are an ensemble, which predicts each token by the mean of their probabilities. By default,
    `kernels` are all fast forms, unless `options.forms` is `plain`.
    """

    _pool: ThreadPoolExecutor | None = None

    def __init__(
        self,
        trained: TrainedModel | Sequence[TrainedModel],
        options: TranslationOptions | None = None,
        kernels: TranslationKernels | None = None,
    ) -> None:
        options = options or TranslationOptions()
        together = trained if isinstance(trained, Sequence) else [trained]
        if not (together and all(isinstance(model, TrainedModel) for model in together)):
            raise TypeError(f"{trained!r} is not a trained model: call Translator.load(folder)")
        if len(together) > 1:
            from seq2seq.decoding.ensemble import check_ensemble

            check_ensemble(together)
        self.device = choose_device(options.device)
        on_cpu = self.device.type == "cpu"
        is_plain = options.forms == "plain" or not Compute(self.device).has_fast_forms
        precision = options.precision or ("fp32" if on_cpu or is_plain else "auto")
        self.workers = options.workers or (torch.get_num_threads() if on_cpu else 1)
        tokens = 4096 if options.engine == "ctranslate2" else 2048
        self.batch_tokens = options.batch_tokens or (tokens if on_cpu else 16_384)
        self.tokenizer = together[0].tokenizer
        self.source_language = options.source_language or together[0].source_language
        self._target_language = together[0].target_language

        terms = options.glossary
        languages = self.source_language, options.to or self._target_language
        self.glossary: Glossary | None = None
        if terms is not None:
            from seq2seq.decoding import glossary

            self.glossary = glossary.Glossary(terms, self.tokenizer, languages)
        search = options.search
        self.engine: Engine
        if options.engine == "ctranslate2":
            if len(together) > 1:
                raise UserError(
                    "engine ctranslate2 can't run an ensemble: choose the engine native"
                )
            assert isinstance(search, SearchConfig)
            interop = import_module("seq2seq.interop.ctranslate2_engine")
            self.engine = interop.CTranslate2Engine(
                together[0], self.device, precision, search.beam_size, self.workers, options.scores
            )
            # The precision of alignments, probabilities of given translations, and attention.
            precision = "fp32" if precision == "fp32" else "auto"
        compute = Compute(self.device, choose_precision(precision, self.device))
        # Copies in that precision, because autocast would cast every matrix again at every step.
        self.models = []
        for each in together:
            model = copy.deepcopy(each.model).to(self.device, compute.dtype)
            self.models.append(model.requires_grad_(False).eval())
        self._trained = [replace(t, model=m) for t, m in zip(together, self.models, strict=True)]
        self._steps: list[AlignmentStep | None] = []  # shared with translators of other options
        if options.engine != "ctranslate2":
            kernels = None if is_plain else kernels or TranslationKernels()
            self.engine = NativeEngine(
                self.models, compute, kernels, search, self.workers, self.glossary
            )
        self._choose(options)

    @property
    def target_language(self) -> str:
        """The code of the language that lines are translated into; "" if it is not known."""
        return self.options.to or self._target_language

    def _choose(self, options: TranslationOptions) -> None:
        """Set the options that need no new copy of the model."""
        self.search = options.search
        self.options = options
        self.controls = control_ids(
            self.tokenizer.controls, options.to, options.tag, self._target_language
        )
        self.limits = length_limits(
            self.models, self.tokenizer, options, len(self.controls), self.engine.max_positions
        )

    @classmethod
    def load(
        cls,
        run: str | Path | Sequence[str | Path],
        options: TranslationOptions | None = None,
        model_class: type[Transformer] | None = None,
    ) -> "Translator":
        """Open a run folder or a model folder; several are an ensemble.

        Models of an own class are read with this class.
        """
        runs = [run] if isinstance(run, str | Path) else run
        return cls([load_model(find_model(Path(run)), model_class) for run in runs], options)

    def with_nbest(self, nbest: int) -> "Translator":
        """Return a translator with the same model, not copied, that finds `nbest` candidates."""
        return self._with(replace(self.options, search=replace(self.search, nbest=nbest)))

    def with_target_language(self, code: str | None) -> "Translator":
        """Return a translator with the same model, not copied, into this language."""
        return self._with(replace(self.options, to=code))

    def _with(self, options: TranslationOptions) -> "Translator":
        if options == self.options:
            return self
        translator = copy.copy(self)
        translator._choose(options)
        return translator

    def translate(
        self,
        lines: Sequence[str],
        *,
        to: str | None = None,
        on_batch: Callable[[int, int], None] = lambda done, segments: None,
    ) -> list[Translation]:
        """Translate lines, in their order; blank lines stay blank.

        `to` is the code of another target language than that of the options. After each batch,
        `on_batch` is called with the number of segments that are done, and of all.
        """
        if to is not None:
            return self.with_target_language(to).translate(lines, on_batch=on_batch)
        of_lines = self.segments(lines)
        segments = list(chain(*of_lines))
        sizes = [len(segment.source_ids) for segment in segments]
        blank: list[Candidate] = []
        rows = max(self.search.nbest, getattr(self.search, "beam_size", 1))
        outputs = iter(
            self.map_batches(self.translate_batch, segments, sizes, blank, on_batch, rows)
        )
        translations = []
        for of_line in of_lines:
            candidates = list(islice(outputs, len(of_line)))
            translations.append(Translation.from_segments(of_line, candidates))
        return translations

    def segments(self, lines: Sequence[str]) -> list[list[Segment]]:
        """Divide lines into the inputs of the model, as `translate` does.

        With `translate_batch` and `Translation.from_segments`, a program can make batches of its
        own.
        """
        _check_list(lines)
        return make_segments(
            lines,
            self.tokenizer,
            limits=self.limits,
            by_sentence=self.options.sentences,
            language=self.source_language,
            controls=self.controls,
            glossary=self.glossary,
        )

    @torch.inference_mode()
    def translate_batch(self, segments: list[Segment]) -> list[list[Candidate]]:
        """Translate segments that are not blank as one batch, in the calling thread.

        Calls from several threads run in parallel on a CPU, unlike those of the other methods.
        """
        config: Any = self.search  # the native engine samples, too
        with torch.autocast(self.device.type, enabled=False):
            hypotheses = self.engine.search(segments, config)
        make = partial(make_candidates, self.tokenizer, target_language=self.target_language)
        return list(map(make, segments, hypotheses))

    def translate_stream(
        self, lines: Iterable[str], *, chunk_lines: int | None = None
    ) -> Iterator[Translation]:
        """Translate lines as they come, `chunk_lines` at a time, in bounded memory.

        By default 1,024 lines, and 8,192 on a GPU. Chunks are read ahead, so that all workers are
        busy until the end; their number changes no output in any precision.
        """
        _check_list(lines)
        chunks = make_chunks(lines, chunk_lines or self.chunk_lines)
        with self.chunk_workers() as workers:
            for translations in in_order(workers, chunks):
                yield from translations

    @property
    def chunk_lines(self) -> int:
        """Number of lines of a chunk, which are sorted by length together."""
        return 1024 if self.device.type == "cpu" else 8192

    @contextmanager
    def chunk_workers(self) -> Iterator[list[Callable[[Chunk], list[Translation]]]]:
        """Provide functions that translate a chunk at a time, as many as keep all workers busy."""
        with worker_threads(self.workers) as pool:
            translator = copy.copy(self)
            translator._pool = pool
            # A chunk is several batches; while one waits for its last, others have more.
            yield [translator.translate_chunk] * (2 + self.workers // 8)

    def translate_chunk(self, chunk: Chunk) -> list[Translation]:
        """Translate the lines of a chunk."""
        return self.translate(chunk.lines)

    def log_probabilities(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> "list[TargetScore]":
        """Compute the log-probability of given translations, tokenized by the model's tokenizer.

        A pair of blank lines has no tokens and probability 1; a blank line in any other pair is
        `</s>` alone.
        """
        from seq2seq.decoding.ensemble import TargetScore, score_targets

        _check_pairs(sources, targets)
        encoded = zip(
            self.tokenizer.encode_source(list(map(str.strip, sources))),
            self.tokenizer.encode_target(list(map(str.strip, targets))),
            strict=True,
        )
        pairs = []
        for line, (source, target) in enumerate(encoded, start=1):
            _check_length(f"line {line}: the source", source, self.limits.source)
            _check_length(f"line {line}: the translation", target, self.limits.target)
            controls = self.controls if source else ()
            pairs.append(([*controls, *source, END_ID], [*target, END_ID]))
        sizes = [max(map(len, pair)) for pair in pairs]
        nothing = TargetScore(0.0, 0)
        return self.map_batches(partial(score_targets, self.models), pairs, sizes, nothing)

    def alignments(
        self, sources: Sequence[str], targets: Sequence[str | Translation]
    ) -> "list[Alignment]":
        """Align the pieces and the words of sources with those of their translations.

        A translation that `translate` returned is aligned segment by segment, a text as a whole,
        and equal texts character by character. The end of a text that is too long for the model has
        no links.
        """
        from seq2seq.decoding.alignment import align

        texts = [target.text if isinstance(target, Translation) else target for target in targets]
        _check_pairs(sources, targets if isinstance(targets, str) else texts)
        return align(self, sources, targets)

    def alignment_steps(self) -> list[AlignmentStep | None]:
        """Return where each model aligns, which is found out once, before threads align."""
        from seq2seq.decoding.linking import prepare_alignment

        with self._exclusive():
            if not self._steps:
                self._steps += map(prepare_alignment, self._trained)
        return self._steps

    def source_as_read(self, source: str) -> Cased:
        """Return a source in the case in which the model reads it."""
        cased = known_case(source, self.tokenizer.encode_source, self.source_language)
        return cased or Cased(source, range(1, len(source) + 1))

    def target_as_written(self, target: str) -> Cased:
        """Return a translation in the case in which the model wrote it, as far as that is known."""
        cased = known_case(target, self.tokenizer.encode_target, self.target_language)
        return cased or Cased(target, range(1, len(target) + 1))

    def attention(self, source: str, target: str | None = None) -> "AttentionMaps":
        """Compute the attention weights for a source and a target, by default its translation.

        They are in float32; a bf16 translator uses its rounded weights.
        """
        from seq2seq.decoding.attention import record_attention

        if len(self.models) > 1:
            raise UserError("an ensemble has no attention of its own: give one model")
        if target is None:
            target = self.translate([source])[0].text
        source_ids = self.tokenizer.encode_source([self.source_as_read(source.strip()).text])[0]
        target_ids = self.tokenizer.encode_target([self.target_as_written(target.strip()).text])[0]
        if not (source_ids and target_ids):
            raise UserError("attention needs text on both sides: one is blank")
        _check_length("the source", source_ids, self.limits.source)
        _check_length("the target", target_ids, self.limits.target)
        with self._exclusive():
            model = self.models[0]
            if next(model.parameters()).dtype is torch.bfloat16:
                model = copy.deepcopy(model).float()
            source_ids = [*self.controls, *source_ids]
            maps = record_attention(model, self.tokenizer, source_ids, target_ids)
        if not maps.cross.isfinite().all():  # NaN in any attention reaches the last one
            raise nan_error()
        return maps

    def map_batches(
        self,
        function: Callable[[list[T]], list[R]],
        items: list[T],
        sizes: list[int],
        blank: R,
        on_batch: Callable[[int, int], None] = lambda finished, items: None,
        rows: int = 1,
    ) -> list[R]:
        """Apply a function to batches of items, in parallel; return the results in their order.

        That of an item of size 1, which is `</s>` alone, is `blank`. With a pool, several calls run
        at the same time; otherwise they take turns. Items of many `rows` each, which are hypotheses
        or samples, have smaller batches.
        """
        workers = self.workers
        if self._pool:  # few batches, since small ones are slow; a GPU has one worker
            workers = min(4, len(items) // 16) if self.device.type == "cpu" else 1
        tokens = max(1, self.batch_tokens * _USUAL_ROWS // max(_USUAL_ROWS, rows))
        batches = make_batches(sizes, tokens, workers, self.engine.rounded)
        results = [blank] * len(items)

        def run_batch(batch: list[int]) -> int:
            outputs = function([items[i] for i in batch])
            for i, output in zip(batch, outputs, strict=True):
                results[i] = output
            return len(batch)

        with ExitStack() as turn:
            run: Callable[..., Iterator[int]]
            if self._pool:
                run = self._pool.map
            else:
                turn.enter_context(self._exclusive())
                run = turn.enter_context(parallel_map(min(workers, len(batches))))
            for finished in accumulate(run(run_batch, batches)):
                on_batch(finished, sum(map(len, batches)))
        return results

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Exclude other calls, and the caller's autocast."""
        with process_lock, torch.autocast(self.device.type, enabled=False):
            yield


def _check_list(lines: object) -> None:
    """Refuse a string, which would be read letter by letter."""
    if isinstance(lines, str):
        raise TypeError(f"{lines!r:.100} is a single string: give a list of lines")


def _check_pairs(sources: Sequence[str], targets: Sequence[str]) -> None:
    _check_list(sources)
    _check_list(targets)
    if len(sources) != len(targets):
        raise UserError(
            f"{len(sources)} sources but {len(targets)} translations: give one per source"
        )


def _check_length(name: str, ids: Sequence[int], longest: int) -> None:
    if len(ids) > longest:
        raise UserError(f"{name} has {len(ids)} tokens, at most {longest} are possible; split it")
