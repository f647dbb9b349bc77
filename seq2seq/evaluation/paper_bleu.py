r"""The BLEU of the paper's tables, as tensor2tensor's script `get_ende_bleu.sh` computes it.

The script is a pipe of Perl programs. Each is a function here:

    replace-unicode-punctuation.perl             `replace_punctuation`
    the manual change to the reference           `replace_punctuation`
    tokenizer.perl -l de                         `tokenize`
    perl -ple 's{(\S)-(\S)}{... ##AT## ...}g'    `split_compounds`
    multi-bleu.perl                              `count_ngrams`, `NgramCounts.bleu`

The script expects a tokenized reference whose quotation marks were changed to ASCII by hand,
including „, which Moses' table lacks. Here both sides are raw text and pass through the same
stages. There is no published script for English-French; only German compounds are split.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_

import sacremoses
from sacremoses.corpus import NonbreakingPrefixes

from seq2seq.errors import UsageError
from seq2seq.evaluation.scores import Score, check_lines

NAME = "paper BLEU"
WHY_IT_DIFFERS = (
    "paper BLEU is not sacreBLEU's BLEU: it counts Moses tokens, with German compounds split at"
    " hyphens, and gave 29.02 where sacreBLEU (13a) gave 27.52 for the same translations by a base"
    " model, so only paper BLEU may stand beside the paper's 27.3."
)

MAX_ORDER = 4
_COMPOUND_HYPHEN = re.compile(r"(\S)-(\S)")
_PUNCTUATION = sacremoses.MosesPunctNormalizer()
_LANGUAGES = frozenset(NonbreakingPrefixes().available_langs.values())


@dataclass(frozen=True)
class NgramCounts:
    """The counts from which BLEU is computed, summed over a corpus."""

    matched: tuple[int, ...]
    """n-grams of the hypotheses that occur in a reference, for orders 1 to `MAX_ORDER`."""
    total: tuple[int, ...]
    """n-grams of the hypotheses, for the same orders."""
    hypothesis_tokens: int
    reference_tokens: int
    """Tokens of the references closest in length."""

    @property
    def precisions(self) -> tuple[float, ...]:
        """Matched n-grams by all n-grams, for each order; 0 for an order without n-grams."""
        return tuple(
            matched / total if total else 0.0
            for matched, total in zip(self.matched, self.total, strict=True)
        )

    @property
    def brevity_penalty(self) -> float:
        """exp(1 - r / c) for c hypothesis tokens and r reference tokens if c < r, else 1."""
        if self.hypothesis_tokens >= self.reference_tokens:
            return 1.0
        if self.hypothesis_tokens == 0:
            return 0.0
        return math.exp(1.0 - self.reference_tokens / self.hypothesis_tokens)

    @property
    def bleu(self) -> float:
        """BLEU from 0 to 100, without smoothing: 0 if an order has no match."""
        if not all(self.matched):
            return 0.0
        mean_log = sum(math.log(precision) for precision in self.precisions) / MAX_ORDER
        return 100.0 * self.brevity_penalty * math.exp(mean_log)


def paper_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "de",
    *,
    test_set: str | None = None,
) -> Score:
    """Compute the BLEU to compare with the paper's tables (section 6); cased.

    Args:
        hypotheses: raw lines.
        references: one or more lists of raw lines.
        language: the target language, such as `de`.
        test_set: the name of the test set, for the signature.

    Raises:
        UserError: if there are no lines or the counts differ.
        UsageError: if Moses has no rules for the language.
    """
    check_lines(hypotheses, references)
    counts = count_ngrams(
        [prepare(line, language).split() for line in hypotheses],
        [[prepare(line, language).split() for line in lines] for lines in references],
    )
    precisions = "/".join(f"{100 * precision:.1f}" for precision in counts.precisions)
    ratio = counts.hypothesis_tokens / max(counts.reference_tokens, 1)
    return Score(
        NAME,
        counts.bleu,
        signature(len(references), language, test_set),
        f"precisions {precisions}, brevity penalty {counts.brevity_penalty:.3f},"
        f" length {ratio:.3f}",
    )


def signature(num_references: int, language: str, test_set: str | None = None) -> str:
    """Name every choice that changes the score."""
    return "|".join(
        [
            "BLEU-paper",
            f"nrefs:{num_references}",
            *([f"test:{test_set}"] if test_set else []),
            "case:mixed",
            "punct:ascii",
            f"tok:moses-{sacremoses.__version__}",
            f"lang:{language}",
            f"hyphens:{'split' if language == 'de' else 'kept'}",
            "smooth:none",
        ]
    )


def prepare(line: str, language: str = "de") -> str:
    """Turn a raw line into tokens separated by single spaces, by all stages before the counts.

    Raises:
        UsageError: if Moses has no rules for the language.
    """
    line = tokenize(replace_punctuation(line), language)
    return split_compounds(line) if language == "de" else line


def replace_punctuation(line: str) -> str:
    """Replace non-ASCII punctuation by Moses' own table, and „ too."""
    replaced: str = _PUNCTUATION.replace_unicode_punct(line)
    return replaced.replace("„", '"')


def tokenize(line: str, language: str = "de") -> str:
    """Split a line into Moses tokens separated by single spaces, with XML escapes.

    Raises:
        UsageError: if Moses has no rules for the language.
    """
    tokens: str = _tokenizer(language).tokenize(line, return_str=True)
    return tokens


def split_compounds(tokens: str) -> str:
    """Split at hyphens: `rich-text format` becomes `rich ##AT##-##AT## text format`.

    As in the script, a letter between two hyphens belongs to the first match alone: `A-B-Waffen`
    becomes `A ##AT##-##AT## B-Waffen`.
    """
    return _COMPOUND_HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens)


def count_ngrams(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> NgramCounts:
    """Count n-grams; matches are clipped to the largest count in any one reference.

    Args:
        hypotheses: the tokens of each line.
        references: one or more such lists.
    """
    matched, total = [0] * MAX_ORDER, [0] * MAX_ORDER
    hypothesis_tokens = reference_tokens = 0
    for hypothesis, *targets in zip(hypotheses, *references, strict=True):
        hypothesis_tokens += len(hypothesis)
        reference_tokens += closest_length(len(hypothesis), [len(target) for target in targets])
        for i in range(MAX_ORDER):
            found = ngrams(hypothesis, i + 1)
            allowed = reduce(or_, (ngrams(target, i + 1) for target in targets))
            matched[i] += (found & allowed).total()
            total[i] += found.total()
    return NgramCounts(tuple(matched), tuple(total), hypothesis_tokens, reference_tokens)


def ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    """Count each n-gram of this order."""
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def closest_length(length: int, candidates: Sequence[int]) -> int:
    """Choose the candidate nearest to a length; the smaller of two equally near ones."""
    return min(candidates, key=lambda candidate: (abs(candidate - length), candidate))


@lru_cache
def _tokenizer(language: str) -> sacremoses.MosesTokenizer:
    # sacremoses silently uses English rules for a language that it doesn't know.
    if language not in _LANGUAGES:
        known = ", ".join(sorted(_LANGUAGES))
        raise UsageError(f"--language {language}: Moses has no rules for it; choose from {known}")
    return sacremoses.MosesTokenizer(language)
