"""Write the digests of the functions with which the fast forms are tested.

    python scripts/digests.py

Run the tests of the fast forms first: `tests/fast` and `tests/cuda`.
"""

import argparse
import json
from importlib import import_module
from pathlib import Path

from seq2seq import changes


def main() -> None:
    """Write `tested.json`."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    modules = (import_module(f"{changes.PACKAGE}.{name}") for name in changes.MODULES)
    table = {key: digest for module in modules for key, digest in changes.digests(module).items()}
    path = Path(changes.__file__).with_name("tested.json")
    path.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
