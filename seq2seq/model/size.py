"""The size of a model that is not made: its tensors without numbers, and its parameters."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seq2seq.errors import UserError
from seq2seq.model.config import TransformerConfig
from seq2seq.model.transformer import Transformer


def empty_transformer(
    config: TransformerConfig,
    *,
    vocab_size: int,
    padding_id: int = 0,
    start_id: int = 0,
    source_vocab_size: int | None = None,
) -> Transformer:
    """A model on the meta device, in float32: it takes no memory and no random numbers.

    Raises:
        UserError: if a matrix has more elements than PyTorch can count.
    """
    try:
        with torch.device("meta"), _NothingDrawn():
            model = Transformer(
                config,
                vocab_size=vocab_size,
                padding_id=padding_id,
                start_id=start_id,
                source_vocab_size=source_vocab_size,
            )
    except (RuntimeError, TypeError, OverflowError):
        raise UserError(
            "no matrix can be this large: lower model.d_model, model.d_ff, model.num_heads,"
            " model.d_k, model.d_v, model.max_learned_positions or the vocabulary"
        ) from None
    return model.float()  # whatever the caller's default is


def count_parameters(
    config: TransformerConfig, vocab_size: int, source_vocab_size: int | None = None
) -> int:
    """Count the parameters of a model without making it: one layer's times the number of layers.

    Raises:
        UserError: if a matrix has more elements than PyTorch can count.
    """
    model = empty_transformer(
        replace(config, num_layers=1, num_decoder_layers=1),
        vocab_size=vocab_size,
        source_vocab_size=source_vocab_size,
    )
    more_in_encoder = (config.num_layers - 1) * _elements(model.encoder)
    more_in_decoder = (config.decoder_depth - 1) * _elements(model.decoder)
    return _elements(model) + more_in_encoder + more_in_decoder


def _elements(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class _NothingDrawn(TorchFunctionMode):
    """Leave out the initial weights.

    To draw on the meta device PyTorch imports its compiler, which takes a second and makes a folder
    in /tmp that another user may have taken.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        # `torch.nn.init` passes on the first two; the others it draws with itself.
        if func in (nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_):
            return kwargs["tensor"]
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        return func(*args, **kwargs)
