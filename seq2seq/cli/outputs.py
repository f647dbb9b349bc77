"""What a command prints for programs to read."""

import json
import sys


def print_json(record: object, *, indent: int | None = 2) -> None:
    """Print a record as JSON, in UTF-8 whatever the locale is; on one line if indent is None."""
    text = json.dumps(record, indent=indent, ensure_ascii=False)
    # A file name that is not UTF-8 holds half surrogate pairs, which JSON spells as escapes.
    sys.stdout.buffer.write(text.encode(errors="backslashreplace") + b"\n")
