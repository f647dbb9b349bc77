"""A class of models that the package doesn't have, as a user writes it into a file."""

import sys
from pathlib import Path

import pytest

GATED = """\
import torch
from torch import Tensor, nn

from seq2seq.config import TransformerConfig
from seq2seq.transformer import FeedForward, Transformer


class GatedFeedForward(FeedForward):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.gate = nn.Linear(config.d_model, config.d_ff)
        self.register_buffer("middle", torch.full((1,), 0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(torch.sigmoid(self.gate(x)) * self.inner(x) + self.middle))


class GatedTransformer(Transformer):
    def __init__(self, config: TransformerConfig, *, init_std=None, **sizes: int) -> None:
        super().__init__(config, **sizes)
        for layer in (*self.encoder.layers, *self.decoder.layers):
            layer.feed_forward = GatedFeedForward(config)
        self.reset_parameters(init_std)


class OtherTransformer(Transformer):
    pass
"""


def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str) -> None:
    """Write a module into a folder, make it the current one, and forget both after the test."""
    (folder / f"{name}.py").write_text(code)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, name, sys)  # so that it is restored: as absent
    monkeypatch.delitem(sys.modules, name)
