"""Languages: their names, and which one a text is written in."""

from collections.abc import Iterable, Sequence
from typing import Any

from seq2seq.serving.limits import invalid

_MAX_PAIRS = 10
_NAMES = """
af Afrikaans  am Amharic  ar Arabic  az Azerbaijani  be Belarusian  bg Bulgarian  bn Bengali
bs Bosnian  ca Catalan  cs Czech  cy Welsh  da Danish  de German  el Greek  en English
eo Esperanto  es Spanish  et Estonian  eu Basque  fa Persian  fi Finnish  fr French  ga Irish
gl Galician  gu Gujarati  he Hebrew  hi Hindi  hr Croatian  hu Hungarian  hy Armenian
id Indonesian  is Icelandic  it Italian  ja Japanese  ka Georgian  kk Kazakh  km Khmer  kn Kannada
ko Korean  ky Kyrgyz  la Latin  lb Luxembourgish  lo Lao  lt Lithuanian  lv Latvian  mg Malagasy
mk Macedonian  ml Malayalam  mn Mongolian  mr Marathi  ms Malay  mt Maltese  my Burmese
nb Norwegian  ne Nepali  nl Dutch  nn Norwegian  no Norwegian  pa Punjabi  pl Polish  ps Pashto
pt Portuguese  ro Romanian  ru Russian  rw Kinyarwanda  si Sinhala  sk Slovak  sl Slovenian
so Somali  sq Albanian  sr Serbian  sv Swedish  sw Swahili  ta Tamil  te Telugu  tg Tajik  th Thai
tk Turkmen  tl Tagalog  tr Turkish  uk Ukrainian  ur Urdu  uz Uzbek  vi Vietnamese  xh Xhosa
yi Yiddish  yo Yoruba  zh Chinese  zu Zulu
"""
_NAME_OF = dict(line.split() for line in _NAMES.replace("  ", "\n").split("\n") if line)


def language_name(code: str) -> str:
    """Return the English name of an ISO 639-1 code; the code itself if it is another."""
    return _NAME_OF.get(code, code)


def list_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Write pairs of source and target language as a user reads them, the first ten of many."""
    names = [f"{source} -> {target}" for source, target in pairs]
    more = f" and {len(names) - _MAX_PAIRS} more" if len(names) > _MAX_PAIRS else ""
    return ", ".join(names[:_MAX_PAIRS]) + more


class Detector:
    """Says which of some languages a text is written in.

    Args:
        codes: the languages to choose from, at least one.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self._codes = sorted(set(codes))
        self._identifier: Any = None

    def detect(self, text: str) -> tuple[str, float]:
        """Return a language and the confidence in it, 0 to 100.

        With a single language to choose from, that one is returned with confidence 0: the text is
        not looked at.

        Raises:
            RequestError: if there is a choice, and py3langid is not installed or does not know one
                of the languages.
        """
        if len(self._codes) == 1:
            return self._codes[0], 0.0
        if self._identifier is None:
            self._identifier = _identifier(self._codes)
        language, confidence = self._identifier.classify(text)
        return str(language), round(100 * float(confidence), 1)


def _identifier(codes: list[str]) -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise invalid("detecting languages needs py3langid, which is not installed") from None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    try:
        identifier.set_languages(codes)
    except ValueError:
        raise invalid("one of the languages served can't be detected: give the source") from None
    return identifier
