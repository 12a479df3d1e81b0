"""One long row is sorted by all threads, to the same bits as by one."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.lower.sort_scatter.long_rows import CHUNK, CHUNKS, long_phases
from kcache_compiler.lower.sort_scatter.marker import Walk
from kcache_compiler.lower.sort_scatter.sort import CHUNK as RUN
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler.codegen_harness import NUMPY, PARALLEL_FOR, TASK, Host, Kernel, threaded_host
from tests.ops.harness.values import FLOATS, random_bytes, tensor


def program(dtype: str, length: int, way: str, first: int) -> str:
    """A row sorted with its places, cut to ``first``."""
    scalar, x, y = tensor(dtype, ()), tensor(dtype, (length,)), tensor("i32", (length,))
    cut_x, cut_y = tensor(dtype, (first,)), tensor("i32", (first,))
    return f"""
func.func @main(%x: {x}) -> ({cut_x}, {cut_y}) {{
  %y = stablehlo.iota dim = 0 : {y}
  %v:2 = "stablehlo.sort"(%x, %y) <{{dimension = 0 : i64, is_stable = true}}> ({{
  ^bb0(%a: {scalar}, %b: {scalar}, %c: tensor<i32>, %d: tensor<i32>):
    %s = stablehlo.compare {way}, %a, %b : ({scalar}, {scalar}) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }}) : ({x}, {y}) -> ({x}, {y})
  %p = stablehlo.slice %v#0 [0:{first}] : ({x}) -> {cut_x}
  %q = stablehlo.slice %v#1 [0:{first}] : ({y}) -> {cut_y}
  return %p, %q : {cut_x}, {cut_y}
}}"""


def rows(dtype: str, length: int) -> list[np.ndarray]:
    """Any bits, few different values, one value, what is special."""
    rng = np.random.default_rng(length)
    drawn = np.frombuffer(random_bytes(rng, dtype, length, "any"), NUMPY[dtype])
    row_list = [drawn, drawn[rng.integers(0, 3, length)], np.full(length, drawn[0])]
    if dtype in FLOATS:
        special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1, -1]).astype(NUMPY[dtype])
        row_list.append(special[rng.integers(0, len(special), length)])
    return row_list


def order_of(values: np.ndarray, way: str) -> np.ndarray:
    """The stable order in which zeros are equal, and NaNs, which are more than all numbers."""
    wide = values.astype(np.float32) if str(values.dtype) == "bfloat16" else values
    ranks = np.unique(wide, return_inverse=True)[1].astype(np.int64)
    return np.argsort(ranks if way == "LT" else -ranks, kind="stable")


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("dtype", "length", "way", "first"),
    [
        ("f32", 3 * CHUNK + 5, "LT", 3 * CHUNK + 5),
        ("f32", 2 * CHUNK, "GT", 2 * CHUNK),
        ("f64", 2 * CHUNK + 1, "LT", 2 * CHUNK + 1),
        ("i8", 4 * CHUNK - 1, "LT", 4 * CHUNK - 1),
        ("ui32", 3 * CHUNK, "GT", 1000),
        ("bf16", 2 * CHUNK + 3, "LT", 2 * CHUNK + 3),
        ("f32", 2 * CHUNK + 3, "GT", 64),
        ("i16", 3 * CHUNK + 1, "LT", 1),
        ("i64", 2 * CHUNK + 9, "LT", 5),
    ],
)
def test_one_long_row_in_chunks(dtype: str, length: int, way: str, first: int) -> None:
    kernel = Kernel(
        lower_module(program(dtype, length, way, first), 1, "x86-64-v3", CompileOptions(), lambda _: None)
    )
    assert any(launch.extent == str(-(-length // CHUNK)) for launch in kernel.interface.launches)
    for values in rows(dtype, length):
        order = order_of(values, way)[:first]
        for host in (None, threaded_host(2), threaded_host(4, lambda starts: starts[::-1])):
            ordered, moved = kernel(values, host=host)
            np.testing.assert_array_equal(moved, order)
            assert ordered.tobytes() == values[order].tobytes()
            assert host is None or len(host.calls) > 1 or first == 1 or first == 64


def in_place(dtype: str, length: int) -> str:
    """A row sorted with its places, all of it."""
    scalar, x, y = tensor(dtype, ()), tensor(dtype, (length,)), tensor("i32", (length,))
    return f"""
