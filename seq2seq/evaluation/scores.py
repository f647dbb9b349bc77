"""BLEU, chrF and TER by sacreBLEU, and the share of exact matches, each with its signature.

Hypotheses are a list of lines. References are one or more such lists, each parallel to the
hypotheses line by line. Both are detokenized text and are scored unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from sacrebleu import BLEU, CHRF, DATASETS, TER, get_reference_files, get_source_file
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.bleu import BLEUScore

from seq2seq.errors import UsageError, UserError

MAX_TER_WORDS = 250
"""Maximum words of a line for TER, which takes some seconds then. Its time grows with the square of
the words: a line of 3,000 would take minutes."""

_TOKENIZER_EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
_WITHOUT_SPACES = {"ja": "ja-mecab", "zh": "zh"} | dict.fromkeys(("th", "lo", "km", "my"), "char")


@dataclass(frozen=True)
class Score:
    """A value and how it was computed."""

    name: str
    value: float
    """From 0 to 100 (TER may exceed 100); higher is better, except for TER."""
    signature: str
    """Two values are comparable only if their signatures are equal."""
    detail: str = ""
    """The components of the value, for display."""


@dataclass(kw_only=True)
class ScoreConfig:
    """The options of sacreBLEU's metrics."""

    tokenize: str | None = None
    """BLEU's tokenizer; by default 13a, or sacreBLEU's choice for the target language of a named
    test set."""
    lowercase: bool = False
    """Ignore case in BLEU, chrF and exact match; TER always ignores it."""
    test_set: str | None = None
    """The test set's name in sacreBLEU, for the signature."""
    language_pair: str | None = None
    """Such as `en-de`."""


