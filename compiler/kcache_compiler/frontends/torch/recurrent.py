"""Layers of LSTM, GRU and RNN, operators of the client, as one loop over time each.

``kcache.lstm_layer(input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, reverse)``,
``kcache.gru_layer(input, hx, w_ih, w_hh, b_ih, b_hh, reverse)`` and
``kcache.rnn_layer(input, hx, w_ih, w_hh, b_ih, b_hh, relu, reverse)`` have inputs of shape
``[time, batch, features]``, states of ``[batch, size]``, and the weights and biases of PyTorch modules. They
return the states of all steps, ``[time, batch, size]``, and the last states. The product of the inputs of all
steps with ``w_ih`` precedes the loop. Half precision is computed in f32; states and products are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kcache_compiler.frontends.torch.torch_op import FLOATS, TENSOR, TorchOp, float_text, integer_constants
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Value

#: (gates of the step's input, states) -> new states, of which the first is the result of the step.
_Step: TypeAlias = "Callable[[Value, Sequence[Value]], list[Value]]"


class _Layer:
    """A layer: its operands as builtin tensors, and operations on them."""

    def __init__(self, op: TorchOp, states: int) -> None:
        self.op = op
        operands = list(op.operation.operands)
        self.x, *rest = operands
        self.initial = [op.builtin_tensor(value) for value in rest[:states]]
        w_ih, w_hh, b_ih, b_hh = rest[states : states + 4]
        self.input_weight, self.recurrent_weight = op.builtin_tensor(w_ih), op.builtin_tensor(w_hh)
        self.input_bias, self.recurrent_bias = self.optional(b_ih), self.optional(b_hh)
        self.element = op.element
        self.wide = "f32" if op.element in ("f16", "bf16") else op.element
        self.time, self.batch, _ = _sizes(self.x)
        self.width = _sizes(w_hh)[1]

    def optional(self, value: Value) -> Value | None:
        return (
            None
            if getattr(value.owner, "name", "") == "torch.constant.none"
            else self.op.builtin_tensor(value)
        )

    def type(self, sizes: Sequence[int], element: str = "") -> str:
        return f"tensor<{''.join(f'{size}x' for size in sizes)}{element or self.wide}>"

    def shape(self, value: Value) -> list[int]:
        return list(lazy.tensor_of(value).shape)

    def widened(self, value: Value) -> Value:
        return self._converted(value, self.wide)

    def rounded(self, value: Value) -> Value:
        return self._converted(value, self.element)

    def _converted(self, value: Value, element: str) -> Value:
        kind = self.type(self.shape(value), element)
        return value if str(value.type) == kind else self.op.create("stablehlo.convert", [value], kind)

    def binary(self, name: str, left: Value, right: Value) -> Value:
        return self.op.create(f"stablehlo.{name}", [left, right], str(left.type))

    def unary(self, name: str, value: Value) -> Value:
        return self.op.create(f"stablehlo.{name}", [value], str(value.type))

    def constant(self, number: float, sizes: Sequence[int]) -> Value:
        kind = self.type(sizes)
        text = f"dense<{float_text(number, self.wide)}> : {kind}"
        return self.op.create("stablehlo.constant", (), kind, value=text)

    def index(self, number: int) -> Value:
        return self.op.create("stablehlo.constant", (), "tensor<i64>", value=f"dense<{number}> : tensor<i64>")

    def product(self, x: Value, weight: Value) -> Value:
        """The product along the last axes, rounded and then widened."""
        sizes = [*self.shape(x)[:-1], self.shape(weight)[0]]
        axis = len(sizes) - 1
        numbers = f"#stablehlo.dot<lhs_contracting_dimensions = [{axis}], rhs_contracting_dimensions = [1]>"
        kind = self.type(sizes, self.element)
        return self.widened(
            self.op.create("stablehlo.dot_general", [x, weight], kind, dot_dimension_numbers=numbers)
        )

    def plus_bias(self, x: Value, *biases: Value | None) -> Value:
        """``x`` plus the sum of vectors along its last axis."""
        widened = [self.widened(bias) for bias in biases if bias is not None]
        if not widened:
            return x
        total = widened[0] if len(widened) == 1 else self.binary("add", *widened)
        axis = len(self.shape(x)) - 1
        attribute = f"array<i64: {axis}>"
        spread = self.op.create(
            "stablehlo.broadcast_in_dim", [total], str(x.type), broadcast_dimensions=attribute
        )
        return self.binary("add", x, spread)

    def gates(self, x: Value, count: int) -> list[Value]:
        """``[batch, count * size]`` in parts of ``size``."""
        batch, size = self.shape(x)[0], self.shape(x)[1] // count
        return [
            self.op.create(
                "stablehlo.slice",
                [x],
                self.type([batch, size]),
                start_indices=_array([0, number * size]),
                limit_indices=_array([batch, (number + 1) * size]),
                strides=_array([1, 1]),
            )
            for number in range(count)
        ]

    def results(self, inputs: Value, reverse: bool, step: _Step) -> list[Value]:
        """Run ``step`` for each row of ``inputs``: the states of all steps and the last ones, as results."""
        stack = self._zeros([self.time, self.batch, self.shape(self.initial[0])[1]])
        carried = [self.index(0), *self.initial, stack]
        native = self.op.native
        types = [value.type for value in carried]
        loop = native.Operation.create("stablehlo.while", results=types, operands=carried, regions=2)
        unknown = [native.Location.unknown()] * len(types)
        condition, body = (region.blocks.append(*types, arg_locs=unknown) for region in loop.regions)
        with native.InsertionPoint(condition):
            direction = "#stablehlo<comparison_direction LT>"
            bound = [condition.arguments[0], self.index(self.time)]
            goes_on = self.op.create("stablehlo.compare", bound, "tensor<i1>", comparison_direction=direction)
            native.Operation.create("stablehlo.return", operands=[goes_on])
        with native.InsertionPoint(body):
            self._iterate(list(body.arguments), inputs, reverse, step)
        _, *last, states = loop.results
        results = zip([states, *last], self.op.operation.results, strict=True)
        return [
            self.op.create("torch_c.from_builtin_tensor", [value], str(result.type))
            for value, result in results
        ]

    def _zeros(self, sizes: list[int]) -> Value:
        kind = self.type(sizes, self.element)
        return self.op.create(
            "stablehlo.constant", (), kind, value=f"dense<{float_text(0.0, self.element)}> : {kind}"
        )

    def _iterate(self, arguments: list[Value], inputs: Value, reverse: bool, step: _Step) -> None:
        """Emit the body of the loop."""
        counter, *states, stack = arguments
        row = self.binary("subtract", self.index(self.time - 1), counter) if reverse else counter
        starts = [row, self.index(0), self.index(0)]
        sizes = [1, *self.shape(inputs)[1:]]
        x = self.op.create(
            "stablehlo.dynamic_slice", [inputs, *starts], self.type(sizes), slice_sizes=_array(sizes)
        )
        x = self.op.create("stablehlo.reshape", [x], self.type(sizes[1:]))
        after = [self.rounded(state) for state in step(x, states)]
        update = self.op.create(
            "stablehlo.reshape", [after[0]], self.type([1, *self.shape(after[0])], self.element)
        )
        stack = self.op.create("stablehlo.dynamic_update_slice", [stack, update, *starts], str(stack.type))
        following = self.binary("add", counter, self.index(1))
        self.op.native.Operation.create("stablehlo.return", operands=[following, *after, stack])


def _lstm(op: TorchOp) -> list[Value] | None:
    if not _is_static(op):
        return None
    layer = _Layer(op, 2)
    projection = layer.optional(op.operation.operands[7])
    inputs = layer.plus_bias(
        layer.product(op.builtin_tensor(layer.x), layer.input_weight), layer.input_bias, layer.recurrent_bias
    )

    def step(x: Value, states: Sequence[Value]) -> list[Value]:
        h, c = states
        i, f, g, o = layer.gates(layer.binary("add", x, layer.product(h, layer.recurrent_weight)), 4)
        i, f, o = (layer.unary("logistic", gate) for gate in (i, f, o))
        kept = layer.binary("multiply", f, layer.widened(c))
        c = layer.binary("add", kept, layer.binary("multiply", i, layer.unary("tanh", g)))
        h = layer.binary("multiply", o, layer.unary("tanh", c))
        return [h if projection is None else layer.product(layer.rounded(h), projection), c]

    return layer.results(inputs, _flag(op, 8), step)


def _gru(op: TorchOp) -> list[Value] | None:
    if not _is_static(op):
        return None
    layer = _Layer(op, 1)
    inputs = layer.plus_bias(layer.product(op.builtin_tensor(layer.x), layer.input_weight), layer.input_bias)

    def step(x: Value, states: Sequence[Value]) -> list[Value]:
        (h,) = states
        x_r, x_z, x_n = layer.gates(x, 3)
        h_r, h_z, h_n = layer.gates(
            layer.plus_bias(layer.product(h, layer.recurrent_weight), layer.recurrent_bias), 3
        )
        r = layer.unary("logistic", layer.binary("add", x_r, h_r))
        z = layer.unary("logistic", layer.binary("add", x_z, h_z))
        n = layer.unary("tanh", layer.binary("add", x_n, layer.binary("multiply", r, h_n)))
        change = layer.binary("multiply", layer.binary("subtract", layer.widened(h), n), z)
        return [layer.binary("add", change, n)]

    return layer.results(inputs, _flag(op, 6), step)


def _rnn(op: TorchOp) -> list[Value] | None:
    if not _is_static(op):
        return None
    layer = _Layer(op, 1)
    inputs = layer.plus_bias(
        layer.product(op.builtin_tensor(layer.x), layer.input_weight), layer.input_bias, layer.recurrent_bias
    )
    relu = _flag(op, 6)

    def step(x: Value, states: Sequence[Value]) -> list[Value]:
        total = layer.binary("add", x, layer.product(states[0], layer.recurrent_weight))
        if relu:
            return [layer.binary("maximum", total, layer.constant(0.0, layer.shape(total)))]
        return [layer.unary("tanh", total)]

    return layer.results(inputs, _flag(op, 7), step)


def _is_static(op: TorchOp) -> bool:
    """Whether all tensors are floats of one type, and of static sizes that are not 0."""
    tensors = [match for value in op.operation.operands if (match := TENSOR.fullmatch(str(value.type)))]
    sizes = [size for match in tensors for size in match[1].split(",")]
    return (
        op.element in FLOATS
        and all(match[2] == op.element for match in tensors)
        and all(size.isdigit() and size != "0" for size in sizes)
    )


def _sizes(value: Value) -> list[int]:
    match = TENSOR.fullmatch(str(value.type))
    return [int(size) for size in match[1].split(",")] if match else []


def _flag(op: TorchOp, position: int) -> bool:
    return integer_constants(op.operation.operands[position]) == [1]


def _array(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>"


RECURRENT: dict[str, Callable[[TorchOp], list[Value] | None]] = {
    "torch.kcache.lstm_layer": _lstm,
    "torch.kcache.gru_layer": _gru,
    "torch.kcache.rnn_layer": _rnn,
}
