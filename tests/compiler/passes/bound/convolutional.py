"""Random convolutional programs in f64 as StableHLO text, and their results before and after a rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch_mlir import ir

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.types import TensorType
from tests.compiler.interpreter import evaluate, literal, mlir_type


@dataclass(frozen=True)
class Value:
    """A value of a program, by name, and its sizes."""

    name: str
    sizes: tuple[int, ...]

    @property
    def type(self) -> str:
        return mlir_type(TensorType("f64", self.sizes))


@dataclass
class ProgramText:
    """A program that is written operation by operation; the first argument is not bound, others are."""

    arguments: list[Value] = field(default_factory=list[Value])
    lines: list[str] = field(default_factory=list[str])

    def argument(self, *sizes: int) -> Value:
        self.arguments.append(Value(f"%a{len(self.arguments)}", sizes))
        return self.arguments[-1]

    def add(self, name: str, operands: Sequence[Value], sizes: Sequence[int], attributes: str = "") -> Value:
        result = Value(f"%{len(self.lines)}", tuple(sizes))
        names, types = (", ".join(parts) for parts in zip(*((o.name, o.type) for o in operands), strict=True))
        text = f'{result.name} = "stablehlo.{name}"({names}) {{{attributes}}} : ({types}) -> {result.type}'
        self.lines.append(text)
        return result

    def number(self, number: float | str, sizes: Sequence[int]) -> Value:
        """A constant, all of whose elements are ``number``, which may be the text of a literal."""
        result = Value(f"%{len(self.lines)}", tuple(sizes))
        value = f"value = dense<{number}> : {result.type}"
        self.lines.append(f'{result.name} = "stablehlo.constant"() {{{value}}} : () -> {result.type}')
        return result

    def reshape(self, value: Value, *sizes: int) -> Value:
        return self.add("reshape", [value], sizes)

    def broadcast(self, value: Value, sizes: Sequence[int], *dims: int) -> Value:
        return self.add("broadcast_in_dim", [value], sizes, f"broadcast_dimensions = {ints(dims)}")

    def binary(self, name: str, left: Value, right: Value) -> Value:
        return self.add(name, [left, right], left.sizes)

    def relu(self, value: Value) -> Value:
        return self.binary("maximum", value, self.number(0.0, value.sizes))

    def window(
        self, name: str, value: Value, start: float | str, combiner: str, axes: str, sizes: Sequence[int]
    ) -> Value:
        """A ``reduce`` or ``reduce_window``."""
        number = self.number(start, ())
        result = Value(f"%{len(self.lines)}", tuple(sizes))
        body = (
            "({\n^bb0(%p: tensor<f64>, %q: tensor<f64>):\n"
            f'%r = "stablehlo.{combiner}"(%p, %q) : (tensor<f64>, tensor<f64>) -> tensor<f64>\n'
            '"stablehlo.return"(%r) : (tensor<f64>) -> ()\n})'
        )
        types = f"({value.type}, tensor<f64>) -> {result.type}"
        self.lines.append(
            f'{result.name} = "stablehlo.{name}"({value.name}, {number.name}) {body} {{{axes}}} : {types}'
        )
        return result

    def convolution(
        self, value: Value, outputs: int, size: int = 1, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> Value:
        """An NCHW convolution with bound OIHW weights."""
        batch, channels, *space = value.sizes
        weights = self.argument(outputs, channels // groups, size, size)
        after = [(extent + 2 * padding - size) // stride + 1 for extent in space]
        dims = "#stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>"
        attributes = (
            f"dimension_numbers = {dims}, batch_group_count = 1 : i64, feature_group_count = {groups} : i64, "
            f"padding = dense<{padding}> : tensor<2x2xi64>, window_strides = {ints([stride, stride])}"
        )
        return self.add("convolution", [value, weights], (batch, outputs, *after), attributes)

    def text(self, *results: Value) -> str:
        arguments = ", ".join(f"{each.name}: {each.type}" for each in self.arguments)
        types = ", ".join(each.type for each in results)
        body = "\n".join([*self.lines, f"return {', '.join(each.name for each in results)} : {types}"])
        return f"func.func public @main({arguments}) -> ({types}) {{\n{body}\n}}"


def ints(numbers: Sequence[int]) -> str:
    return f"array<i64{': ' if numbers else ''}{', '.join(map(str, numbers))}>"


def require_equal_values(
    before: Sequence[str], after: Sequence[str], arguments: Sequence[list[Value]]
) -> None:
    """Evaluate each program before and after a rewrite; their results must agree but for rounding."""
    draw = np.random.default_rng(20261129)
    jobs: list[tuple[str, list[str]]] = []
    for texts, tensors in zip(zip(before, after, strict=True), arguments, strict=True):
        values = [draw.uniform(0.5, 1.5, each.sizes) * draw.choice([-1, 1], each.sizes) for each in tensors]
        kinds = [TensorType("f64", each.sizes) for each in tensors]
        literals = [literal(kind, value.tobytes()) for kind, value in zip(kinds, values, strict=True)]
        jobs += [(text, literals) for text in texts]
    answers = evaluate(jobs)
    with mlir.new_context():
        for index, text in enumerate(before):
            for expected, result in zip(*answers[2 * index : 2 * index + 2], strict=True):
                wanted, actual = _array(expected), _array(result)
                assert actual.shape == wanted.shape, text
                tolerance = 1e-9 * (np.abs(wanted).max() + 1)
                np.testing.assert_allclose(actual, wanted, 1e-9, tolerance, err_msg=text)


def interpretable(module: mlir.Module) -> str:
    """The text of a rewritten module, without operations on tensors that the interpreter does not have."""
    for op in mlir.named(module, "tensor.insert_slice"):
        part, into = op.operands
        index = mlir.type_of("tensor<i64>")
        with mlir.before(op), mlir.at_location(op):
            offsets = [
                mlir.value(
                    "stablehlo.constant", (), index, value=mlir.attribute(f"dense<{offset}> : tensor<i64>")
                )
                for offset in mlir.integers(op.attributes["static_offsets"])
            ]
            result = mlir.value("stablehlo.dynamic_update_slice", [into, part, *offsets], into.type)
        op.results[0].replace_all_uses_with(result)
        op.erase()
    for op in mlir.named(module, "tensor.empty"):
        kind = op.results[0].type
        with mlir.before(op), mlir.at_location(op):
            nothing = mlir.value("stablehlo.constant", (), kind, value=mlir.attribute(f"dense<7.0> : {kind}"))
        op.results[0].replace_all_uses_with(nothing)
        op.erase()
    return mlir.whole_text(module)


def _array(answer: str) -> np.ndarray:
    return np.array(ir.DenseFPElementsAttr(ir.Attribute.parse(answer)))
