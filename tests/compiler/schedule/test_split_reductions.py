"""Long reductions and scans in chunks: the values of NumPy, the same bits with any number of threads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.schedule.split_reductions import CHUNK, SHORT
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel, threaded_host

#: Combiner, its start by kind of element, NumPy's reduction and scan.
COMBINERS: dict[str, tuple[str, str, Any]] = {
    "add": ("0.0", "0", np.add),
    "multiply": ("1.0", "1", np.multiply),
    "maximum": ("0xFF800000", "-128", np.maximum),
    "minimum": ("0x7F800000", "127", np.minimum),
}
#: Lengths around which the number of chunks changes.
LENGTHS = (SHORT - 1, SHORT, SHORT + 1, 5 * CHUNK - 1, 5 * CHUNK, 5 * CHUNK + 3, 100003)


def start_of(combiner: str, element: str) -> str:
    if element in ("f64", "f16", "bf16") and combiner in ("maximum", "minimum"):
        width = {"f64": ("FFF0000000000000", "7FF0000000000000"), "f16": ("FC00", "7C00")}
        return "0x" + width.get(element, ("FF80", "7F80"))[combiner == "minimum"]
    return COMBINERS[combiner][0 if element.startswith(("f", "b")) else 1]


def shape_text(shape: tuple[int | str, ...], element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def reduction(
    shape: tuple[int | str, ...], dims: tuple[int, ...], combiner: str = "add", element: str = "f32"
) -> str:
    kept = tuple(size for axis, size in enumerate(shape) if axis not in dims)
    operand, result, scalar = (shape_text(sizes, element) for sizes in (shape, kept, ()))
    return f"""
func.func @main(%x: {operand}) -> {result} {{
  %start = stablehlo.constant dense<{start_of(combiner, element)}> : {scalar}
  %sum = stablehlo.reduce(%x init: %start) applies stablehlo.{combiner} across dimensions = {list(dims)}
    : ({operand}, {scalar}) -> {result}
  return %sum : {result}
}}"""


def scan(
    shape: tuple[int, ...], axis: int, combiner: str = "add", element: str = "f32", backward: bool = False
) -> str:
    kind, scalar = shape_text(shape, element), shape_text((), element)
    window = ", ".join(str(size if position == axis else 1) for position, size in enumerate(shape))
    pads = [[0, 0] for _ in shape]
    pads[axis] = [0, shape[axis] - 1] if backward else [shape[axis] - 1, 0]
    rank = len(shape)
    return f"""
