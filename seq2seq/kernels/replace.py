"""Puts a fast module in the place of a plain one."""

from collections.abc import Callable
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def replace_modules(model: nn.Module, kind: type[M], make: Callable[[M], nn.Module]) -> None:
    """Put what `make` makes of each module of a kind in its place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, kind):
                setattr(parent, name, make(child).train(child.training))
