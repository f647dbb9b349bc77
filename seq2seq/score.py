"""BLEU, chrF, chrF++ and TER by sacreBLEU, and the share of exact matches, each with its signature.

Hypotheses are a list of lines. References are one or more such lists, each parallel to the
hypotheses line by line. Both are detokenized text and are scored unchanged.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sacrebleu import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEUScore

from seq2seq.errors import UsageError, UserError

MAX_TER_WORDS = 250
"""Maximum words of a line for TER, which takes some seconds then. Its time grows with the square of
the words: a line of 3,000 would take minutes."""

SCRIPTS = {
    "zh": "\u3400-\u9fff\uf900-\ufaff",
    "ja-mecab": "\u3040-\u30ff",
    "ko-mecab": "\uac00-\ud7a3",
    "char": "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff",  # Thai, Lao, Tibetan, Burmese, Khmer
}
"""Characters of scripts, as ranges of a regular expression, by the tokenizer that suits them."""


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


@dataclass(kw_only=True, frozen=True)
class ScoreConfig:
    """The options of sacreBLEU's metrics."""

    tokenize: str | None = None
    """BLEU's tokenizer; by default 13a."""
    lowercase: bool = False
    """Ignore case in BLEU, chrF, chrF++ and exact match; TER always ignores it."""


References: TypeAlias = Sequence[Sequence[str]]
_DEFAULT = ScoreConfig()


def score_all(
    hypotheses: Sequence[str], references: References, config: ScoreConfig = _DEFAULT
) -> list[Score]:
    """Compute all metrics of `all_metrics`, and the share of exact matches."""
    metrics = all_metrics(config, [hypotheses, *references])
    scores = [score(metric, hypotheses, references) for metric in metrics]
    return [*scores, exact_match(hypotheses, references, config)]


def all_metrics(config: ScoreConfig, texts: Sequence[Sequence[str]]) -> list[Metric]:
    """Make BLEU, chrF2, chrF2++ (Popović 2015, 2017) and TER (Snover et al. 2006).

    TER is skipped if a line of the texts is too long for it.
    """
    chrf = CHRF(lowercase=config.lowercase)
    chrf_plus = CHRF(word_order=2, lowercase=config.lowercase)
    # TER always ignores case, as in sacreBLEU's command.
    ter = [] if too_long_for_ter(texts) else [TER()]
    return [bleu_metric(config), chrf, chrf_plus, *ter]


def too_long_for_ter(texts: Sequence[Sequence[str]]) -> str:
    """Say why TER is not computed, with the first line that is too long; empty if it is."""
    for lines in texts:
        for number, line in enumerate(lines, start=1):
            if (words := len(line.split())) > MAX_TER_WORDS:
                return (
                    f"TER is skipped: line {number} has {words:,} words, and it is computed for"
                    f" lines of at most {MAX_TER_WORDS}"
                )
    return ""


def bleu(
    hypotheses: Sequence[str], references: References, config: ScoreConfig = _DEFAULT
) -> Score:
    """Compute corpus BLEU (Papineni et al. 2002) by sacreBLEU (Post 2018)."""
    return score(bleu_metric(config), hypotheses, references)


def score(metric: Metric, hypotheses: Sequence[str], references: References) -> Score:
    """Compute a metric of sacreBLEU."""
    result = metric.corpus_score(hypotheses, known_references(hypotheses, references))
    detail = "lower is better" if isinstance(metric, TER) else ""
    if isinstance(result, BLEUScore):
        detail = components(result)
    return Score(result.name, result.score, str(metric.get_signature()), detail)


def components(result: BLEUScore) -> str:
    """Describe precisions, brevity penalty and length ratio of a BLEU."""
    precisions = "/".join(f"{precision:.1f}" for precision in result.precisions)
    return f"precisions {precisions}, brevity penalty {result.bp:.3f}, length {result.ratio:.3f}"


