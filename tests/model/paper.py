"""The paper's Transformer in NumPy: the oracle of `seq2seq/model/transformer.py`.

Sections 3.1 to 3.5, one sentence at a time, so that nothing is padded and no batch is needed. The
causal mask of the decoder is the only mask.
"""

import math

import numpy as np
from numpy.typing import NDArray

from seq2seq.model import Transformer
from seq2seq.model.config import Activation, Positions, Start

Array = NDArray[np.float64]


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def normal_distribution(x: Array) -> Array:
    return np.vectorize(lambda value: 0.5 * (1.0 + math.erf(value / math.sqrt(2.0))))(x)


ACTIVATIONS = {
    Activation.relu: lambda x: np.maximum(0, x),
    Activation.swish: lambda x: x * sigmoid(x),
    Activation.gelu: lambda x: x * normal_distribution(x),
    Activation.quick_gelu: lambda x: x * sigmoid(1.702 * x),
}


class Paper:
    """The equations with the parameters of a model.

    Each `kept...` is what dropout does to the numbers that it applies to: to sublayers' outputs and
    embeddings, to attention weights, and to the hidden layer of the feed-forward networks.
    """

    def __init__(
        self,
        model: Transformer,
        kept: float = 1.0,
        kept_weights: float = 1.0,
        kept_relu: float = 1.0,
    ) -> None:
        self.config = model.config
        self.start_id = model.start_id
        self.p = {name: value.numpy() for name, value in model.state_dict().items()}
        self.kept, self.kept_weights, self.kept_relu = kept, kept_weights, kept_relu

    def linear(self, name: str, x: Array) -> Array:
        return x @ self.p[f"{name}.weight"].T + self.p.get(f"{name}.bias", 0.0)

    def attention(self, name: str, x: Array, memory: Array, causal: bool) -> Array:
        """Equation 1 for each head, concatenated, times W^O."""
        h = self.config.num_heads
        query = np.split(self.linear(f"{name}.w_q", x), h, axis=1)
        key = np.split(self.linear(f"{name}.w_k", memory), h, axis=1)
        value = np.split(self.linear(f"{name}.w_v", memory), h, axis=1)
        heads = []
        for q, k, v in zip(query, key, value, strict=True):
            scores = q @ k.T / math.sqrt(k.shape[1])
            if causal:
                scores[np.triu_indices(len(x), 1)] = -math.inf
            weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            heads.append(self.kept_weights * weights @ v)
        return self.linear(f"{name}.w_o", np.concatenate(heads, axis=1))

    def feed_forward(self, name: str, x: Array) -> Array:
        hidden = ACTIVATIONS[self.config.activation](self.linear(f"{name}.inner", x))
        return self.linear(f"{name}.outer", self.kept_relu * hidden)

    def position(self, pos: int, dim: int) -> float:
        d = self.config.d_model
        if self.config.positions is Positions.learned:
            return float(self.p["positions.weight"][pos, dim])
        if self.config.positions is Positions.concatenated:
            angle = pos * math.exp(-math.log(10000) / (d // 2 - 1) * (dim % (d // 2)))
            return math.sin(angle) if dim < d // 2 else math.cos(angle)
        angle = pos / 10000 ** ((dim - dim % 2) / d)
        return math.cos(angle) if dim % 2 else math.sin(angle)

    def embed(self, matrix: Array, ids: list[int]) -> Array:
        d = self.config.d_model
        rows = matrix[ids] * math.sqrt(d)
        if self.config.start is Start.zero:
            rows[[i for i, token in enumerate(ids) if token == self.start_id]] = 0
        positions = [[self.position(pos, dim) for dim in range(d)] for pos in range(len(ids))]
        return self.kept * (rows + np.array(positions))

    def add_and_norm(self, name: str, x: Array, sublayer: Array) -> Array:
        x = x + self.kept * sublayer
        mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
        x = (x - mean) / np.sqrt(variance + self.config.layer_norm_epsilon)
        return x * self.p[f"{name}_norm.weight"] + self.p[f"{name}_norm.bias"]

    def layer(self, name: str, x: Array, memory: Array | None) -> Array:
        attended = self.attention(f"{name}.self_attention", x, x, memory is not None)
        x = self.add_and_norm(f"{name}.self_attention", x, attended)
        if memory is not None:
            attended = self.attention(f"{name}.cross_attention", x, memory, False)
            x = self.add_and_norm(f"{name}.cross_attention", x, attended)
        fed = self.feed_forward(f"{name}.feed_forward", x)
        return self.add_and_norm(f"{name}.feed_forward", x, fed)

    def logits(self, source: list[int], target_input: list[int]) -> Array:
        """(T, V), for sentences without padding."""
        shared = self.p["embedding.weight"]
        target = self.p.get("own_target_embedding.weight", shared)
        memory, x = self.embed(shared, source), self.embed(target, target_input)
        for i in range(self.config.num_layers):
            memory = self.layer(f"encoder.layers.{i}", memory, None)
        for i in range(self.config.num_decoder_layers or self.config.num_layers):
            x = self.layer(f"decoder.layers.{i}", x, memory)
        return x @ self.p.get("own_output_matrix", target).T + self.p.get("output_bias", 0.0)
