"""The `seq2seq` command, also as `python -m seq2seq`."""

import sys

from seq2seq.cli.main import main


def run() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
