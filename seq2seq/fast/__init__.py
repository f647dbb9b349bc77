"""Fast forms: each computes what a plain form of the core defines, and is tested against it.

| module | stands in for | used in |
|---|---|---|
| `updates` | `Updater` | training |
| `training` | a model in training mode and `label_smoothed_loss` | training |
| `rows` | a forward pass over padded sentences | training |
| `fused` | equation 1, projections, a linear layer with its ReLU | both, GPU |
| `attention` | attention within padded sentences | training, GPU |
| `packed` | `nn.Linear` and the projections of `MultiHeadAttention` | translation, CPU |
| `decoder` | `IncrementalDecoder` | translation, a form each for CPU and GPU |
| `search` | `Beams` | translation |
| `graphs` | starting the kernels of a function one by one | both, GPU |
| `trials` | forms above, where no GPU has yet said which is faster | training, GPU |

Nothing here may change a result by more than rounding. `FastModel` and `use_translation_kernels`
put the forms in place: `replace_modules` exchanges modules for others that share their parameters,
`seq2seq.decoder.override` puts methods in front of a module's own.
"""

from collections.abc import Callable
from typing import TypeGuard, TypeVar

from torch import nn

from seq2seq.changes import has_hooks

M = TypeVar("M", bound=nn.Module)


def replace_modules(model: nn.Module, kind: type[M], make: Callable[[M], nn.Module]) -> None:
    """Replace each module of exactly this kind and without hooks by `make(module)`, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if is_plain(child, kind):
                setattr(parent, name, make(child).train(child.training))


def is_plain(module: nn.Module, kind: type[M]) -> TypeGuard[M]:
    """Return whether a module is exactly of this kind, without hooks and a `forward` of its own."""
    return type(module) is kind and not has_hooks(module) and "forward" not in vars(module)
