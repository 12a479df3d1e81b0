"""Random programs of what rewrites look for: what they become computes what was written, in f64."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.graph.element_types import read_scalar
from kcache_compiler.spec.graph.nodes import Node, View, spread_size
from kcache_compiler.spec.rendering.contraction import read_ints
from kcache_compiler.spec.text import parse_spec

TENSOR, SHAPE = "tensor<3x5xf32>", (3, 5)
UNARY: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "chlo.erf": special.erf,
    "chlo.erfc": special.erfc,
    "exponential": np.exp,
    "logistic": special.expit,
    "negate": np.negative,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "power": np.power,
    "subtract": np.subtract,
}
REDUCE: dict[str, Any] = {"add": np.sum, "maximum": np.max}
START = {"add": "0.0", "maximum": "0xFF800000"}
CONSTANTS = [0.0, 1.0, -1.0, 2.0, 3.0, 0.5, 0.1, 0.9, 0.999, 0.001, 1e-5, 0.5**0.5, 0.044715, 0.797884583]
EXPONENTS = [1.0, 2.0, 3.0]


class Program:
    """A program under construction, with the values that it computes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        numbers = np.random.default_rng(seed)
        self.arguments = [numbers.normal(size=SHAPE).astype(np.float32), numbers.normal(size=SHAPE, scale=3)]
        if seed % 2:
            self.arguments[0].flat[:4] = np.nan, 0, -0.0, -np.inf
            self.arguments[1].flat[2:4] = np.inf, -0.0
        self.arguments = [a.astype(np.float32).astype(np.float64) for a in self.arguments]
        self.lines: list[str] = []
        self.values: list[tuple[str, Any]] = [("%x", self.arguments[0]), ("%y", self.arguments[1])]

    def text(self) -> str:
        results = [name for name, _ in self.values[-2:]]
        head = f"func.func @main(%x: {TENSOR}, %y: {TENSOR}) -> ({TENSOR}, {TENSOR}) {{"
        return "\n".join([head, *self.lines, f"return {', '.join(results)} : {TENSOR}, {TENSOR}", "}"])

    def name(self) -> str:
        return f"%v{len(self.lines)}"

    def constant(self, values: list[float], type: str = TENSOR) -> tuple[str, Any]:
        number, name = self.random.choice(values), self.name()
        self.lines.append(f"{name} = stablehlo.constant dense<{number:.9e}> : {type}")
        return name, np.full(SHAPE, float(np.float32(number)))

    def value(self) -> tuple[str, Any]:
        return self.random.choice(self.values[-5:])

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.3:
            op, (operand, value) = self.random.choice(list(UNARY)), self.value()
            name = self.name()
            native = op if "." in op else f"stablehlo.{op}"
            self.lines.append(f'{name} = "{native}"({operand}) : ({TENSOR}) -> {TENSOR}')
            self.values.append((name, UNARY[op](value)))
        elif kind < 0.85:
            self.binary()
        else:
            self.reduction()

    def binary(self) -> None:
        op, left = self.random.choice(list(BINARY)), self.value()
        right = self.value() if self.random.random() < 0.5 else self.constant(CONSTANTS)
        if op == "power":
            right = self.constant(EXPONENTS)
        elif self.random.random() < 0.5:
            left, right = right, left
        name = self.name()
        self.lines.append(f"{name} = stablehlo.{op} {left[0]}, {right[0]} : {TENSOR}")
        self.values.append((name, BINARY[op](left[1], right[1])))

    def reduction(self) -> None:
        """Along one axis and back, often divided by the number of elements."""
        op, axis, (operand, value) = self.random.choice(list(REDUCE)), self.random.randrange(2), self.value()
        row = f"tensor<{SHAPE[1 - axis]}xf32>"
        start, total = self.name() + "i", self.name() + "r"
        values = REDUCE[op](value, axis=axis, keepdims=True)
        lines = [
            f"{start} = stablehlo.constant dense<{START[op]}> : tensor<f32>",
            f"{total} = stablehlo.reduce({operand} init: {start}) applies stablehlo.{op} across dimensions = "
            f"[{axis}] : ({TENSOR}, tensor<f32>) -> {row}",
        ]
        if self.random.random() < 0.6:
            count, summed, total = total + "n", total, total + "d"
            lines.append(f"{count} = stablehlo.constant dense<{SHAPE[axis]}.0> : {row}")
            lines.append(f"{total} = stablehlo.divide {summed}, {count} : {row}")
            values = values / SHAPE[axis]
        name = self.name()
        lines.append(
            f"{name} = stablehlo.broadcast_in_dim {total}, dims = [{1 - axis}] : ({row}) -> {TENSOR}"
        )
        self.lines.append("\n".join(lines))
        self.values.append((name, np.broadcast_to(values, SHAPE)))


def shown(value: Any, view: View) -> Any:
    """A view of a value: its axes where the view names them, else repeated."""
    used = [entry for entry in view if entry >= 0]
    rest = [axis for axis in range(value.ndim) if axis not in used]
    value = value.transpose([*used, *rest])[(..., *[0] * len(rest))]
    value = value[tuple(slice(None) if entry >= 0 else None for entry in view)]
    sizes = [value.shape[d] if entry >= 0 else spread_size(entry) for d, entry in enumerate(view)]
    return np.broadcast_to(value, sizes)


def computed(node: Node, operands: list[Any]) -> Any:
    if node.op == "constant":
        return np.array(read_scalar(node.attributes, node.results[0].element), np.float64)
    if node.op == "reduce":
        combiner, _, dims = node.attributes.removeprefix("combiner = ").partition(", dimensions = ")
        return REDUCE[combiner](operands[0], axis=tuple(read_ints(dims)))
    return {**UNARY, **BINARY}[node.op](*operands)


def results(spec: str, arguments: list[Any]) -> list[Any]:
    body = parse_spec(spec).body
    values = list(arguments)
    for node in body.nodes:
        values.append(computed(node, [shown(values[ref.node], ref.view) for ref in node.operands]))
    return [shown(values[ref.node], ref.view) for ref in body.results]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("numerics", "tolerance"), [("strict", 1e-12), ("default", 1e-5)])
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_what_a_program_becomes_computes_what_it_did(first: int, numerics: str, tolerance: float) -> None:
    for seed in range(first, first + 20):
        with np.errstate(all="ignore"):
            program = Program(seed)
            for _ in range(5 + seed % 16):
                program.step()
            text = program.text()
            spec = canonicalize(text.encode(), "stablehlo", numerics, erasing=False).spec_text
            outcome = results(spec, program.arguments)
        wanted = [value for _, value in program.values[-2:]]
        for a, b in zip(outcome, wanted, strict=True):
            assert np.allclose(
                a, b, rtol=1e-4 if tolerance > 1e-9 else 1e-6, atol=tolerance, equal_nan=True
            ), text
