"""Freed memory retained by the process, and less of it broken up by compiled matrix products."""

import ctypes
import os
import sys


def retain_freed_memory() -> None:
    """Make glibc and PyTorch's allocator for GPUs keep freed blocks for reuse.

    Activations are large and live for one step. By default each is mapped, zeroed by the kernel and
    unmapped again: filling a new 64 MB tensor took 17 ms, a reused one 2 ms. On a GPU, blocks that
    grow serve batches of any shape. Without glibc, or after the first use of a GPU, its part does
    nothing.
    """
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, -1)  # never
    mallopt(m_top_pad, 64 * 2**20)


def keep_few_compiled_products() -> None:
    """Make oneDNN keep its code for the last 64 shapes of matrix products in place of 1,024.

    Batches of a training differ in shape, so that code of earlier steps is seldom used again. It
    lies among the activations, so that the memory they leave is too broken up for the next ones.
    Has no effect after the first product, nor where the environment sets the variables.
    """
    # The second is of PyTorch's own cache in front of oneDNN's; each alone keeps the code.
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "64")
