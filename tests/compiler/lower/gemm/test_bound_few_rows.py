"""Products of a few rows and bound right operands: which are prepacked, and their values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import guarded, runs_here, threaded_host
from tests.compiler.lower.bound.test_bound import Bound, compare, normal, product

TARGETS = [target for target in ("x86-64-v3", "x86-64-v4") if runs_here(target)]
#: The most rows whose contiguous rows of B are prepacked.
MOST = {"x86-64-v3": 5, "x86-64-v4": 7}
TOLERANCE = {"f32": 1e-4, "f64": 1e-12}


def _operands(m: int, n: int, k: int, turned: bool, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both operands, and the product with sums of f64."""
    x, w = normal(m, k, dtype=kind), normal(*((n, k) if turned else (k, n)), dtype=kind)
    return x, w, x.astype("f8") @ (w.T if turned else w).astype("f8")


def _launch(kernel: Bound) -> str:
    """How the product is computed."""
    text = kernel.compiled.artifacts["llvm"]
    names = {b"_in_place_run": "in place", b"_packed_run": "packed", b"call void @gemm_": "unpacked"}
    return next((name for part, name in names.items() if part in text), "loops")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("rows", range(1, 9))
def test_values(rows: int, kind: str, turned: bool, target: str) -> None:
    """On one thread and on three; nothing beyond the rows is read."""
    n, k = 312, 600
    x, w, expected = _operands(rows, n, k, turned, kind)
    kernel = Bound(product(rows, n, k, turned, kind), 2, [1], "default", target=target)
    prepared = kernel.prepare(w)
    prepared.flags.writeable = False
    (alone,) = kernel.run(prepared, guarded(x))
    np.testing.assert_allclose(alone, expected, rtol=0, atol=TOLERANCE[kind])
    (shared,) = kernel.run(prepared, x, host=threaded_host())
    assert shared.tobytes() == alone.tobytes()
    # One row, and more rows than are prepacked, read contiguous rows of B unpacked.
    unpacked = "loops" if turned else "unpacked"
    packed = rows > 1 and (turned or rows <= MOST[target])
    assert _launch(kernel) == ("in place" if packed else unpacked)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", range(2, 6))
def test_values_with_a_bias_a_summand_and_a_maximum(rows: int, turned: bool, target: str) -> None:
    n, k = 136, 520
    y = f"tensor<{rows}x{n}xf32>"
    text = product(rows, n, k, turned, "f32")
    text = text.replace(") ->", f", %b: tensor<{n}xf32>, %r: {y}) ->", 1).replace(
        f"return %0 : {y}",
        f"""%bias = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<{n}xf32>) -> {y}
        %zero = stablehlo.constant dense<0.0> : {y}
        %1 = stablehlo.add %0, %bias : {y}
        %2 = stablehlo.add %r, %1 : {y}
        %3 = stablehlo.maximum %2, %zero : {y}
        return %3 : {y}""",
    )
    x, w, expected = _operands(rows, n, k, turned, "f32")
    bias, summand = normal(n), normal(rows, n)
    kernel = Bound(text, 4, [1, 2], "default", target=target)
    assert _launch(kernel) == "in place"
    prepared = kernel.prepare(w, bias)
    for host in (None, threaded_host()):
        (result,) = kernel.run(prepared, guarded(x), guarded(summand), host=host)
        expected_result = np.maximum(expected + bias + summand, 0)
        np.testing.assert_allclose(result, expected_result, rtol=0, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("turned", [False, True])
def test_rows_that_displace_each_other(turned: bool, target: str) -> None:
    """They are a multiple of 4 KiB apart."""
    x, w, expected = _operands(5, 128, 1024, turned, "f32")
    kernel = Bound(product(5, 128, 1024, turned, "f32"), 2, [1], "default", target=target)
    (result,) = kernel.run(kernel.prepare(w), guarded(x))
    np.testing.assert_allclose(result, expected, rtol=0, atol=3e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", ["x86-64-v2", *TARGETS])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("rows", range(1, 6))
def test_strict_bits_are_those_of_loops(rows: int, kind: str, turned: bool, target: str) -> None:
    """With zeros of both signs and small products, over several blocks of K; NaN and infinity are kept."""
    n, k = 72, 600
    x, w, _ = _operands(rows, n, k, turned, kind)
    x[0, 3::7], w[5, 1::4] = -0.0, 1e-30
    x[-1, 0], w[2] = -0.0, 0
    kernel = compare(product(rows, n, k, turned, kind), [x, w], [1], "strict", target=target)
    if turned:
        assert _launch(kernel) == "packed"
    x[-1, 2], w[9, 9] = np.inf, np.nan
    (result,) = kernel.run(kernel.prepare(w), guarded(x))
    with np.errstate(invalid="ignore"):
        expected = x.astype("f8") @ (w.T if turned else w).astype("f8")
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("numerics", ["strict", "default"])
def test_there_is_one_copy_of_the_weights(numerics: str, turned: bool) -> None:
    n, k = 256, 512
    kernel = Bound(product(4, n, k, turned, "f32"), 2, [1], numerics, target=TARGETS[-1])
    described = kernel.interface.bound
    assert described is not None
    # Behind panels that rows in place are multiplied by is whether their elements are finite.
    assert n * k * 4 <= described.prepared_bytes <= n * k * 4 + 128


def test_products_whose_panels_were_mostly_padding_are_loops() -> None:
    text = product(3, 5, 512, True, "f32", "4x", shared=False)
    arrays = [normal(4, 3, 512), normal(4, 5, 512)]
    kernel = compare(text, arrays, [1], "strict", target=TARGETS[-1])
    assert _launch(kernel) == "loops"
    wider = product(3, 40, 512, True, "f32", "4x", shared=False)
    kernel = compare(wider, [normal(4, 3, 512), normal(4, 40, 512)], [1], "strict", target=TARGETS[-1])
    assert _launch(kernel) == "packed"


@pytest.mark.parametrize("numerics", ["strict", "default"])
def test_products_of_few_rows_share_panels(numerics: str) -> None:
    n = k = 256
    x, w, y = f"tensor<3x{k}xf32>", f"tensor<{n}x{k}xf32>", f"tensor<3x{n}xf32>"
    text = f"""
    func.func @main(%x: {x}, %w: {w}) -> {y} {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : ({x}, {w}) -> {y}
      %1 = stablehlo.tanh %0 : {y}
      %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [1] : ({y}, {w}) -> {y}
      return %2 : {y}
    }}"""
    arrays = [normal(3, k), normal(n, k)]
    kernel = Bound(text, 2, [1], numerics, target=TARGETS[-1])
    assert _launch(kernel) == {"strict": "packed", "default": "in place"}[numerics]
    described = kernel.interface.bound
    assert described is not None
    assert described.prepared_bytes <= n * k * 4 + 128
    (result,) = kernel.run(kernel.prepare(arrays[1]), arrays[0])
    exact = [array.astype("f8") for array in arrays]
    expected = np.tanh(exact[0] @ exact[1].T) @ exact[1].T
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-3)
