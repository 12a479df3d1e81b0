"""A loop of a known number of turns, as ``stablehlo.while``: what Scan and the recurrent ops share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kcache_compiler.frontends.onnx.builder import Build
from kcache_compiler.frontends.onnx.emitter import Value, i64s, known

#: Carried values and this turn's slices -> carried values and this turn's results.
Turn = Callable[[list[Value], list[Value]], tuple[list[Value], list[Value]]]


def turns(
    b: Build, count: int, carried: Sequence[Value], inputs: Sequence[tuple[Value, bool]], turn: Turn
) -> tuple[list[Value], list[Value]]:
    """Run ``turn`` for each index of axis 0 of ``inputs``; (value, True) is read from the end.

    Returns the last carried values, and each result of a turn stacked along a new axis 0, in turn's order.
    """
    if not count:
        return list(carried), _nothing(b, carried, inputs, turn)
    index = b.parameter("i64", ())
    state = [b.parameter(v.element, v.dims) for v in carried]
    parameters = [index, *state]
    stacked: list[Value] = []

    def body() -> list[Value]:
        slices = [slice_at(b, value, index, count, back) for value, back in inputs]
        after, made = turn(list(state), slices)
        stacked.extend([b.parameter(v.element, (count, *v.dims)) for v in made])
        parameters.extend(stacked)
        updated = [_put(b, s, v, index) for s, v in zip(stacked, made, strict=True)]
        return [b.scalar("add", index, 1), *after, *updated]

    do = b.region(parameters, body)
    others = [b.parameter(p.element, p.dims) for p in parameters]
    go_on = b.region(others, lambda: [b.compare("LT", others[0], known(np.asarray(count, np.int64)))])
    start = [known(np.asarray(0, np.int64)), *carried, *(b.full(0, s.element, s.dims) for s in stacked)]
    kinds = [(p.element, p.dims) for p in parameters]
    results = b.emit_many("stablehlo.while", start, kinds, regions=[go_on, do])
    return results[1 : 1 + len(carried)], results[1 + len(carried) :]


def _nothing(
    b: Build, carried: Sequence[Value], inputs: Sequence[tuple[Value, bool]], turn: Turn
) -> list[Value]:
    """What no turns stack: a turn that is not run says of which elements and dims."""
    made: list[Value] = []
    state = [b.parameter(v.element, v.dims) for v in carried]
    slices = [b.parameter(value.element, value.dims[1:]) for value, _ in inputs]

    def body() -> list[Value]:
        after, results = turn(state, slices)
        made.extend(results)
        return [*after, *results]

    b.region([*state, *slices], body)
    return [b.full(0, v.element, (0, *v.dims)) for v in made]


def slice_at(b: Build, x: Value, index: Value, count: int, back: bool) -> Value:
    """Return the part of ``x`` at ``index`` of axis 0, of length ``count``; ``back`` counts from the end."""
    if back:
        index = b.binary("subtract", known(np.asarray(count - 1, np.int64)), index)
    zero = known(np.asarray(0, np.int64))
    sizes = (1, *x.dims[1:])
    starts = [index, *[zero] * (x.rank - 1)]
    part = b.emit("stablehlo.dynamic_slice", [x, *starts], x.element, sizes, f"slice_sizes = {i64s(sizes)}")
    return b.reshape(part, x.dims[1:])


def _put(b: Build, whole: Value, part: Value, index: Value) -> Value:
    zero = known(np.asarray(0, np.int64))
    row = b.reshape(part, (1, *part.dims))
    starts = [index, *[zero] * part.rank]
    return b.emit("stablehlo.dynamic_update_slice", [whole, row, *starts], whole.element, whole.dims)
