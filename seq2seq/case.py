"""The case of letters: text in capitals and in small letters, by the rules of its language."""

import re

KEPT = re.compile(
    r"""
    (?i: https?:// | www\. ) \S* | (?<!\S) [^\s@]+ @ [^\s@]+ \.\w+  # addresses
  | \{[^{}\s]*\} | </?[A-Za-z][^<>]*> | &\w+;
  | (?<![\d%]) % (?: \d+\$ | \(\w+\) )? [-+\#0]*+ [\d.]*+ [A-Za-z@] (?![^\W_])
    """,
    re.VERBOSE,
)
"""Text that means something else in another case: addresses, `{name}`, `%s`, tags and entities."""

_DOTTED = ("tr", "az")
"""Languages whose `i` has the capital `İ`, and whose `I` has the small letter `ı`."""


def upper_case(text: str, language: str = "") -> str:
    """Write a text in capitals, but for what `KEPT` finds; a script without case stays."""
    parts, end = [], 0
    for match in KEPT.finditer(text):
        parts += [upper_letters(text[end : match.start()], language), match[0]]
        end = match.end()
    return "".join([*parts, upper_letters(text[end:], language)])


def upper_letters(text: str, language: str) -> str:
    """Write each letter as a capital; one letter may become several, such as `ß`."""
    return (text.replace("i", "İ") if _is_dotted(language) else text).upper()


def lower_letters(text: str, language: str) -> str:
    """Write each letter small; one letter may become several."""
    dotted = _is_dotted(language)
    return (text.replace("İ", "i").replace("I", "ı") if dotted else text).lower()


def _is_dotted(language: str) -> bool:
    return re.split("[-_]", language)[0].lower() in _DOTTED
