"""RNN, GRU and LSTM: one loop over time per direction."""

from __future__ import annotations

from kcache_compiler.frontends.onnx.emitter import Value
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.sequence.scan_loop import emit_scan_loop

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_ACTIVATIONS = {"sigmoid": "logistic", "tanh": "tanh"}


@legalize(RNN=22, GRU=22, LSTM=22)
def recurrent(n: OnnxNode) -> LegalizationResult:
    """Lower ``RNN``, ``GRU`` and ``LSTM``, in one or both directions.

    Returns the states of all steps, of shape (length, directions, batch, hidden), and the last states, of
    shape (directions, batch, hidden). With ``layout = 1`` batch is the first axis. Sequences must have equal
    lengths.
    """
    x, b = n[0], n.b
    if n.int("layout", 0):
        x = b.transpose(x, [1, 0, 2])
    if x.rank != 3 or n[1].rank != 3:
        n.invalid(f"X and W have shapes {list(x.dims)} and {list(n[1].dims)}")
    lengths = n.get(4)
    if lengths is not None and (n.constant(4, "sequence_lens") != x.dims[0]).any():
        n.unsupported("sequence_lens: sequences of different lengths")
    if n.has("clip") or n.int("input_forget", 0):
        n.unsupported("clip and input_forget")
    direction = n.text("direction", "forward")
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if directions is None:
        n.invalid(f"direction {direction!r} does not exist")
    outputs = [_run_direction(n, x, i, back) for i, back in enumerate(directions)]
    states_by_direction = [b.reshape(y, (y.dims[0], 1, *y.dims[1:])) for y, *_ in outputs]
    last = [
        b.concatenate([b.reshape(output[1 + i], (1, *output[1 + i].dims)) for output in outputs], 0)
        for i in range(len(outputs[0]) - 1)
    ]
    states = b.concatenate(states_by_direction, 1)
    if n.int("layout", 0):
        return [b.transpose(states, [2, 0, 1, 3]), *(b.transpose(v, [1, 0, 2]) for v in last)]
    return [states, *last]


def _activations(n: OnnxNode, direction: int) -> list[str]:
    count = len(_DEFAULTS[n.op])
    names_attribute = n.attributes.get("activations")
    names = (
        [a.decode() if isinstance(a, bytes) else str(a) for a in names_attribute] if names_attribute else []
    )
    names = names[direction * count : (direction + 1) * count] or _DEFAULTS[n.op]
    ops: list[str] = []
    for name in names:
        if name.lower() not in (*_ACTIVATIONS, "relu"):
            n.unsupported(f"activation {name!r}")
        ops.append(_ACTIVATIONS.get(name.lower(), "relu"))
    return ops


