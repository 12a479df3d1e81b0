"""One node being drawn: its opset, types, inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = Any
Dims = tuple[int, ...]

#: Types that NumPy computes with.
PLAIN: tuple[str, ...] = (
    *("float", "double", "float16", "bfloat16", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
#: Types that are moved, cast and quantized, and not computed with.
NARROW_FLOATS = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float4e2m1", "float8e8m0")
NARROW = (*NARROW_FLOATS, "int4", "uint4", "int2", "uint2")
#: Operators that move elements, or look at sizes only.
_MOVING = (
    *("ConstantOfShape", "Flatten", "Identity", "If", "Loop", "Pad", "Reshape", "Scan", "Shape", "Size"),
    *("Squeeze", "TensorScatter", "Transpose", "Unsqueeze", "Gather", "Concat", "Slice"),
)
_TYPES = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    **{
        name: int(getattr(TensorProto, name.upper()))
        for name in (*PLAIN[2:], "int4", "uint4", "int2", "uint2", "complex64", "complex128")
    },
    "float8e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "float8e5m2": TensorProto.FLOAT8E5M2,
    "float8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
    "float8e8m0": TensorProto.FLOAT8E8M0,
    "float4e2m1": TensorProto.FLOAT4E2M1,
}
_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5)


class Made(NamedTuple):
    """A model, and arrays for those of its inputs that are no initializers."""

    model: onnx.ModelProto
    arrays: list[Array]


class Undrawn(Exception):
    """This version of the operator has no types that are drawn."""


class Draw:
    """Inputs are added in the order of the schema; ``model`` ends it."""

    def __init__(self, op: str, opset: int, random: np.random.Generator) -> None:
        self.op = op
        self.opset = opset
        self.random = random
        self.schema = onnx.defs.get_schema(op, opset)
        self.version = self.schema.since_version
        self.attributes: dict[str, Any] = {}
        self.outputs = 1
        #: Whether floats may be NaN, infinite or zero, and integers the ends of their range.
        self.special = self.coin(0.3)
        self.inputs: list[tuple[Array, bool] | None] = []
        self._types: dict[str, str] = {}
        self._outer: list[Array] = []

    # -- chances

    def coin(self, chance: float = 0.5) -> bool:
        return bool(self.random.random() < chance)

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def int(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return int(self.random.integers(low, high + 1))

    def size(self, least: int = 0) -> int:
        return max(least, self.one((0, 1, 1, 2, 3, 3, 4, 5)) if least == 0 else self.one((1, 2, 3, 4, 5)))

    def dims(self, rank: int | None = None, least: int = 0) -> Dims:
        """Sizes; empty tensors are one in ten where ``least`` is 0."""
        count = int(self.one((0, 1, 1, 2, 2, 3, 4))) if rank is None else rank
        least = least if least or self.coin(0.1) else 1
        return tuple(self.size(least) for _ in range(count))

    def axis(self, rank: int, negative: bool = True) -> int:
        return self.int(-rank if negative else 0, rank - 1)

    # -- types and arrays

    def type(self, parameter: str = "T", among: Sequence[str] = PLAIN) -> str:
        """The type that a parameter of the schema stands for, drawn once."""
        if among is PLAIN and self.op in _MOVING and self.coin(0.25):
            among = (*PLAIN, *NARROW)
        if parameter not in self._types:
            allowed = [
                name[7:-1]
                for constraint in self.schema.type_constraints
                if constraint.type_param_str == parameter
                for name in constraint.allowed_type_strs
                if name.startswith("tensor(") and name[7:-1] in among
            ]
            if not allowed:
                raise Undrawn(f"{self.op} of opset {self.opset} has none of {among} for {parameter}")
            often = "float" in allowed and self.coin(0.4)
            self._types[parameter] = "float" if often else self.one(sorted(allowed))
        return self._types[parameter]

    def bind(self, parameter: str, name: str) -> None:
        """Say what an output's parameter stands for that no input has."""
        self._types[parameter] = name

    def array(self, name: str, dims: Dims, low: float = -3, high: float = 3) -> Array:
        """Numbers of a type within bounds, but for special ones."""
        dtype = dtype_of(name)
        if name == "bool":
            return self.random.random(dims) < 0.5
        if dtype.kind in "iu":
            low = max(low, 0) if dtype.kind == "u" else low
            numbers = self.random.integers(int(low), int(high) + 1, dims)
            if self.special and abs(low) == abs(high):
                ends = np.iinfo(dtype)
                pick = self.random.choice(np.array([ends.min, ends.max, 0, 1], object), dims)
                numbers = np.where(self.random.random(dims) < 0.2, pick, numbers.astype(object))
            return np.asarray(numbers).astype(dtype)
        numbers = np.asarray(self.random.uniform(low, high, dims))
        if self.special and low == -high:
            chosen = self.random.choice(_SPECIAL, dims)
            numbers = np.where(self.random.random(dims) < 0.25, chosen, numbers)
        return numbers.astype(dtype)

    def add(self, array: Array, constant: bool | None = None) -> Array:
        """The next input; ``constant``: an initializer, by chance where it is None."""
        array = np.asarray(array)
        formal = self.schema.inputs[min(len(self.inputs), len(self.schema.inputs) - 1)]
        self._types[formal.type_str] = name_of(array)
        self.inputs.append((array, self.coin(0.1) if constant is None else constant))
        return array

    def given(self, index: int) -> Array:
        """An input that was drawn."""
        drawn = self.inputs[index]
        assert drawn is not None
        return drawn[0]

    def skip(self) -> None:
        """The next input is absent."""
        self.inputs.append(None)

    def tensor_of(self, name: str, dims: Dims) -> Array:
        """The next input, of a type whatever the schema says of others of its parameter."""
        return self.add(self.array(name, dims), False)

    def outer(self, array: Array) -> str:
        """An input of the model that is none of the node, for what is in its graphs; returns its name."""
        self._outer.append(np.asarray(array))
        return f"o{len(self._outer) - 1}"

    def undrawn(self, what: str) -> Undrawn:
        return Undrawn(f"{self.op} of opset {self.opset}: {what}")

    def tensor(self, dims: Dims, parameter: str = "T", low: float = -3, high: float = 3) -> Array:
        """The next input, of a parameter's type."""
        return self.add(self.array(self.type(parameter), dims, low, high))

    def numbers(self, numbers: Sequence[int], constant: bool = True) -> Array:
        """The next input: a list of i64."""
        return self.add(np.asarray(numbers, np.int64), constant)

    # -- the model

    def model(self) -> Made:
        """The model of this one node."""
        while self.inputs and self.inputs[-1] is None:
            self.inputs.pop()
        names = ["" if operand is None else f"x{i}" for i, operand in enumerate(self.inputs)]
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, results, **self.attributes)
        present = [(f"x{i}", *operand) for i, operand in enumerate(self.inputs) if operand is not None]
        present += [(f"o{i}", array, False) for i, array in enumerate(self._outer)]
        inputs = [
            helper.make_tensor_value_info(name, _TYPES[name_of(array)], array.shape)
            for name, array, constant in present
            if not constant
        ]
        tensors = [numpy_helper.from_array(array, name) for name, array, constant in present if constant]
        outputs = [
            helper.make_tensor_value_info(name, _TYPES[self._result(i)], None)
            for i, name in enumerate(results)
        ]
        graph = helper.make_graph([node], "graph", inputs, outputs, tensors)
        imports = [helper.make_opsetid("", self.opset)]
        version = 10 if self.opset <= 21 else onnx.IR_VERSION
        proto = helper.make_model(graph, opset_imports=imports, ir_version=version)
        return Made(proto, [array for _, array, constant in present if not constant])

    def _result(self, index: int) -> str:
        formal = self.schema.outputs[min(index, len(self.schema.outputs) - 1)].type_str
        return formal[7:-1] if formal.startswith("tensor(") else self.type(formal)


Drawer = Callable[[Draw], None]

#: operator -> what draws its inputs and attributes.
DRAWERS: dict[str, Drawer] = {}


def draws(*ops: str) -> Callable[[Drawer], Drawer]:
    """Register a function for operators."""

    def register(function: Drawer) -> Drawer:
        for op in ops:
            assert op not in DRAWERS, op
            DRAWERS[op] = function
        return function

    return register


def dtype_of(name: str) -> Any:
    """The NumPy type of a type's name."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(_TYPES[name]))


def name_of(array: Array) -> str:
    """The name of an array's type."""
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    return next(name for name, number in _TYPES.items() if number == element)


def data_type(name: str) -> int:
    """The number of a type, as attributes have it."""
    return _TYPES[name]
