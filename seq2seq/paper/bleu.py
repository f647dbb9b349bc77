r"""The BLEU of the paper's tables, as tensor2tensor's script `get_ende_bleu.sh` computes it.

The script is a pipe of Perl programs. Each is a function here:

    replace-unicode-punctuation.perl             `replace_punctuation`
    the manual change to the reference           `replace_punctuation`
    tokenizer.perl -l de                         `tokenize`
    perl -ple 's{(\S)-(\S)}{... ##AT## ...}g'    `split_compounds`
    multi-bleu.perl                              sacreBLEU, without tokenizer and smoothing

The script expects a tokenized reference whose quotation marks were changed to ASCII by hand,
including „, which Moses' table lacks. Here both sides are raw text and pass through the same
stages. There is no published script for English-French; only German compounds are split.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import sacremoses
from sacrebleu import BLEU
from sacremoses.corpus import NonbreakingPrefixes

from seq2seq.errors import UsageError
from seq2seq.score import Score, components, count_references, known_references

NAME = "paper BLEU"
WHY_IT_DIFFERS = (
    "paper BLEU is not sacreBLEU's BLEU: it counts Moses tokens, with German compounds split at"
    " hyphens, and gave 29.02 where sacreBLEU (13a) gave 27.52 for the same translations by a base"
    " model, so only paper BLEU can be compared with the paper's 27.3."
)

_COMPOUND_HYPHEN = re.compile(r"(\S)-(\S)")
_PUNCTUATION = sacremoses.MosesPunctNormalizer()
_LANGUAGES = frozenset(NonbreakingPrefixes().available_langs.values())


def paper_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "de",
    *,
    test_set: str | None = None,
) -> Score:
    """Compute the BLEU of raw lines to compare with the paper's tables (section 6); cased.

    The signature names the test set.
    """
    references = known_references(hypotheses, references)
    # Without force, sacreBLEU warns that the text is tokenized.
    result = BLEU(tokenize="none", smooth_method="none", force=True).corpus_score(
        [prepare(line, language) for line in hypotheses],
        [[line and prepare(line, language) for line in lines] for lines in references],
    )
    # Every choice that changes the score.
    named = f"test:{test_set}|" if test_set else ""
    signature = (
        f"nrefs:{count_references(references)}|{named}case:mixed|punct:ascii"
        f"|tok:moses-{sacremoses.__version__}|lang:{language}"
        f"|hyphens:{'split' if language == 'de' else 'kept'}|smooth:none"
    )
    return Score(NAME, result.score, signature, components(result))


def prepare(line: str, language: str = "de") -> str:
    """Turn a raw line into tokens separated by single spaces, by all stages before the counts."""
    line = tokenize(replace_punctuation(line), language)
    return split_compounds(line) if language == "de" else line


def replace_punctuation(line: str) -> str:
    """Replace non-ASCII punctuation by Moses' own table, and „ too."""
    return _PUNCTUATION.replace_unicode_punct(line).replace("„", '"')


def tokenize(line: str, language: str = "de") -> str:
    """Split a line into Moses tokens separated by single spaces, with XML escapes."""
    return _tokenizer(language).tokenize(line, return_str=True)


def split_compounds(tokens: str) -> str:
    """Split at hyphens: `rich-text format` becomes `rich ##AT##-##AT## text format`.

    As in the script, a letter between two hyphens belongs to the first match alone: `A-B-Waffen`
    becomes `A ##AT##-##AT## B-Waffen`.
    """
    return _COMPOUND_HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens)


@lru_cache
def _tokenizer(language: str) -> sacremoses.MosesTokenizer:
    # sacremoses silently uses English rules for a language that it doesn't know.
    if language not in _LANGUAGES:
        choices = ", ".join(sorted(_LANGUAGES))
        raise UsageError(f"--language {language}: Moses has no rules for it; choose from {choices}")
    return sacremoses.MosesTokenizer(language)
