"""Sizes that are known only at run time: kernels follow StableHLO or report sizes that do not fit."""

# ruff: noqa: E501 (programs as text)

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.llvm.target import target_named
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit, UpstreamPasses
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel, compile_text, kernel_of

SIZES = (0, 1, 7, 64)
V, T = "tensor<?xf32>", "tensor<?x?xf32>"


def _kernel(arguments: list[str], result: str, *lines: str) -> Kernel:
    """``main`` of ``%a``, ``%b``, ... that returns ``%r``."""
    named = ", ".join(f"%{name}: {kind}" for name, kind in zip("abcd", arguments, strict=False))
    body = "\n".join(lines)
    return kernel_of(f"func.func @main({named}) -> {result} {{\n{body}\nreturn %r : {result} }}")


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("f4")


def _rejects(kernel: Kernel, *arrays: np.ndarray | np.number) -> None:
    with pytest.raises(RuntimeError, match="sizes of the arguments do not fit"):
        kernel(*arrays)


def test_slices_stay_within_their_operand() -> None:
    kernel = _kernel([V], "tensor<3xf32>", f"%r = stablehlo.slice %a [5:8] : ({V}) -> tensor<3xf32>")
    x = _floats(64)
    np.testing.assert_array_equal(kernel(x)[0], x[5:8])
    np.testing.assert_array_equal(kernel(x[:8])[0], x[5:8])
    for size in (0, 4, 7):
        _rejects(kernel, x[:size])


def test_dynamic_slices_fit_their_operand() -> None:
    line = f"%r = stablehlo.dynamic_slice %a, %b, sizes = [3] : ({V}, tensor<i32>) -> tensor<3xf32>"
    kernel = _kernel([V, "tensor<i32>"], "tensor<3xf32>", line)
    x = _floats(7)
    for start, taken in ((-9, 0), (0, 0), (4, 4), (6, 4)):
        np.testing.assert_array_equal(kernel(x, np.int32(start))[0], x[taken : taken + 3])
    for size in (0, 2):
        _rejects(kernel, x[:size], np.int32(0))


def test_gathers_clamp_and_fit_their_operand() -> None:
    numbers = "#stablehlo.gather<offset_dims = [1], start_index_map = [0], index_vector_dim = 1>"
    line = f'%r = "stablehlo.gather"(%a, %b) <{{dimension_numbers = {numbers}, slice_sizes = array<i64: 3>}}> : ({V}, tensor<?x1xi32>) -> tensor<?x3xf32>'
    kernel = _kernel([V, "tensor<?x1xi32>"], "tensor<?x3xf32>", line)
    x = _floats(7)
    got = kernel(x, np.array([[-5], [2], [50]], "i4"))[0]
    np.testing.assert_array_equal(got, np.stack([x[0:3], x[2:5], x[4:7]]))
    assert kernel(x, np.zeros((0, 1), "i4"))[0].shape == (0, 3)
    for size in (0, 2):
        _rejects(kernel, x[:size], np.array([[0]], "i4"))


def test_concatenated_operands_agree_beside_their_axis() -> None:
    kernel = _kernel([T, T], T, f"%r = stablehlo.concatenate %a, %b, dim = 0 : ({T}, {T}) -> {T}")
    for first in SIZES:
        for second in SIZES:
            a, b = _floats(first, 5), _floats(second, 5)
            np.testing.assert_array_equal(kernel(a, b)[0], np.concatenate([a, b]))
    _rejects(kernel, _floats(3, 4), _floats(2, 6))
    _rejects(kernel, _floats(2, 6), _floats(3, 4))


_ROWS = f"%size = stablehlo.get_dimension_size %b, dim = 0 : ({V}) -> tensor<i32>\n%shape = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>"


@pytest.mark.parametrize("size", SIZES)
def test_a_broadcast_expands_what_turns_out_to_have_size_one(size: int) -> None:
    line = f"%r = stablehlo.dynamic_broadcast_in_dim %a, %shape, dims = [0] : ({V}, tensor<1xi32>) -> {V}"
    kernel = _kernel([V, V], V, _ROWS, line)
    like, single = _floats(size), np.array([3], "f4")
    np.testing.assert_array_equal(kernel(like, like)[0], like)
    np.testing.assert_array_equal(kernel(single, like)[0], np.full(size, 3, "f4"))
    if size != 4:
        _rejects(kernel, _floats(4), like)


def test_a_broadcast_beside_an_expanding_axis() -> None:
    kernel = _kernel(
        [V, T],
        T,
        f"%m = stablehlo.get_dimension_size %b, dim = 0 : ({T}) -> tensor<i32>",
        f"%n = stablehlo.get_dimension_size %b, dim = 1 : ({T}) -> tensor<i32>",
        "%mv = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>",
        "%nv = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>",
        "%shape = stablehlo.concatenate %mv, %nv, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>",
        f"%w = stablehlo.dynamic_broadcast_in_dim %a, %shape, dims = [1] : ({V}, tensor<2xi32>) -> {T}",
        f"%r = stablehlo.add %b, %w : {T}",
    )
    for rows in SIZES:
        for columns in SIZES:
            b = _floats(rows, columns)
            for a in (_floats(columns), _floats(1)):
                np.testing.assert_array_equal(kernel(a, b)[0], b + a)


