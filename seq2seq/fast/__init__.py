"""Fast forms: each computes what a plain form elsewhere defines, and is tested against it.

| module | stands in for | used in |
|---|---|---|
| `training.py` | attention, dropout, norms and layers of `model/transformer.py` | training |
| `loss.py` | `label_smoothed_loss` of `training/loss.py` | training |
| `rows.py` | a forward pass over padded sentences | training in bf16, CPU with AMX |
| `joined.py` | a forward pass for each micro-batch | training, GPU |
| `packed.py` | `nn.Linear` and the projections of `MultiHeadAttention` | translation, CPU |
| `decoder.py` | `IncrementalDecoder` of `model/incremental.py` | translation, a form each |
| `graphs.py` | starting the kernels of a search step one by one | translation, GPU |
| `topk.py` | `torch.topk` | translation |
| `process.py` | the defaults of allocators, oneDNN's cache and threads | both, CPU |

`use_training_kernels` (`training.py`) and `use_translation_kernels` (`translation.py`) put them in
place: `replace_modules` exchanges the modules of a class for others that share their parameters,
whose names and values stay the same. Of modern models (`model/modern.py`), attention is fused and
matrices are packed, but the search step is the plain one, micro-batches are not joined, and padding
is computed.
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
