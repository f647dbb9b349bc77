"""`seq2seq report`: what a run did, on one page."""

import argparse
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path

from seq2seq.cli.model_class import choose_classes
from seq2seq.cli.text import check_output, print_json, print_path, read_parallel
from seq2seq.errors import UsageError, UserError
from seq2seq.machine.resources import retain_freed_memory
from seq2seq.model_folder import find_model
from seq2seq.report.page import draw_page
from seq2seq.report.record import record_scores
from seq2seq.report.run_report import make_report, score_record
from seq2seq.report.sets import TextSet
from seq2seq.run.folder import RunFolder
from seq2seq.text import create_binary


def run(arguments: argparse.Namespace) -> int:
    """Write the page, or its numbers as JSON."""
    if arguments.to is not None and not arguments.test:
        raise UsageError("--to is the language of --test: give --test SOURCE REFERENCE")
    if arguments.output is not None:
        check_output(arguments.output, *chain(*arguments.test))
    folder = Path(arguments.run_dir)
    files = RunFolder(folder)
    if not files.metrics.is_file():
        raise UserError(f"{folder}: no {files.metrics.name}; give the run_dir of a run")
    retain_freed_memory()
    tests = []
    for source, reference in arguments.test:
        tests.append(TextSet(source, *read_parallel(source, reference), arguments.to))
    (model_class,) = choose_classes([find_model(folder)], arguments.model_class)
    make = partial(make_report, folder, tests, device=arguments.device, model_class=model_class)
    if arguments.json:
        print_json(asdict(make()))
        return 0
    path = Path(arguments.output or files.page)
    if arguments.output is None and path.is_symlink():
        path.unlink()  # what a link that somebody left there points to stays as it is
    with create_binary(path) as file:  # before the work, which may take long
        made = make()
        file.write(draw_page(made).encode())
    if arguments.output is None and not tests:
        record_scores(folder, score_record(made))
    print_path(path)
    return 0
