"""The models behind the server, the work that its clients give them, and files to be fetched."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import torch
from py3langid.langid import MODEL_FILE, LanguageIdentifier
from starlette.exceptions import HTTPException

from seq2seq.decoding.alignment import Alignment, AttentionMaps
from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import Candidate, OutputWarnings, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.documents.document import Document, File
from seq2seq.documents.translate import Plan
from seq2seq.errors import UserError
from seq2seq.search import SearchConfig
from seq2seq.server.batcher import Batcher
from seq2seq.server.guard import Metrics
from seq2seq.server.requests import Limits, invalid

_MAX_PAIRS = 10
_NAMES = """
af Afrikaans  am Amharic  ar Arabic  az Azerbaijani  be Belarusian  bg Bulgarian  bn Bengali
bs Bosnian  ca Catalan  cs Czech  cy Welsh  da Danish  de German  el Greek  en English
eo Esperanto  es Spanish  et Estonian  eu Basque  fa Persian  fi Finnish  fr French  ga Irish
gl Galician  gu Gujarati  he Hebrew  hi Hindi  hr Croatian  hu Hungarian  hy Armenian
id Indonesian  is Icelandic  it Italian  ja Japanese  ka Georgian  kk Kazakh  km Khmer  kn Kannada
ko Korean  ky Kyrgyz  la Latin  lb Luxembourgish  lo Lao  lt Lithuanian  lv Latvian  mg Malagasy
mk Macedonian  ml Malayalam  mn Mongolian  mr Marathi  ms Malay  mt Maltese  my Burmese
nb Norwegian  ne Nepali  nl Dutch  nn Norwegian  no Norwegian  pa Punjabi  pl Polish  ps Pashto
pt Portuguese  ro Romanian  ru Russian  rw Kinyarwanda  si Sinhala  sk Slovak  sl Slovenian
so Somali  sq Albanian  sr Serbian  sv Swedish  sw Swahili  ta Tamil  te Telugu  tg Tajik  th Thai
tk Turkmen  tl Tagalog  tr Turkish  uk Ukrainian  ur Urdu  uz Uzbek  vi Vietnamese  xh Xhosa
yi Yiddish  yo Yoruba  zh Chinese  zu Zulu
"""
LANGUAGE_NAMES = dict(line.split() for line in _NAMES.replace("  ", "\n").split("\n") if line)
"""English names by ISO 639-1 code."""


def list_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Write pairs of source and target language as a user reads them, the first ten of many."""
    names = [f"{source} -> {target}" for source, target in pairs]
    more = f" and {len(names) - _MAX_PAIRS} more" if len(names) > _MAX_PAIRS else ""
    return ", ".join(names[:_MAX_PAIRS]) + more


class Detector:
    """Says which of some languages a text is written in."""

    def __init__(self, codes: Sequence[str]) -> None:
        self._codes = sorted(set(codes))
        self._identifier: Any = None

    def detect(self, text: str) -> tuple[str, float]:
        """Return a language and the confidence in it, 0 to 100.

        A single language to choose from is returned with confidence 0, without a look at the text.
        """
        if len(self._codes) == 1:
            return self._codes[0], 0.0
        if self._identifier is None:
            identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
            try:
                identifier.set_languages(self._codes)
            except ValueError:
                raise invalid(
                    "one of the languages served can't be detected: give the source"
                ) from None
            self._identifier = identifier
        language, confidence = self._identifier.classify(text)
        return str(language), round(100 * float(confidence), 1)


Pair = tuple[str, str]
"""The codes of a source and a target language."""

MAX_ATTENTION_TOKENS = 256
"""Maximum tokens on each side of a request for attention, whose answer grows with their product."""


@dataclass(frozen=True)
class Model:
    """A model that is served."""

    name: str
    pair: Pair
    translator: Translator

    @property
    def max_alternatives(self) -> int:
        """The maximum number of candidates of a line in addition to the best."""
        search = self.translator.search
        return search.beam_size - 1 if isinstance(search, SearchConfig) else 0


@dataclass(frozen=True)
class _Work:
    """A key of batches: segments for one model and one number of candidates.

    If that is 0, the items are pairs of texts, whose attention or alignments are asked for.
    """

    pair: Pair
    nbest: int
    align: bool = False


