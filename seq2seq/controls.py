"""The control symbols before a source: its target language, `>>de<<`, and a tag, `<bt>`."""

import re
from collections.abc import Iterable, Mapping, Sequence

from seq2seq.errors import UsageError, UserError

_CODE = re.compile(r"[A-Za-z0-9_-]+")
LANGUAGE_PIECE = re.compile(">>([^<>]+)<<")
UNNAMED = ("", "source", "target")
"""The codes of a model's languages that it doesn't name."""


def language_piece(code: str) -> str:
    """Return the piece that marks a source with its target language."""
    if not _CODE.fullmatch(code):
        raise UsageError(f"{code!r} is not a language code: use letters, digits, _ and -")
    return f">>{code}<<"


def target_languages(controls: Iterable[str]) -> list[str]:
    """Return the codes of the target languages among control symbols."""
    return [match[1] for piece in controls if (match := LANGUAGE_PIECE.fullmatch(piece))]


def control_ids(
    controls: Mapping[str, int], to: str | None, tag: str | None, only_language: str | None = None
) -> list[int]:
    """Return the ids before a source; a model that knows only one language needs no `to`.

    A model without symbols of languages translates into its `only_language`, which `to` may name
    where the model doesn't.
    """
    languages = target_languages(controls)
    if not languages and only_language in (to, *UNNAMED):
        to = None
    tags = [piece for piece in controls if not LANGUAGE_PIECE.fullmatch(piece)]
    if to is None and len(languages) == 1:
        to = languages[0]  # which stands before each source that the model has seen
    if to is None and languages:
        raise UserError(
            f"the model translates into several languages ({_list(languages)}): choose one with"
            " --to or target_language"
        )
    if to is not None and to not in languages:
        only = not languages and only_language
        languages_text = f"translates into {only} only" if only else f"knows {_list(languages)}"
        raise UserError(f"no target language {to!r}: the model {languages_text}")
    if tag is not None and tag not in tags:
        raise UserError(f"no tag {tag!r}: the model knows {_list(tags)}")
    pieces = ([] if to is None else [f">>{to}<<"]) + ([] if tag is None else [tag])
    return [controls[piece] for piece in pieces]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none, so remove it"
