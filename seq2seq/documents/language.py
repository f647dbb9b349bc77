"""Whether a value is language, which is translated, or code, which a program reads: `12px`."""

import re
from collections.abc import Iterable

from seq2seq.documents.document import Slot, Text
from seq2seq.documents.placeholders import find_placeholders

# `en-US`, `YYYY-MM-DD`, time zones and paths, though they are letters
_CODE = (
    r"[a-z]{2,3}(?:-[A-Z][a-z]{3}|-[A-Z]{2})+(?![\w-])|(?:([DdEHhLMmQSswYy])\1++-?)++(?![\w-])"
    r"|(?:Africa|America|Asia|Atlantic|Australia|Europe|Indian|Pacific)/|[a-z][\w-]*/"
)
# Letters in one case or with a capital (`iPhone`, too): alone, joined as in `E-mail`, `file(s)` and
# `Yes/No`, or as the end of `2FA-Method`; with punctuation
_PART = r"(?:[A-Z]?[a-z]+|[A-Z]+s?|[a-z][A-Z][a-z]+)"
_WORD = re.compile(
    rf"(?:-(?=[A-Za-z]{{3}}))?[\"'“”„«‹‘(\[¿¡*•–—&]*+(?!{_CODE})"
    rf"(?:{_PART}(?:(?:['’&-]|-?/(?:-|(?=[A-Z]))){_PART}|\([A-Za-z]{{1,3}}\))*|(?:\w+-)+[A-Z][a-z]{{2,}})"
    r"[\"'“”»›’)\].,:;!?…*%–—-]*"
)


def is_language(text: Text) -> bool:
    """Tell whether a text has words, and no more code: `12px`, `a/b`, `x.y` or `userName`.

    What has letters beyond ASCII is a word, and a single letter is neither.
    """
    strings = (
        part if isinstance(part, str) else "0" if part.kind == "word" else " "
        for part in find_placeholders(text)
    )
    words = code = 0
    for token in "".join(strings).split():
        letters = "".join(filter(str.isalpha, token))
        if not letters.isascii() or (len(letters) > 1 and _WORD.fullmatch(token)):
            words += 1
        elif len(letters) > 1:
            code += 1
    return words >= max(code, 1)


def only_language(slots: Iterable[Slot]) -> list[Slot]:
    """Leave out what a program reads."""
    return [slot for slot in slots if is_language(slot.text)]
