"""Reductions in chunks that choose, of booleans and of complex numbers: NumPy's values on any threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kcache_compiler.lower.loops.reassociation import Reducer, ReducerOperation, Result, regroups
from kcache_compiler.schedule.split_reductions import CHUNK, SHORT
from tests.compiler.codegen_harness import Kernel
from tests.compiler.schedule.test_split_reductions import (
    compiled,
    is_split,
    on_threads,
    random,
    reduction,
    shape_text,
)

LOW = {"f32": "0xFF800000", "f64": "0xFFF0000000000000", "bf16": "0xFF80", "i32": "-2147483648", "ui8": "0"}
HIGH = {"f32": "0x7F800000", "f64": "0x7FF0000000000000", "bf16": "0x7F80", "i32": "2147483647", "ui8": "255"}
#: Reducers over old value and index, new value and index. JAX's: NaN first, then the least index of equals.
JAX = """  %better = stablehlo.compare {way}, %v, %w : ({s}, {s}) -> {b}
  %nan = stablehlo.compare NE, %v, %v : ({s}, {s}) -> {b}
  %first = stablehlo.or %better, %nan : {b}
  %equal = stablehlo.compare EQ, %v, %w : ({s}, {s}) -> {b}
  %before = stablehlo.compare LT, %i, %j : ({n}, {n}) -> {b}
  %tie = stablehlo.and %equal, %before : {b}
  %left = stablehlo.or %first, %tie : {b}
  %r = stablehlo.select %first, %v, %w : {b}, {s}
  %k = stablehlo.select %left, %i, %j : {b}, {n}"""
#: As PyTorch exports it: a NaN is neither kept nor found, so what is found depends on the grouping.
NO_NAN = """  %ge = stablehlo.compare {way}, %v, %w : ({s}, {s}) -> {b}
  %r = stablehlo.select %ge, %v, %w : {b}, {s}
  %k = stablehlo.select %ge, %i, %j : {b}, {n}"""

OPEN_PLACES = """%count = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %size = stablehlo.reshape %count : (tensor<i32>) -> tensor<1xi32>
  %places = stablehlo.dynamic_iota %size, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>"""


def extreme(
    shape: tuple[int | str, ...], axis: int, element: str = "f32", least: bool = False, region: str = JAX
) -> str:
    kept = tuple(size for place, size in enumerate(shape) if place != axis)
    operand, places = shape_text(shape, element), shape_text(shape, "i32")
    value, index, bit = (shape_text((), dtype) for dtype in (element, "i32", "i1"))
    results = f"{shape_text(kept, element)}, {shape_text(kept, 'i32')}"
    body = region.format(s=value, n=index, b=bit, way="LT" if least else "GT")
    return f"""
