"""A server for the page's tests, which answers as the real one does.

A test makes it hold answers back, refuse, or report a problem.
"""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.decoding.alignment import AttentionMaps

ORIGIN = "http://localhost:5000"  # on loopback, where browsers give a page the clipboard
FILES = Path(__file__).parents[3] / "seq2seq" / "server" / "page"
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
PAUSE = 400
"""Milliseconds without a key before the page sends the text."""
LAYERS, HEADS = 2, 3

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_LANGUAGES = {"en": "English", "de": "German", "he": "Hebrew"}


def translate_sentence(sentence: str, language: str, alternatives: int) -> dict[str, Any]:
    """Translate into capitals; the alternatives have another last word.

    The first word is said to belong to the last one, and to no other.
    """
    words = sentence.removesuffix(".").upper().split()
    if language == "he":
        words = ["שלום"] * len(words)
    texts = [" ".join([*words[:-1], last]) + "." for last in (words[-1], "ONE", "TWO", "THREE")]
    links = [[0, len(words) - 1]]
    found = [
        {"text": text, "score": -0.25 - i, "alignments": links} for i, text in enumerate(texts)
    ]
    return {
        "source": sentence,
        **found[0],
        "pieces": pieces(texts[0]),
        "truncated": False,
        "unknown": 0,
        "suspect": [],
        "alternatives": found[1 : 1 + alternatives],
    }


def pieces(text: str) -> list[str]:
    """Split before the last letter of each word, so that some pieces begin no word."""
    return [part for word in text.split() for part in ("▁" + word[:-1], word[-1]) if part != "▁"]


def weights(rows: int, columns: int) -> Tensor:
    """Weights that differ in each layer, head and cell, and of which each row's sum is 1."""
    sizes = map(torch.arange, (LAYERS, HEADS, rows, columns))
    layer, head, i, j = torch.meshgrid(*sizes, indexing="ij")
    raw = 1.0 + (7 * i + 3 * j + 5 * head + 11 * layer) % 13
    return raw / raw.sum(dim=3, keepdim=True)


class Stub:
    """Answers the requests of a page; a test changes its fields."""

    def __init__(self) -> None:
        self.targets = {"en": ["de"], "de": []}
        self.char_limit = 200
        self.key_required = False
        self.flaws: dict[str, Any] = {}
        self.failures: list[tuple[int, str, dict[str, str]]] = []
        """Answers to the next requests to translate: status, error, headers."""
        self.gone = False
        self.hold = False
        self.held: list[Any] = []
        """Requests to translate whose answers wait for `answer`, if `hold` is true."""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """The path and the fields of each POST."""

    def handle(self, route: Any) -> None:
        request = route.request
        path = request.url.removeprefix(ORIGIN)
        if path == "/languages":
            route.fulfill(json=self.languages())
        elif path == "/frontend/settings":
            route.fulfill(json=self.settings())
        elif request.method == "GET":
            file = FILES / (path.removeprefix("/page/") if path != "/" else "index.html")
            headers = {"content-type": _TYPES[file.suffix], "content-security-policy": POLICY}
            route.fulfill(body=file.read_bytes(), headers=headers)
        else:
            self.asked.append((path, request.post_data_json))
            if self.gone:
                route.abort()
            elif path == "/translate" and self.hold:
                self.held.append(route)
            else:
                self.answer(route)

    def answer(self, route: Any) -> None:
        path, fields = route.request.url.removeprefix(ORIGIN), route.request.post_data_json
        if path == "/translate" and self.failures:
            status, error, headers = self.failures.pop(0)
            route.fulfill(status=status, json={"error": error}, headers=headers)
        elif path == "/translate":
            route.fulfill(json=self.translate(fields))
        else:
            route.fulfill(json=self.attend(fields))

    def languages(self) -> Any:
        return [
            {"code": code, "name": _LANGUAGES[code], "targets": targets}
            for code, targets in self.targets.items()
        ]

    def settings(self) -> Any:
        codes = [(code, target) for code, targets in self.targets.items() for target in targets]
        named = [{"code": code, "name": _LANGUAGES[code]} for code in codes[0]]
        return {
            "charLimit": self.char_limit,
            "frontendTimeout": PAUSE,
            "keyRequired": self.key_required,
            "maxAlternatives": 3,
            "language": dict(zip(("source", "target"), named, strict=True)),
        }

    def translate(self, fields: dict[str, Any]) -> Any:
        details = []

        def translated(match: re.Match[str]) -> str:
            details.append(
                translate_sentence(match[0], fields["target"], fields["alternatives"]) | self.flaws
            )
            return str(details[-1]["text"])

        text = re.sub(r"[^\s.][^.\n]*\.?", translated, fields["q"])
        return {"translatedText": text, "alternatives": [], "details": details}

    def attend(self, fields: dict[str, Any]) -> Any:
        source, target = [*pieces(fields["source"]), "</s>"], pieces(fields["target"])
        read, written = ["<s>", *target], [*target, "</s>"]
        maps = AttentionMaps(
            source,
            read,
            written,
            encoder=weights(len(source), len(source)),
            decoder=weights(len(read), len(read)),
            cross=weights(len(written), len(source)),
        )
        return maps.record(fields["kind"], fields["layer"])
