"""The models behind the server, and the work that its clients give them."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, starmap
from typing import Any

import torch
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from seq2seq.decoding.alignment import Alignment
from seq2seq.decoding.attention import AttentionMaps
from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import Candidate, OutputWarnings, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.documents.document import Document, Languages
from seq2seq.documents.translate import Plan
from seq2seq.errors import UserError
from seq2seq.search import SearchConfig
from seq2seq.server.batcher import Batcher
from seq2seq.server.documents import Readers
from seq2seq.server.guard import RequestMetrics
from seq2seq.server.requests import Limits

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
_words = _NAMES.split()
LANGUAGE_NAMES = dict(zip(_words[::2], _words[1::2], strict=True))
"""English names by ISO 639-1 code."""


def list_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Write pairs of source and target language as a user reads them, the first ten of many."""
    names = list(map(" -> ".join, pairs))
    more = f" and {len(names) - _MAX_PAIRS} more" if len(names) > _MAX_PAIRS else ""
    return ", ".join(names[:_MAX_PAIRS]) + more


LanguagePair = tuple[str, str]
"""The codes of a source and a target language."""

MAX_ATTENTION_TOKENS = 256
"""Maximum tokens on each side of a request for attention, whose answer grows with their product."""


def max_alternatives(translator: Translator) -> int:
    """Return the maximum number of candidates of a line in addition to the best."""
    search = translator.search
    return search.beam_size - 1 if isinstance(search, SearchConfig) else 0


@dataclass(frozen=True)
class _Work:
    """A key of batches: segments for one translator and one number of candidates.

    If that is 0, the items are pairs of texts, whose attention or alignments are asked for.
    """

    translator: Translator
    nbest: int
    align: bool = False