func.func @main(%x: {operand}) -> ({results}) {{
  %places = stablehlo.iota dim = {axis} : {places}
  %low = stablehlo.constant dense<{(HIGH if least else LOW)[element]}> : {value}
  %zero = stablehlo.constant dense<0> : {index}
  %found:2 = stablehlo.reduce(%x init: %low), (%places init: %zero) across dimensions = [{axis}]
    : ({operand}, {places}, {value}, {index}) -> ({results})
  reducer(%v: {value}, %w: {value}) (%i: {index}, %j: {index}) {{
{body}
  stablehlo.return %r, %k : {value}, {index}
  }}
  return %found#0, %found#1 : {results}
}}"""


_kernels: dict[str, Kernel] = {}


def kept(text: str, numerics: str = "default") -> Kernel:
    if numerics + text not in _kernels:
        _kernels[numerics + text] = compiled(text, numerics)
    return _kernels[numerics + text]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("numerics", ["strict", "default"])
@pytest.mark.parametrize("least", [False, True])
def test_the_index_of_an_extreme_is_numpys(least: bool, numerics: str) -> None:
    count = SHORT + CHUNK + 7
    kernel = kept(extreme((count,), 0, least=least), numerics)
    assert is_split(kernel)
    numpy = np.argmin if least else np.argmax
    peak = np.float32(-9 if least else 9)
    plain = random((count,))
    cases = [plain, np.zeros(count, np.float32), np.full(count, -np.inf), np.full(count, np.inf)]
    for value in (peak, np.float32(np.nan), np.float32(-np.inf), np.float32(np.inf)):
        for places in ([0], [CHUNK - 1], [CHUNK, SHORT], [3 * CHUNK + 1, 3 * CHUNK, count - 1], [count - 1]):
            x = plain.copy()
            x[places] = value
            cases.append(x)
    both = plain.copy()
    both[[CHUNK + 3, SHORT]], both[5] = np.nan, peak
    cases.append(both)
    for x in cases:
        x = x.astype(np.float32)
        value, place = on_threads(kernel, x)
        assert int(place) == numpy(x)
        np.testing.assert_array_equal(value, x[numpy(x)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shape", "axis", "element"),
    [((3, 40001), 1, "f32"), ((40001, 5), 0, "i32"), ((2, 50001), 1, "bf16"), ((100003,), 0, "ui8")],
)
def test_indices_of_few_long_rows(shape: tuple[int, ...], axis: int, element: str) -> None:
    kernel = kept(extreme(shape, axis, element))
    x = random(shape, element) if element != "ui8" else np.abs(random(shape) * 40).astype(np.uint8)
    value, place = on_threads(kernel, x)
    assert is_split(kernel)
    np.testing.assert_array_equal(place, np.argmax(x, axis))
    np.testing.assert_array_equal(value, np.max(x, axis))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("element", "columns"), [("f32", 256), ("f32", 1001), ("i32", 321), ("bf16", 639), ("f64", 4096)]
)
def test_indices_of_many_rows(element: str, columns: int) -> None:
    """Blocks that change nothing are left out: wherever the extreme is, first, last, among equals, or NaN."""
    x = random((24, columns), element)
    x[0], x[1] = np.arange(columns), -np.arange(columns)
    x[2], x[3] = 0, np.arange(columns) // 64
    for row, place in enumerate((0, 63, 64, 65, 127, columns - 1, columns - 2, columns - 64), 4):
        x[row, place] = 200
        x[row + 8, place] = x[row + 8, place // 2] = np.nan if element != "i32" else 200
    for least in (False, True):
        numpy = np.argmin if least else np.argmax
        for numerics in ("default", "strict"):
            kernel = kept(extreme(x.shape, 1, element, least=least), numerics)
            value, place = on_threads(kernel, x)
            np.testing.assert_array_equal(place, numpy(x, 1))
            expected = np.take_along_axis(x, numpy(x, 1)[:, None], 1)[:, 0]
            np.testing.assert_array_equal(value.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("length", [0, 1, CHUNK + 1, SHORT + 3])
def test_the_index_in_a_row_of_open_length(length: int) -> None:
    kernel = kept(extreme(("?",), 0).replace("%places = stablehlo.iota dim = 0 : tensor<?xi32>", OPEN_PLACES))
    x = random((length,))
    value, place = on_threads(kernel, x)
    assert int(place) == (np.argmax(x) if length else 0)
    assert float(value) == (x.max() if length else -np.inf)


def test_a_reducer_that_depends_on_the_grouping_keeps_its_order() -> None:
    count = SHORT + 5
    kernel = kept(extreme((count,), 0, region=NO_NAN))
    assert not is_split(kernel)
    x = random((count,))
    x[CHUNK - 1] = np.nan
    _, place = on_threads(kernel, x)
    assert int(place) == CHUNK + int(np.argmax(x[CHUNK:]))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("op", "numpy"), [("and", np.all), ("or", np.any), ("xor", np.logical_xor.reduce)])
@pytest.mark.parametrize(("shape", "axis"), [((SHORT + 9,), 0), ((3, 30001), 1)])
def test_booleans(op: str, numpy: Any, shape: tuple[int, ...], axis: int) -> None:
    kernel = kept(boolean(shape, axis, op))
    assert is_split(kernel)
    for value in (True, False):
        for place in (0, CHUNK, shape[axis] - 1):
            x = np.full(shape, value)
            x[..., place] = not value
            np.testing.assert_array_equal(on_threads(kernel, x)[0], numpy(x, axis=axis))
        x = np.full(shape, value)
        np.testing.assert_array_equal(on_threads(kernel, x)[0], numpy(x, axis=axis))


def boolean(shape: tuple[int, ...], axis: int, op: str) -> str:
    text = reduction(shape, (axis,), "add", "i1").replace("applies stablehlo.add", f"applies stablehlo.{op}")
    return text.replace("dense<0>", f"dense<{'true' if op == 'and' else 'false'}>")


@pytest.mark.parametrize(("element", "rtol"), [("complex<f32>", 1e-5), ("complex<f64>", 1e-12)])
def test_sums_of_complex_numbers(element: str, rtol: float) -> None:
    text = reduction((2, 50001), (1,), "add", element).replace("dense<0>", "dense<(0.0, 0.0)>")
    x = random((2, 50001)) + 1j * random((2, 50001), seed=1) + (1 + 2j)
    x = x.astype(np.complex64 if "32" in element else np.complex128)
    kernel = kept(text)
    assert is_split(kernel)
    np.testing.assert_allclose(on_threads(kernel, x)[0], x.sum(1, np.complex128), rtol=rtol)
    alone = kept(text, "strict")
    assert not is_split(alone)
    assert on_threads(alone, x)[0].tobytes() == np.add.accumulate(x, 1)[:, -1].tobytes()


FLOAT, INTEGER = Result(True, -math.inf), Result(False)
#: Predicates of comparisons: ordered and greater, unordered or unequal; signed and less.
GREATER, UNEQUAL, LESS = 2, 13, 2


def test_what_is_proved() -> None:
    greater = Reducer(
        (FLOAT,), (ReducerOperation("cmpf", (0, 1), GREATER), ReducerOperation("select", (2, 0, 1))), (3,)
    )
    assert not regroups(greater)  # of a NaN and what follows the latter, of what precedes and a NaN the NaN
    keeps_nan = Reducer(
        (FLOAT,),
        (
            ReducerOperation("cmpf", (0, 1), GREATER),
            ReducerOperation("cmpf", (0, 0), UNEQUAL),
            ReducerOperation("ori", (2, 3)),
            ReducerOperation("select", (4, 0, 1)),
        ),
        (5,),
    )
    assert regroups(keeps_nan)
    assert regroups(
        Reducer(
            (INTEGER,), (ReducerOperation("cmpi", (0, 1), LESS), ReducerOperation("select", (2, 0, 1))), (3,)
        )
    )
    assert regroups(Reducer((INTEGER,), (), (1,)))  # the last


def test_a_start_that_would_count_again_is_rejected() -> None:
    # The last of equals wins, zeros of both signs are equal: a start of 0 would win against -0 in each chunk.
    steps = (
        ReducerOperation("cmpf", (0, 1), GREATER),
        ReducerOperation("cmpf", (0, 0), UNEQUAL),
        ReducerOperation("ori", (2, 3)),
        ReducerOperation("select", (4, 0, 1)),
    )
    assert not regroups(Reducer((Result(True, 0.0),), steps, (5,)))
