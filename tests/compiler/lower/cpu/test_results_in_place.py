"""A value that is stored in another one's buffer is the value that a buffer of its own gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler.codegen_harness import Kernel, guarded, kernel_of, runs_here, threaded_host
from tests.compiler.lower.bound.test_bound import compare, normal

LENGTH = 70001


def softmax(rows: int, length: int, results: str = "%y", more: str = "", copies: int = 1) -> str:
    """The exponentials of rows without their maximum, divided by their sums; ``more`` may use both."""
    kind, row = f"tensor<{rows}x{length}xf32>", f"tensor<{rows}xf32>"
    returned = ", ".join([kind] * copies)
    return f"""
      func.func @main(%x: {kind}) -> ({returned}) {{
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %e = stablehlo.exponential %x : {kind}
        %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
          : ({kind}, tensor<f32>) -> {row}
        %w = stablehlo.broadcast_in_dim %s, dims = [0] : ({row}) -> {kind}
        %y = stablehlo.divide %e, %w : {kind}
        {more}
        return {results} : {returned}
      }}"""


def _row(rows: int, length: int) -> np.ndarray:
    return np.random.default_rng(length).normal(size=(rows, length)).astype(np.float32)


def _expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    e = np.exp(x.astype(np.float64))
    return e, e / e.sum(1, keepdims=True)


def _workspace(kernel: Kernel) -> int:
    return int(kernel.interface.workspace)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("numerics", ["strict", "default", "fast"])
@pytest.mark.parametrize(("rows", "length"), [(1, LENGTH), (1, 131072), (3, LENGTH), (8, 16384)])
def test_the_exponentials_of_a_long_row_are_in_the_result(
    target: str, numerics: str, rows: int, length: int
) -> None:
    if not runs_here(target):
        pytest.skip(f"this machine does not have {target}")
    kernel = kernel_of(softmax(rows, length), target, numerics=numerics)
    assert _workspace(kernel) < rows * length
    x = _row(rows, length)
    (alone,) = kernel(guarded(x))
    np.testing.assert_allclose(alone, _expected(x)[1], rtol=2e-5 if numerics == "strict" else 2e-6)
    (shared,) = kernel(x, host=threaded_host())
    np.testing.assert_array_equal(shared, alone)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("length", [1, 5, 64, 1000, 50257, 65536, LENGTH])
def test_a_row_whose_axis_of_size_1_is_dropped(length: int) -> None:
    """A canonical program reads and writes views without that axis."""
    canonical = canonicalize(softmax(1, length).encode(), "stablehlo", "default")
    options = CompileOptions()
    kernel = Kernel(
        compile_spec(canonical.spec_text, canonical.arg_spec, "x86-64-v2", options, lambda _: None)
    )
    assert _workspace(kernel) <= 1024
    x = _row(1, length)
    np.testing.assert_allclose(kernel(guarded(x))[0], _expected(x)[1], rtol=2e-6)


def test_one_kernel_for_rows_of_all_lengths() -> None:
    canonical = canonicalize(softmax(1, LENGTH).encode(), "stablehlo", "default")
    spec = ArgSpec(canonical.symbolic_args)
    kernel = Kernel(compile_spec(canonical.spec_text, spec, "x86-64-v2", CompileOptions(), lambda _: None))
    assert evaluate_text(kernel.interface.workspace, {"s0": LENGTH, "workers": 1}) < LENGTH
    for length in (1, 2, 63, 4097, 65536, LENGTH):
        x = _row(1, length)
        np.testing.assert_allclose(kernel(guarded(x))[0], _expected(x)[1], rtol=2e-6)


_KIND = f"tensor<1x{LENGTH}xf32>"
#: Operations that use the exponentials ``%e`` beside the division, what is returned, and its second value.
_USES: dict[str, tuple[str, str, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "returned": ("", "%y, %e", lambda e, y: e),
    "quotient twice": ("", "%y, %y", lambda e, y: y),
    "read later": (
        f"%r = stablehlo.reverse %e, dims = [1] : {_KIND}\n%z = stablehlo.add %r, %y : {_KIND}",
        "%y, %z",
        lambda e, y: e[:, ::-1] + y,
    ),
    "negated": (f"%z = stablehlo.negate %e : {_KIND}", "%y, %z", lambda e, y: -e),
}


@pytest.mark.parametrize("use", _USES)
def test_exponentials_with_other_users(use: str) -> None:
    text, results, second = _USES[use]
    kernel = kernel_of(softmax(1, LENGTH, results, text, copies=2), "x86-64-v2")
    x = _row(1, LENGTH)
    e, y = _expected(x)
    computed = kernel(x)
    np.testing.assert_allclose(computed[0], y, rtol=2e-6)
    np.testing.assert_allclose(computed[1], second(e, y), rtol=2e-6)


def test_a_division_at_other_indices_has_exponentials_of_its_own() -> None:
    text = """
      func.func @main(%x: tensor<300x300xf32>) -> tensor<300x300xf32> {
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %e = stablehlo.exponential %x : tensor<300x300xf32>
        %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0, 1]
          : (tensor<300x300xf32>, tensor<f32>) -> tensor<f32>
        %w = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<300x300xf32>
        %t = stablehlo.transpose %e, dims = [1, 0] : (tensor<300x300xf32>) -> tensor<300x300xf32>
        %y = stablehlo.divide %t, %w : tensor<300x300xf32>
        return %y : tensor<300x300xf32>
      }"""
    kernel = kernel_of(text, "x86-64-v2")
    x = _row(300, 300)
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(kernel(x)[0], e.T / e.sum(), rtol=2e-6)


#: Rows, columns and inner channels of the blocks below.
ROWS, WIDE, INNER = 45, 256, 16


def _block(name: str, x: str, inner: int = INNER, squared: bool = False) -> str:
    """A residual block, ``%name = max((max(x @ a, 0) @ b + bias) + x, 0)``, of ``inner`` channels and weights
    of its own; ``squared``: ``%name = max((x @ c + bias) + x, 0)``.
    """
    wide, narrow = f"tensor<{ROWS}x{WIDE}xf32>", f"tensor<{ROWS}x{inner}xf32>"
    first, second = f"tensor<{WIDE}x{inner}xf32>", f"tensor<{inner}x{WIDE}xf32>"
    product = f"""
        %{name}0 = stablehlo.dot_general {x}, %{name}a, contracting_dims = [1] x [0]
          : ({wide}, {first}) -> {narrow}
        %{name}z = stablehlo.constant dense<0.0> : {narrow}
        %{name}1 = stablehlo.maximum %{name}0, %{name}z : {narrow}
        %{name}2 = stablehlo.dot_general %{name}1, %{name}b, contracting_dims = [1] x [0]
          : ({narrow}, {second}) -> {wide}"""
    if squared:
        product = f"""
        %{name}2 = stablehlo.dot_general {x}, %c, contracting_dims = [1] x [0]
          : ({wide}, tensor<{WIDE}x{WIDE}xf32>) -> {wide}"""
    return f"""{product}
        %{name}3 = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<{WIDE}xf32>) -> {wide}
        %{name}4 = stablehlo.add %{name}2, %{name}3 : {wide}
        %{name}5 = stablehlo.add %{name}4, {x} : {wide}
        %{name}6 = stablehlo.constant dense<0.0> : {wide}
        %{name} = stablehlo.maximum %{name}5, %{name}6 : {wide}"""


def _workspace_of(body: str, result: str, inner: int = INNER) -> int:
    """Bytes of workspace of the kernel of ``body``, which reads ``%h``, without those of workers. Its bits
    are those of the kernel without bound arguments.
    """
    wide, rows = f"tensor<{ROWS}x{WIDE}xf32>", f"tensor<{ROWS}x32xf32>"
    shapes = [(ROWS, 32), (32, WIDE), *[(WIDE, inner), (inner, WIDE)] * 2, (WIDE,), (WIDE, WIDE), (WIDE, 8)]
    names = ("x", "w", "pa", "pb", "qa", "qb", "bias", "c", "d")
    arguments = ", ".join(
        f"%{name}: tensor<{'x'.join(map(str, shape))}xf32>" for name, shape in zip(names, shapes, strict=True)
    )
    text = f"""
      func.func @main({arguments}) -> tensor<{ROWS}x8xf32> {{
        %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
          : ({rows}, tensor<32x{WIDE}xf32>) -> {wide}
        {body}
        %y = stablehlo.dot_general {result}, %d, contracting_dims = [1] x [0]
          : ({wide}, tensor<{WIDE}x8xf32>) -> tensor<{ROWS}x8xf32>
        return %y : tensor<{ROWS}x8xf32>
      }}"""
    arrays = [normal(*shape) / np.float32(shape[0] ** 0.5) for shape in shapes]
    kernel = compare(text, arrays, list(range(1, len(shapes))), "default", 3, "x86-64-v3")
    assert b"_in_place_run" in kernel.compiled.artifacts["llvm"]
    prepared = kernel.prepare(*arrays[1:])
    (alone,) = kernel.run(prepared, arrays[0])
    (shared,) = kernel.run(prepared, arrays[0], host=threaded_host())
    assert alone.tobytes() == shared.tobytes()
    return evaluate_text(kernel.interface.workspace, {"workers": 0})


@pytest.mark.skipif(not runs_here("x86-64-v3"), reason="this machine does not have x86-64-v3")
def test_residual_blocks_have_one_buffer() -> None:
    blocks = _block("p", "%h") + _block("q", "%p")
    assert _workspace_of(blocks, "%q") < 2 * 4 * ROWS * WIDE
    both = f"\n        %s = stablehlo.add %h, %q : tensor<{ROWS}x{WIDE}xf32>"
    assert _workspace_of(blocks + both, "%s") >= 2 * 4 * ROWS * WIDE


@pytest.mark.sampled(2)
@pytest.mark.skipif(not runs_here("x86-64-v3"), reason="this machine does not have x86-64-v3")
@pytest.mark.parametrize(("squared", "inner"), [(True, INNER), (False, 264)])
def test_a_summand_is_kept_if_it_is_a_factor_or_sums_are_partial(squared: bool, inner: int) -> None:
    assert _workspace_of(_block("p", "%h", inner, squared), "%p", inner) >= 2 * 4 * ROWS * WIDE