class Service:
    """Translates lines and computes attention, for all clients together.

    All methods are called on one event loop. As many threads as a translator has workers run the
    models, each its own batches.
    """

    def __init__(self, models: Sequence[Model], limits: Limits, metrics: Metrics) -> None:
        self.models: dict[Pair, Model] = {}
        for model in models:
            if model_before := self.models.get(model.pair):
                source, target = model.pair
                raise UserError(
                    f"{model_before.name} and {model.name} both translate {source} -> {target}:"
                    " remove one, or say with --languages what they translate"
                )
            self.models[model.pair] = model
        self.detector = Detector([source for source, _ in self.models])
        self._metrics = metrics
        metrics.queue_tokens.set_function(lambda: self.queue_tokens)
        self._limits = limits
        workers = max(model.translator.workers for model in models)
        # Two batches in parallel gain more than two threads within an operation.
        self._threads = ThreadPoolExecutor(
            workers, "translate", initializer=torch.set_num_threads, initargs=(1,)
        )
        self._batcher = Batcher[_Work, Any, Any](
            self._run,
            workers=workers,
            batch_size=limits.batch_tokens,
            queue_size=limits.queue_tokens,
        )
        self._cache: OrderedDict[tuple[_Work, str], list[Candidate]] = OrderedDict()

    @property
    def queue_tokens(self) -> int:
        """The number of source tokens queued or being translated."""
        return self._batcher.waiting + self._batcher.running

    def find(self, source: str, target: str) -> Model:
        """Find the model of a language pair."""
        pair = (source.lower(), target.lower())
        for (known_source, known_target), model in self.models.items():
            if pair == (known_source.lower(), known_target.lower()):
                return model
        sources = [source_code.lower() for source_code, _ in self.models]
        wrong = target if pair[0] in sources else source
        raise HTTPException(
            400,
            f"{wrong[:50]} is not supported: this server translates {list_pairs(self.models)}",
        )

    async def translate(
        self, model: Model, lines: Sequence[str], alternatives: int
    ) -> list[Translation]:
        """Translate lines, each with up to `alternatives` further candidates.

        They are split and joined in another thread. If the caller is cancelled, what has been
        translated is in the cache.
        """
        if alternatives > model.max_alternatives:
            raise invalid(f"alternatives must be at most {model.max_alternatives}")
        key = _Work(model.pair, 1 + alternatives)

        def split() -> tuple[list[list[Segment]], dict[str, Segment]]:
            of_lines = model.translator.segments(lines)
            return of_lines, {s.source: s for s in chain(*of_lines) if len(s.source_ids) > 1}

        segments_of_lines, segments = await asyncio.to_thread(split)
        found = {text: known for text in segments if (known := self._cached(key, text))}
        missing = [segment for text, segment in segments.items() if text not in found]
        sizes = [len(segment.source_ids) for segment in missing]
        new = await self._batcher.submit(key, missing, sizes)
        self._metrics.lines.labels("new").inc(len(new))
        self._metrics.lines.labels("before").inc(len(found))
        self._metrics.tokens.labels("source").inc(sum(sizes))
        written = sum(len(best.pieces) + 1 for best, *_ in new)
        self._metrics.tokens.labels("target").inc(written)
        found |= zip((segment.source for segment in missing), new, strict=True)

        def join(line: str, segments: list[Segment]) -> Translation:
            candidates = [found.get(segment.source, []) for segment in segments]
            translation = Translation.from_segments(segments, candidates)
            for kind in suspicions(line, translation):
                self._metrics.suspect.labels(kind).inc()
            return translation

        return await asyncio.to_thread(lambda: list(map(join, lines, segments_of_lines)))

    async def translate_plans(
        self, model: Model, plans: Sequence[Plan], alternatives: int
    ) -> list[list[list[Alignment]]]:
        """Translate what plans ask for; return for each, by rank, the alignments that it needs."""
        asked = [plan.lines for plan in plans]
        while any(asked):
            found = iter(await self.translate(model, list(chain(*asked)), alternatives))
            asked = [
                plan.take(list(islice(found, len(lines))))
                for plan, lines in zip(plans, asked, strict=True)
            ]
        pairs = await asyncio.to_thread(
            lambda: [[plan.pairs(rank) for rank in range(1 + alternatives)] for plan in plans]
        )
        aligned = iter(await self.alignments(model, list(chain(*chain(*pairs)))))
        return [[list(islice(aligned, len(its))) for its in ranks] for ranks in pairs]

    async def attention(self, model: Model, source: str, target: str | None) -> AttentionMaps:
        """Compute the attention between a source and its translation, or a given target."""
        if target is None:
            (translation,) = await self.translate(model, [source], 0)
            target = translation.text
        tokenizer = model.translator.tokenizer
        encoded = tokenizer.encode([source]) + tokenizer.encode_target([target])
        sizes = [len(ids) + 1 for ids in encoded]
        if max(sizes) > MAX_ATTENTION_TOKENS:
            raise HTTPException(
                400, f"attention is for at most {MAX_ATTENTION_TOKENS - 1} tokens on each side"
            )
        work = _Work(model.pair, 0)
        maps: AttentionMaps
        (maps,) = await self._batcher.submit(work, [(source, target)], [sum(sizes)])
        return maps

    async def alignments(
        self, model: Model, pairs: Sequence[tuple[str, str | Translation]]
    ) -> Sequence[Alignment]:
        """Align texts with their translations."""
        tokenizer = model.translator.tokenizer
        sizes = [2 + len(ids) for ids in tokenizer.encode([source for source, _ in pairs])]
        return await self._batcher.submit(_Work(model.pair, 0, align=True), pairs, sizes)

    def close(self) -> None:
        """End the threads, after the batches that run."""
        self._threads.shutdown()

    async def _run(self, key: _Work, items: list[Any]) -> list[Any]:
        """Run a batch in one of the threads."""
        translator = self.models[key.pair].translator
        loop = asyncio.get_running_loop()
        if key.align:
            texts = zip(*items, strict=True)
            return await loop.run_in_executor(
                self._threads, lambda: translator.alignments(*map(list, texts))
            )
        if key.nbest == 0:
            return [
                await loop.run_in_executor(self._threads, translator.attention, *texts)
                for texts in items
            ]
        self._metrics.batch_sentences.observe(len(items))
        with_nbest = translator.with_nbest(key.nbest)
        done = await loop.run_in_executor(self._threads, with_nbest.translate_batch, items)
        for segment, candidates in zip(items, done, strict=True):
            self._cache[key, segment.source] = candidates
        while len(self._cache) > self._limits.cache:
            self._cache.popitem(last=False)
        return done

    def _cached(self, key: _Work, text: str) -> list[Candidate] | None:
        entry = self._cache.get((key, text))
        if entry is not None:
            self._cache.move_to_end((key, text))
        return entry


