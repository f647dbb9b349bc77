"""BLEU, chrF and TER by sacreBLEU, and the share of exact matches, each with its signature.

Hypotheses are a list of lines; references are one or several such lists, line by line parallel to
the hypotheses. Both are taken as they are: detokenised and untouched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from sacrebleu import BLEU, CHRF, DATASETS, TER, get_reference_files, get_source_file
from sacrebleu.metrics.base import Signature

from seq2seq.errors import UsageError, UserError

_TOKENIZER_EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}


@dataclass(frozen=True)
class Score:
    """A number that says how it was computed."""

    name: str
    value: float
    """From 0 to 100, and above for TER; higher is better, except TER."""
    signature: str
    """What has to be equal before two values may be compared."""
    detail: str = ""
    """What the value is made of."""


@dataclass(kw_only=True)
class ScoreConfig:
    """What a person chooses of sacreBLEU."""

    tokenize: str | None = None
    """BLEU's tokenizer; 13a if not given, or what sacreBLEU sets for a named test set's target."""
    lowercase: bool = False
    """BLEU, chrF and exact match without regard to case; TER never regards it."""
    test_set: str | None = None
    """sacreBLEU's name of the test set, for the signature."""
    language_pair: str | None = None
    """Source and target of the named test set, as in `en-de`."""


@dataclass(frozen=True)
class NamedTestSet:
    """The files of one of sacreBLEU's test sets."""

    source: Path
    references: list[Path]