def _run_direction(n: OnnxNode, x: Value, direction: int, from_end: bool) -> list[Value]:
    """Return the states of all steps, and the final ones."""
    b, gates, hidden = n.b, _GATES[n.op], n.int("hidden_size")
    if n[1].dims[1] != gates * hidden:
        n.invalid(f"X and W have shapes {list(x.dims)} and {list(n[1].dims)}")
    activations = _activations(n, direction)

    def own_parameter(index: int) -> Value | None:
        value = n.get(index)
        return (
            None
            if value is None
            else b.reshape(b.slice_axis(value, 0, direction, direction + 1), value.dims[1:])
        )

    def state(index: int) -> Value | None:
        value = n.get(index)
        if value is None or not n.int("layout", 0):
            return own_parameter(index)
        return b.reshape(b.slice_axis(value, 1, direction, direction + 1), (value.dims[0], value.dims[2]))

    weight, recurrence, bias = own_parameter(1), own_parameter(2), own_parameter(3)
    assert weight is not None
    assert recurrence is not None
    zero = b.full(0, x.element, (x.dims[1], hidden))
    initial = [state(5) or zero, *([state(6) or zero] if n.op == "LSTM" else [])]
    peepholes = own_parameter(7) if n.op == "LSTM" else None
    cell = _RecurrentCell(n, hidden, recurrence, bias, peepholes, activations)
    # The product of the inputs with the weights of every gate, for all steps at once.
    input_product = b.dot(x, weight, ([], []), ([2], [1]))
    if bias is not None:
        input_product = b.binary("add", input_product, b.slice_axis(bias, 0, 0, gates * hidden))

    def iteration(before: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        new_state = cell.step(slices[0], before)
        return new_state, [new_state[0]]

    final, (states,) = emit_scan_loop(b, x.dims[0], initial, [(input_product, from_end)], iteration)
    return [b.reverse(states, [0]) if from_end else states, *final]


class _RecurrentCell:
    """One step of a recurrent operator."""

    def __init__(
        self,
        n: OnnxNode,
        hidden: int,
        recurrence: Value,
        bias: Value | None,
        peepholes: Value | None,
        activations: list[str],
    ) -> None:
        self.n, self.b, self.hidden = n, n.b, hidden
        self.recurrence, self.peepholes, self.activations = recurrence, peepholes, activations
        gates = _GATES[n.op]
        self.bias = None if bias is None else n.b.slice_axis(bias, 0, gates * hidden, 2 * gates * hidden)

    def step(self, x: Value, state: list[Value]) -> list[Value]:
        if self.n.op == "LSTM":
            return self._lstm(x, state[0], state[1])
        return [self._gru(x, state[0]) if self.n.op == "GRU" else self._rnn(x, state[0])]

    def _activate(self, index: int, x: Value) -> Value:
        op = self.activations[index]
        return self.b.scalar("maximum", x, 0) if op == "relu" else self.b.unary(op, x)

    def _recurrent_product(self, h: Value, start: int = 0, stop: int | None = None) -> Value:
        """Return the product of the state with the recurrence weights of gates ``start`` to ``stop``."""
        rows = slice(start * self.hidden, (stop or _GATES[self.n.op]) * self.hidden)
        weight = self.b.slice_axis(self.recurrence, 0, rows.start, rows.stop)
        product = self.b.dot(h, weight, ([], []), ([1], [1]))
        if self.bias is None:
            return product
        return self.b.binary("add", product, self.b.slice_axis(self.bias, 0, rows.start, rows.stop))

    def _gate(self, x: Value, index: int) -> Value:
        return self.b.slice_axis(x, 1, index * self.hidden, (index + 1) * self.hidden)

    def _rnn(self, x: Value, h: Value) -> Value:
        return self._activate(0, self.b.binary("add", x, self._recurrent_product(h)))

    def _gru(self, x: Value, h: Value) -> Value:
        b = self.b
        update_reset = b.binary(
            "add", b.slice_axis(x, 1, 0, 2 * self.hidden), self._recurrent_product(h, 0, 2)
        )
        z, r = (self._activate(0, self._gate(update_reset, i)) for i in (0, 1))
        if self.n.int("linear_before_reset", 0):
            candidate = b.binary("multiply", r, self._recurrent_product(h, 2, 3))
        else:
            candidate = self._recurrent_product(b.binary("multiply", r, h), 2, 3)
        new_state = self._activate(1, b.binary("add", self._gate(x, 2), candidate))
        complement = b.binary("subtract", b.full(1, z.element, z.dims), z)
        return b.binary("add", b.binary("multiply", complement, new_state), b.binary("multiply", z, h))

    def _lstm(self, x: Value, h: Value, c: Value) -> list[Value]:
        b = self.b
        all_gates = b.binary("add", x, self._recurrent_product(h))
        i, o, f, g = (self._gate(all_gates, k) for k in range(4))
        i, f = self._activate(0, self._add_peephole(i, c, 0)), self._activate(0, self._add_peephole(f, c, 2))
        c = b.binary("add", b.binary("multiply", f, c), b.binary("multiply", i, self._activate(1, g)))
        o = self._activate(0, self._add_peephole(o, c, 1))
        return [b.binary("multiply", o, self._activate(2, c)), c]

    def _add_peephole(self, gate: Value, c: Value, index: int) -> Value:
        """Add the contribution of the cell state through the gate's peephole."""
        if self.peepholes is None:
            return gate
        weights = self.b.slice_axis(self.peepholes, 0, index * self.hidden, (index + 1) * self.hidden)
        return self.b.binary("add", gate, self.b.binary("multiply", weights, c))
