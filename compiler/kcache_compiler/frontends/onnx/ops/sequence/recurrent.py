"""RNN, GRU and LSTM: one loop over time for each direction."""

from __future__ import annotations

from kcache_compiler.frontends.onnx.emitter import Value
from kcache_compiler.frontends.onnx.ops.sequence.loops import turns
from kcache_compiler.frontends.onnx.site import Results, Site, legalizes

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_ACTIVATIONS = {"sigmoid": "logistic", "tanh": "tanh"}


@legalizes(RNN=22, GRU=22, LSTM=22)
def recurrent(n: Site) -> Results:
    x, b = n[0], n.b
    if n.int("layout", 0):
        x = b.transpose(x, [1, 0, 2])
    if x.rank != 3 or n[1].rank != 3:
        n.invalid(f"X and W have shapes {list(x.dims)} and {list(n[1].dims)}")
    lengths = n.get(4)
    if lengths is not None and (n.known(4, "sequence_lens") != x.dims[0]).any():
        n.unsupported("sequence_lens: sequences of different lengths")
    if n.has("clip") or n.int("input_forget", 0):
        n.unsupported("clip and input_forget")
    direction = n.text("direction", "forward")
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if ways is None:
        n.invalid(f"direction {direction!r} is none")
    made = [_one_way(n, x, i, back) for i, back in enumerate(ways)]
    every = [b.reshape(y, (y.dims[0], 1, *y.dims[1:])) for y, *_ in made]
    last = [
        b.concatenate([b.reshape(way[1 + i], (1, *way[1 + i].dims)) for way in made], 0)
        for i in range(len(made[0]) - 1)
    ]
    states = b.concatenate(every, 1)
    if n.int("layout", 0):
        return [b.transpose(states, [2, 0, 1, 3]), *(b.transpose(v, [1, 0, 2]) for v in last)]
    return [states, *last]


def _activations(n: Site, way: int) -> list[str]:
    count = len(_DEFAULTS[n.op])
    given = n.attributes.get("activations")
    names = [a.decode() if isinstance(a, bytes) else str(a) for a in given] if given else []
    names = names[way * count : (way + 1) * count] or _DEFAULTS[n.op]
    ops: list[str] = []
    for name in names:
        if name.lower() not in (*_ACTIVATIONS, "relu"):
            n.unsupported(f"activation {name!r}")
        ops.append(_ACTIVATIONS.get(name.lower(), "relu"))
    return ops


def _one_way(n: Site, x: Value, way: int, back: bool) -> list[Value]:
    """Return all states, and the last ones."""
    b, gates, hidden = n.b, _GATES[n.op], n.int("hidden_size")
    if n[1].dims[1] != gates * hidden:
        n.invalid(f"X and W have shapes {list(x.dims)} and {list(n[1].dims)}")
    acts = _activations(n, way)

    def own(index: int) -> Value | None:
        value = n.get(index)
        return None if value is None else b.reshape(b.along(value, 0, way, way + 1), value.dims[1:])

    def state(index: int) -> Value | None:
        value = n.get(index)
        if value is None or not n.int("layout", 0):
            return own(index)
        return b.reshape(b.along(value, 1, way, way + 1), (value.dims[0], value.dims[2]))

    weight, recurrence, bias = own(1), own(2), own(3)
    assert weight is not None
    assert recurrence is not None
    zero = b.full(0, x.element, (x.dims[1], hidden))
    start = [state(5) or zero, *([state(6) or zero] if n.op == "LSTM" else [])]
    peep = own(7) if n.op == "LSTM" else None
    cell = _Cell(n, hidden, recurrence, bias, peep, acts)
    # The input's part of every gate, for all times at once.
    wide = b.dot(x, weight, ([], []), ([2], [1]))
    if bias is not None:
        wide = b.binary("add", wide, b.along(bias, 0, 0, gates * hidden))

    def turn(before: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        after = cell.step(slices[0], before)
        return after, [after[0]]

    last, (every,) = turns(b, x.dims[0], start, [(wide, back)], turn)
    return [b.reverse(every, [0]) if back else every, *last]


class _Cell:
    def __init__(
        self, n: Site, hidden: int, recurrence: Value, bias: Value | None, peep: Value | None, acts: list[str]
    ) -> None:
        self.n, self.b, self.hidden = n, n.b, hidden
        self.recurrence, self.peep, self.acts = recurrence, peep, acts
        gates = _GATES[n.op]
        self.bias = None if bias is None else n.b.along(bias, 0, gates * hidden, 2 * gates * hidden)

    def step(self, x: Value, state: list[Value]) -> list[Value]:
        if self.n.op == "LSTM":
            return self._lstm(x, state[0], state[1])
        return [self._gru(x, state[0]) if self.n.op == "GRU" else self._rnn(x, state[0])]

    def _act(self, which: int, x: Value) -> Value:
        op = self.acts[which]
        return self.b.scalar("maximum", x, 0) if op == "relu" else self.b.unary(op, x)

    def _hidden(self, h: Value, start: int = 0, stop: int | None = None) -> Value:
        """Return the state's part of gates ``start`` to ``stop``."""
        rows = slice(start * self.hidden, (stop or _GATES[self.n.op]) * self.hidden)
        weight = self.b.along(self.recurrence, 0, rows.start, rows.stop)
        part = self.b.dot(h, weight, ([], []), ([1], [1]))
        if self.bias is None:
            return part
        return self.b.binary("add", part, self.b.along(self.bias, 0, rows.start, rows.stop))

    def _gate(self, x: Value, index: int) -> Value:
        return self.b.along(x, 1, index * self.hidden, (index + 1) * self.hidden)

    def _rnn(self, x: Value, h: Value) -> Value:
        return self._act(0, self.b.binary("add", x, self._hidden(h)))

    def _gru(self, x: Value, h: Value) -> Value:
        b = self.b
        update_reset = b.binary("add", b.along(x, 1, 0, 2 * self.hidden), self._hidden(h, 0, 2))
        z, r = (self._act(0, self._gate(update_reset, i)) for i in (0, 1))
        if self.n.int("linear_before_reset", 0):
            inner = b.binary("multiply", r, self._hidden(h, 2, 3))
        else:
            inner = self._hidden(b.binary("multiply", r, h), 2, 3)
        new = self._act(1, b.binary("add", self._gate(x, 2), inner))
        keep = b.binary("subtract", b.full(1, z.element, z.dims), z)
        return b.binary("add", b.binary("multiply", keep, new), b.binary("multiply", z, h))

    def _lstm(self, x: Value, h: Value, c: Value) -> list[Value]:
        b = self.b
        all_gates = b.binary("add", x, self._hidden(h))
        i, o, f, g = (self._gate(all_gates, k) for k in range(4))
        i, f = self._act(0, self._seen(i, c, 0)), self._act(0, self._seen(f, c, 2))
        c = b.binary("add", b.binary("multiply", f, c), b.binary("multiply", i, self._act(1, g)))
        o = self._act(0, self._seen(o, c, 1))
        return [b.binary("multiply", o, self._act(2, c)), c]

    def _seen(self, gate: Value, c: Value, index: int) -> Value:
        """Add what the gate sees of the cell through its peephole."""
        if self.peep is None:
            return gate
        hole = self.b.along(self.peep, 0, index * self.hidden, (index + 1) * self.hidden)
        return self.b.binary("add", gate, self.b.binary("multiply", hole, c))
