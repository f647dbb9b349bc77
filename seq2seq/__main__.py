"""The `seq2seq` command, also as `python -m seq2seq`."""

import atexit
import gc
import sys

from seq2seq.cli.main import main


def run() -> None:
    """Run the command line and leave with its exit code."""
    # What PyTorch makes when it is imported stays; looking through it would take half a second.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    sys.exit(main())


if __name__ == "__main__":
    run()