def score_all(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> list[Score]:
    """BLEU, chrF, TER and the share of exact matches, in this order.

    Raises:
        UserError: no lines, unequal counts, or a tokenizer that can't be had.
    """
    return [metric(hypotheses, references, config) for metric in (bleu, chrf, ter, exact_match)]


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> Score:
    """Corpus BLEU (Papineni et al. 2002) as sacreBLEU computes it (Post 2018).

    Raises:
        UserError: no lines, unequal counts, or a tokenizer that can't be had.
    """
    config = config or ScoreConfig()
    check_lines(hypotheses, references)
    metric = bleu_metric(config)
    result = metric.corpus_score(hypotheses, references)
    precisions = "/".join(f"{precision:.1f}" for precision in result.precisions)
    return Score(
        result.name,
        result.score,
        signature(metric.get_signature(), config),
        f"precisions {precisions}, brevity penalty {result.bp:.3f}, length {result.ratio:.3f}",
    )


def chrf(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> Score:
    """The F-score of character n-grams (Popović 2015), sacreBLEU's chrF2.

    Raises:
        UserError: no lines or unequal counts.
    """
    config = config or ScoreConfig()
    check_lines(hypotheses, references)
    metric = chrf_metric(config)
    result = metric.corpus_score(hypotheses, references)
    return Score(result.name, result.score, signature(metric.get_signature(), config))


def ter(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> Score:
    """The translation edit rate (Snover et al. 2006): edits per 100 reference words.

    Raises:
        UserError: no lines or unequal counts.
    """
    config = config or ScoreConfig()
    check_lines(hypotheses, references)
    metric = ter_metric(config)
    result = metric.corpus_score(hypotheses, references)
    return Score(
        result.name, result.score, signature(metric.get_signature(), config), "lower is better"
    )


def exact_match(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> Score:
    """The lines, per cent, that equal one of their references, spaces at the ends aside.

    Raises:
        UserError: no lines or unequal counts.
    """
    config = config or ScoreConfig()
    check_lines(hypotheses, references)

    def form(line: str) -> str:
        return line.strip().lower() if config.lowercase else line.strip()

    equal = sum(
        form(hypothesis) in map(form, targets)
        for hypothesis, *targets in zip(hypotheses, *references, strict=True)
    )
    named = [("test", config.test_set), ("lang", config.language_pair)]
    parts = [("nrefs", len(references)), *named, ("case", "lc" if config.lowercase else "mixed")]
    return Score(
        "exact match",
        100.0 * equal / len(hypotheses),
        "|".join(f"{key}:{value}" for key, value in parts if value is not None),
        f"{equal} of {len(hypotheses)} lines",
    )


def bleu_metric(config: ScoreConfig) -> BLEU:
    """BLEU by sacreBLEU with a tokenizer that is there.

    Raises:
        UserError: an unknown tokenizer, one whose package is missing, or one that would have to be
            downloaded and can't.
    """
    name = config.tokenize
    target_language = (config.language_pair or "").rpartition("-")[2]
    if name is not None and name not in BLEU.TOKENIZERS:
        raise UsageError(f"--tokenize {name}: unknown; choose from {', '.join(BLEU.TOKENIZERS)}")
    try:
        return BLEU(lowercase=config.lowercase, tokenize=name, trg_lang=target_language)
    except (ImportError, RuntimeError):
        # sacreBLEU chooses one itself where the test set names the language.
        name = name or {"ja": "ja-mecab", "ko": "ko-mecab"}.get(target_language, "13a")
        extra = _TOKENIZER_EXTRAS.get(name)
        package = f'"sacrebleu[{extra}]"' if extra else "sentencepiece"
        raise UserError(
            f"--tokenize {name}: its package is not installed; run: pip install {package}"
        ) from None
    except (OSError, SystemExit) as error:
        raise UserError(
            f"--tokenize {name}: its model could not be downloaded ({_reason(error)});"
            " check the network, or choose a tokenizer that needs none, such as 13a"
        ) from None


def chrf_metric(config: ScoreConfig) -> CHRF:
    """The chrF2 of sacreBLEU."""
    return CHRF(lowercase=config.lowercase)


def ter_metric(config: ScoreConfig) -> TER:
    """The TER of sacreBLEU: like its command, without regard to case whatever is chosen."""
    return TER()


def signature(facts: Signature, config: ScoreConfig) -> str:
    """What sacreBLEU noted of a metric, and the named test set."""
    facts.update("test", config.test_set)
    facts.update("lang", config.language_pair)
    return str(facts)


def named_test_set(name: str, language_pair: str) -> NamedTestSet:
    """One of sacreBLEU's test sets, downloaded by sacreBLEU unless it is there already.

    Raises:
        UserError: an unknown name or language pair, or no download.
    """
    if name not in DATASETS:
        near = get_close_matches(name, DATASETS, n=3) or ["wmt14", "wmt14/full", "wmt20"]
        raise UsageError(f"-t {name}: no such test set; did you mean {', '.join(near)}?")
    if language_pair not in DATASETS[name].langpairs:
        pairs = ", ".join(sorted(DATASETS[name].langpairs))
        raise UsageError(f"-l {language_pair}: {name} has {pairs}")
    try:
        return NamedTestSet(
            Path(get_source_file(name, language_pair)),
            [Path(path) for path in get_reference_files(name, language_pair)],
        )
    # No network, a moved file, a damaged archive, a full disk, a checksum that ends the process:
    # sacreBLEU lets each fail in its own way.
    except (Exception, SystemExit) as error:
        raise UserError(
            f"-t {name}: the test set could not be downloaded ({_reason(error)});"
            " check the network, or give your own files with -r and -s"
        ) from None


def check_lines(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse what can't be compared line by line.

    Raises:
        UserError: no lines, no references or unequal counts.
    """
    if not references:
        raise UserError("no references to score against; give at least one list of them")
    counts = {f"references {i}": len(lines) for i, lines in enumerate(references, start=1)}
    check_counts({"hypotheses": len(hypotheses), **counts})


def check_counts(counts: Mapping[str, int]) -> None:
    """Refuse parallel texts of unequal length, each a name and its number of lines.

    Raises:
        UserError: one is empty or two differ; the message names them.
    """
    (first, expected), *others = counts.items()
    for name, count in others:
        if count != expected:
            raise UserError(
                f"{first} has {expected} lines, {name} has {count}: the texts must be parallel;"
                " look for lines lost or added"
            )
    if expected == 0:
        raise UserError(f"{first}: no lines, nothing to score")


def _reason(error: BaseException) -> str:
    """The first line of an error's message, or its kind where it has none."""
    reason = str(getattr(error, "reason", error)) or type(error).__name__
    return reason.strip().splitlines()[0]
