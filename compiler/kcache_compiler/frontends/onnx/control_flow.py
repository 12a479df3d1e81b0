"""Translates If, Loop and Scan, the operators with inner graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kcache_compiler.frontends.onnx.emitter import Value, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode
from kcache_compiler.frontends.onnx.ops.sequence.scan_loop import emit_scan_loop

if TYPE_CHECKING:
    from kcache_compiler.frontends.onnx.translate import Scope, Translator


def _if(t: Translator, n: OnnxNode, scope: Scope) -> list[Value]:
    condition = n[0]
    branches = [n.attributes["then_branch"], n.attributes["else_branch"]]
    if condition.constant is not None:
        return t.subgraph(branches[0 if condition.constant.any() else 1], scope, [])
    types: list[list[tuple[str, tuple[int, ...]]]] = []

    def branch(index: int) -> list[Value]:
        values = t.subgraph(branches[index], scope, [])
        types.append([(v.element, v.dims) for v in values])
        return values

    regions = [n.b.region([], lambda: branch(0)), n.b.region([], lambda: branch(1))]
    if types[0] != types[1]:
        n.unsupported("its branches return tensors of different types")
    return n.b.emit_many("stablehlo.if", [n.b.reshape(condition, ())], types[0], regions=regions)


def _loop(t: Translator, n: OnnxNode, scope: Scope) -> list[Value]:
    """Lower ``Loop`` without stacked outputs to ``stablehlo.while``; return the final carried values.

    The loop carries the iteration number and the condition, too.
    """
    limit, condition, body = n.get(0), n.get(1), n.attributes["body"]
    carried = [n[i] for i in range(2, len(n.inputs))]
    scans = len(body.output) - 1 - len(carried)
    if scans:
        return _stacking_loop(t, n, scope, carried)
    b = n.b
    true, zero = constant_value(np.asarray(True)), constant_value(np.asarray(0, np.int64))
    trip_count = zero if limit is None else b.reshape(limit, ())
    initial = [zero, true if condition is None else b.reshape(condition, ()), *carried]
    body_parameters = [b.parameter(v.element, v.dims) for v in initial]
    condition_parameters = [b.parameter(v.element, v.dims) for v in initial]

    def test() -> list[Value]:
        if limit is None:
            return [condition_parameters[1]]
        return [
            b.binary("and", condition_parameters[1], b.compare("LT", condition_parameters[0], trip_count))
        ]

    def iteration() -> list[Value]:
        values = t.subgraph(
            body,
            scope,
            body_parameters if condition is not None else [body_parameters[0], true, *body_parameters[2:]],
        )
        if condition is None:
            _check_infinite_loop(n, values[0], limit is not None)
        _check_carried_types(n, carried, values[1:])
        return [b.scalar("add", body_parameters[0], 1), b.reshape(values[0], ()), *values[1:]]

    types = [(v.element, v.dims) for v in initial]
    regions = [b.region(condition_parameters, test), b.region(body_parameters, iteration)]
    return b.emit_many("stablehlo.while", initial, types, regions=regions)[2:]


def _check_infinite_loop(n: OnnxNode, next_condition: Value, has_trip_count: bool) -> None:
    """Raise for a loop without a condition input whose body ends it, or that never ends."""
    if next_condition.constant is None or not next_condition.constant.all():
        n.unsupported("its body ends it, but it has no input cond: give it one that is true")
    if not has_trip_count:
        n.unsupported("it has neither a trip count nor a condition: it never ends")


def _stacking_loop(t: Translator, n: OnnxNode, scope: Scope, carried: list[Value]) -> list[Value]:
    """Translate a loop that stacks results; its trip count must be constant."""
    reason = "it stacks results, whose number depends on the inputs"
    if n.get(0) is None:
        n.unsupported(reason)
    if n.get(1) is not None and not n.constant(1, "the condition of a loop that stacks results").all():
        n.unsupported(reason)
    body, true = n.attributes["body"], constant_value(np.asarray(True))
    count = max(0, int(n.constant(0, "the trip count of a loop that stacks results").reshape(-1)[0]))
    index = n.b.iota("i64", (count,), 0)

    def iteration(state: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        values = t.subgraph(body, scope, [slices[0], true, *state])
        if values[0].constant is None or not values[0].constant.all():
            n.unsupported(reason)
        _check_carried_types(n, state, values[1 : 1 + len(state)])
        return values[1 : 1 + len(state)], values[1 + len(state) :]

    final, stacked = emit_scan_loop(n.b, count, carried, [(index, False)], iteration)
    return [*final, *stacked]


def _check_carried_types(n: OnnxNode, before: Sequence[Value], after: Sequence[Value]) -> None:
    """Raise if the type of a carried value changes."""
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if (old.element, old.dims) != (new.element, new.dims):
            n.unsupported(f"carried value {i} changes its type from {old.type} to {new.type}")


def _scan(t: Translator, n: OnnxNode, scope: Scope) -> list[Value]:
    """Lower ``Scan``: return the final states and the stacked outputs of the body, an entry per iteration."""
    if n.version < 9:
        n.unsupported("the operator before opset 9")
    b, body, input_count = n.b, n.attributes["body"], n.int("num_scan_inputs")
    states = n.all()[: len(n.inputs) - input_count]
    axes = n.ints("scan_input_axes", [0] * input_count)
    reversed_inputs = n.ints("scan_input_directions", [0] * input_count)
    sequences = [
        _move_axis(n, n[len(states) + i], n.axis(axes[i], n[len(states) + i].rank), 0)
        for i in range(input_count)
    ]
    lengths = {value.dims[0] for value in sequences}
    if len(lengths) != 1:
        n.invalid(f"its inputs have different lengths, {sorted(lengths)}")

    def iteration(state: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        values = t.subgraph(body, scope, [*state, *slices])
        _check_carried_types(n, state, values[: len(state)])
        return values[: len(state)], values[len(state) :]

    inputs = list(zip(sequences, map(bool, reversed_inputs), strict=True))
    final, stacked = emit_scan_loop(b, lengths.pop(), states, inputs, iteration)
    out_axes = n.ints("scan_output_axes", [0] * len(stacked))
    reversed_outputs = n.ints("scan_output_directions", [0] * len(stacked))
    ordered = [
        b.reverse(v, [0]) if is_reversed else v
        for v, is_reversed in zip(stacked, reversed_outputs, strict=True)
    ]
    outputs = [_move_axis(n, v, 0, n.axis(a, v.rank)) for v, a in zip(ordered, out_axes, strict=True)]
    return [*final, *outputs]


def _move_axis(n: OnnxNode, x: Value, source: int, target: int) -> Value:
    """Move the axis ``source`` to the position ``target``."""
    order = [axis for axis in range(x.rank) if axis != source]
    order.insert(target, source)
    return n.b.transpose(x, order)


CONTROL_FLOW: dict[str, Callable[[Translator, OnnxNode, Scope], list[Value]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
