"""The size of a model without making it: its tensors without values, and its parameters."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seq2seq.errors import UserError
from seq2seq.model import Transformer, TransformerConfig, make_transformer


def meta_transformer(
    config: TransformerConfig,
    *,
    vocab_size: int,
    source_vocab_size: int | None = None,
    **ids: int,
) -> Transformer:
    """Make a model on the meta device, in float32, unless it is too large for this machine."""
    if config.shared_embedding and source_vocab_size not in (None, vocab_size):
        raise UserError("shared_embedding is true, but each side has a vocabulary of its own")
    check_memory(config, vocab_size, source_vocab_size)
    with _meta_device():
        model = make_transformer(
            config, vocab_size=vocab_size, source_vocab_size=source_vocab_size, **ids
        )
    return model.float()  # whatever the caller's default is


def count_parameters(
    config: TransformerConfig, vocab_size: int, source_vocab_size: int | None = None
) -> int:
    """Count the parameters of a model without making it: one layer's times the number of layers."""
    with _meta_device():
        model = make_transformer(
            replace(config, num_layers=1, num_decoder_layers=1),
            vocab_size=vocab_size,
            source_vocab_size=source_vocab_size,
        )
    more_in_encoder = (config.num_layers - 1) * _elements(model.encoder)
    more_in_decoder = (config.decoder_depth - 1) * _elements(model.decoder)
    return _elements(model) + more_in_encoder + more_in_decoder


def check_memory(config: TransformerConfig, vocab_size: int, source_vocab_size: int | None) -> None:
    """Refuse a model whose weights are larger than this machine's memory."""
    parameters = count_parameters(config, vocab_size, source_vocab_size)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if parameters * torch.float32.itemsize > memory:
        raise UserError(
            f"a model of {parameters:,} parameters is too large for this machine's memory"
        )


def _elements(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@contextmanager
def _meta_device() -> Iterator[None]:
    """Make models without weights; refuse matrices with more elements than PyTorch can count."""
    try:
        with torch.device("meta"), _NothingDrawn():
            yield
    except (RuntimeError, TypeError, OverflowError):
        raise UserError(
            "no matrix can be this large: lower model.d_model, model.d_ff, model.num_heads,"
            " model.d_k, model.d_v, model.max_learned_positions or the vocabulary"
        ) from None


class _NothingDrawn(TorchFunctionMode):
    """Skip the initial weights.

    To draw on the meta device PyTorch imports its compiler, which takes a second and makes a folder
    in /tmp that another user may have taken.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # `torch.nn.init` passes on the first two; the others it draws with itself.
        if func in (nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_):
            return kwargs["tensor"]
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        return func(*args, **kwargs)