func.func @main(%x: {x}) -> ({x}, {y}) {{
  %y = stablehlo.iota dim = 0 : {y}
  %v:2 = "stablehlo.sort"(%x, %y) <{{dimension = 0 : i64, is_stable = true}}> ({{
  ^bb0(%a: {scalar}, %b: {scalar}, %c: tensor<i32>, %d: tensor<i32>):
    %s = stablehlo.compare LT, %a, %b : ({scalar}, {scalar}) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }}) : ({x}, {y}) -> ({x}, {y})
  return %v#0, %v#1 : {x}, {y}
}}"""


def of_all_sizes(text: str) -> Kernel:
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    assert len(canonical.symbols) == 1
    args = ArgSpec(canonical.symbolic_args)
    return Kernel(compile_spec(canonical.spec_text, args, "x86-64-v3", CompileOptions(), lambda _: None))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("dtype", "lengths"),
    [
        ("f32", [0, 1, 5, 600, CHUNK, 2 * CHUNK - 1, 3 * CHUNK + 5]),
        ("i64", [0, 3, 2 * CHUNK + 9]),
    ],
)
def test_one_row_of_open_length(dtype: str, lengths: list[int]) -> None:
    kernel = of_all_sizes(in_place(dtype, 100))
    for length in lengths:
        for values in rows(dtype, length) if length else [np.empty(0, NUMPY[dtype])]:
            order = order_of(values, "LT")
            for host in (None, threaded_host(2), threaded_host(4, lambda starts: starts[::-1])):
                ordered, moved = kernel(values, host=host)
                np.testing.assert_array_equal(moved, order)
                assert ordered.tobytes() == values[order].tobytes()
                assert host is None or (len(host.calls) > 1) == (length > CHUNK)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("alone", [{0}, set(range(1, 10)), {1, 3, 5, 7, 9}])
def test_a_host_that_runs_some_launches_alone(alone: set[int]) -> None:
    """The pool may be busy for any launch: what the first did decides what the others do."""
    length = 2 * CHUNK + 1
    text = program("f32", length, "LT", length)
    kernel = Kernel(lower_module(text, 1, "x86-64-v3", CompileOptions(), lambda _: None))
    values = rows("f32", length)[0]
    calls: list[int] = []

    def parallel_for(_: int, n: int, grain: int, task: int, closure: int) -> int:
        step = n if len(calls) in alone else grain
        calls.append(n)
        return max(TASK(task)(closure, start, min(start + step, n), 0) for start in range(0, n, step))

    host = Host(ctypes.sizeof(Host), 1, 2, None, PARALLEL_FOR(parallel_for))
    np.testing.assert_array_equal(kernel(values, host=host)[1], order_of(values, "LT"))
    assert len(calls) == 10


def test_rows_beyond_32_bits_of_places_are_not_taken() -> None:
    """Words and counts have 32 bits for them; the launch for short rows rejects such a row when it runs."""
    for length, phases in ((2**32 - 1, 4), (2**32, 0)):
        row = Walk((1, length), (0, 1), 0)
        assert len(long_phases({"key": 8, "results": [0]}, [row, row, row])) == phases


def test_a_row_of_open_length_with_longer_chunks() -> None:
    kernel = of_all_sizes(in_place("i8", 100))
    values = np.random.default_rng(0).integers(-128, 127, CHUNKS * CHUNK + 1, np.int8)
    _, moved = kernel(values, host=threaded_host(4))
    np.testing.assert_array_equal(moved, np.argsort(values, kind="stable"))


def by_two(length: int, ties: str = "LT") -> str:
    """Pairs by their first, then by their second number, which no key says; with their places."""
    x = f"tensor<{length}xi32>"
    pair, bit = "(tensor<i32>, tensor<i32>)", "tensor<i1>"
    return f"""
func.func @main(%x: {x}, %y: {x}) -> {x} {{
  %places = stablehlo.iota dim = 0 : {x}
  %v:3 = "stablehlo.sort"(%x, %y, %places) <{{dimension = 0 : i64, is_stable = true}}> ({{
  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>, %e: tensor<i32>, %f: tensor<i32>):
    %less = stablehlo.compare LT, %a, %b : {pair} -> {bit}
    %same = stablehlo.compare EQ, %a, %b : {pair} -> {bit}
    %then = stablehlo.compare {ties}, %c, %d : {pair} -> {bit}
    %both = stablehlo.and %same, %then : {bit}
    %s = stablehlo.or %less, %both : {bit}
    stablehlo.return %s : {bit}
  }}) : ({x}, {x}, {x}) -> ({x}, {x}, {x})
  return %v#2 : {x}
}}"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("length", "lengths"),
    [
        (2 * RUN, [2 * RUN]),
        (5 * RUN + 3, [5 * RUN + 3]),
        (0, [0, 1, 17, 500, RUN, RUN + 1, 2 * RUN, 2 * RUN + 1, 5 * RUN + 3]),
    ],
)
def test_one_long_row_by_a_comparator(length: int, lengths: list[int]) -> None:
    """Of one length, or with 0 of all."""
    if length:
        kernel = Kernel(lower_module(by_two(length), 2, "x86-64-v3", CompileOptions(), lambda _: None))
    else:
        kernel = of_all_sizes(by_two(100))
    rng = np.random.default_rng(0)
    for size in lengths:
        x, y = (rng.integers(-9, 9, size, np.int32) for _ in range(2))
        for host in (None, threaded_host(2), threaded_host(4, lambda starts: starts[::-1])):
            np.testing.assert_array_equal(kernel(x, y, host=host)[0], np.lexsort((y, x)))
            assert host is None or (len(host.calls) > 0) == (size > RUN)


def test_a_comparator_that_contradicts_itself_gives_the_same_on_threads() -> None:
    size = 3 * RUN + 5
    kernel = Kernel(lower_module(by_two(size, "NE"), 2, "x86-64-v3", CompileOptions(), lambda _: None))
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, size, np.int32) for _ in range(2))
    (alone,) = kernel(x, y)
    assert np.array_equal(np.sort(alone), np.arange(size))
    for host in (threaded_host(2), threaded_host(4, lambda starts: starts[::-1])):
        assert kernel(x, y, host=host)[0].tobytes() == alone.tobytes()
