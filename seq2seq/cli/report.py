"""`seq2seq report`: what a run did, on one page."""

import argparse
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli.text import print_json, read_leniently, read_parallel

if TYPE_CHECKING:
    from seq2seq.reporting.sets import OtherSystem


_EXAMPLES = """\
The page has no scripts and no links. Training writes it too, as report.html in the run folder.

examples:
  seq2seq report runs/captions
  seq2seq report runs/captions --test test.en test.de -o captions.html
  seq2seq report runs/captions --compare runs/second -o comparison.html
  seq2seq report runs/captions --json > captions.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq report`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("run_dir", metavar="RUN", help="run folder")
    parser.add_argument(
        "--test",
        nargs=2,
        action="append",
        default=[],
        metavar=("SOURCE", "REFERENCE"),
        help="files to translate and score, instead of the validation sets; may be repeated",
    )
    parser.add_argument(
        "--to", metavar="LANG", help="target language of --test, if the model has several"
    )
    parser.add_argument(
        "--compare",
        metavar="RUN2|FILE",
        help="another run, or a file of translations of the test set",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (default auto)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "-o", "--output", metavar="FILE", help="the page (default: report.html in the run folder)"
    )
    output.add_argument("--json", action="store_true", help="write the same numbers to stdout")


def run(arguments: argparse.Namespace) -> int:
    """Write the page, or its numbers as JSON."""
    from seq2seq.data.lines import create_binary
    from seq2seq.errors import UsageError, UserError
    from seq2seq.fast.process import retain_freed_memory
    from seq2seq.files.atomic import write_file
    from seq2seq.reporting.page import draw_page
    from seq2seq.reporting.report import PAGE_FILE, distinct_names, make_report
    from seq2seq.reporting.sets import TextSet

    if arguments.to is not None and not arguments.test:
        raise UsageError("--to is the language of --test: give --test SOURCE REFERENCE")
    retain_freed_memory()
    folder = Path(arguments.run_dir)
    names = distinct_names([Path(source).absolute() for source, _ in arguments.test])
    tests = [
        TextSet(name, *read_parallel(*paths), arguments.to)
        for name, paths in zip(names, arguments.test, strict=True)
    ]
    other = None
    if arguments.compare is not None:
        other = _other(arguments.compare, len(tests), arguments.device)
    make = partial(make_report, folder, tests, other, device=arguments.device)
    if arguments.json:
        print_json(make().record())
        return 0
    if arguments.output is None:
        if folder.is_dir() and not os.access(folder, os.W_OK):
            raise UserError(
                f"{folder}: can't be written: change its mode, or choose another page with -o"
            )
        # A link that somebody left there is replaced; what it points to stays as it is.
        write_file(folder / PAGE_FILE, draw_page(make()).encode())
        print(folder / PAGE_FILE)
        return 0
    with create_binary(arguments.output) as file:  # before the work, which may take long
        file.write(draw_page(make()).encode())
    print(arguments.output)
    return 0


def _other(path: str, sets: int, device: str) -> "OtherSystem":
    from seq2seq.config import read_config
    from seq2seq.errors import UsageError, UserError
    from seq2seq.reporting.report import make_translator
    from seq2seq.reporting.sets import OtherSystem, TextSet, for_language
    from seq2seq.storage.checkpoint import find_model
    from seq2seq.storage.model_folder import load_model

    if Path(path).is_dir():
        config, trained = read_config(Path(path)), load_model(find_model(Path(path)))
        translator, own = make_translator(trained, config, device), config.data.target_language
        several = len(trained.target_languages) > 1

        def translate(text: TextSet) -> list[str]:
            # A model of one language may not know its code.
            if not several and own != "target" and text.language not in (None, own):
                raise UserError(
                    f"--compare {path}: translates into {own}, and {text.name} is in"
                    f" {text.language}: compare runs of the same languages"
                )
            chosen = for_language(translator, text) if several else translator
            found = chosen.translate_stream(text.sources)
            return [translation.text for translation in found]

        return OtherSystem(Path(path).absolute().name, translate, Path(path))
    if sets > 1:
        raise UsageError("--compare FILE holds the translations of one test set: give one --test")
    lines = read_leniently(path)

    def read(text: TextSet) -> list[str]:
        if len(lines) != len(text.sources):
            raise UserError(
                f"--compare {path}: {len(text.sources):,} and {len(lines):,} lines: not the same"
                " test set"
            )
        return lines

    return OtherSystem(Path(path).name, read)
