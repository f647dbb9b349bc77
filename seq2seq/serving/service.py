"""The models behind the server, and the work that its clients give them."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from seq2seq.attention_maps import AttentionMaps
from seq2seq.decoding.config import SearchConfig
from seq2seq.decoding.health import Health
from seq2seq.decoding.translation import Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.serving.batcher import Batcher
from seq2seq.serving.languages import Detector, list_pairs
from seq2seq.serving.limits import Limits, RequestError, invalid
from seq2seq.serving.metrics import Metrics

Pair = tuple[str, str]
"""The codes of a source and a target language."""

MAX_ATTENTION_TOKENS = 256
"""Most tokens of each side of a request for attention, whose answer grows with their product."""


@dataclass(frozen=True)
class Model:
    """A model that is served."""

    name: str
    pair: Pair
    translator: Translator

    @property
    def max_alternatives(self) -> int:
        """The most candidates of a line beside the best."""
        search = self.translator.search
        return search.beam_size - 1 if isinstance(search, SearchConfig) else 0


@dataclass(frozen=True)
class _Translate:
    """A key of batches: segments for one model and one number of candidates."""

    pair: Pair
    nbest: int


@dataclass(frozen=True)
class _Attend:
    """A key of batches: pairs of texts whose attention is asked for."""

    pair: Pair


class Service:
    """Translates lines and computes attention, for all clients together.

    All methods are called on one event loop. As many threads as a translator has workers run the
    models, each its own batches.

    Args:
        models: the models.
        limits: the limits.
        metrics: counts what is done.

    Raises:
        UserError: if two models have the same languages.
    """

    def __init__(self, models: Sequence[Model], limits: Limits, metrics: Metrics) -> None:
        self.models: dict[Pair, Model] = {}
        for model in models:
            if other := self.models.get(model.pair):
                source, target = model.pair
                raise UserError(
                    f"{other.name} and {model.name} both translate {source} -> {target}:"
                    " leave one out, or say with --languages what they translate"
                )
            self.models[model.pair] = model
        self.is_stopping = False
        self.detector = Detector([source for source, _ in self.models])
        self.metrics = metrics
        self._limits = limits
        workers = max(model.translator.workers for model in models)
        # Two batches side by side gain more than two threads within an operation.
        self._threads = ThreadPoolExecutor(
            workers, "translate", initializer=torch.set_num_threads, initargs=(1,)
        )
        self._batcher = Batcher[_Translate | _Attend, Any, Any](
            self._run,
            workers=workers,
            batch_size=limits.batch_tokens,
            queue_size=limits.queue_tokens,
        )
        self._cache: OrderedDict[tuple[_Translate, str], Translation] = OrderedDict()

    @property
    def queue_tokens(self) -> int:
        """The number of source tokens that wait or run."""
        return self._batcher.waiting + self._batcher.running

    def find(self, source: str, target: str, texts: Sequence[str] = ()) -> Model:
        """Find the model of a language pair; `auto` as the source is detected from texts.

        Raises:
            RequestError: if no model translates this pair.
        """
        if source == "auto":
            source, _ = self.detector.detect("\n".join(texts))
        asked = (source.lower(), target.lower())
        for (known_source, known_target), model in self.models.items():
            if asked == (known_source.lower(), known_target.lower()):
                return model
        sources = [known.lower() for known, _ in self.models]
        wrong = target if asked[0] in sources else source
        raise RequestError(
            400,
            f"{wrong[:50]} is not supported: this server translates {list_pairs(self.models)}",
        )

    async def translate(
        self, model: Model, lines: Sequence[str], alternatives: int
    ) -> list[Translation]:
        """Translate lines, each with up to `alternatives` further candidates.

        Raises:
            RequestError: if there is too much to do now, or too many alternatives are asked for.
        """
        if alternatives > model.max_alternatives:
            raise invalid(f"alternatives must be at most {model.max_alternatives}")
        key = _Translate(model.pair, 1 + alternatives)
        cached = {line: self._cached(key, line) for line in lines}
        found = {line: known for line, known in cached.items() if known}
        missing = [line for line, known in cached.items() if not known]
        segments_of_lines = model.translator.segments(missing)
        segments = [s for of_line in segments_of_lines for s in of_line if len(s.source_ids) > 1]
        sizes = [len(segment.source_ids) for segment in segments]
        translated = iter(await self._batcher.submit(key, segments, sizes))
        new = []
        for line, of_line in zip(missing, segments_of_lines, strict=True):
            candidates = [next(translated) if len(s.source_ids) > 1 else [] for s in of_line]
            found[line] = Translation.from_segments(of_line, candidates)
            new.append(found[line])
            self._keep(key, line, found[line])
        self._count(found, sizes, new)
        return [found[line] for line in lines]

    async def attention(self, model: Model, source: str, target: str | None) -> AttentionMaps:
        """Compute the attention between a source and its translation, or a given target.

        Raises:
            RequestError: if a text is blank or too long, or there is too much to do now.
        """
        if target is None:
            (translation,) = await self.translate(model, [source], 0)
            target = translation.text
        tokenizer = model.translator.tokenizer
        encoded = tokenizer.encode([source]) + tokenizer.encode_target([target])
        sizes = [len(ids) + 1 for ids in encoded]
        if max(sizes) > MAX_ATTENTION_TOKENS:
            raise RequestError(
                400, f"attention is for at most {MAX_ATTENTION_TOKENS - 1} tokens on each side"
            )
        try:
            found: list[AttentionMaps] = await self._batcher.submit(
                _Attend(model.pair), [(source, target)], [sum(sizes)]
            )
        except UserError as error:
            raise RequestError(400, str(error)) from None
        return found[0]

    def stop(self) -> None:
        """Begin to end: what has come is finished, and no more is accepted."""
        self.is_stopping = True

    def close(self) -> None:
        """End the threads, after the batches that run."""
        self._threads.shutdown()

    async def _run(self, key: _Translate | _Attend, items: list[Any]) -> list[Any]:
        """Run a batch in one of the threads."""
        translator = self.models[key.pair].translator
        loop = asyncio.get_running_loop()
        if isinstance(key, _Attend):
            return [
                await loop.run_in_executor(self._threads, translator.attention, *texts)
                for texts in items
            ]
        self.metrics.batch_sentences.observe(len(items))
        with_nbest = translator.with_nbest(key.nbest)
        return await loop.run_in_executor(self._threads, with_nbest.translate_batch, items)

    def _cached(self, key: _Translate, line: str) -> Translation | None:
        if not line.strip():
            return Translation([])
        found = self._cache.get((key, line))
        if found is not None:
            self._cache.move_to_end((key, line))
        return found

    def _keep(self, key: _Translate, line: str, translation: Translation) -> None:
        self._cache[key, line] = translation
        while len(self._cache) > self._limits.cache:
            self._cache.popitem(last=False)

    def _count(
        self, found: dict[str, Translation], sizes: list[int], new: list[Translation]
    ) -> None:
        """Count the lines of a request, and what looks wrong in their translations."""
        self.metrics.lines.add(len(new), made="new")
        self.metrics.lines.add(len(found) - len(new), made="before")
        self.metrics.tokens.add(sum(sizes), side="source")
        written = sum(len(c.pieces) + 1 for translation in new for c in translation.candidates[:1])
        self.metrics.tokens.add(written, side="target")
        for line, translation in found.items():
            for kind in suspicions(line, translation):
                self.metrics.suspect.add(kind=kind)


def suspicions(source: str, translation: Translation) -> list[str]:
    """Name what looks wrong in a translation: fields of `Health`."""
    health = Health()
    health.count(source, translation)
    kinds = ("empty", "copied", "repeating", "output_truncated", "source_truncated", "unknown")
    return [kind for kind in kinds if getattr(health, kind)]