class Service:
    """Translates lines and computes attention, for all clients together.

    All methods are called on one event loop. As many threads as a translator has workers run the
    models, each its own batches.
    """

    def __init__(self, translators: Mapping[LanguagePair, Translator], limits: Limits) -> None:
        self.translators, self.limits, self.metrics = translators, limits, RequestMetrics()
        self._sources = sorted({source for source, _ in translators})
        self.metrics.queue_tokens.set_function(lambda: self.queue_tokens)
        workers = max(translator.workers for translator in translators.values())
        # Two batches in parallel gain more than two threads within an operation.
        self._threads = ThreadPoolExecutor(
            workers, "translate", initializer=torch.set_num_threads, initargs=(1,)
        )
        self._batcher = Batcher(
            self._run,
            workers=workers,
            batch_size=limits.batch_tokens,
            queue_size=limits.queue_tokens,
        )
        self._readers = Readers(limits.files, memory=limits.file_bytes, seconds=limits.file_seconds)
        self._cache: OrderedDict[tuple[_Work, str], list[Candidate]] = OrderedDict()

    @property
    def queue_tokens(self) -> int:
        """The number of source tokens queued or being translated."""
        return self._batcher.waiting + self._batcher.running

    def find(self, source: str, target: str) -> Translator:
        """Find the translator of a language pair."""
        wrong = source
        for (known_source, known_target), translator in self.translators.items():
            if known_source.lower() == source.lower():
                wrong = target
                if known_target.lower() == target.lower():
                    return translator
        raise UserError(
            f"{wrong[:50]} is not supported: this server translates {list_pairs(self.translators)}"
        )

    def detect(self, text: str) -> dict[str, Any]:
        """Say which source language a text is in, and the confidence in that, 0 to 100.

        A single one is returned with confidence 0, without a look at the text.
        """
        if len(self._sources) == 1:
            return {"confidence": 0.0, "language": self._sources[0]}
        language, confidence = self._identifier.classify(text)
        return {"confidence": round(100 * float(confidence), 1), "language": str(language)}

    @cached_property
    def _identifier(self) -> Any:
        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        try:
            identifier.set_languages(self._sources)
        except ValueError:
            raise UserError(
                "one of the languages served can't be detected: give the source"
            ) from None
        return identifier

    async def translate(
        self, translator: Translator, lines: Sequence[str], alternatives: int
    ) -> list[Translation]:
        """Translate lines, each with up to `alternatives` further candidates.

        They are split and joined in another thread. If the caller is cancelled, what has been
        translated is in the cache.
        """
        if alternatives > (most := max_alternatives(translator)):
            raise UserError(f"alternatives must be at most {most}")
        key = _Work(translator, 1 + alternatives)
        segments_of_lines = await asyncio.to_thread(translator.segments, lines)
        found, missing = dict[str, list[Candidate]](), dict[str, Segment]()
        for segment in chain(*segments_of_lines):
            text = segment.source
            if (key, text) in self._cache:
                self._cache.move_to_end((key, text))
                found[text] = self._cache[key, text]
            elif len(segment.source_ids) > 1:
                missing[text] = segment
        sizes = [len(segment.source_ids) for segment in missing.values()]
        new = await self._batcher.submit(key, list(missing.values()), sizes)
        self.metrics.lines.labels("new").inc(len(new))
        self.metrics.lines.labels("before").inc(len(found))
        self.metrics.tokens.labels("source").inc(sum(sizes))
        written = sum(len(best.pieces) + 1 for best, *_ in new)
        self.metrics.tokens.labels("target").inc(written)
        found |= zip(missing, new, strict=True)

        def join(line: str, segments: list[Segment]) -> Translation:
            candidates = [found.get(segment.source, []) for segment in segments]
            translation = Translation.from_segments(segments, candidates)
            for kind in suspicions(line, translation):
                self.metrics.suspect.labels(kind).inc()
            return translation

        return await asyncio.to_thread(lambda: list(map(join, lines, segments_of_lines)))

    async def translate_sources(
        self, translator: Translator, sources: Sequence["Source"], alternatives: int, details: bool
    ) -> None:
        """Translate what sources ask for, describe it if that is asked for, and join it."""
        waiting_lines = {source: source.plan.lines for source in sources}
        while any(waiting_lines.values()):
            lines = list(chain(*waiting_lines.values()))
            translations = iter(await self.translate(translator, lines, alternatives))
            for source, waiting in waiting_lines.items():
                waiting_lines[source] = source.plan.take(list(islice(translations, len(waiting))))
        pairs = await asyncio.to_thread(
            lambda: [(s, s.plan.pairs(rank)) for s in sources for rank in range(1 + alternatives)]
        )
        aligned = iter(await self.alignments(translator, list(chain(*(its for _, its in pairs)))))
        for source, its in pairs:
            source.alignments.append(list(islice(aligned, len(its))))
        if details:
            outputs = list(chain(*await asyncio.to_thread(list, map(Source.describe, sources))))
            texts = [(line, output["text"]) for line, output in outputs]
            links = await self.alignments(translator, texts)
            for (_, output), alignment in zip(outputs, links, strict=True):
                output["alignments"] = alignment.words
        await asyncio.to_thread(list, map(Source.join, sources))

    async def translate_file(self, name: str, content: bytes, source: str, target: str) -> bytes:
        """Translate a document; with the source `auto`, also detect its language."""
        if source != "auto":
            self.find(source, target)  # before the document is read
        limit = 20 * self.limits.char_limit  # by default, as about 30 pages have
        async with self._readers.start(name) as reader:
            if source == "auto":
                lines = await reader.open(content, Languages("", target), limit)
                text = "\n".join(lines)
                source = (await asyncio.to_thread(self.detect, text))["language"]
                if stays(text, source, target):
                    return content
            translator = self.find(source, target)
            lines = await reader.open(content, Languages(source, target), limit)
            while lines:
                lines = await reader.take(await self.translate(translator, lines, 0))
            alignments = await self.alignments(translator, await reader.pairs())
            return await reader.join(alignments)

    async def attention(
        self, translator: Translator, source: str, target: str | None
    ) -> AttentionMaps:
        """Compute the attention between a source and its translation, or a given target."""
        if target is None:
            (translation,) = await self.translate(translator, [source], 0)
            target = translation.text
        tokenizer = translator.tokenizer
        encoded = tokenizer.encode([source]) + tokenizer.encode_target([target])
        sizes = [len(ids) + 1 for ids in encoded]
        if max(sizes) > MAX_ATTENTION_TOKENS:
            raise UserError(
                f"attention is for at most {MAX_ATTENTION_TOKENS - 1} tokens on each side"
            )
        work = _Work(translator, 0)
        maps: AttentionMaps
        (maps,) = await self._batcher.submit(work, [(source, target)], [sum(sizes)])
        return maps

    async def alignments(
        self, translator: Translator, pairs: Sequence[tuple[str, str | Translation]]
    ) -> Sequence[Alignment]:
        """Align texts with their translations."""
        encoded = translator.tokenizer.encode([source for source, _ in pairs])
        sizes = [2 + len(ids) for ids in encoded]
        return await self._batcher.submit(_Work(translator, 0, align=True), pairs, sizes)

    def close(self) -> None:
        """Begin no further batch; those that run have nobody who waits for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._readers.close()

    async def _run(self, work: _Work, items: list[Any]) -> list[Any]:
        loop = asyncio.get_running_loop()
        if work.nbest:
            self.metrics.batch_sentences.observe(len(items))
        results = await loop.run_in_executor(self._threads, self._run_batch, work, items)
        if work.nbest:
            for segment, candidates in zip(items, results, strict=True):
                self._cache[work, segment.source] = candidates
            while len(self._cache) > self.limits.cache:
                self._cache.popitem(last=False)
        return results

    def _run_batch(self, work: _Work, items: list[Any]) -> list[Any]:
        """Run a batch, in one of the threads."""
        if work.align:
            return work.translator.alignments(*zip(*items, strict=True))
        if work.nbest == 0:
            return list(starmap(work.translator.attention, items))
        return work.translator.with_nbest(work.nbest).translate_batch(items)


def stays(text: str, language: str, target: str) -> bool:
    """Tell whether a text stays as it is: it is in the target language, or has no letters."""
    return language.lower() == target.lower() or not any(map(str.isalpha, text))


def suspicions(source: str, translation: Translation) -> list[str]:
    """Name what looks wrong in a translation: fields of `OutputWarnings`."""
    warnings = OutputWarnings()
    warnings.count(source, translation)
    return [kind for kind, count in vars(warnings).items() if count and kind != "lines"]


@dataclass(eq=False)
class Source:
    """A text of a request, on the way to its translation."""

    document: Document
    plan: Plan
    translator: Translator | None
    """None if it stays as it is, which then is its `text`."""
    detected: dict[str, Any] = field(default_factory=dict)
    """The language of the text, if it was to be detected."""
    alignments: list[Sequence[Alignment]] = field(default_factory=list)
    """The alignments that the plan needs, by rank."""
    details: list[dict[str, Any]] = field(default_factory=list)
    """One entry per sentence, or per line if lines are not split."""
    text: str = ""
    alternatives: list[str] = field(default_factory=list)

    def join(self) -> None:
        """Put the translation and its alternatives together.

        The alternatives are made of the second candidates of all lines, of the third ones, and so
        on; a line that has fewer gives its last. Equal ones are skipped.
        """
        most = max((len(each.candidates) for each in self.plan.translations), default=1)
        texts = dict[str, None]()
        for rank, alignments in enumerate(self.alignments[: max(most, 1)]):
            texts[self.document.join(self.plan.place(alignments, rank))] = None
        self.text, *self.alternatives = texts

    def describe(self) -> list[tuple[str, dict[str, Any]]]:
        """Make the details; return each output in them, the alternatives too, with its source."""
        outputs = []
        for line, translation in zip(self.plan.lines, self.plan.translations, strict=True):
            whole = ("", line, translation)
            for _, source, its in translation.parts if len(translation.parts) > 1 else [whole]:
                if its.candidates:
                    self.details.append(_details(source, its))
                    outputs.append((source, self.details[-1]))
                    outputs += [(source, other) for other in self.details[-1]["alternatives"]]
        return outputs

    @property
    def truncated(self) -> bool:
        """Whether the model could not write a sentence to its end."""
        best = chain.from_iterable(each.candidates[:1] for each in self.plan.translations)
        return any(candidate.truncated for candidate in best)


def _details(source: str, translation: Translation) -> dict[str, Any]:
    best, *alternatives = translation.candidates
    return {
        "source": source,
        "text": best.text,
        "score": best.score,
        "pieces": best.pieces,
        "truncated": best.truncated,
        "unknown": translation.unknown,
        "suspect": suspicions(source, translation),
        "alternatives": [{"text": other.text, "score": other.score} for other in alternatives],
    }
