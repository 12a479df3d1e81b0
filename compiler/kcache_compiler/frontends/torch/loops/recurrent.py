"""Layers of LSTM, GRU and RNN, operators of the client, as one loop over time each.

``kcache.lstm_layer(input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, reverse)``,
``kcache.gru_layer(input, hx, w_ih, w_hh, b_ih, b_hh, reverse)`` and
``kcache.rnn_layer(input, hx, w_ih, w_hh, b_ih, b_hh, relu, reverse)`` have inputs of shape
``[time, batch, features]``, states of ``[batch, size]``, and the weights and biases of PyTorch modules. They
return the states of all steps, ``[time, batch, size]``, and the last states. The product of the inputs of all
steps with ``w_ih`` precedes the loop. Half precision is computed in f32; states and products are rounded.

Layers whose gradients are recorded are ``kcache.lstm_steps(gates, hx, cx, w_hh)``,
``kcache.gru_steps(gates, hx, w_hh, b_hh)`` and ``kcache.rnn_steps(gates, hx, w_hh, relu)``, of f32 and f64,
which take that product and also return the cell states and gates of all steps. Their gradients are
``kcache.lstm_steps_backward(grad, grad_cells, factors, output, forget, w_hh)`` and
``kcache.steps_backward(grad, factors, kept, w_hh)``, whose loops run from the last step to the first.
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
#: (what the step takes of each input, states) -> new states, and what is stacked.
_LoopStep: TypeAlias = "Callable[[Sequence[Value], Sequence[Value]], tuple[list[Value], list[Value]]]"


class _Loop:
    """A loop over time: its first operand has the sizes ``[time, batch, width]``; operations on tensors."""

    def __init__(self, op: TorchOp) -> None:
        self.op = op
        self.x = next(iter(op.operation.operands))
        self.element = op.element
        self.wide = "f32" if op.element in ("f16", "bf16") else op.element
        self.time, self.batch, self.width = _sizes(self.x)

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

    def join(self, parts: Sequence[Value]) -> Value:
        """``[batch, size]`` side by side."""
        width = sum(self.shape(part)[1] for part in parts)
        kind = self.type([self.batch, width])
        return self.op.create("stablehlo.concatenate", parts, kind, dimension="1 : i64")

    def run(
        self,
        inputs: Sequence[Value],
        initial: Sequence[Value],
        widths: Sequence[int],
        reverse: bool,
        step: _LoopStep,
    ) -> tuple[list[Value], list[Value]]:
        """Run ``step`` for each row of ``inputs``: the stacks of these widths, and the last states."""
        stacks = [self._zeros([self.time, self.batch, width]) for width in widths]
        carried = [self.index(0), *initial, *stacks]
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
            self._iterate(list(body.arguments), len(initial), inputs, reverse, step)
        _, *values = loop.results
        return values[len(initial) :], values[: len(initial)]

    def as_results(self, values: Sequence[Value]) -> list[Value]:
        """Builtin tensors as results of the operation."""
        return [
            self.op.create("torch_c.from_builtin_tensor", [value], str(result.type))
            for value, result in zip(values, self.op.operation.results, strict=True)
        ]

    def _zeros(self, sizes: list[int]) -> Value:
        kind = self.type(sizes, self.element)
        return self.op.create(
            "stablehlo.constant", (), kind, value=f"dense<{float_text(0.0, self.element)}> : {kind}"
        )

    def _iterate(
        self, arguments: list[Value], states: int, inputs: Sequence[Value], reverse: bool, step: _LoopStep
    ) -> None:
        """Emit the body of the loop."""
        counter, *rest = arguments
        row = self.binary("subtract", self.index(self.time - 1), counter) if reverse else counter
        starts = [row, self.index(0), self.index(0)]
        rows = [self._row(each, starts) for each in inputs]
        after, stacked = step(rows, rest[:states])
        stacks = [
            self._with_row(stack, value, starts) for stack, value in zip(rest[states:], stacked, strict=True)
        ]
        following = self.binary("add", counter, self.index(1))
        self.op.native.Operation.create("stablehlo.return", operands=[following, *after, *stacks])

    def _row(self, x: Value, starts: Sequence[Value]) -> Value:
        sizes = [1, *self.shape(x)[1:]]
        part = self.op.create(
            "stablehlo.dynamic_slice", [x, *starts], self.type(sizes), slice_sizes=_array(sizes)
        )
        return self.op.create("stablehlo.reshape", [part], self.type(sizes[1:]))

    def _with_row(self, stack: Value, row: Value, starts: Sequence[Value]) -> Value:
        kind = self.type([1, *self.shape(row)], self.element)
        update = self.op.create("stablehlo.reshape", [row], kind)
        return self.op.create("stablehlo.dynamic_update_slice", [stack, update, *starts], str(stack.type))


class _Layer(_Loop):
    """A layer: its operands as builtin tensors."""

    def __init__(self, op: TorchOp, states: int) -> None:
        super().__init__(op)
        rest = list(op.operation.operands)[1:]
        self.initial = [op.builtin_tensor(value) for value in rest[:states]]
        w_ih, w_hh, b_ih, b_hh = rest[states : states + 4]
        self.input_weight, self.recurrent_weight = op.builtin_tensor(w_ih), op.builtin_tensor(w_hh)
        self.input_bias, self.recurrent_bias = self.optional(b_ih), self.optional(b_hh)

    def results(self, inputs: Value, reverse: bool, step: _Step) -> list[Value]:
        """Run ``step`` for each row of ``inputs``: the states of all steps and the last ones, as results."""

        def with_stack(rows: Sequence[Value], states: Sequence[Value]) -> tuple[list[Value], list[Value]]:
            after = [self.rounded(state) for state in step(rows[0], states)]
            return after, after[:1]

        width = self.shape(self.initial[0])[1]
        stacks, last = self.run([inputs], self.initial, [width], reverse, with_stack)
        return self.as_results([*stacks, *last])


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


class _Steps(_Loop):
    """A layer with gradients, or the loop of these: operands as builtin tensors."""

    def __init__(self, op: TorchOp, tensors: int) -> None:
        super().__init__(op)
        self.tensors = [op.builtin_tensor(value) for value in list(op.operation.operands)[:tensors]]

    def by_rows(self, x: Value, weight: Value) -> Value:
        """The product of ``[batch, gates]`` and ``[gates, size]``."""
        numbers = "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>"
        kind = self.type([self.batch, self.shape(weight)[1]])
        return self.op.create("stablehlo.dot_general", [x, weight], kind, dot_dimension_numbers=numbers)


def _lstm_steps(op: TorchOp) -> list[Value] | None:
    if not _is_static(op):
        return None
    loop = _Steps(op, 4)
    gates, hx, cx, w_hh = loop.tensors

    def step(rows: Sequence[Value], states: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        i, f, g, o = loop.gates(loop.binary("add", rows[0], loop.product(states[0], w_hh)), 4)
        i, f, o = (loop.unary("logistic", gate) for gate in (i, f, o))
        g = loop.unary("tanh", g)
        c = loop.binary("add", loop.binary("multiply", f, states[1]), loop.binary("multiply", i, g))
        h = loop.binary("multiply", o, loop.unary("tanh", c))
        return [h, c], [h, c, loop.join([i, f, g, o])]

    size = loop.shape(hx)[1]
    stacks, _ = loop.run([gates], [hx, cx], [size, size, 4 * size], False, step)
    return loop.as_results(stacks)


def _gru_steps(op: TorchOp) -> list[Value] | None:
    if not _is_static(op):
        return None
    loop = _Steps(op, 3)
    gates, hx, w_hh = loop.tensors
    bias = loop.optional(op.operation.operands[3])

    def step(rows: Sequence[Value], states: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (h,) = states
        x_r, x_z, x_n = loop.gates(rows[0], 3)
        h_r, h_z, h_n = loop.gates(loop.plus_bias(loop.product(h, w_hh), bias), 3)
        r = loop.unary("logistic", loop.binary("add", x_r, h_r))
        z = loop.unary("logistic", loop.binary("add", x_z, h_z))
        n = loop.unary("tanh", loop.binary("add", x_n, loop.binary("multiply", r, h_n)))
        h = loop.binary("add", loop.binary("multiply", loop.binary("subtract", h, n), z), n)
        return [h], [h, loop.join([r, z, n, h_n])]

    size = loop.shape(hx)[1]
    stacks, _ = loop.run([gates], [hx], [size, 4 * size], False, step)
    return loop.as_results(stacks)


def _rnn_steps(op: TorchOp) -> Value | None:
    if not _is_static(op):
        return None
    loop = _Steps(op, 3)
    gates, hx, w_hh = loop.tensors
    relu = _flag(op, 3)

    def step(rows: Sequence[Value], states: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        total = loop.binary("add", rows[0], loop.product(states[0], w_hh))
        if relu:
            h = loop.binary("maximum", total, loop.constant(0.0, loop.shape(total)))
        else:
            h = loop.unary("tanh", total)
        return [h], [h]

    stacks, _ = loop.run([gates], [hx], [loop.shape(hx)[1]], False, step)
    return op.to_torch(stacks[0])


def _lstm_steps_backward(op: TorchOp) -> list[Value] | None:
    if not _is_static(op):
        return None
    loop = _Steps(op, 6)
    *inputs, w_hh = loop.tensors

    def step(rows: Sequence[Value], states: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        grad, grad_cells, factors, output, forget = rows
        h = loop.binary("add", grad, states[0])
        c = loop.binary("add", loop.binary("add", grad_cells, states[1]), loop.binary("multiply", h, output))
        gates = loop.binary("multiply", loop.join([c, c, c, h]), factors)
        return [loop.by_rows(gates, w_hh), loop.binary("multiply", c, forget)], [gates]

    zero = loop.constant(0.0, [loop.batch, loop.width])
    stacks, last = loop.run(inputs, [zero, zero], [4 * loop.width], True, step)
    return loop.as_results([*stacks, *last])


def _steps_backward(op: TorchOp) -> list[Value] | None:
    if not _is_static(op):
        return None
    loop = _Steps(op, 2)
    kept, w_hh = loop.optional(op.operation.operands[2]), op.builtin_tensor(op.operation.operands[3])
    gates = loop.shape(w_hh)[0] // loop.width

    def step(rows: Sequence[Value], states: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        h = loop.binary("add", rows[0], states[0])
        spread = loop.join([h] * gates) if gates > 1 else h
        carried = loop.by_rows(loop.binary("multiply", spread, rows[1]), w_hh)
        if kept is not None:
            carried = loop.binary("add", carried, loop.binary("multiply", h, rows[2]))
        return [carried], [h]

    inputs = loop.tensors if kept is None else [*loop.tensors, kept]
    zero = loop.constant(0.0, [loop.batch, loop.width])
    stacks, last = loop.run(inputs, [zero], [loop.width], True, step)
    return loop.as_results([*stacks, *last])


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


RECURRENT: dict[str, Callable[[TorchOp], Value | list[Value] | None]] = {
    "torch.kcache.lstm_layer": _lstm,
    "torch.kcache.gru_layer": _gru,
    "torch.kcache.rnn_layer": _rnn,
    "torch.kcache.lstm_steps": _lstm_steps,
    "torch.kcache.gru_steps": _gru_steps,
    "torch.kcache.rnn_steps": _rnn_steps,
    "torch.kcache.lstm_steps_backward": _lstm_steps_backward,
    "torch.kcache.steps_backward": _steps_backward,
}
