"""A graph of ONNX, node by node, whose matrices are in float32 or in eight-bit integers.

A matrix (outputs, inputs) is stored transposed, as MatMul reads it. In int8, an element is a byte
from 1 to 255, of which 128 is zero, and each output has a scale of its own; the inputs of a product
get theirs when it is computed. Bytes without a sign are the only ones whose products no processor
cuts off: for signed ones, those without VNNI add pairs of products in 16 bits.
"""

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from seq2seq.errors import UserError

Precision: TypeAlias = Literal["fp32", "int8"]

_OPSET, _IR_VERSION = 17, 8
"""The first operators with LayerNormalization, and the file format of that time."""
_MAX_BYTES = 2**31 - 2**24
"""The weights that fit into one file: Protocol Buffers end at 2 GiB."""
_ZERO, _LARGEST = 128, 127
"""The byte that stands for zero, and the largest difference from it."""


class Graph:
    """The nodes of a graph and its constants; a value is known by its name.

    Constants have the names of the model's parameters, each of which is stored once.
    """

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        try:
            import onnx.helper
            import onnx.numpy_helper
        except ImportError:
            raise UserError("this export needs onnx: pip install 'seq2seq[onnx]'") from None
        self._onnx: Any = onnx
        self._precision = precision
        self._parameter_names = {id(p): name for name, p in model.named_parameters()}
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: dict[str, NDArray[Any]] = {}
        self._small: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._made: dict[tuple[str, tuple[str, ...], str], list[str]] = {}

    # Nodes and constants.

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        return self.nodes(operator, 1, *inputs, **attributes)[0]

    def nodes(self, operator: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node, unless there is an equal one, and return the names of its outputs."""
        key = operator, inputs, repr(attributes)
        if key not in self._made:
            names = [f"{operator}_{len(self._nodes)}_{i}" for i in range(outputs)]
            self._nodes.append(self._onnx.helper.make_node(operator, inputs, names, **attributes))
            self._made[key] = names
        return self._made[key]

    def cast(self, x: str, dtype: str) -> str:
        """Convert to a type of ONNX's, such as FLOAT."""
        return self.node("Cast", x, to=self._onnx.TensorProto.DataType.Value(dtype))

    def floats(self, value: Any, dtype: type = np.float32) -> str:
        """Add a small constant of numbers with a fraction."""
        return self._constant(np.asarray(value, dtype))

    def integers(self, *values: int) -> str:
        """Add a small constant (n,), as axes and shapes are given."""
        return self._constant(np.asarray(values, np.int64))

    def integer(self, value: int) -> str:
        """Add an integer without dimensions."""
        return self._constant(np.asarray(value, np.int64))

    def _byte(self, value: int) -> str:
        return self._constant(np.asarray(value, np.uint8))

    def parameter(self, value: Tensor) -> str:
        """Add a parameter of the model as it is, in float32."""
        return self._named(self._parameter_names[id(value)], _array(value))

    def _constant(self, array: NDArray[Any]) -> str:
        key = array.dtype.str, array.shape, array.tobytes()
        name = self._small.setdefault(key, f"constant_{len(self._small)}")
        return self._named(name, array)

    def _named(self, name: str, array: NDArray[Any]) -> str:
        self._constants[name] = array
        return name

    def size(self, x: str, axis: int) -> str:
        """Return the size of an axis, an integer without dimensions."""
        return self.node("Squeeze", self.node("Shape", x, start=axis, end=axis + 1))

    def range(self, first: str, count: str) -> str:
        """Return the integers from `first` on, (count,)."""
        counted = self.node("Range", self.integer(0), count, self.integer(1))
        return self.node("Add", counted, first)

    # Matrices.

    def linear(self, x: str, linear: nn.Linear) -> str:
        """Map x (..., inputs) to (..., outputs)."""
        return self.product(x, linear.weight, linear.bias)

    def product(self, x: str, weight: Tensor, bias: Tensor | None) -> str:
        """Map x (..., inputs) to x weight^T + bias, with weight (outputs, inputs)."""
        matrix, scale = self._matrix(weight)
        if scale is None:
            y = self.node("MatMul", x, matrix)
        else:
            quantized, scale_of_x, zero = self.nodes("DynamicQuantizeLinear", 3, x)
            y = self.node("MatMulInteger", quantized, matrix, zero, self._byte(_ZERO))
            y = self.cast(y, "FLOAT")
            y = self.node("Mul", y, self.node("Mul", scale_of_x, scale))
        return y if bias is None else self.node("Add", y, self.parameter(bias))

    def rows(self, weight: Tensor, ids: str) -> str:
        """Take rows of a matrix (V, D) by ids (B, T): (B, T, D)."""
        matrix, scale = self._matrix(weight)
        x = self.node("Transpose", self.node("Gather", matrix, ids, axis=1), perm=[1, 2, 0])
        if scale is None:
            return x
        scales = self.node("Unsqueeze", self.node("Gather", scale, ids), self.integers(2))
        x = self.node("Sub", self.cast(x, "FLOAT"), self.floats(_ZERO))
        return self.node("Mul", x, scales)

    def _matrix(self, weight: Tensor) -> tuple[str, str | None]:
        """Add a matrix (outputs, inputs): its name, and in int8 that of its scales (outputs,)."""
        name = self._parameter_names[id(weight)]
        scales = None if self._precision == "fp32" else f"{name}_scale"
        if name not in self._constants:
            matrix = _array(weight)
            if scales is not None:
                largest = np.abs(matrix).max(axis=1)
                scale = np.where(largest > 0, largest, 1) / np.float32(_LARGEST)
                matrix = (np.rint(matrix / scale[:, None]) + _ZERO).astype(np.uint8)
                self._named(scales, scale)
            self._named(name, np.ascontiguousarray(matrix.T))
        return name, scales

    # Inputs, outputs, and the file.

    def input(self, name: str, dtype: str, *shape: str | int) -> str:
        """Declare an input; a size that is not fixed has a name."""
        self._inputs.append(self._info(name, dtype, shape))
        return name

    def output(self, name: str, x: str, *shape: str | int) -> None:
        """Give a value of float32 the name of an output."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [x], [name]))
        self._outputs.append(self._info(name, "FLOAT", shape))

    def _info(self, name: str, dtype: str, shape: tuple[str | int, ...]) -> Any:
        number = self._onnx.TensorProto.DataType.Value(dtype)
        return self._onnx.helper.make_tensor_value_info(name, number, shape)

    def serialize(self, name: str, max_bytes: int = _MAX_BYTES) -> bytes:
        """Return the content of a file of ONNX."""
        size = sum(array.nbytes for array in self._constants.values())
        if size > max_bytes:
            raise UserError(
                f"a file of ONNX has at most 2 GB, and the {name} has {size / 2**30:.1f}"
                + ("" if self._precision == "int8" else ": give --precision int8")
            )
        helper, tensor = self._onnx.helper, self._onnx.numpy_helper.from_array
        constants = [tensor(array, key) for key, array in self._constants.items()]
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, constants)
        operators = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(
            graph, opset_imports=operators, ir_version=_IR_VERSION, producer_name="seq2seq"
        )
        content: bytes = model.SerializeToString()
        return content


def _array(value: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = value.detach().float().cpu().numpy()
    return array
