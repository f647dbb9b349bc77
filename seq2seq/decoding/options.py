"""The options of a translator, and of sampling."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seq2seq.errors import UsageError, check_number
from seq2seq.search import DecodingConfig, SearchConfig

ENGINES = ("native", "ctranslate2")
FORMS = ("plain", "fast")
_LANGUAGE_CODE = re.compile("[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*")


@dataclass(kw_only=True)
class SamplingConfig(DecodingConfig):
    """The options of sampling; the defaults draw from the model's own distribution.

    `nbest` samples are drawn for each sentence, some of which may be equal; `alpha` affects only
    their scores.
    """

    temperature: float = 1.0
    """Divides the logits: below 1, probable tokens become more probable."""
    top_k: int | None = None
    """Draw only from that many of the most probable tokens."""
    top_p: float = 1.0
    """After top_k, draw only from the smallest set of most probable tokens whose share of the
    probability reaches this (the nucleus of Holtzman et al. 2020)."""
    seed: int = 1
    """Different seeds give different samples."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise UsageError(f"temperature={self.temperature}: must be above 0; --beam 1 is greedy")
        check_number("top_k", self.top_k, at_least=1)
        check_number("top_p", self.top_p, above=0, at_most=1)
        check_number("seed", self.seed, at_least=0, below=2**32)


@dataclass(frozen=True, kw_only=True)
class TranslationOptions:
    """The options of a translator."""

    device: str = "auto"
    """Name of the device: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1`, ..."""
    precision: str | None = None
    """`fp32`, `bf16`, or `auto`: `bf16` where it is faster, else `fp32`. By default `fp32` on a
    CPU, where no output then depends on the batch, and `auto` on a GPU."""
    batch_tokens: int | None = None
    """Most source tokens per batch, padding counted; by default 16,384 on a GPU, else 2,048 with
    the engine `native` and 4,096 with `ctranslate2`."""
    workers: int | None = None
    """Batches translated in parallel, each by one thread; in float32 the number changes no output.
    By default one per thread of PyTorch's, and one on a GPU."""
    max_source_tokens: int = 1024
    """Most source tokens per segment, `</s>` counted; a longer line is split."""
    to: str | None = None
    """Code of the target language, for a model that translates into several."""
    tag: str | None = None
    """A piece that the model knows, such as `<bt>`, to stand before each source."""
    sentences: bool = False
    """Translate the sentences of a line one by one, keeping the spacing between them."""
    source_language: str | None = None
    """The code of the sources' language, such as `de`, by whose abbreviations and ordinals
    sentences are split; by default the model's."""
    search: SearchConfig | SamplingConfig = field(default_factory=SearchConfig)
    """Beam search, or sampling."""
    glossary: Mapping[str, str] | str | Path | None = None
    """Terms of the source and their translations, which the outputs contain; or a file of them, a
    term, a tab and its translation on each line."""
    engine: str = "native"
    """`native`, or `ctranslate2`: the search of CTranslate2, where that is installed; some outputs
    differ. Its precision may also be `int8`, and `auto` is int8 where that is possible."""
    forms: str = "fast"
    """`plain` computes by the core's files alone, as the paper says it, and more slowly: by default
    in `fp32` on a GPU, too. `fast` computes the same by the forms in `seq2seq.fast`."""
    scores: bool = True
    """Whether greedy search with CTranslate2 computes scores. Without, it is faster, and they are
    NaN; other searches always have them."""

    def __post_init__(self) -> None:
        for name, least in (("batch_tokens", 1), ("workers", 1), ("max_source_tokens", 2)):
            check_number(name, getattr(self, name), at_least=least)
        if self.engine not in ENGINES:
            raise UsageError(f"engine {self.engine!r} is unknown: choose {' or '.join(ENGINES)}")
        if self.forms not in FORMS:
            raise UsageError(f"forms={self.forms}: choose {' or '.join(FORMS)}")
        if self.forms == "plain" and self.engine == "ctranslate2":
            raise UsageError("engine ctranslate2 has no plain form: choose the engine native")
        if self.precision == "int8" and self.engine != "ctranslate2":
            raise UsageError(
                "precision int8 needs engine ctranslate2: choose that engine, or fp32, bf16 or auto"
            )
        if self.engine == "ctranslate2" and isinstance(self.search, SamplingConfig):
            raise UsageError(
                "engine ctranslate2 can't draw samples that depend on the seed and the line alone:"
                " choose the engine native, or beam search"
            )
        if self.glossary is not None:
            if self.engine == "ctranslate2":
                raise UsageError("engine ctranslate2 knows no glossary: choose the engine native")
            if isinstance(self.search, SamplingConfig):
                raise UsageError("a glossary needs beam search: remove it, or don't sample")
        language = self.source_language
        if language is not None and not _LANGUAGE_CODE.fullmatch(language):
            raise UsageError(
                f"source_language={language}: must be the code of a language, such as en or de"
            )
