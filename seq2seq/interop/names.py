"""The parameters of a layer under the names of Hugging Face's Marian, for export and import."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.model import TransformerConfig
from seq2seq.zoo.modern import modern_choices

EMBEDDINGS = {
    "shared": "model.shared.weight",
    "source": "model.encoder.embed_tokens.weight",
    "target": "model.decoder.embed_tokens.weight",
    "output": "lm_head.weight",
}
OUTPUT_BIAS = "final_logits_bias"

NEVER = -100.0
"""The bias of a piece that no output contains: it leaves nothing of its probability, and a label-
smoothed loss, to which every logit contributes, stays small."""


class LayerNames(NamedTuple):
    """A linear layer or a norm, whose parameters are `weight` and `bias`."""

    name: str  # its name in this package
    marian: str  # its name in Marian
    reads_state: bool  # whether its inputs are features of a state; otherwise its outputs are


def layer_names(config: TransformerConfig) -> Iterator[LayerNames]:
    """Yield the names of all linear layers and norms."""
    for side, depth in (("encoder", config.num_layers), ("decoder", config.decoder_depth)):
        parts = [
            ("feed_forward.inner", "fc1", True),
            ("feed_forward.outer", "fc2", False),
            ("feed_forward_norm", "final_layer_norm", False),
        ]
        attentions = {"self_attention": "self_attn"}
        if side == "decoder":
            attentions["cross_attention"] = "encoder_attn"
        for name, marian in attentions.items():
            parts += [(f"{name}.w_{x}", f"{marian}.{x}_proj", True) for x in "qkv"]
            parts.append((f"{name}.w_o", f"{marian}.out_proj", False))
            parts.append((f"{name}_norm", f"{marian}_layer_norm", False))
        for index in range(depth):
            layer = f"{side}.layers.{index}"
            for name, marian, reads_state in parts:
                yield LayerNames(f"{layer}.{name}", f"model.{layer}.{marian}", reads_state)


def features_of_marian(d_model: int) -> Tensor:
    """Return the feature here of each feature in Marian, (D,).

    Marian's positions are all sines, then all cosines, where the paper's alternate, at the same
    angles. So the elements of every state are permuted.
    """
    return torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))


def permute(value: Tensor, layer: LayerNames, order: Tensor) -> Tensor:
    """Put the features of the states that a parameter reads or writes into another order."""
    if not layer.reads_state:
        return value[order]
    return value[:, order] if value.dim() == 2 else value


MAX_POSITIONS = 1088
"""Number of positions to write: enough for 1,024 source tokens and a somewhat longer output."""


def check_expressible(config: TransformerConfig, program: str) -> None:
    """Check that the other program, too, can express the model's layers and heads."""
    if choices := modern_choices(config):
        raise UserError(
            f"only models of the paper's layers can be exported to {program}: this one has"
            f" {', '.join(choices)}"
        )
    width = config.d_model / config.num_heads
    if (config.key_width, config.value_width) != (width, width):
        raise UserError(
            f"{program}'s heads are d_model / num_heads wide: a model with another d_k or d_v can't"
            " be exported"
        )
