"""Control symbols that may stand before a source: the target language, and a tag.

They are pieces of the vocabulary that no text encodes to: `>>de<<` asks a model of several target
languages for German, and a tag such as `<bt>` says where a pair comes from.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from seq2seq.data.tokenizer import CONTROL_PIECES
from seq2seq.errors import UsageError, UserError

_TAG = re.compile(r"<[A-Za-z][A-Za-z0-9_-]*>")
_LANGUAGE_CODE = re.compile(r"[A-Za-z0-9_-]+")
_LANGUAGE_PIECE = re.compile(r">>(.+)<<")
_LISTED = 20


def language_piece(code: str) -> str:
    """Return the piece that marks a source with its target language.

    Raises:
        UsageError: if the code is not made of letters, digits, _ and -.
    """
    if not _LANGUAGE_CODE.fullmatch(code):
        raise UsageError(f"{code!r} is not a language code: use letters, digits, _ and -")
    return f">>{code}<<"


def check_tag(tag: str) -> None:
    """Check the form of a tag.

    Raises:
        UsageError: if it is not a word in angle brackets, or is another control symbol.
    """
    if not _TAG.fullmatch(tag) or tag in CONTROL_PIECES.values():
        others = ", ".join(CONTROL_PIECES.values())
        raise UsageError(f"{tag!r} is not a tag: use a word such as <bt>, other than {others}")


def target_languages(controls: Iterable[str]) -> list[str]:
    """Return the codes of the target languages among control symbols."""
    return [found[1] for piece in controls if (found := _LANGUAGE_PIECE.fullmatch(piece))]


def control_ids(controls: Mapping[str, int], to: str | None, tag: str | None) -> list[int]:
    """Return the ids that stand before a source.

    Args:
        controls: the control symbols of a tokenizer.
        to: code of the target language; of a model of one, that by default.
        tag: a piece in `controls`.

    Raises:
        UserError: if there is no such language or tag, or `to` is missing.
    """
    languages = target_languages(controls)
    tags = [piece for piece in controls if not _LANGUAGE_PIECE.fullmatch(piece)]
    if to is None and len(languages) == 1:
        to = languages[0]  # which stands before each source that the model has seen
    if to is None and languages:
        raise UserError(
            f"the model translates into several languages ({_list(languages)}): choose one with"
            " --to or target_language"
        )
    if to is not None and to not in languages:
        raise UserError(f"no target language {to!r}: the model knows {_list(languages)}")
    if tag is not None and tag not in tags:
        raise UserError(f"no tag {tag!r}: the model knows {_list(tags)}")
    pieces = ([] if to is None else [f">>{to}<<"]) + ([] if tag is None else [tag])
    return [controls[piece] for piece in pieces]


def _list(names: Sequence[str]) -> str:
    shown = [*names[:_LISTED], *(["..."] if len(names) > _LISTED else [])]
    return ", ".join(shown) or "none, so leave it out"
