"""The paper's Transformer in NumPy, the oracle of `seq2seq/model/transformer.py`.

Its functions are those of `seq2seq/paper/README.md`, for one sentence at a time, so that nothing is
padded and no batch is needed. Here they become the variants of the paper's model, too.
"""

import ast
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2seq.config import Activation, Positions, Start
from seq2seq.transformer import Transformer

Array = NDArray[np.float64]
PAGE = Path(__file__).parents[2] / "seq2seq" / "paper" / "README.md"


def page_functions() -> dict[str, Any]:
    """The functions that the page defines, in a namespace of their own."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S))
    defined = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    namespace = {"math": math, "np": np, "EPSILON": 1e-6}
    exec(compile(ast.Module(defined, []), str(PAGE), "exec"), namespace)
    return namespace


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


def concatenated(length: int, d: int) -> Array:
    """All sines, then all cosines, as tensor2tensor computes them."""
    angle = np.outer(np.arange(length), 10000 ** (-np.arange(d // 2) / (d // 2 - 1)))
    return np.concatenate((np.sin(angle), np.cos(angle)), axis=1)


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
        self.config, self.start_id = model.config, model.start_id
        self.p = {name: value.numpy() for name, value in model.state_dict().items()}
        self.page = page_functions()
        softmax, activation = self.page["softmax"], ACTIVATIONS.get(self.config.activation)
        self.page |= {
            "EPSILON": self.config.layer_norm_epsilon,
            "dropout": lambda x: kept * x,
            "softmax": lambda scores: kept_weights * softmax(scores),
            "relu": lambda x: kept_relu * activation(x),
        }
        if self.config.positions is Positions.learned:
            self.page["positions"] = lambda length, _: self.p["positions.weight"][:length]
        if self.config.positions is Positions.concatenated:
            self.page["positions"] = concatenated

    def embed(self, matrix: Array, ids: list[int]) -> Array:
        if self.config.start is Start.zero:
            matrix = matrix.copy()
            matrix[self.start_id] = 0
        return self.page["embed"](matrix, ids)

    def logits(self, source: list[int], target_input: list[int]) -> Array:
        """(T, V), for sentences without padding."""
        p, heads, stack = self.p, self.config.num_heads, self.page["stack"]
        shared = p["embedding.weight"]
        target = p.get("own_target_embedding.weight", shared)
        memory = stack(p, "encoder", heads, self.embed(shared, source))
        states = stack(p, "decoder", heads, self.embed(target, target_input), memory)
        return states @ p.get("own_output_matrix", target).T + p.get("output_bias", 0.0)
