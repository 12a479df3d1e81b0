"""If, Loop and Scan: operators with graphs inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kcache_compiler.frontends.onnx.emitter import Value, known
from kcache_compiler.frontends.onnx.ops.sequence.loops import turns
from kcache_compiler.frontends.onnx.site import Site

if TYPE_CHECKING:
    from kcache_compiler.frontends.onnx.translate import Scope, Translator


def _if(t: Translator, n: Site, scope: Scope) -> list[Value]:
    condition = n[0]
    branches = [n.attributes["then_branch"], n.attributes["else_branch"]]
    if condition.known is not None:
        return t.subgraph(branches[0 if condition.known.any() else 1], scope, [])
    kinds: list[list[tuple[str, tuple[int, ...]]]] = []

    def branch(index: int) -> list[Value]:
        values = t.subgraph(branches[index], scope, [])
        kinds.append([(v.element, v.dims) for v in values])
        return values

    regions = [n.b.region([], lambda: branch(0)), n.b.region([], lambda: branch(1))]
    if kinds[0] != kinds[1]:
        n.unsupported("its branches give tensors of different types")
    return n.b.emit_many("stablehlo.if", [n.b.reshape(condition, ())], kinds[0], regions=regions)


def _loop(t: Translator, n: Site, scope: Scope) -> list[Value]:
    limit, go_on, body = n.get(0), n.get(1), n.attributes["body"]
    carried = [n[i] for i in range(2, len(n.inputs))]
    scans = len(body.output) - 1 - len(carried)
    if scans:
        return _counted_loop(t, n, scope, carried)
    b = n.b
    true, zero = known(np.asarray(True)), known(np.asarray(0, np.int64))
    most = zero if limit is None else b.reshape(limit, ())
    start = [zero, true if go_on is None else b.reshape(go_on, ()), *carried]
    names = [b.parameter(v.element, v.dims) for v in start]
    others = [b.parameter(v.element, v.dims) for v in start]

    def test() -> list[Value]:
        if limit is None:
            return [others[1]]
        return [b.binary("and", others[1], b.compare("LT", others[0], most))]

    def turn() -> list[Value]:
        after = t.subgraph(body, scope, names if go_on is not None else [names[0], true, *names[2:]])
        if go_on is None:
            _refuse_conditions(n, after[0], limit is not None)
        _same_types(n, carried, after[1:])
        return [b.scalar("add", names[0], 1), b.reshape(after[0], ()), *after[1:]]

    kinds = [(v.element, v.dims) for v in start]
    regions = [b.region(others, test), b.region(names, turn)]
    return b.emit_many("stablehlo.while", start, kinds, regions=regions)[2:]


def _refuse_conditions(n: Site, after: Value, counted: bool) -> None:
    """A loop without a condition takes none from its body, the standard says; its reference takes it."""
    if after.known is None or not after.known.all():
        n.unsupported("its body ends it, and it has no input cond: give it one that is true")
    if not counted:
        n.unsupported("it has neither a trip count nor a condition: it never ends")


def _counted_loop(t: Translator, n: Site, scope: Scope, carried: list[Value]) -> list[Value]:
    """A loop that stacks results: the number of its turns must be known."""
    reason = "it stacks results, and how many there are depends on the inputs"
    if n.get(0) is None:
        n.unsupported(reason)
    if n.get(1) is not None and not n.known(1, "the condition of a loop that stacks results").all():
        n.unsupported(reason)
    body, true = n.attributes["body"], known(np.asarray(True))
    count = max(0, int(n.known(0, "the trip count of a loop that stacks results").reshape(-1)[0]))
    index = n.b.iota("i64", (count,), 0)

    def turn(state: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        after = t.subgraph(body, scope, [slices[0], true, *state])
        if after[0].known is None or not after[0].known.all():
            n.unsupported(reason)
        _same_types(n, state, after[1 : 1 + len(state)])
        return after[1 : 1 + len(state)], after[1 + len(state) :]

    last, stacked = turns(n.b, count, carried, [(index, False)], turn)
    return [*last, *stacked]


def _same_types(n: Site, before: Sequence[Value], after: Sequence[Value]) -> None:
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if (old.element, old.dims) != (new.element, new.dims):
            n.unsupported(f"carried value {i} goes in as {old.type} and comes out as {new.type}")


def _scan(t: Translator, n: Site, scope: Scope) -> list[Value]:
    if n.version < 9:
        n.unsupported("its form before opset 9")
    b, body, count = n.b, n.attributes["body"], n.int("num_scan_inputs")
    states = n.all()[: len(n.inputs) - count]
    axes = n.ints("scan_input_axes", [0] * count)
    ways = n.ints("scan_input_directions", [0] * count)
    moved = [_moved(n, n[len(states) + i], n.axis(axes[i], n[len(states) + i].rank), 0) for i in range(count)]
    lengths = {value.dims[0] for value in moved}
    if len(lengths) != 1:
        n.invalid(f"its inputs have lengths {sorted(lengths)}")

    def turn(state: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        after = t.subgraph(body, scope, [*state, *slices])
        _same_types(n, state, after[: len(state)])
        return after[: len(state)], after[len(state) :]

    inputs = list(zip(moved, map(bool, ways), strict=True))
    last, stacked = turns(b, lengths.pop(), states, inputs, turn)
    out_axes = n.ints("scan_output_axes", [0] * len(stacked))
    out_ways = n.ints("scan_output_directions", [0] * len(stacked))
    turned = [b.reverse(v, [0]) if way else v for v, way in zip(stacked, out_ways, strict=True)]
    placed = [_moved(n, v, 0, n.axis(a, v.rank)) for v, a in zip(turned, out_axes, strict=True)]
    return [*last, *placed]


def _moved(n: Site, x: Value, source: int, target: int) -> Value:
    order = [axis for axis in range(x.rank) if axis != source]
    order.insert(target, source)
    return n.b.transpose(x, order)


OPS: dict[str, Callable[[Translator, Site, Scope], list[Value]]] = {"If": _if, "Loop": _loop, "Scan": _scan}
