"""Tiny models that were never trained."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from seq2seq.config import Activation, Norm, NormPosition, Positions, TransformerConfig
from seq2seq.model_folder import TrainedModel, new_transformer, save_model
from seq2seq.tokenizer import Tokenizer

SIZES = {"num_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 2}
MODERN: list[dict[str, Any]] = [
    {"norm_position": NormPosition.pre},
    {"norm": Norm.rms},
    {"positions": Positions.rotary},
    {"activation": Activation.swiglu},
    {"num_kv_heads": 1},
    {"bias": False},
]
"""Each change of `zoo/modern.py` alone."""
ALL_MODERN = {name: value for change in MODERN for name, value in change.items()}


def perturb(model: nn.Module) -> None:
    """Add random numbers to all parameters, since no bias and no norm of a new model does a thing.

    With them, a model that was never trained translates into text that depends on the source.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)


def save_untrained(folder: Path, tokenizer: Tokenizer, **sizes: int) -> Path:
    """Save a new model from English to German, and return its folder."""
    torch.manual_seed(1)
    model = new_transformer(TransformerConfig(**(SIZES | sizes)), tokenizer.vocab_size)
    save_model(folder, TrainedModel(model, tokenizer, "en", "de"))
    return folder
