"""Lines that are longer than a model can be given: cut where their sentences end."""

import re
from dataclasses import dataclass

from seq2seq.data.tokenizer import Tokenizer

# A full stop and the like, quotes and brackets that close after it, then a space; in scripts that
# put no space there, their own full stop is enough. The possessive quantifiers (`++`) keep the time
# in proportion to the length, whatever the line.
_SENTENCE = re.compile(
    r"""
    (?!\Z)
    (?: [^.!?…。！？]++ | [.!?…]++ (?! ["'”’»)\]]* (?: \s | \Z )) )*+
    (?: [.!?…]++ ["'”’»)\]]*+ | [。！？]++ [」』）]*+ | \Z )
    \s*
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Part:
    """Some sentences of a line."""

    text: str
    separator: str
    """What stands between this part and the next: a space or nothing."""
    token_ids: list[int]
    """Of the text, without `</s>`."""


def split(line: str, tokenizer: Tokenizer, longest: int) -> list[Part]:
    """Split a line at the ends of its sentences into the fewest parts of at most `longest` tokens.

    A sentence that is longer by itself stays whole.
    """
    sentences = _SENTENCE.findall(line)
    parts: list[list[str]] = []
    room = 0
    for sentence, ids in zip(sentences, tokenizer.encode(sentences), strict=True):
        if len(ids) > room:
            parts.append([])
            room = longest
        parts[-1].append(sentence)
        room -= len(ids)
    texts = ["".join(part) for part in parts]
    return [
        Part(text.rstrip(), " " if text[-1].isspace() else "", ids)
        for text, ids in zip(texts, tokenizer.encode(texts), strict=True)
    ]
