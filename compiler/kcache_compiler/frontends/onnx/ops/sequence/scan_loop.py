"""A loop over slices with a constant trip count, for Scan and the recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kcache_compiler.frontends.onnx.builder import Builder
from kcache_compiler.frontends.onnx.emitter import Value, constant_value, i64_array

#: (carried values, slices of the inputs) -> (carried values, results to stack).
Iteration = Callable[[list[Value], list[Value]], tuple[list[Value], list[Value]]]


def emit_scan_loop(
    b: Builder,
    trip_count: int,
    carried: Sequence[Value],
    inputs: Sequence[tuple[Value, bool]],
    iteration: Iteration,
) -> tuple[list[Value], list[Value]]:
    """Run ``iteration`` for each index of axis 0 of ``inputs``; (value, True) is read from the end.

    Returns the final carried values, and each result stacked along a new axis 0 in order of iteration.
    """
    if not trip_count:
        return list(carried), _empty_stacks(b, carried, inputs, iteration)
    index = b.parameter("i64", ())
    state = [b.parameter(v.element, v.dims) for v in carried]
    parameters = [index, *state]
    stacked: list[Value] = []

    def body() -> list[Value]:
        slices = [slice_at(b, value, index, trip_count, from_end) for value, from_end in inputs]
        new_carried, results = iteration(list(state), slices)
        stacked.extend([b.parameter(v.element, (trip_count, *v.dims)) for v in results])
        parameters.extend(stacked)
        updated = [_update_slice(b, s, v, index) for s, v in zip(stacked, results, strict=True)]
        return [b.scalar("add", index, 1), *new_carried, *updated]

    body_region = b.region(parameters, body)
    condition_parameters = [b.parameter(p.element, p.dims) for p in parameters]
    condition_region = b.region(
        condition_parameters,
        lambda: [b.compare("LT", condition_parameters[0], constant_value(np.asarray(trip_count, np.int64)))],
    )
    initial = [
        constant_value(np.asarray(0, np.int64)),
        *carried,
        *(b.full(0, s.element, s.dims) for s in stacked),
    ]
    types = [(p.element, p.dims) for p in parameters]
    results = b.emit_many("stablehlo.while", initial, types, regions=[condition_region, body_region])
    return results[1 : 1 + len(carried)], results[1 + len(carried) :]


def _empty_stacks(
    b: Builder, carried: Sequence[Value], inputs: Sequence[tuple[Value, bool]], iteration: Iteration
) -> list[Value]:
    """Return the empty results of a loop without iterations, whose types a discarded iteration gives."""
    stacked: list[Value] = []
    state = [b.parameter(v.element, v.dims) for v in carried]
    slices = [b.parameter(value.element, value.dims[1:]) for value, _ in inputs]

    def body() -> list[Value]:
        new_carried, results = iteration(state, slices)
        stacked.extend(results)
        return [*new_carried, *results]

    b.region([*state, *slices], body)
    return [b.full(0, v.element, (0, *v.dims)) for v in stacked]


def slice_at(b: Builder, x: Value, index: Value, count: int, from_end: bool) -> Value:
    """Return slice ``index`` of axis 0 of ``x``, which has ``count``; ``from_end`` reverses the index."""
    if from_end:
        index = b.binary("subtract", constant_value(np.asarray(count - 1, np.int64)), index)
    zero = constant_value(np.asarray(0, np.int64))
    sizes = (1, *x.dims[1:])
    starts = [index, *[zero] * (x.rank - 1)]
    slice_ = b.emit(
        "stablehlo.dynamic_slice", [x, *starts], x.element, sizes, f"slice_sizes = {i64_array(sizes)}"
    )
    return b.reshape(slice_, x.dims[1:])


def _update_slice(b: Builder, stacked: Value, value: Value, index: Value) -> Value:
    zero = constant_value(np.asarray(0, np.int64))
    row = b.reshape(value, (1, *value.dims))
    starts = [index, *[zero] * value.rank]
    return b.emit("stablehlo.dynamic_update_slice", [stacked, row, *starts], stacked.element, stacked.dims)
