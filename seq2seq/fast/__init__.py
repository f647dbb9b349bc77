"""Fast forms: each computes what a plain form elsewhere defines, and is tested against it.

| module | stands in for | used in |
|---|---|---|
| `training.py` | `Forms` of `training/forms.py` | training |
| `rows.py` | a forward pass over padded sentences | training |
| `attention.py` | attention within padded sentences | training, GPU |
| `loss.py` | `label_smoothed_loss` of `training/loss.py` | training |
| `packed.py` | `nn.Linear` and the projections of `MultiHeadAttention` | translation, CPU |
| `decoder.py` | `IncrementalDecoder` of `model/incremental.py` | translation, a form each |
| `graphs.py` | starting the kernels of a function one by one | both, GPU |
| `topk.py` | `torch.topk` | translation |
| `process.py` | the defaults of allocators, oneDNN's cache and threads | both, CPU |

`FastForms` (`training.py`) and `use_translation_kernels` (`translation.py`) put them in place:
`replace_modules` exchanges the modules of a class for others that share their parameters, whose
names and values stay the same. Of modern models (`zoo/modern.py`), attention is padded, in
training, and the search step is the plain one.
"""

from collections.abc import Callable
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def replace_modules(model: nn.Module, kind: type[M], make: Callable[[M], nn.Module]) -> None:
    """Replace each module of exactly this kind by `make(module)`, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is kind:
                setattr(parent, name, make(child).train(child.training))
