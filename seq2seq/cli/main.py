"""`seq2seq`: runs the command, and turns errors into one line and an exit code."""

import argparse
import importlib
import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from seq2seq import __version__
from seq2seq.cli.arguments import COMMANDS, EXAMPLES, TRAIN_EXAMPLES, TRAIN_HELP
from seq2seq.cli.messages import log_to_stderr, rank_and_size
from seq2seq.errors import UsageError, UserError, out_of_memory

_EXAMPLES = f"""{TRAIN_EXAMPLES}\
  seq2seq translate --model runs/mine < test.en > test.out.de
  seq2seq serve --model runs/mine
  seq2seq score -i test.out.de -r test.de
  seq2seq attention --model runs/mine --source "A dog runs in the snow." -o attention.svg
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 1 for bad data, 2 for bad usage, or 128 + N after signal N.

    `translate` returns 3 if somebody has to look at files of a folder.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    # PyTorch's optimizers import its compiler, which is not used here. Its cache would be a folder
    # in /tmp, where another user may have taken the name.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.dirname(__file__))
    if sys.stderr is None:  # closed: messages would end up among the results
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    log_to_stderr()
    try:
        if sys.stdin is None or sys.stdout is None:
            raise UserError("standard input or output is closed; redirect it, such as to /dev/null")
        _write_utf8()
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader closed the pipe. Python flushes stdout again at exit, so point it elsewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("seq2seq: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a library in Rust is not an Exception
        if "--debug" in words:
            raise
        if isinstance(error, UsageError) and rank_and_size()[0] > 0:
            time.sleep(3)  # torchrun ends all when one has ended: let the main process report it
            return 2
        print(f"seq2seq: {_explain(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _write_utf8() -> None:
    """Write files and pipes in UTF-8, whatever the locale is; a terminal has its own encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8", newline="\n")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Bytes of file names that are not UTF-8 stay; what a terminal can't show is escaped.
        is_utf8 = sys.stdout.encoding.lower() == "utf-8"
        sys.stdout.reconfigure(errors="surrogateescape" if is_utf8 else "backslashreplace")


def _explain(error: BaseException) -> str:
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        where = error.filename or "reading or writing failed"
        return str(UserError(f"{where}: {error.strerror}"))
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # Path.expanduser's
        return "no home folder: write paths that begin with ~ in full; give cache=FOLDER to train"
    if failure := out_of_memory(error):
        return str(failure)
    return (
        # UserError puts it on one line, whatever it holds.
        f"internal error: {type(error).__name__}: {UserError(error)}; please report it, with the"
        " traceback that --debug shows"
    )


class _Parser(argparse.ArgumentParser):
    """A parser whose error messages are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing the usage and exiting."""
        raise UsageError(f"{message}; {self.prog} --help shows how")


def _run(words: list[str]) -> int:
    if words[:1] == ["train"]:
        if {"-h", "--help"} & set(words):
            print(TRAIN_HELP, end="")
            return 0
        # Hydra parses these arguments itself.
        from seq2seq.cli.train import train

        return train([word for word in words[1:] if word != "--debug"])
    parser = _Parser(
        prog="seq2seq",
        description="The original Post-LN Transformer of Vaswani et al. (2017).",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"seq2seq {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("train", help="train a model from parallel text (a Hydra application)")
    for name, (summary, add_arguments) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=EXAMPLES[name],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if words[:1] == [name]:  # those of the others are not needed
            add_arguments(command)
            command.add_argument("--debug", action="store_true", help="show a traceback on errors")
    parsed, unknown = parser.parse_known_args(words)
    if unknown:  # of the command, whose options and help the error names
        commands.choices[parsed.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    # No module may be called `import`.
    name = "import_" if parsed.command == "import" else parsed.command
    return importlib.import_module(f"seq2seq.cli.{name}").run(parsed)
