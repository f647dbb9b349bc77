"""`seq2seq report`: what a run did, on one page."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.reporting.report import TextSet

_EXAMPLES = """\
The page has no script and no links out. Training writes it too, as report.html in the run folder.

examples:
  seq2seq report runs/captions
  seq2seq report runs/captions --test test.en test.de -o captions.html
  seq2seq report runs/captions --json > captions.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq report`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("run_dir", metavar="RUN", help="run folder of a training")
    parser.add_argument(
        "--test",
        nargs=2,
        action="append",
        default=[],
        metavar=("SOURCE", "REFERENCE"),
        help="files to translate and score, instead of the validation set; may be repeated",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (default auto)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "-o", "--output", metavar="FILE", help="the page (default: report.html in the run folder)"
    )
    output.add_argument("--json", action="store_true", help="write the same figures to stdout")


def run(arguments: argparse.Namespace) -> int:
    """Write the page, or the figures as JSON.

    Raises:
        UserError: if the run or a text can't be read, texts aren't parallel, or the page can't be
            written.
    """
    from seq2seq.data.lines import create_binary
    from seq2seq.kernels.memory import retain_freed_memory
    from seq2seq.reporting.page import draw_page
    from seq2seq.reporting.report import PAGE_FILE, make_report

    retain_freed_memory()
    folder = Path(arguments.run_dir)
    tests = [_read(source, reference) for source, reference in arguments.test]
    report = make_report(folder, tests, device=arguments.device)
    if arguments.json:
        content = json.dumps(report.record(), indent=2, ensure_ascii=False)
        sys.stdout.buffer.write(content.encode() + b"\n")
        return 0
    path = arguments.output or str(folder / PAGE_FILE)
    with create_binary(path) as page:
        page.write(draw_page(report).encode())
    print(path)
    return 0


def _read(source: str, reference: str) -> "TextSet":
    from seq2seq.cli.score import read_leniently
    from seq2seq.evaluation.scores import check_counts
    from seq2seq.reporting.report import TextSet

    sources, references = read_leniently(source), read_leniently(reference)
    check_counts({source: len(sources), reference: len(references)})
    return TextSet(Path(source).name, sources, references)