def exact_match(
    hypotheses: Sequence[str], references: References, config: ScoreConfig = _DEFAULT
) -> Score:
    """Compute the percentage of lines that equal one of their references.

    Leading and trailing whitespace is ignored.
    """
    references = known_references(hypotheses, references)

    def form(line: str) -> str:
        return line.strip().lower() if config.lowercase else line.strip()

    equal = 0
    for hypothesis, *targets in zip(hypotheses, *references, strict=True):
        if form(hypothesis) in [form(target) for target in targets if target is not None]:
            equal += 1
    case = "lc" if config.lowercase else "mixed"
    signature = f"nrefs:{count_references(references)}|case:{case}"
    percentage = 100.0 * equal / len(hypotheses)
    return Score("exact match", percentage, signature, f"{equal} of {len(hypotheses)} lines")


def bleu_metric(config: ScoreConfig) -> BLEU:
    """Make sacreBLEU's BLEU with the chosen tokenizer."""
    name = config.tokenize
    if name is not None and name not in BLEU.TOKENIZERS:
        raise UsageError(f"tokenizer {name}: unknown; choose from {', '.join(BLEU.TOKENIZERS)}")
    try:
        # Without force, it warns of tokenized text and advises what no command has.
        return BLEU(lowercase=config.lowercase, tokenize=name, force=True)
    except (ImportError, RuntimeError, OSError, SystemExit) as error:
        # The package is not installed, or the model can't be downloaded.
        reason = " ".join(str(error).split())
        raise UserError(f"tokenizer {name}: {reason}") from None


def suited_tokenizer(references: Sequence[str]) -> str | None:
    """Return sacreBLEU's tokenizer for Korean or a script without spaces; None if 13a suits."""
    text = "".join(references[:1000])
    counts = {name: len(re.findall(f"[{script}]", text)) for name, script in SCRIPTS.items()}
    # A word of another script has more letters.
    if 4 * sum(counts.values()) <= sum(map(str.isalpha, text)):
        return None
    # Japanese is written with Chinese characters too.
    is_japanese = 10 * counts["ja-mecab"] > counts["zh"]
    suited = "ja-mecab" if is_japanese else max(counts, key=counts.__getitem__)
    try:
        bleu_metric(ScoreConfig(tokenize=suited))
    except UserError:  # its package is not installed
        return "char"
    return suited


def unsuited_tokenizer(bleu_signature: str, references: References) -> str:
    """Say which tokenizer suits the references; "" if the one in BLEU's signature does."""
    used = bleu_signature.partition("|tok:")[2].partition("|")[0]
    if used not in ("13a", "intl") or not (suited := suited_tokenizer(references[0])):
        return ""
    return (
        f"BLEU's tokenizer {used} does not suit the script of the references: add --tokenize"
        f" {suited} or flores200"
    )


def tokenized_lines(lines: Sequence[str]) -> int:
    """Count the lines that end in a full stop by itself; 0 unless most full stops are so."""
    alone = sum(line.rstrip().endswith(" .") for line in lines)
    return alone if 2 * alone > sum(line.rstrip().endswith(".") for line in lines) else 0


def known_references(hypotheses: Sequence[str], references: References) -> list[list[Any]]:
    """Check that texts can be compared line by line, and return the references for sacreBLEU.

    A reference that is blank where another has text is None: it does not count.
    """
    if not references:
        raise UserError("no references to score against; give at least one list")
    counts = {f"references {i}": len(lines) for i, lines in enumerate(references, start=1)}
    check_counts({"hypotheses": len(hypotheses), **counts})
    columns: list[list[Any]] = list(map(list, references))
    for i, row in enumerate(zip(*references, strict=True)):
        if any(map(str.strip, row)):
            for lines in columns:
                if not lines[i].strip():
                    lines[i] = None
    return columns


def count_references(references: Sequence[Sequence[Any]]) -> str:
    """Return the number of references of each line, or `var` if it varies."""
    counts = {len(row) - row.count(None) for row in zip(*references, strict=True)}
    return "var" if len(counts) > 1 else str(counts.pop())


def check_counts(counts: Mapping[str, int]) -> None:
    """Check that parallel texts have the same number of lines, given by their names."""
    (first, expected), *rest = counts.items()
    for name, count in rest:
        if count != expected:
            raise UserError(
                f"{first} has {expected} lines, {name} has {count}: the texts must be parallel;"
                " look for lost or added lines"
            )
    if expected == 0:
        raise UserError(f"{first}: no lines, nothing to score")
