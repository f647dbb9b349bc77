"""Fast forms of the computations of model, training and decoding, equal to the plain ones."""

from collections.abc import Callable
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def replace_modules(model: nn.Module, kind: type[M], make: Callable[[M], nn.Module]) -> None:
    """Replace each module of a kind by `make(module)`, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, kind):
                setattr(parent, name, make(child).train(child.training))
