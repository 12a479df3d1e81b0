"""Draws branches, loops and scans, whose bodies are chains of operators that compute element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.conformance.onnx_models.generated.draw import Dims, Draw, data_type, draws, dtype_of

_ELEMENTS = ("float", "double", "float16", "int32", "int64", "uint8")
_STEPS = ("Add", "Sub", "Mul", "Max", "Min")


class Body:
    """A graph being drawn: names of values in, nodes, names of values out."""

    def __init__(self, d: Draw, prefix: str) -> None:
        self.d, self.prefix = d, prefix
        self.nodes: list[onnx.NodeProto] = []

    def emit(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node of one result; returns its name."""
        name = f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        return self.emit("Constant", value=numpy_helper.from_array(array, ""))

    def chain(self, values: Sequence[str], element: str) -> str:
        """A value of some of ``values`` and a constant, of their shape."""
        result = self.d.one(values)
        for _ in range(self.d.int(1, 3)):
            number = np.asarray(self.d.int(1, 3)).astype(dtype_of(element))
            other = self.d.one([*values, self.constant(number)])
            op = self.d.one(_STEPS)
            if op in ("Max", "Min") and (self.d.opset < 12 or element == "uint8"):
                op = "Add"
            result = self.emit(op, result, other)
        return self.emit("Identity", result)

    def graph(self, inputs: list[tuple[str, str, Dims]], outputs: list[tuple[str, str]]) -> onnx.GraphProto:
        """With names, types and shapes of what comes in, and names and types of what comes out."""
        return helper.make_graph(
            self.nodes,
            f"{self.prefix}body",
            [helper.make_tensor_value_info(name, data_type(kind), dims) for name, kind, dims in inputs],
            [helper.make_tensor_value_info(name, data_type(kind), None) for name, kind in outputs],
        )


def _element(d: Draw) -> str:
    return d.one(_ELEMENTS[:1] if d.opset < 14 else _ELEMENTS)


@draws("If")
def branch(d: Draw) -> None:
    """Each branch reads inputs of the model, which are in its scope."""
    d.special = False
    element, dims = _element(d), d.dims(least=1)
    outer = [d.outer(d.array(element, dims, 0, 3)) for _ in range(2)]
    d.add(np.asarray(d.coin()), d.coin(0.3))
    d.outputs = d.int(1, 2)
    for side in ("then_branch", "else_branch"):
        body = Body(d, side[:1])
        results = [(body.chain(outer, element), element) for _ in range(d.outputs)]
        d.attributes[side] = body.graph([], results)
    d.bind("V", element)


@draws("Loop")
def loop(d: Draw) -> None:
    d.special = False
    element, dims, turns = _element(d), d.dims(d.int(0, 3), 1), d.int(0, 4)
    d.add(np.asarray(turns, np.int64), True)
    if d.coin():
        d.add(np.asarray(True), True)
    else:
        d.skip()
    carried, stacked = d.int(1, 2), d.int(0, 2)
    for _ in range(carried):
        d.tensor_of(element, dims)
    body = Body(d, "l")
    names = [f"c{i}" for i in range(carried)]
    values = [*names, body.emit("Cast", "turn", to=data_type(element))]
    results = [(body.chain(names, element), element) for _ in range(carried)]
    scans = [
        (body.chain([*names, values[-1]] if not dims else names, element), element) for _ in range(stacked)
    ]
    go_on = body.emit("Identity", "go")
    d.attributes["body"] = body.graph(
        [("turn", "int64", ()), ("go", "bool", ()), *((name, element, dims) for name in names)],
        [(go_on, "bool"), *results, *scans],
    )
    d.outputs = carried + stacked
    d.bind("V", element)


@draws("Scan")
def scan(d: Draw) -> None:
    d.special = False
    element, dims, turns = _element(d), d.dims(d.int(0, 2), 1), d.int(1, 4)
    batch = d.int(1, 2)
    states, inputs, stacked = d.int(1, 2), d.int(1, 2), d.int(1, 2)
    old = d.version < 9
    if old:
        d.skip()
    for _ in range(states):
        d.tensor_of(element, (batch, *dims) if old else dims)
    axes = [0 if old else d.int(0, len(dims)) for _ in range(inputs)]
    for axis in axes:
        whole = (batch, turns, *dims) if old else (*dims[:axis], turns, *dims[axis:])
        d.tensor_of(element, whole)
    body = Body(d, "s")
    names = [*(f"c{i}" for i in range(states)), *(f"i{i}" for i in range(inputs))]
    results = [(body.chain(names, element), element) for _ in range(states + stacked)]
    d.attributes["body"] = body.graph([(name, element, dims) for name in names], results)
    d.attributes["num_scan_inputs"] = inputs
    if old:
        if d.coin():
            d.attributes["directions"] = [d.int(0, 1) for _ in range(inputs)]
    else:
        _ways(d, axes, stacked, len(dims))
    d.outputs = states + stacked
    d.bind("V", element)


def _ways(d: Draw, axes: list[int], stacked: int, rank: int) -> None:
    """Axes and directions of a scan's inputs and outputs."""
    negative = d.version >= 11 and d.coin(0.3)
    if any(axes):
        d.attributes["scan_input_axes"] = [axis - rank - 1 if negative else axis for axis in axes]
    if d.coin():
        d.attributes["scan_input_directions"] = [d.int(0, 1) for _ in axes]
    if d.coin():
        d.attributes["scan_output_directions"] = [d.int(0, 1) for _ in range(stacked)]
    if d.coin():
        d.attributes["scan_output_axes"] = [d.int(0, rank) for _ in range(stacked)]


@draws("Constant")
def constant(d: Draw) -> None:
    name = d.one(_ELEMENTS)
    ways = {
        "value": (name, numpy_helper.from_array(d.array(name, d.dims()), "value")),
        "value_float": ("float", 1.5),
        "value_floats": ("float", [1.5, -2.0]),
        "value_int": ("int64", 7),
        "value_ints": ("int64", [7, -2]),
    }
    way = d.one(list(ways) if d.version >= 12 else ["value"])
    kind, d.attributes[way] = ways[way]
    d.bind("T", kind)


@draws("OptionalHasElement", "OptionalGetElement")
def optional(d: Draw) -> None:
    """Of tensors, which both take since opset 18."""
    element = _element(d)
    if d.version < 18:
        raise d.undrawn("optionals")
    d.tensor_of(element, d.dims())
    d.bind("V", element)
    d.bind("B", "bool")
