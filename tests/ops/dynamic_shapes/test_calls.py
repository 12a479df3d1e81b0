"""Custom calls of ``jax.export`` with sizes for operands, and parts of what is fixed: right at all sizes."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import Canonical, CompiledKernel, CompileOptions, TensorType
from kcache_grpc.model.target import host_target
from tests.ops.harness.native import run

_SIZE = """
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %i1 = stablehlo.constant dense<1> : tensor<i32>
  %i2 = stablehlo.constant dense<2> : tensor<i32>
  %ones = stablehlo.constant dense<1> : tensor<1xi32>
  %zeros = stablehlo.constant dense<0> : tensor<1xi32>
"""

#: As ``jnp.cumsum``.
SUMS = f"""
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {{{_SIZE}
  %less = stablehlo.subtract %n, %i1 : tensor<i32>
  %low = stablehlo.reshape %less : (tensor<i32>) -> tensor<1xi32>
  %both = stablehlo.concatenate %low, %zeros, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %padding = stablehlo.reshape %both : (tensor<2xi32>) -> tensor<1x2xi32>
  %start = stablehlo.constant dense<0.0> : tensor<f32>
  %made = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %start, %n1, %ones, %ones, %ones, %padding)
    {{called_computations = [@add]}}
    : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1x2xi32>)
    -> tensor<?xf32>
  return %made : tensor<?xf32>
}}
func.func private @add(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {{
  %r = stablehlo.add %a, %b : tensor<f32>
  return %r : tensor<f32>
}}
"""

#: As ``jnp.tril_indices_from``: half of ``n * (n + 1)`` leaves no rest.
TRIANGLE = f"""
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {{{_SIZE}
  %more = stablehlo.add %n, %i1 : tensor<i32>
  %twice = stablehlo.multiply %n, %more : tensor<i32>
  %t = stablehlo.divide %twice, %i2 : tensor<i32>
  %t1 = stablehlo.reshape %t : (tensor<i32>) -> tensor<1xi32>
  %less = stablehlo.subtract %t, %i1 : tensor<i32>
  %low = stablehlo.reshape %less : (tensor<i32>) -> tensor<1xi32>
  %both = stablehlo.concatenate %low, %zeros, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %padding = stablehlo.reshape %both : (tensor<2xi32>) -> tensor<1x2xi32>
  %start = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.dynamic_iota %t1, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %made = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%y, %start, %t1, %ones, %ones, %ones, %padding)
    {{called_computations = [@add]}}
    : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1x2xi32>)
    -> tensor<?xf32>
  return %made : tensor<?xf32>
}}
func.func private @add(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {{
  %r = stablehlo.add %a, %b : tensor<f32>
  return %r : tensor<f32>
}}
"""

#: The larger half, as ``lax.top_k(x, len(x) // 2)``.
LARGEST = f"""
func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xi32>) {{{_SIZE}
  %half = stablehlo.divide %n, %i2 : tensor<i32>
  %made:2 = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %half)
    : (tensor<?xf32>, tensor<i32>) -> (tensor<?xf32>, tensor<?xi32>)
  return %made#0, %made#1 : tensor<?xf32>, tensor<?xi32>
}}
"""

#: As ``jnp.linalg.cholesky``, whose call takes the shapes of its results.
FACTOR = """
func.func @main(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<i32>) {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %m = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %square = stablehlo.compare EQ, %n, %m, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%square) {has_side_effect = true} : (tensor<i1>) -> ()
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %n1, %n1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %none = stablehlo.constant dense<> : tensor<0xi32>
  %made:2 = stablehlo.custom_call @lapack_spotrf_ffi(%x, %shape, %none) {
    indices_of_shape_operands = dense<[1, 2]> : tensor<2xi64>, mhlo.backend_config = {uplo = 76 : ui8},
    operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]
  } : (tensor<?x?xf32>, tensor<2xi32>, tensor<0xi32>) -> (tensor<?x?xf32>, tensor<i32>)
  return %made#0, %made#1 : tensor<?x?xf32>, tensor<i32>
}
"""

#: ``n`` elements of five from a place that is data, as ``lax.dynamic_slice`` with a symbol for a size.
MOVED = f"""
func.func @main(%x: tensor<?xf32>, %y: tensor<5xf32>, %at: tensor<i32>) -> tensor<?xf32> {{{_SIZE}
  %five = stablehlo.constant dense<5> : tensor<1xi32>
  %from = stablehlo.reshape %at : (tensor<i32>) -> tensor<1xi32>
  %last = stablehlo.subtract %five, %n1 : tensor<1xi32>
  %first = stablehlo.clamp %zeros, %from, %last : tensor<1xi32>
  %end = stablehlo.add %first, %n1 : tensor<1xi32>
  %made = stablehlo.real_dynamic_slice %y, %first, %end, %ones
    : (tensor<5xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %sum = stablehlo.add %made, %x : tensor<?xf32>
  return %sum : tensor<?xf32>
}}
"""

#: Few elements put into five.
UPDATED = """
func.func @main(%x: tensor<?xf32>, %y: tensor<5xf32>, %at: tensor<i32>) -> tensor<5xf32> {
  %made = stablehlo.dynamic_update_slice %y, %x, %at : (tensor<5xf32>, tensor<?xf32>, tensor<i32>) -> tensor<5xf32>
  return %made : tensor<5xf32>
}
"""

#: A result of one window, whose axis has room for no other: two sizes do.
FIXED = """
func.func @main(%x: tensor<?xf32>) -> tensor<1xf32> {
  %start = stablehlo.constant dense<0.0> : tensor<f32>
  %made = "stablehlo.reduce_window"(%x, %start) <{
    window_dimensions = array<i64: 3>, window_strides = array<i64: 2>
  }> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %r = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) : (tensor<?xf32>, tensor<f32>) -> tensor<1xf32>
  return %made : tensor<1xf32>
}
"""

#: ``-(-n // 3)`` zeros: division rounds up, as JAX writes it.
CEILED = f"""
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {{{_SIZE}
  %some = stablehlo.compare GE, %n, %i1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%some) {{has_side_effect = true}} : (tensor<i1>) -> ()
  %three = stablehlo.constant dense<3> : tensor<i32>
  %minus = stablehlo.negate %n : tensor<i32>
  %q = stablehlo.divide %minus, %three : tensor<i32>
  %sn = stablehlo.sign %minus : tensor<i32>
  %s3 = stablehlo.sign %three : tensor<i32>
  %apart = stablehlo.compare NE, %sn, %s3, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %r = stablehlo.remainder %minus, %three : tensor<i32>
  %rest = stablehlo.compare NE, %r, %i0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %down = stablehlo.and %apart, %rest : tensor<i1>
  %less = stablehlo.subtract %q, %i1 : tensor<i32>
  %floor = stablehlo.select %down, %less, %q : tensor<i1>, tensor<i32>
  %count = stablehlo.negate %floor : tensor<i32>
  %shape = stablehlo.reshape %count : (tensor<i32>) -> tensor<1xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %made = stablehlo.dynamic_broadcast_in_dim %zero, %shape, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  return %made : tensor<?xf32>
}}
"""


def _compiled(text: str, numerics: str = "strict") -> tuple[Canonical, CompiledKernel]:
    canonical = canonicalize(text.encode(), "stablehlo", numerics)
    options = CompileOptions(numerics=numerics)
    isa = host_target().isa
    return canonical, compile_spec(canonical.spec_text, canonical.arg_spec, isa, options, lambda _: None)


def _floats(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(-9, 9, count).astype(np.float32)


@pytest.mark.parametrize("numerics", ["strict", "default"])
def test_windows_as_long_as_their_open_axis_are_running_sums(numerics: str) -> None:
    _, kernel = _compiled(SUMS, numerics)
    for n in (1, 2, 7, 16, 37):
        x = _floats(n)
        (content,) = run(kernel, [x.tobytes()], [], (n,))
        assert np.frombuffer(content, np.float32).tolist() == np.cumsum(x).tolist()
    with pytest.raises(RuntimeError, match="returned 1"):
        run(kernel, [b""], [], (0,))


def test_a_division_that_never_leaves_a_rest_is_one_of_sizes() -> None:
    _, kernel = _compiled(TRIANGLE)
    for n in (1, 2, 3, 4, 13):
        (content,) = run(kernel, [bytes(4 * n)], [], (n,))
        expected = np.cumsum(np.arange(n * (n + 1) // 2, dtype=np.float32))
        assert np.frombuffer(content, np.float32).tolist() == expected.tolist()


@pytest.mark.parametrize(("text", "size"), [(SUMS, 3001), (LARGEST, 70_001)], ids=["sums", "largest"])
def test_several_threads_give_what_one_does(text: str, size: int) -> None:
    canonical, kernel = _compiled(text)
    constants = [constant.content for constant in canonical.constants]
    x = _floats(size).tobytes()
    alone = run(kernel, [x], constants, (size,))
    assert run(kernel, [x], constants, (size,), workers=3) == alone


def test_a_program_of_open_sizes_compiles_for_given_ones() -> None:
    canonical = canonicalize(SUMS.encode(), "stablehlo", "strict")
    static = replace(canonical.arg_spec, args=(TensorType("f32", (7,)),))
    isa, options = host_target().isa, CompileOptions(numerics="strict")
    kernel = compile_spec(canonical.spec_text, static, isa, options, lambda _: None)
    x = _floats(7)
    (content,) = run(kernel, [x.tobytes()], [])
    assert np.frombuffer(content, np.float32).tolist() == np.cumsum(x).tolist()


def test_the_largest_of_an_open_axis_are_as_many_as_the_program_computes() -> None:
    _, kernel = _compiled(LARGEST)
    for n in (0, 1, 2, 7, 16, 37):
        x = _floats(n)
        values, places = run(kernel, [x.tobytes()], [], (n,))
        order = np.argsort(-x, kind="stable")[: n // 2]
        assert np.frombuffer(values, np.float32).tolist() == x[order].tolist()
        assert np.frombuffer(places, np.int32).tolist() == order.tolist()


def test_factors_of_matrices_of_open_size() -> None:
    _, kernel = _compiled(FACTOR)
    for n in (1, 2, 5, 8, 17):
        half = np.random.default_rng(n).standard_normal((n, n)).astype(np.float32)
        matrix = half @ half.T + n * np.eye(n, dtype=np.float32)
        content, bad = run(kernel, [matrix.tobytes()], [], (n, n))
        factor = np.tril(np.frombuffer(content, np.float32).reshape(n, n))
        np.testing.assert_allclose(factor @ factor.T, matrix, rtol=1e-4, atol=1e-4)
        assert np.frombuffer(bad, np.int32).tolist() == [0]
    with pytest.raises(RuntimeError, match="returned 1"):
        run(kernel, [np.zeros((2, 3), np.float32).tobytes()], [], (2, 3))


def test_a_part_of_open_size_is_moved_inside_of_a_fixed_axis() -> None:
    _, kernel = _compiled(MOVED)
    y = np.arange(5, dtype=np.float32)
    for n in (0, 1, 3, 5):
        for at in (-3, 0, 1, 2, 4, 9):
            x, first = _floats(n), min(max(at, 0), 5 - n)
            (content,) = run(kernel, [x.tobytes(), y.tobytes(), np.int32(at).tobytes()], [], (n,))
            assert np.frombuffer(content, np.float32).tolist() == (y[first : first + n] + x).tolist()
    with pytest.raises(RuntimeError, match="returned 1"):
        run(kernel, [_floats(6).tobytes(), y.tobytes(), np.int32(0).tobytes()], [], (6,))


def test_a_part_of_open_size_is_put_into_a_fixed_axis() -> None:
    _, kernel = _compiled(UPDATED)
    y = np.arange(5, dtype=np.float32)
    for n in (0, 1, 3, 5):
        for at in (-3, 0, 1, 2, 4, 9):
            x, first, wanted = _floats(n), min(max(at, 0), 5 - n), y.copy()
            wanted[first : first + n] = x
            (content,) = run(kernel, [x.tobytes(), y.tobytes(), np.int32(at).tobytes()], [], (n,))
            assert np.frombuffer(content, np.float32).tolist() == wanted.tolist()
    with pytest.raises(RuntimeError, match="returned 1"):
        run(kernel, [_floats(6).tobytes(), y.tobytes(), np.int32(0).tobytes()], [], (6,))


def test_a_result_of_fixed_size_is_checked_when_several_sizes_give_it() -> None:
    _, kernel = _compiled(FIXED)
    for n in (3, 4):
        x = _floats(n)
        (content,) = run(kernel, [x.tobytes()], [], (n,))
        assert np.frombuffer(content, np.float32).tolist() == [x[:3].sum()]
    for n in (0, 2, 5, 6):
        with pytest.raises(RuntimeError, match="returned 1"):
            run(kernel, [_floats(n).tobytes()], [], (n,))


def test_division_of_what_is_below_zero_rounds_as_the_program_says() -> None:
    _, kernel = _compiled(CEILED)
    for n in (1, 2, 3, 4, 7, 9, 100):
        (content,) = run(kernel, [_floats(n).tobytes()], [], (n,))
        assert len(content) == 4 * -(-n // 3)


@pytest.mark.parametrize("op", ["reduce_precision", "bitcast_convert", "gather"])
def test_what_the_toolchain_does_not_survive_at_unknown_sizes_goes_another_way(op: str) -> None:
    texts = {
        "reduce_precision": "%y = stablehlo.reduce_precision %x, format = e5m10 : tensor<?xf32>",
        "bitcast_convert": """
  %z = stablehlo.bitcast_convert %x : (tensor<?xf32>) -> tensor<?xi32>
  %y = stablehlo.bitcast_convert %z : (tensor<?xi32>) -> tensor<?xf32>""",
        "gather": """
  %z = stablehlo.constant dense<0> : tensor<2x0xi32>
  %w = "stablehlo.gather"(%x, %z) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : (tensor<?xf32>, tensor<2x0xi32>) -> tensor<2x1xf32>
  %v = stablehlo.slice %w [0:1, 0:1] : (tensor<2x1xf32>) -> tensor<1x1xf32>
  %s = stablehlo.reshape %v : (tensor<1x1xf32>) -> tensor<1xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %s, %n1, dims = [0] : (tensor<1xf32>, tensor<1xi32>) -> tensor<?xf32>
  %y = stablehlo.maximum %b, %x : tensor<?xf32>""",
    }[op]
    constant = "%one = stablehlo.constant dense<1.0> : tensor<f32>"
    more = "%more = stablehlo.dynamic_broadcast_in_dim %one, %n1, dims = []"
    text = f"""
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {{{_SIZE}
  {texts}
  {constant}
  {more} : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %r = stablehlo.add %y, %more : tensor<?xf32>
  return %r : tensor<?xf32>
}}
"""
    _, kernel = _compiled(text)
    for n in (1, 4, 19):
        x = np.arange(n, dtype=np.float32)
        (made_bytes,) = run(kernel, [x.tobytes()], [], (n,))
        assert np.frombuffer(made_bytes, np.float32).tolist() == (x + 1).tolist()


def test_windows_of_sizes_that_are_data_are_rejected() -> None:
    text = SUMS.replace("(%x: tensor<?xf32>)", "(%x: tensor<?xf32>, %m: tensor<1x1xi32>)", 1)
    read = "%w = stablehlo.reshape %m : (tensor<1x1xi32>) -> tensor<1xi32>"
    text = text.replace("  %made =", f"  {read}\n  %made =", 1)
    with pytest.raises(UnsupportedOp, match="dynamic_reduce_window"):
        _compiled(text.replace("%start, %n1,", "%start, %w,"))
