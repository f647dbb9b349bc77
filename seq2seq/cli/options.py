"""Options of commands as tables: the form of each, such as `-o --output FILE`, and what it does."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any


def add_options(
    parser: argparse._ActionsContainer,
    options: Mapping[str, str],
    kind: Callable[[str], Any] = str,
    *,
    required: bool = False,
    **kinds: Callable[[str], Any],
) -> None:
    """Add options of a kind, but for those whose names have kinds of their own.

    A form that ends with a name is a flag; one that ends with ` ...` may be repeated, for a list;
    one with `|` lists the choices.
    """
    for form, text in options.items():
        *names, value = form.removesuffix(" ...").split()
        if value.startswith("--"):
            parser.add_argument(*names, value, action="store_true", help=text)
            continue
        is_list, choices = form.endswith(" ..."), value.split("|") if "|" in value else None
        parser.add_argument(
            *names,
            action="append" if is_list else "store",
            default=[] if is_list else None,
            metavar=None if choices else value,
            choices=choices,
            type=kinds.get(names[-1][2:].replace("-", "_"), kind),
            required=required,
            help=text,
        )
