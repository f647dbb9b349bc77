"""The tensors of model folders of format 1, under their current names.

Format 1 kept W^Q, W^K and W^V of an attention as the rows of one matrix, and Adam's moments by the
number of the parameter.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from seq2seq.model import TransformerConfig

_RENAMED = {
    "encoder.layers.": "encoder.",
    "decoder.layers.": "decoder.",
    "self_attention_norm.": "after_self_attention.norm.",
    "cross_attention_norm.": "after_memory_attention.norm.",
    "feed_forward_norm.": "after_feed_forward.norm.",
    "cross_attention.": "memory_attention.",
    ".w_o.": ".output.",
    "positions.": "embedding.positions.",
}
_PROJECTION = re.compile(r"(.+)\.w_([qkv])\.(weight|bias)")


class Place(NamedTuple):
    """The place of a parameter in format 1."""

    name: str
    rows: slice
    """The rows of the tensor of that name."""


def find_place(name: str, config: TransformerConfig) -> Place:
    """Find where format 1 keeps the parameter that now has this name."""
    rows = slice(None)
    if found := _PROJECTION.fullmatch(name):
        attention, letter, kind = found.groups()
        name = f"{attention}.projection.{kind}"
        keys, values = (
            config.num_heads * width for width in (config.key_width, config.value_width)
        )
        start = {"q": 0, "k": keys, "v": 2 * keys}[letter]
        rows = slice(start, start + (values if letter == "v" else keys))
    for today, before in _RENAMED.items():
        name = name.replace(today, before)
    return Place(name, rows)


def expected_weights(
    parameters: Mapping[str, Tensor], config: TransformerConfig
) -> dict[str, Tensor]:
    """Return names and shapes of a model's parameters in format 1, in the order of their numbers.

    Args:
        parameters: by their current names, in the model's order; meta tensors suffice.
        config: the hyperparameters of the model.
    """
    expected: dict[str, Tensor] = {}
    for name, value in parameters.items():
        name_then = find_place(name, config).name
        length = len(expected.get(name_then, ())) + len(value)
        expected[name_then] = value.new_empty((length, *value.shape[1:]), device="meta")
    return expected


def rename_weights(
    weights: Mapping[str, Tensor], parameters: Mapping[str, Tensor], config: TransformerConfig
) -> dict[str, Tensor]:
    """Return weights of format 1 under their current names."""
    places = {name: find_place(name, config) for name in parameters}
    # Cloned, because parameters that share memory can't be saved.
    return {name: weights[place.name][place.rows].clone() for name, place in places.items()}


def number_parameters(
    parameters: Mapping[str, Tensor], config: TransformerConfig
) -> dict[str, Tensor]:
    """Return the numbers and shapes of the parameters in the optimizer's state of format 1."""
    values = expected_weights(parameters, config).values()
    return {str(number): value for number, value in enumerate(values)}


def rename_moments(
    moments: Mapping[str, Tensor], parameters: Mapping[str, Tensor], config: TransformerConfig
) -> dict[str, Tensor]:
    """Rename Adam's moments from `NUMBER.MOMENT` of format 1 to the current `NAME.MOMENT`."""
    indices = {name: number for number, name in enumerate(expected_weights(parameters, config))}
    renamed = {}
    for name in parameters:
        place = find_place(name, config)
        for moment in ("step", "exp_avg", "exp_avg_sq"):
            value = moments[f"{indices[place.name]}.{moment}"]
            renamed[f"{name}.{moment}"] = (value[place.rows] if value.dim() else value).clone()
    return renamed
