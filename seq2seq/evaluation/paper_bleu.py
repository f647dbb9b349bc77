r"""The BLEU of the paper's tables, as the authors' script `get_ende_bleu.sh` computes it.

The script is a pipe of Perl programs; each of them is a function here:

    replace-unicode-punctuation.perl             `replace_punctuation`
    the hand-made change to the reference        `replace_punctuation`
    tokenizer.perl -l de                         `tokenize`
    perl -ple 's{(\S)-(\S)}{... ##AT## ...}g'    `split_compounds`
    multi-bleu.perl                              `count_ngrams`, `NgramCounts.bleu`

The script expects a reference that is tokenised already, and whose quotation marks were made
ASCII by hand, „ among them, which Moses' table leaves alone. Here both sides are raw text and
take the same way. The authors published no script for English-French; for languages other than
German nothing is split.
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
    """What BLEU is computed from, summed over a corpus."""

    matched: tuple[int, ...]
    """n-grams of the hypotheses that are in a reference, by order from 1 to `MAX_ORDER`."""
    total: tuple[int, ...]
    """n-grams of the hypotheses."""
    hypothesis_tokens: int
    reference_tokens: int
    """Of the references closest in length."""

    @property
    def precisions(self) -> tuple[float, ...]:
        """By order; 0 where there are no n-grams."""
        return tuple(
            matched / total if total else 0.0
            for matched, total in zip(self.matched, self.total, strict=True)
        )

    @property
    def brevity_penalty(self) -> float:
        """exp(1 - r/c) where the hypotheses are shorter than the references, else 1."""
        if self.hypothesis_tokens >= self.reference_tokens:
            return 1.0
        if self.hypothesis_tokens == 0:
            return 0.0
        return math.exp(1.0 - self.reference_tokens / self.hypothesis_tokens)

    @property
    def bleu(self) -> float:
        """From 0 to 100; 0 as soon as one order has no match, for nothing is smoothed."""
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
    """The score to set beside the paper's tables; cased.

    Args:
        hypotheses: raw lines, not tokenised.
        references: one or several lists of such lines.
        language: of both, as in `de`.
        test_set: its name, for the signature.

    Raises:
        UserError: no lines, unequal counts or an unknown language.
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
    """Everything that moves the score."""
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
    """All stages before the counting: raw text to tokens between single spaces.

    Raises:
        UsageError: Moses has no rules for the language.
    """
    line = tokenize(replace_punctuation(line), language)
    return split_compounds(line) if language == "de" else line


def replace_punctuation(line: str) -> str:
    """Quotation marks and other punctuation beyond ASCII, by Moses' own table; „ as well."""
    replaced: str = _PUNCTUATION.replace_unicode_punct(line)
    return replaced.replace("„", '"')


def tokenize(line: str, language: str = "de") -> str:
    """Moses' tokens between single spaces; XML's special characters are escaped, hyphens kept.

    Raises:
        UsageError: Moses has no rules for the language.
    """
    tokens: str = _tokenizer(language).tokenize(line, return_str=True)
    return tokens


def split_compounds(tokens: str) -> str:
    """`rich-text format` becomes `rich ##AT##-##AT## text format`.

    As in the authors' expression a letter between two hyphens serves but one of them:
    `A-B-Waffen` becomes `A ##AT##-##AT## B-Waffen`.
    """
    return _COMPOUND_HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens)


def count_ngrams(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> NgramCounts:
    """Count matches, clipped: an n-gram at most as often as the reference richest in it has it.

    Args:
        hypotheses: tokens, line by line.
        references: one or several such lists.
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
    """How often each run of `order` tokens occurs."""
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def closest_length(length: int, candidates: Sequence[int]) -> int:
    """The candidate nearest to a length; of two equally near ones the smaller."""
    return min(candidates, key=lambda candidate: (abs(candidate - length), candidate))


@lru_cache
def _tokenizer(language: str) -> sacremoses.MosesTokenizer:
    # Moses falls back to English without a word.
    if language not in _LANGUAGES:
        known = ", ".join(sorted(_LANGUAGES))
        raise UsageError(f"--language {language}: Moses has no rules for it; it knows {known}")
    return sacremoses.MosesTokenizer(language)
