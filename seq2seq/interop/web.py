"""A folder that translates in a browser: the graphs of ONNX, and a page of static files.

The page is in `page/`. It divides a text as `seq2seq translate --sentences` does, by the patterns
and words of `seq2seq.decoding`, which are written into the folder's `translator.json`.
"""

import base64
import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from re import Pattern
from string import Template
from typing import Any
from urllib.parse import urlsplit

from seq2seq.case import KEPT
from seq2seq.decoding import capitals, segments, sentences
from seq2seq.errors import UserError
from seq2seq.files import Content, read_regular_file, write_folder
from seq2seq.interop.export import json_bytes
from seq2seq.interop.javascript import regular_expression
from seq2seq.interop.onnx_folder import graph_names, onnx_files, translation_settings
from seq2seq.interop.onnx_graph import Precision
from seq2seq.interop.pair_tokenizer import PairTokenizer
from seq2seq.model_folder import CARD_FILE, TrainedModel, card_file
from seq2seq.tokenizer import UNSEEN

SETTINGS_FILE = "translator.json"
_TEMPLATE = "index.html"
_MAX_LIBRARY_BYTES = 64 * 2**20


@dataclass(frozen=True)
class LibraryFile:
    """A file of an npm package, which the page runs."""

    package: str
    version: str
    path: str
    integrity: str
    """The digest that a browser checks before it runs the file."""

    @property
    def url(self) -> str:
        """The address at jsDelivr, which serves the files of npm as they are."""
        return f"https://cdn.jsdelivr.net/npm/{self.package}@{self.version}/{self.path}"

    @property
    def local(self) -> str:
        """The name of a copy in an exported folder; not all web servers know `.mjs`."""
        return f"library/{Path(self.path).name}".replace(".mjs", ".js")


_ONNX_RUNTIME, _TOKENIZERS = ("onnxruntime-web", "1.30.0"), ("@huggingface/tokenizers", "0.2.0")
LIBRARY = {
    "runtime": LibraryFile(
        *_ONNX_RUNTIME,
        "dist/ort.wasm.bundle.min.mjs",
        "sha384-PLWz+nHEVHpjwBsO0YVdvQj6n5814Iv8E3b8FG0Rp/uIAtjFMCKOpP66iPzedrIG",
    ),
    "wasm": LibraryFile(
        *_ONNX_RUNTIME,
        "dist/ort-wasm-simd-threaded.wasm",
        "sha384-vjBJ1z7qrhkTyYsNqKeF6c7N+nOJSU94czEo+tvZcu8G75JparGq9kB+kTnEUNVM",
    ),
    "tokenizers": LibraryFile(
        *_TOKENIZERS,
        "dist/tokenizers.min.mjs",
        "sha384-Tl2lMbeE3RCGFLOUGQ7LhvaagysxiOw/9dulz2sD6jxNa1MckRJQBbYdVHhOoqEs",
    ),
}
"""The files of the two libraries, by their names in the page."""


def write_web(
    folder: Path,
    trained: TrainedModel,
    precision: Precision = "int8",
    *,
    node_modules: Path | None = None,
    card: bytes | None = None,
) -> None:
    """Write a folder that any web server can serve.

    The page loads the two libraries from a CDN, or has a copy of those in `node_modules`.
    """
    files: dict[str, Content] = {}
    addresses = {name: file.url for name, file in LIBRARY.items()}
    if node_modules is not None:
        for name, file in LIBRARY.items():
            files[file.local] = _read_library(node_modules, file)
            addresses[name] = file.local
    files |= onnx_files(trained, precision)
    files[SETTINGS_FILE] = json_bytes(translator_settings(trained, precision, card is not None))
    files |= card_file(card)
    for resource in (resources.files(__package__) / "page").iterdir():
        files[resource.name] = resource.read_bytes()
    files[".nojekyll"] = b""  # GitHub would make another page of the card
    files[_TEMPLATE] = _page(files[_TEMPLATE], addresses)
    write_folder(folder, files)


def _read_library(node_modules: Path, file: LibraryFile) -> bytes:
    """Read a file of a package; another version than that of `LIBRARY` is refused."""
    path = node_modules / file.package / file.path
    wanted = " ".join(dict.fromkeys(f"{f.package}@{f.version}" for f in LIBRARY.values()))
    advice = f"in another folder, run npm install {wanted}, and give its node_modules"
    if not path.is_file():
        raise UserError(f"{path}: no such file; {advice}")
    content = read_regular_file(path, _MAX_LIBRARY_BYTES)
    if integrity(content) != file.integrity:
        raise UserError(f"{path}: is not that of {file.package} {file.version}; {advice}")
    return content