func.func @main(%x: {kind}) -> {kind} {{
  %start = stablehlo.constant dense<{start_of(combiner, element)}> : {scalar}
  %scan = "stablehlo.reduce_window"(%x, %start) <{{
    window_dimensions = array<i64: {window}>, padding = dense<{pads}> : tensor<{rank}x2xi64>}}> ({{
  ^bb0(%a: {scalar}, %b: {scalar}):
    %c = stablehlo.{combiner} %a, %b : {scalar}
    stablehlo.return %c : {scalar}
  }}) : ({kind}, {scalar}) -> {kind}
  return %scan : {kind}
}}"""


def compiled(text: str, numerics: str = "default", target: str = "x86-64-v3") -> Kernel:
    return Kernel(lower_module(text, len(text), target, CompileOptions(numerics=numerics), lambda _: None))


def on_threads(kernel: Kernel, *arrays: Any) -> tuple[np.ndarray, ...]:
    """The results, once they are the same to the bit on 1 to 4 threads, in any order of slices."""
    alone = kernel(*arrays)
    for workers in (2, 3, 4):
        for order in (list[int], lambda starts: starts[::-1]):
            again = kernel(*arrays, host=threaded_host(workers, order))
            assert [array.tobytes() for array in again] == [array.tobytes() for array in alone]
    return alone


def chunks_of(kernel: Kernel) -> list[int]:
    """How many chunks each launch has, where there are several."""
    extents = [launch.extent for launch in kernel.interface.launches]
    return [int(extent) for extent in extents if extent.isdigit() and int(extent) > 1]


def is_split(kernel: Kernel) -> bool:
    return any(
        launch.name.endswith("_1") and launch.name.count("_") > 1 for launch in kernel.interface.launches
    )


def random(shape: tuple[int, ...], element: str = "f32", seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape)
    return (values if element.startswith(("f", "b")) else values * 40).astype(NUMPY[element])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("length", LENGTHS)
def test_sums_of_one_row_at_the_edges_of_chunks(length: int) -> None:
    x = random((length,))
    (total,) = on_threads(compiled(reduction((length,), (0,))), x)
    bound = (4096 + length / 4096) * 2.0**-24 * np.abs(x, dtype=np.float64).sum()
    assert abs(float(total) - x.sum(dtype=np.float64)) <= bound


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("shape", "dims", "combiner", "element"),
    [
        ((2, 100003), (1,), "add", "f32"),
        ((15, 8192), (1,), "maximum", "f32"),
        ((30001, 3), (0,), "add", "f64"),
        ((30001, 7), (0,), "minimum", "i8"),
        ((4, 3, 9001), (0, 2), "add", "f64"),
        ((9001, 3, 4), (0, 2), "maximum", "f32"),
        ((3, 9001, 4), (0, 1), "add", "i32"),
        ((2, 3, 4, 7001), (1, 3), "minimum", "f32"),
        ((1, 70001, 1), (0, 1, 2), "add", "f64"),
    ],
)
def test_few_results_of_many_elements(
    shape: tuple[int, ...], dims: tuple[int, ...], combiner: str, element: str
) -> None:
    x = random(shape, element)
    kernel = compiled(reduction(shape, dims, combiner, element))
    assert is_split(kernel)
    (result,) = on_threads(kernel, x)
    expected = COMBINERS[combiner][2].reduce(x, dims, np.float64)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-2)


ELEMENTS = ("f16", "bf16", "f32", "f64", "i8", "i32", "i64", "ui16")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("element", ELEMENTS)
def test_every_combiner_of_every_type(element: str) -> None:
    count = SHORT + 5
    operand, scalar = shape_text((count,), element), shape_text((), element)
    left = {"ui16": "maximum", "f16": "add", "bf16": "add"}.get(
        element
    )  # a negative start; sums that stop growing
    names = [name for name in COMBINERS if name != left]
    lines = [
        f"""%s{name} = stablehlo.constant dense<{start_of(name, element)}> : {scalar}
  %{name} = stablehlo.reduce(%x init: %s{name}) applies stablehlo.{name} across dimensions = [0]
    : ({operand}, {scalar}) -> {scalar}"""
        for name in names
    ]
    results = ", ".join([scalar] * len(names))
    text = "\n  ".join(
        [f"func.func @main(%x: {operand}) -> ({results}) {{", *lines]
        + [f"return {', '.join(f'%{name}' for name in names)} : {results}\n}}"]
    )
    kernel = compiled(text)
    assert is_split(kernel)
    x = np.ones(count, NUMPY[element])
    x[::20011] = 2
    for name, result in zip(names, on_threads(kernel, x), strict=True):
        wide = x.astype(np.float64) if element.startswith(("f", "b")) else x
        np.testing.assert_allclose(
            float(result), float(COMBINERS[name][2].reduce(wide, dtype=wide.dtype)), rtol=1e-4
        )


def test_specials_come_through() -> None:
    for combiner, value in itertools.product(("add", "maximum", "minimum"), (np.nan, np.inf, -np.inf, -0.0)):
        for place in (0, CHUNK - 1, CHUNK, SHORT):
            x = np.full(SHORT + 1, -0.0 if value == 0 else 1, np.float32)
            x[place] = value
            (result,) = compiled_once(combiner)(x, host=threaded_host(3))
            np.testing.assert_array_equal(result, COMBINERS[combiner][2].reduce(x))


_compiled: dict[str, Kernel] = {}


def compiled_once(combiner: str) -> Kernel:
    if combiner not in _compiled:
        _compiled[combiner] = compiled(reduction((SHORT + 1,), (0,), combiner))
    return _compiled[combiner]


def test_strict_splits_what_has_no_order_to_keep() -> None:
    rounded = compiled(reduction((100003,), (0,)), "strict")
    assert chunks_of(rounded) == []
    x = random((100003,))
    assert on_threads(rounded, x)[0] == np.add.accumulate(x)[-1]
    for combiner, element in (("maximum", "f32"), ("add", "i32"), ("multiply", "i64")):
        kernel = compiled(reduction((100003,), (0,), combiner, element), "strict")
        assert len(chunks_of(kernel)) == 1
        y = random((100003,), element)
        expected = COMBINERS[combiner][2].reduce(y, dtype=y.dtype)
        assert on_threads(kernel, y)[0].tobytes() == expected.tobytes()


def test_short_ones_and_many_results_have_no_chunks() -> None:
    assert chunks_of(compiled(reduction((SHORT - 1,), (0,)))) == []
    assert chunks_of(compiled(reduction((16, 8192), (1,)))) == [16]


@pytest.mark.parametrize("length", [0, 1, CHUNK, CHUNK + 1, SHORT, 3 * SHORT + 7])
def test_open_sizes(length: int) -> None:
    kernel = opened("?", 0)
    x = random((length,))
    (result,) = on_threads(kernel, x)
    np.testing.assert_allclose(result, x.sum(dtype=np.float64), rtol=1e-5, atol=1e-3)
    y = random((3, length), seed=1)
    np.testing.assert_allclose(on_threads(opened("3", 1), y)[0], y.sum(1, np.float64), rtol=1e-5, atol=1e-3)


_opened: dict[str, Kernel] = {}


def opened(rows: str, axis: int) -> Kernel:
    if rows not in _opened:
        _opened[rows] = compiled(reduction(("?",) if axis == 0 else (int(rows), "?"), (axis,)))
    return _opened[rows]


SOFTMAX = """
func.func @main(%x: tensor<1x70001xf32>) -> tensor<1x70001xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<1x70001xf32>, tensor<f32>) -> tensor<1xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<1xf32>) -> tensor<1x70001xf32>
  %d = stablehlo.subtract %x, %mb : tensor<1x70001xf32>
  %e = stablehlo.exponential %d : tensor<1x70001xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<1x70001xf32>, tensor<f32>) -> tensor<1xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<1xf32>) -> tensor<1x70001xf32>
  %r = stablehlo.divide %e, %sb : tensor<1x70001xf32>
  return %r : tensor<1x70001xf32>
}"""


def test_what_surrounds_a_long_reduction_shares_its_chunks() -> None:
    kernel = compiled(SOFTMAX)
    x = random((1, 70001))
    (result,) = on_threads(kernel, x)
    e = np.exp(x.astype(np.float64) - x.max())
    np.testing.assert_allclose(result, e / e.sum(), rtol=2e-6)
    # chunks of the maximum, of exponentials with their sum, and the quotients
    assert chunks_of(kernel) == [5, 5, 70001]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"), [((length,), 0) for length in LENGTHS[1::2]] + [((2, 40001), 1), ((30001, 3), 0)]
)
def test_long_scans(shape: tuple[int, ...], axis: int, backward: bool) -> None:
    x = random(shape)
    kernel = compiled(scan(shape, axis, backward=backward))
    assert len([extent for extent in chunks_of(kernel) if extent > 3]) == 2
    (result,) = on_threads(kernel, x)
    turned = np.flip(x, axis) if backward else x
    expected = turned.cumsum(axis, np.float64)
    expected = np.flip(expected, axis) if backward else expected
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize(
    ("combiner", "element"), [("add", "i32"), ("maximum", "f32"), ("minimum", "i8"), ("maximum", "bf16")]
)
def test_strict_scans_that_do_not_round_are_split_and_exact(combiner: str, element: str) -> None:
    x = random((2, 40001), element)
    if element == "f32":
        x[0, 30000], x[1, 20000:20003] = np.nan, -0.0
    kernel = compiled(scan((2, 40001), 1, combiner, element), "strict")
    assert len(chunks_of(kernel)) >= 2
    (result,) = on_threads(kernel, x)
    np.testing.assert_array_equal(result, COMBINERS[combiner][2].accumulate(x, 1, dtype=x.dtype))


def test_strict_scans_that_round_keep_their_order() -> None:
    kernel = compiled(scan((100003,), 0), "strict")
    assert chunks_of(kernel) == []
    x = random((100003,))
    assert on_threads(kernel, x)[0].tobytes() == np.cumsum(x).tobytes()
