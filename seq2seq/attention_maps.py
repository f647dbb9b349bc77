"""Who attends to whom while a model reads one sentence and is made to say another (Figures 3-5)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from seq2seq.data.tokenizer import END_ID, START_ID, Tokenizer
from seq2seq.model import Transformer
from seq2seq.model.transformer import MultiHeadAttention


@dataclass(frozen=True)
class Attention:
    """The weights of every attention for one pair of sentences; L layers, H heads."""

    source: list[str]
    """S pieces, the last of them ``</s>``."""
    target_input: list[str]
    """T pieces, the first of them the start symbol."""
    encoder: Tensor
    """(L, H, S, S): the weight that a source position (row) gives to each (column)."""
    decoder: Tensor
    """(L, H, T, T): the same for target positions."""
    cross: Tensor
    """(L, H, T, S): the weight that a target position gives to each source position."""


@torch.no_grad()
def forced_attention(
    model: Transformer, tokenizer: Tokenizer, source_ids: list[int], target_ids: list[int]
) -> Attention:
    """Run a model in evaluation over a pair of sentences and keep its weights.

    Args:
        model: computes in the type and on the device of its weights.
        tokenizer: names the pieces.
        source_ids: without the end symbol.
        target_ids: without start and end symbols.
    """
    source, target_input = [*source_ids, END_ID], [START_ID, *target_ids]
    device = model.embedding.weight.device
    recorded: list[Tensor] = []
    hooks = [
        module.dropout.register_forward_pre_hook(lambda _, inputs: recorded.append(inputs[0]))
        for module in model.modules()
        if isinstance(module, MultiHeadAttention)
    ]
    model(torch.tensor([source], device=device), torch.tensor([target_input], device=device))
    for hook in hooks:
        hook.remove()
    weights = [layer.squeeze(0) for layer in recorded]
    layers = model.config.num_layers
    return Attention(
        source=tokenizer.pieces(source),
        target_input=tokenizer.pieces(target_input),
        encoder=torch.stack(weights[:layers]),
        decoder=torch.stack(weights[layers::2]),
        cross=torch.stack(weights[layers + 1 :: 2]),
    )
