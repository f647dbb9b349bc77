"""The logits and the gradients of a model on a batch, by which its fast forms are compared."""

import torch
from torch import Tensor

from seq2seq.model import Transformer

SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]])
TARGET = torch.tensor([[2, 9, 8, 7], [2, 10, 2, 0]])


def values_and_gradients(model: Transformer) -> dict[str, Tensor]:
    model.zero_grad()
    logits = model(SOURCE, TARGET)
    (logits.double().tanh() * torch.arange(logits.size(-1))).sum().backward()
    return {"logits": logits.detach()} | {n: p.grad for n, p in model.named_parameters()}