def suspicions(source: str, translation: Translation) -> list[str]:
    """Name what looks wrong in a translation: fields of `OutputWarnings`."""
    warnings = OutputWarnings()
    warnings.count(source, translation)
    neutral = ("lines", "source_split")
    return [kind for kind, count in vars(warnings).items() if count and kind not in neutral]


@dataclass(frozen=True)
class Source:
    """A text or a file of a request, and what is to be translated of it."""

    document: Document | File
    plan: Plan
    model: Model | None
    """None if it stays as it is."""


@dataclass(frozen=True)
class TranslatedText:
    """A text's translation, as the interface shows it."""

    text: str | bytes
    alternatives: list[str | bytes]
    details: list[dict[str, Any]]
    truncated: bool = False
    """Whether the model could not read or write a sentence to its end."""

    @classmethod
    def of(cls, source: Source, alignments: Sequence[Sequence[Alignment]]) -> "TranslatedText":
        """Put the translations of a source together.

        The alternatives are made of the second candidates of all lines, of the third ones, and so
        on; a line that has fewer gives its last. Equal ones are skipped. For each of these ranks
        there are the alignments that the plan asks for.
        """
        document, plan = source.document, source.plan
        if source.model is None:
            return cls(document.content, [], [])
        most = max((len(translation.candidates) for translation in plan.translations), default=0)
        texts = [
            document.join(plan.place(of_rank, rank))
            for rank, of_rank in enumerate(alignments[: max(most, 1)])
        ]
        text, *alternatives = dict.fromkeys(texts)
        details = [
            _details(part, its)
            for line, translation in zip(plan.lines, plan.translations, strict=True)
            for _, part, its in (
                translation.parts if translation.source_segments > 1 else [("", line, translation)]
            )
            if its.candidates
        ]
        truncated = any(
            translation.source_truncated
            or any(best.truncated for best in translation.candidates[:1])
            for translation in plan.translations
        )
        return cls(text, alternatives, details, truncated)


def _details(source: str, translation: Translation) -> dict[str, Any]:
    """Describe the translation of a sentence, or of a line if lines are not split."""
    best, *alternatives = translation.candidates
    return {
        "source": source,
        "text": best.text,
        "score": best.score,
        "pieces": best.pieces,
        "truncated": best.truncated,
        "unknown": translation.unknown,
        "suspect": suspicions(source, translation),
        "alternatives": [
            {"text": candidate.text, "score": candidate.score} for candidate in alternatives
        ],
    }


_MAX_FILES = 100
_MAX_BYTES = 32 * 2**20
_KEPT_SECONDS = 600.0


class Downloads:
    """Translated files, kept in memory for ten minutes, under names that can't be guessed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def keep(self, content: bytes, suffix: str) -> str:
        """Keep a file, drop the oldest if there are too many, and return its name."""
        name = secrets.token_urlsafe(24) + suffix
        self._files[name] = (self._clock(), content)
        self._forget()
        return name

    def find(self, name: str) -> bytes:
        """Return the content of a file."""
        self._forget()
        if name not in self._files:
            raise HTTPException(404, "no such file; it may have expired: send it again")
        return self._files[name][1]

    def _forget(self) -> None:
        oldest = self._clock() - _KEPT_SECONDS
        total = sum(len(content) for _, content in self._files.values())
        for name, (added, content) in list(self._files.items()):
            if added >= oldest and total <= _MAX_BYTES and len(self._files) <= _MAX_FILES:
                break
            total -= len(content)
            del self._files[name]