def score_all(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> list[Score]:
    """Compute BLEU, chrF2 (Popović 2015), TER (Snover et al. 2006) and the share of exact matches.

    TER is skipped where a line is too long for it; see `too_long_for_ter`.
    """
    config = config or ScoreConfig()
    scores = [
        bleu(hypotheses, references, config),
        _score(CHRF(lowercase=config.lowercase), hypotheses, references, config),
    ]
    if not too_long_for_ter([hypotheses, *references]):
        # As in sacreBLEU's command, it always ignores case.
        ter = _score(TER(), hypotheses, references, config)
        scores.append(replace(ter, detail="lower is better"))
    return [*scores, exact_match(hypotheses, references, config)]


def too_long_for_ter(texts: Sequence[Sequence[str]]) -> str:
    """Say why TER is not computed, with the first line that is too long; empty if it is."""
    for lines in texts:
        for number, line in enumerate(lines, start=1):
            # A word takes two characters at least, so that most lines need not be split.
            if len(line) >= 2 * MAX_TER_WORDS and (words := len(line.split())) > MAX_TER_WORDS:
                return (
                    f"TER is skipped: line {number} has {words:,} words, and it is computed for"
                    f" lines of at most {MAX_TER_WORDS}"
                )
    return ""


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> Score:
    """Compute corpus BLEU (Papineni et al. 2002) by sacreBLEU (Post 2018)."""
    return bleu_and_length(hypotheses, references, config)[0]


def bleu_and_length(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> tuple[Score, float]:
    """Compute corpus BLEU, and the length ratio: tokens of the outputs per reference token."""
    check_lines(hypotheses, references)
    metric = bleu_metric(config := config or ScoreConfig())
    result = metric.corpus_score(hypotheses, references)
    mark = signature(metric.get_signature(), config)
    return Score(result.name, result.score, mark, components(result)), result.ratio


def components(result: BLEUScore) -> str:
    """Describe precisions, brevity penalty and length ratio of a BLEU."""
    precisions = "/".join(f"{precision:.1f}" for precision in result.precisions)
    return f"precisions {precisions}, brevity penalty {result.bp:.3f}, length {result.ratio:.3f}"


def _score(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig,
) -> Score:
    result = metric.corpus_score(hypotheses, references)
    return Score(result.name, result.score, signature(metric.get_signature(), config))


def exact_match(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig | None = None,
) -> Score:
    """Compute the percentage of lines that equal one of their references.

    Leading and trailing whitespace is ignored.
    """
    config = config or ScoreConfig()
    check_lines(hypotheses, references)

    def form(line: str) -> str:
        return line.strip().lower() if config.lowercase else line.strip()

    equal = sum(
        form(hypothesis) in map(form, targets)
        for hypothesis, *targets in zip(hypotheses, *references, strict=True)
    )
    fields = {
        "nrefs": len(references),
        "test": config.test_set,
        "lang": config.language_pair,
        "case": "lc" if config.lowercase else "mixed",
    }
    return Score(
        "exact match",
        100.0 * equal / len(hypotheses),
        "|".join(f"{key}:{value}" for key, value in fields.items() if value is not None),
        f"{equal} of {len(hypotheses)} lines",
    )


def bleu_metric(config: ScoreConfig, *, force: bool = False) -> BLEU:
    """Make sacreBLEU's BLEU with the chosen tokenizer."""
    name = config.tokenize
    target_language = (config.language_pair or "").rpartition("-")[2]
    if name is not None and name not in BLEU.TOKENIZERS:
        raise UsageError(f"tokenizer {name}: unknown; choose from {', '.join(BLEU.TOKENIZERS)}")
    try:
        return BLEU(
            lowercase=config.lowercase,
            tokenize=name,
            trg_lang=target_language,
            force=force or name == "none",  # else it warns that the text is tokenized
        )
    except (ImportError, RuntimeError):
        # Without a name, sacreBLEU chose the tokenizer by the test set's language.
        name = name or {"ja": "ja-mecab", "ko": "ko-mecab"}.get(target_language, "13a")
        extra = _TOKENIZER_EXTRAS.get(name)
        package = f'"sacrebleu[{extra}]"' if extra else "sentencepiece"
        raise UserError(
            f"tokenizer {name}: its package is not installed; run: pip install {package}"
        ) from None
    except (OSError, SystemExit) as error:
        raise UserError(
            f"tokenizer {name}: its model could not be downloaded ({_reason(error)});"
            " check the network, or choose a tokenizer that needs none, such as 13a"
        ) from None


def tokenizer_without_spaces(language: str) -> str | None:
    """Return sacreBLEU's tokenizer for a language without spaces between words, such as `zh-CN`.

    For other languages return None: 13a suits them.
    """
    return _WITHOUT_SPACES.get(language.lower().replace("_", "-").partition("-")[0])


def signature(metric: Signature, config: ScoreConfig) -> str:
    """Return the signature of a metric by sacreBLEU, with the named test set."""
    metric.update("test", config.test_set)
    metric.update("lang", config.language_pair)
    return str(metric)


def named_test_set(name: str, language_pair: str) -> tuple[Path, list[Path]]:
    """Find source and references of a test set that sacreBLEU downloads the first time."""
    if name not in DATASETS:
        near = get_close_matches(name, DATASETS, n=3) or ["wmt14", "wmt14/full", "wmt20"]
        raise UsageError(f"-t {name}: no such test set; did you mean {', '.join(near)}?")
    if language_pair not in DATASETS[name].langpairs:
        pairs = ", ".join(sorted(DATASETS[name].langpairs))
        raise UsageError(f"-l {language_pair}: {name} has {pairs}")
    try:
        references = get_reference_files(name, language_pair)
        return Path(get_source_file(name, language_pair)), list(map(Path, references))
    # sacreBLEU fails in a different way for each cause (network, moved file, corrupt archive, full
    # disk), and ends the process on a wrong checksum.
    except (Exception, SystemExit) as error:
        raise UserError(
            f"-t {name}: the test set could not be downloaded ({_reason(error)});"
            " check the network, or give your own files with -r and -s"
        ) from None


def check_lines(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Check that texts can be compared line by line."""
    if not references:
        raise UserError("no references to score against; give at least one list")
    counts = {f"references {i}": len(lines) for i, lines in enumerate(references, start=1)}
    check_counts({"hypotheses": len(hypotheses), **counts})


def check_counts(counts: Mapping[str, int]) -> None:
    """Check that parallel texts have the same number of lines, given by their names."""
    (first, expected), *others = counts.items()
    for name, count in others:
        if count != expected:
            raise UserError(
                f"{first} has {expected} lines, {name} has {count}: the texts must be parallel;"
                " look for lost or added lines"
            )
    if expected == 0:
        raise UserError(f"{first}: no lines, nothing to score")


def _reason(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    reason = str(getattr(error, "reason", error)) or type(error).__name__
    return reason.strip().splitlines()[0]