def test_a_static_source_of_a_broadcast_fits_its_result() -> None:
    line = f"%r = stablehlo.dynamic_broadcast_in_dim %a, %shape, dims = [0] : (tensor<4xf32>, tensor<1xi32>) -> {V}"
    kernel = _kernel(["tensor<4xf32>", V], V, _ROWS, line)
    x = _floats(4)
    np.testing.assert_array_equal(kernel(x, x)[0], x)
    _rejects(kernel, x, _floats(5))


def test_sizes_inside_control_flow_are_rejected_when_they_need_a_check() -> None:
    with pytest.raises(UnsupportedOp, match=r"stablehlo\.slice"):
        compile_text(f"""
          func.func @main(%p: tensor<i1>, %a: {V}) -> tensor<3xf32> {{
            %r = "stablehlo.if"(%p) ({{
              %s = stablehlo.slice %a [0:3] : ({V}) -> tensor<3xf32>
              stablehlo.return %s : tensor<3xf32>
            }}, {{
              %s = stablehlo.slice %a [1:4] : ({V}) -> tensor<3xf32>
              stablehlo.return %s : tensor<3xf32>
            }}) : (tensor<i1>) -> tensor<3xf32>
            return %r : tensor<3xf32>
          }}""")


@pytest.mark.parametrize(
    ("line", "result", "size"),
    [
        (f"%r = stablehlo.concatenate %a, %a, dim = 0 : ({V}, {V}) -> tensor<6xf32>", "tensor<6xf32>", 3),
        (f"%r = stablehlo.add %a, %a : ({V}, {V}) -> tensor<6xf32>", "tensor<6xf32>", 6),
        (
            "%n = stablehlo.constant dense<[2, 3]> : tensor<2xi32>\n"
            f"%r = stablehlo.dynamic_reshape %a, %n : ({V}, tensor<2xi32>) -> tensor<2x3xf32>",
            "tensor<2x3xf32>",
            6,
        ),
    ],
    ids=["concatenate", "add", "reshape"],
)
def test_a_stated_size_holds(line: str, result: str, size: int) -> None:
    kernel = _kernel([V], result, line)
    assert kernel(_floats(size))[0].size == 6
    for other in (0, 2, 8):
        _rejects(kernel, _floats(other))


def test_what_the_toolchain_cannot_lower_is_rejected_by_name() -> None:
    with pytest.raises(UnsupportedOp, match=r"stablehlo\.dot_general.*its lowering fails") as rejection:
        compile_text(f"""
          func.func @main(%a: {T}, %b: tensor<3x5xf32>) -> tensor<4x5xf32> {{
            %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({T}, tensor<3x5xf32>) -> tensor<4x5xf32>
            return %r : tensor<4x5xf32>
          }}""")
    assert rejection.value.location


def test_a_place_is_looked_for_in_a_program_that_lives_as_long() -> None:
    adds = "\n".join(f"%{i + 1} = stablehlo.add %{i}, %{i} : {T}" for i in range(2000))
    source = f"func.func @main(%0: {T}) -> {T} {{\n{adds}\nreturn %2000 : {T}\n}}"
    with mlir.new_context(), mlir.unknown_location():
        unit = Unit(source, 1, target_named("x86-64-v3"), CompileOptions())
        unit.module = mlir.parse("""
          func.func @main(%a: tensor<2x2xf16>, %b: tensor<2x2xbf16>) -> tensor<2x2xf16> {
            %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
              : (tensor<2x2xf16>, tensor<2x2xbf16>) -> tensor<2x2xf16>
            return %0 : tensor<2x2xf16>
          }""")
        with pytest.raises(mlir.MLIRError, match="requires the same type for all operands"):
            UpstreamPasses("linalg", "stablehlo-legalize-to-linalg", rejects=True).apply(unit)


@pytest.mark.parametrize("element", ["f32", "bf16", "i32", "complex<f64>"])
def test_a_convolution_of_no_channels_is_zero(element: str) -> None:
    image, filters, result = (f"tensor<{dims}x{element}>" for dims in ("2x4x4x0", "3x3x0x5", "2x4x4x5"))
    numbers = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
    groups = "batch_group_count = 1 : i64, feature_group_count = 1 : i64"
    line = (
        f"%r = stablehlo.convolution(%a, %b) dim_numbers = {numbers}, window = {{pad = [[1, 1], [1, 1]]}} "
        f"{{{groups}}} : ({image}, {filters}) -> {result}"
    )
    (got,) = _kernel([image, filters], result, line)(np.zeros((2, 4, 4, 0)), np.zeros((3, 3, 0, 5)))
    assert got.shape == (2, 4, 4, 5)
    assert not got.any()


def test_nothing_of_what_may_be_a_shape_is_broadcast_to_nothing() -> None:
    text = """func.func @main(%a: tensor<3xi32>) -> tensor<0xi32> {
      %two = stablehlo.constant dense<2> : tensor<i32>
      %none = stablehlo.broadcast_in_dim %two, dims = [] : (tensor<i32>) -> tensor<0xi32>
      %pair = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
      %rest = stablehlo.slice %pair [1:1] : (tensor<2xi32>) -> tensor<0xi32>
      %sum = stablehlo.add %none, %rest : tensor<0xi32>
      return %sum : tensor<0xi32>
    }"""
    assert kernel_of(text)(np.zeros(3, np.int32))[0].shape == (0,)
