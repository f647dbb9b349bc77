"""What translations have to begin with: the texts, and the token ids they force."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from seq2seq.data.tokenizer import Tokenizer
from seq2seq.errors import UserError


def pair_prefixes(lines: Iterable[str], prefixes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line with its prefix, as they come.

    Raises:
        UserError: one side ends before the other.
    """
    for number, (line, prefix) in enumerate(zip_longest(lines, prefixes)):
        if line is None or prefix is None:
            more, fewer = ("prefixes", "lines") if line is None else ("lines", "prefixes")
            raise UserError(f"there are {number} {fewer} and more {more}: give one prefix a line")
        yield line, prefix


def encode_prefixes(
    tokenizer: Tokenizer, prefixes: Sequence[str], max_lengths: Sequence[int], first_line: int
) -> list[list[int]]:
    """Token ids of each line's prefix.

    Args:
        tokenizer: the model's.
        prefixes: one a line, "" for none.
        max_lengths: the most tokens that each line's translation may have.
        first_line: the number of the first one, for messages.

    Raises:
        UserError: another number of prefixes than of lines, or one that is too long.
    """
    if len(prefixes) != len(max_lengths):
        raise UserError(f"{len(prefixes)} prefixes for {len(max_lengths)} lines: give one a line")
    encoded = tokenizer.encode(list(prefixes))
    for number, (ids, longest) in enumerate(zip(encoded, max_lengths, strict=True), first_line):
        if len(ids) > longest:
            raise UserError(
                f"line {number}: the prefix has {len(ids)} tokens, more than the {longest} that"
                " the translation may have; shorten it"
            )
    return encoded


def restore_prefix(text: str, prefix: str, read: str) -> str:
    """The text with its prefix as it was typed, in place of how the tokenizer has read it."""
    if not text.startswith(read):
        return text
    return prefix.strip().replace("\n", " ") + text.removeprefix(read)
