r"""The figures of Table 2: BLEU, and the floating-point operations of training.

The BLEU is that of tensor2tensor's script `get_ende_bleu.sh`.

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

from seq2seq.config import Activation, TransformerConfig
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
) -> Score:
    """Compute the BLEU of raw lines to compare with the paper's tables (section 6); cased."""
    references = known_references(hypotheses, references)

    def prepared(lines: Sequence[str]) -> list[str]:
        return [line and prepare(line, language) for line in lines]

    # Without force, sacreBLEU warns that the text is tokenized.
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    result = metric.corpus_score(prepared(hypotheses), list(map(prepared, references)))
    # Every choice that changes the score.
    signature = (
        f"nrefs:{count_references(references)}|case:mixed|punct:ascii"
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


def step_flops(
    config: TransformerConfig,
    vocab_size: int,
    *,
    source_tokens: float,
    target_tokens: float,
    source_length: float,
    target_length: float,
) -> float:
    """Count the floating-point operations of one update: three times the forward matmuls.

    The backward pass has two matmuls for each of the forward pass. A matmul of (m, k) and (k, n)
    has 2mkn operations. Masked positions of attention are counted too.

    Tokens are counted per update, and lengths are means per sentence.
    """
    d_model, heads = config.d_model, config.num_heads
    # The multiplications of QK^T and of the weighted sum of V, per pair of positions. W^Q and W^O
    # have d_model times as many entries; so have W^K and W^V, unless several heads share them.
    width = heads * (config.key_width + config.value_width)
    kv_width = config.kv_heads * (config.key_width + config.value_width)
    matrices = 3 if config.activation is Activation.swiglu else 2
    feed_forward = matrices * d_model * config.inner_width
    # Multiplications per token.
    self_attention, cross = d_model * (width + kv_width), d_model * width
    encoder_layer = self_attention + feed_forward + width * source_length
    decoder_layer = self_attention + cross + feed_forward + width * (target_length + source_length)
    memory = d_model * kv_width  # keys and values of the memory, in each decoder layer
    source = config.num_layers * encoder_layer + config.decoder_depth * memory
    target = config.decoder_depth * decoder_layer + d_model * vocab_size
    return 3 * 2 * (source_tokens * source + target_tokens * target)