def integrity(content: bytes) -> str:
    """Return the digest of a file as browsers write it."""
    return "sha384-" + base64.b64encode(hashlib.sha384(content).digest()).decode()


def _page(template: Content, addresses: Mapping[str, str]) -> bytes:
    """Fill in where the libraries are, and a policy that lets the page load nothing else."""
    assert isinstance(template, bytes)
    scripts = {addresses[name] for name in ("runtime", "tokenizers")}
    policy = {
        "default-src": "'none'",
        "script-src": " ".join(["'self' 'wasm-unsafe-eval'", *_others(scripts)]),
        "connect-src": " ".join(["'self'", *_others({addresses["wasm"]})]),
        "style-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    values = {"policy": "; ".join(f"{name} {sources}" for name, sources in policy.items())}
    values |= addresses
    values |= {f"{name}_hash": file.integrity for name, file in LIBRARY.items()}
    escaped = {name: escape(value, quote=False) for name, value in values.items()}
    return Template(template.decode()).substitute(escaped).encode()


def _others(addresses: set[str]) -> list[str]:
    """Return the addresses on another host."""
    return sorted(address for address in addresses if urlsplit(address).netloc)


def translator_settings(
    trained: TrainedModel, precision: Precision, has_card: bool = False
) -> dict[str, Any]:
    """Return what the page needs to know of a model, its files and the program's rules."""
    tokenizer = trained.tokenizer
    return {
        "model": translation_settings(trained),
        "vocabulary": {
            "size": tokenizer.source_vocab_size,
            "nfkc": not isinstance(tokenizer, PairTokenizer),
        },
        "hasLetters": segments.has_letters(tokenizer),
        "morePieces": capitals.MORE_PIECES,
        "files": graph_names(precision),
        "card": CARD_FILE if has_card else None,
        "words": _words(trained.source_language),
        "marks": {
            "narrow": sentences.NARROW,
            "wide": sentences.WIDE,
            "brackets": sentences.BRACKETS,
        },
        "rules": _rules(),
    }


def _rules() -> dict[str, Any]:
    """Return the program's patterns as JavaScript reads them."""
    rules: dict[str, Any] = {name: regular_expression(*rule) for name, rule in _RULES.items()}
    rules["digit"] = f"^[{''.join(filter(str.isdigit, map(chr, range(sys.maxunicode))))}]", "u"
    return rules | {"parts": [regular_expression(part, "finditer") for part in segments.PARTS]}


_RULES: dict[str, tuple[Pattern[str], str]] = {
    "column": (segments.COLUMN, "finditer"),
    "address": (segments.ADDRESS, "fullmatch"),
    "measures": (segments.MEASURES, "fullmatch"),
    "label": (segments.LABEL, "match"),
    "signs": (segments.SIGNS, "finditer"),
    "endOfLine": (segments.END_OF_LINE, "finditer"),
    "event": (sentences.EVENT, "finditer"),
    "continuation": (sentences.CONTINUATION, "match"),
    "quoting": (sentences.QUOTING, "match"),
    "wordBefore": (sentences.WORD_BEFORE, "search"),
    "after": (sentences.AFTER, "match"),
    "dotted": (sentences.DOTTED, "fullmatch"),
    "item": (sentences.ITEM, "match"),
    "number": (sentences.NUMBER, "fullmatch"),
    "roman": (sentences.ROMAN, "fullmatch"),
    "word": (capitals.WORD, "finditer"),
    "stop": (capitals.STOP, "match"),
    "englishI": (capitals.ENGLISH_I, "fullmatch"),
    "kept": (KEPT, "finditer"),
    "unseen": (UNSEEN, "finditer"),
}
"""The program's patterns, and the method by which it uses each."""


def _words(language: str) -> dict[str, Any]:
    """Return the words after which a full stop need not end a sentence."""
    words = sentences.abbreviations_of(language)
    lists = {
        "nonbreaking": words.nonbreaking,
        "beforeNumber": words.before_number,
        "mayEnd": words.may_end,
        "starters": words.starters,
        "listsEnd": sentences.LISTS_END,
    }
    return {"ordinals": words.ordinals, **{name: sorted(each) for name, each in lists.items()}}
