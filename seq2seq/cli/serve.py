"""`seq2seq serve`: a server of translations."""

import argparse
import os
import re
import sys
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from msgspec import ValidationError, convert

from seq2seq.cli.messages import report
from seq2seq.cli.model_class import choose_classes
from seq2seq.cli.translation_options import translation_options
from seq2seq.controls import UNNAMED
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UsageError, UserError
from seq2seq.machine.resources import retain_freed_memory
from seq2seq.model_folder import TrainedModel, find_model, load_model
from seq2seq.text import read_text_lines

try:
    from seq2seq.server import guard
    from seq2seq.server.app import make_app
    from seq2seq.server.requests import Limits, describe
    from seq2seq.server.service import LanguagePair, Service, list_pairs
except ModuleNotFoundError as missing:
    # The packages of the extra `serve`.
    packages = "prometheus-client py3langid python-multipart starlette uvicorn"
    package = (missing.name or "").partition(".")[0]
    raise UserError(f"the server needs {package}: pip install {packages}") from None

_ORIGIN = r"[a-z][a-z0-9+.-]*://(?:\*|(?:\*\.)?[^*/?#\s]+)"
_FIRST = "A first sentence takes longer."  # translated before the server begins


def run(arguments: argparse.Namespace) -> int:
    """Serve translations until a signal ends it."""
    _check_access(arguments)
    limits = _limits(arguments)
    keys = _KeyFile(arguments.api_key_file) if arguments.api_key_file is not None else None
    with guard.listen(arguments.host, arguments.port) as opened:
        service = Service(_load(arguments), limits)
        retain_freed_memory()
        address, port, *_ = opened.getsockname()
        local = ip_address(address).is_loopback  # only this machine reaches it
        hosts = [arguments.host, *arguments.allow_host, "localhost", "127.0.0.1", "[::1]"]
        if not local and not arguments.allow_host:
            hosts = ["*"]
        app = make_app(
            service,
            keys=keys,
            hosts=hosts,
            origins=arguments.allow_origin,
            page=not arguments.no_page,
        )
        server = guard.make_server(app, grace=limits.grace)
        guard.heed_signals(server)
        name = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        report(
            f"http://{name}:{port} translates {list_pairs(service.translators)}"
            " (LibreTranslate's interface); stop with Ctrl-C"
        )
        if not local and not keys:
            report(
                "anyone who can reach this address can use the server; --api-key-file, or"
                " a proxy that asks for a password, restricts that"
            )
        guard.run(server, opened)
    service.close()
    report("stopped")
    sys.stdout.flush()
    os._exit(0)  # a batch may still run in a thread, for nobody, and it can't be ended otherwise


class _KeyFile:
    """The keys in a file, with their names, read again when the file has changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._state = self._find_state()
        self._keys = self._read()
        if not self._keys:
            raise UserError(f"{path}: no key in it: write one per line")

    def __call__(self) -> dict[str, str]:
        """Return the keys that are valid now; a file that can't be read leaves them as they are."""
        if (state := self._find_state()) != self._state:
            self._state = state
            try:
                self._keys = self._read()
                report(f"{self._path}: read again; keys: {len(self._keys):,}")
            except UserError as error:
                report(f"{error}; the keys stay as they were")
        return self._keys

    def _find_state(self) -> tuple[int, ...]:
        try:
            status = os.stat(os.path.expanduser(self._path))
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> dict[str, str]:
        keys: dict[str, str] = {}
        for number, line in enumerate(read_text_lines(self._path), start=1):
            key, _, name = re.sub(r"(?:\A|\s)\s*#", "\n", line, count=1).partition("\n")
            if key.strip():
                keys[key.strip()] = name.strip() or f"line {number}"
        return keys


def _check_access(arguments: argparse.Namespace) -> None:
    for origin in arguments.allow_origin:
        if origin != "*" and not re.fullmatch(_ORIGIN, origin):
            raise UsageError(
                f"--allow-origin {origin}: write SCHEME://HOST or SCHEME://HOST:PORT, no path; a"
                " HOST may be *, or begin with *."
            )
    for name in arguments.allow_host:
        if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", name):
            raise UsageError(f"--allow-host {name}: write the name alone, no scheme, no port")


def _limits(arguments: argparse.Namespace) -> Limits:
    values = {name: n for name, n in vars(arguments).items() if n is not None}
    try:
        return convert(values, Limits)
    except ValidationError as error:
        raise UsageError(f"--{describe(error)}".replace("_", "-")) from None


def _load(arguments: argparse.Namespace) -> dict[LanguagePair, Translator]:
    pairs: list[str | None] = arguments.languages or [None] * len(arguments.model)
    if len(pairs) != len(arguments.model):
        raise UsageError(
            f"{len(pairs)} --languages for {len(arguments.model)} --model: give one for each"
        )
    translators: dict[LanguagePair, Translator] = {}
    options = translation_options(arguments)
    folders = [find_model(Path(run)) for run in arguments.model]
    classes = choose_classes(folders, arguments.model_class)
    models = map(load_model, folders, classes)  # one after the other, since each is copied
    for run, trained, pair in zip(arguments.model, models, pairs, strict=True):
        source, targets = _languages(run, trained, pair)
        if arguments.glossary is not None and len(arguments.model) * len(targets) > 1:
            raise UsageError(
                "--glossary has the terms of one pair of languages: give one --model, and name one"
                " pair with --languages"
            )
        has_several = len(trained.target_languages) > 1
        to = targets[0] if has_several else None
        translator = Translator(trained, replace(options, source_language=pair and source, to=to))
        translator.translate([_FIRST])
        for target in targets:
            into_target = translator.with_target_language(target) if has_several else translator
            if (source, target) in translators:
                raise UserError(
                    f"{run}: another model translates {source} -> {target}, too: remove one, or say"
                    " with --languages what they translate"
                )
            translators[source, target] = into_target
    return translators


def _languages(run: str, trained: TrainedModel, pair: str | None) -> tuple[str, list[str]]:
    """Return the source language of a model and its target languages."""
    if pair is None:
        source, targets = trained.source_language, trained.target_languages
        if {source, *targets} & {*UNNAMED}:
            report(
                f"{run}: the model does not name its languages: name them here, such as"
                " --languages en-de"
            )
        for code in (source, *targets):
            if not re.fullmatch("[A-Za-z0-9_-]*", code):
                raise UserError(
                    f"{run}: {code!r} is not a language code: name the languages with --languages"
                )
        return source, targets
    source, _, rest = pair.partition("-")
    targets = list(dict.fromkeys(rest.split(",")))
    if not source or not all(targets):
        raise UsageError(f"--languages {pair}: write SOURCE-TARGET, such as en-de")
    if len(targets) > 1 and len(trained.target_languages) < 2:
        raise UsageError(f"--languages {pair}: the model has one target language: name it alone")
    return source, targets
