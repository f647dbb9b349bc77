"""Apple's catalogues of strings: each gets the target language, and nothing else changes."""

import json
import re
from typing import Any

from seq2seq.documents.document import Languages
from tests.documents.hostile import read, strings


def unit(value: str, state: str = "new") -> dict[str, Any]:
    return {"stringUnit": {"state": state, "value": value}}


def forms(whole: str, one: str, other: str, state: str) -> dict[str, Any]:
    plural = {"one": unit(one, state), "other": unit(other, state)}
    counted = {"n": {"argNum": 1, "variations": {"plural": plural}}}
    return {**unit(whole, state), "substitutions": counted}


DOGS = forms("Has %#@n@ in %@", "%arg dog", '"big" %lld%%', "new")
STRINGS: dict[str, Any] = {
    "A %@ dog": {},
    "dogs": {"comment": "No", "localizations": {"en": DOGS, "fr": DOGS}},
    "Sea": {"extractionState": "manual", "localizations": {"de": unit(""), "fr": unit("Mer")}},
    "Yes": {"localizations": {"de-AT": unit("Ja", "translated")}},
    "mdi:home": {},
    "Acme": {"shouldTranslate": False},
}


def dump(entries: dict[str, Any]) -> str:
    catalogue = {"sourceLanguage": "en", "strings": entries, "version": "1.0"}
    return json.dumps(catalogue, indent=2, separators=(",", " : "), ensure_ascii=False) + "\n"


def test_an_entry_keeps_what_it_has_beside_its_texts() -> None:
    strange = ["\\u0000 as C", "\0", "\ud800", "\\ud800", "\u2028 😀"]
    entries = {
        "A dog": {"comment": " ".join(strange)},
        "A \0 cat": {},
        "A \ud800 bird": {"comment": "stays"},
        "A %d fox": {"localizations": {"en": forms("A fox", "\udfff", "A \ud800 fox", "new")}},
    }
    content = re.sub(r"[\ud800-\udfff]", lambda x: f"\\u{ord(x[0]):x}", dump(entries))
    document = read("xcstrings", content)
    assert strings(document) == ["A dog", "A \0 cat", "A fox"]
    assert document.join(document.texts).encode()
    expected = json.loads(json.dumps(entries))
    for key, value in (("A dog", "X"), ("A \0 cat", "Y")):
        expected[key]["localizations"] = {"de": unit(value, "needs_review")}
    fox = forms("Z", "\udfff", "A \ud800 fox", "needs_review")
    expected["A %d fox"]["localizations"]["de"] = fox
    assert json.loads(document.join([("X",), ("Y",), ("Z",)]))["strings"] == expected


def test_strings_without_the_target_get_it_and_all_else_stays() -> None:
    document = read("xcstrings", dump(STRINGS))
    assert strings(document) == ["A %@ dog", "Has %#@n@ in %@", "%arg dog", '"big" %lld%%', "Sea"]
    whole, other = document.texts[1], document.texts[3]
    joined = document.join([("x",), whole, ('ä"\n',), other, ("\\",)])
    review = "needs_review"
    german = forms("Has %#@n@ in %@", 'ä"\n', '"big" %lld%%', review)
    expected = json.loads(json.dumps(STRINGS))
    expected["A %@ dog"] = {"localizations": {"de": unit("x", review)}}
    expected["dogs"]["localizations"]["de"] = german
    expected["Sea"]["localizations"]["de"] = unit("\\", review)
    assert joined == dump(expected)
    assert not read("xcstrings", joined).texts
    from_french = strings(read("xcstrings", dump(STRINGS), Languages("fr", "it")))
    assert from_french == [*strings(document)[1:4], "Mer"]
