"""Typographic punctuation as Moses normalizes it, for models that were trained on such text."""

from collections.abc import Callable
from enum import Enum

TYPOGRAPHIC = "“”„‘’‚«»–—…"
"""Characters that Moses replaces by those of a keyboard."""


class Punctuation(Enum):
    """What happens to typographic punctuation before a text is divided into pieces."""

    none = "none"
    """It stays as it is."""
    moses = "moses"
    """It is replaced as by Moses' normalize-punctuation.perl."""


def normalizer(punctuation: Punctuation, language: str) -> Callable[[str], str]:
    """Return the function that normalizes a text of a language, named by its two-letter code."""
    if punctuation is Punctuation.none:
        return str
    from sacremoses import MosesPunctNormalizer

    normalize: Callable[[str], str] = MosesPunctNormalizer(language).normalize
    return normalize
