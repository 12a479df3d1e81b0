"""Forms that StableHLO's published test programs are written in, besides today's."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import pytest
from torch_mlir._mlir_libs import _stablehlo  # pyright: ignore

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.spec import canonicalize

PUBLISHED = """module @jit_main attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}} {{
  func.func public @main() -> (tensor<2xf32> {{jax.result_info = "", mhlo.layout_mode = "default"}}) {{
    %0 = call @inputs() : () -> tensor<2xf32>
    %1 = call @expected() : () -> tensor<2xf32>
    %2 = stablehlo.abs %0 : tensor<2xf32>
    {check}
    return %2 : tensor<2xf32>
  }}
  func.func private @inputs() -> (tensor<2xf32> {{mhlo.layout_mode = "default"}}) {{
    %cst = stablehlo.constant dense<[-1.0, 0xFF800000]> : tensor<2xf32>
    return %cst : tensor<2xf32>
  }}
  func.func private @expected() -> (tensor<2xf32> {{mhlo.layout_mode = "default"}}) {{
    %cst = stablehlo.constant dense<"0x0000803F0000807F"> : tensor<2xf32>
    return %cst : tensor<2xf32>
  }}
}}
"""


def spec(program: str) -> str:
    return canonicalize(program.encode(), "stablehlo").spec_text


def published(check: str) -> str:
    return PUBLISHED.format(check=check)


@pytest.mark.parametrize("target", ["eq", "close", "almost_eq"])
def test_an_expectation_changes_no_kernel(target: str) -> None:
    check = f"stablehlo.custom_call @check.expect_{target}(%2, %1) {{has_side_effect = true}} : (tensor<2xf32>, tensor<2xf32>) -> ()"
    assert spec(published(check)) == spec(published(""))


def test_what_gives_a_result_is_no_expectation() -> None:
    check = "%3 = stablehlo.custom_call @check.expect_eq(%2, %1) {has_side_effect = true} : (tensor<2xf32>, tensor<2xf32>) -> tensor<i1>"
    with pytest.raises(UnsupportedOp, match=r"check\.expect_eq has side effects"):
        spec(published(check))


def function(arguments: str, body: str, result: str) -> str:
    return f"func.func @main({arguments}) -> {result} {{\n  {body}\n  return %r : {result}\n}}\n"


REDUCER = """({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32>
  })"""
#: ``$0`` and so on are attributes of ``OLD``, and of ``NEW``.
PROGRAMS = [
    function(
        "%x: tensor<4x3xf32>",
        f'%r = "stablehlo.{op}"(%x) {{{attributes}}} : (tensor<4x3xf32>) -> {result}',
        result,
    )
    for op, attributes, result in [
        ("transpose", "permutation = $0", "tensor<3x4xf32>"),
        ("slice", "start_indices = $1, limit_indices = $2, strides = $3", "tensor<2x3xf32>"),
        ("broadcast_in_dim", "broadcast_dimensions = $4", "tensor<4x3x1xf32>"),
        ("reverse", "dimensions = $5", "tensor<4x3xf32>"),
        ("broadcast", "broadcast_sizes = $6", "tensor<4x3xf32>"),
    ]
]
PROGRAMS += [
    function(
        "%x: tensor<4x3xf32>, %z: tensor<f32>",
        f'%r = "stablehlo.reduce_window"(%x, %z) {REDUCER} {{window_dimensions = $3, window_strides = $3, '
        "padding = dense<0> : tensor<2x2xi64>} : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>",
        "tensor<4x3xf32>",
    ),
    function(
        "%x: tensor<1x8x8x3xf32>, %k: tensor<3x3x3x4xf32>",
        '%r = "stablehlo.convolution"(%x, %k) {batch_group_count = 1 : i64, feature_group_count = 1 : i64, '
        "dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, lhs_dilation = $3, "
        "padding = dense<0> : tensor<2x2xi64>, window_reversal = $7, window_strides = $3} "
        ": (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x6x6x4xf32>",
        "tensor<1x6x6x4xf32>",
    ),
]
OLD = (
    "dense<[1, 0]> : tensor<2xi64>",
    "dense<0> : tensor<2xi64>",
    "dense<[2, 3]> : tensor<2xi64>",
    "dense<1> : tensor<2xi64>",
    "dense<[0, 1]> : tensor<2xi64>",
    "dense<1> : tensor<1xi64>",
    "dense<> : tensor<0xi64>",
    "dense<[true, false]> : tensor<2xi1>",
)
NEW = (
    "array<i64: 1, 0>",
    "array<i64: 0, 0>",
    "array<i64: 2, 3>",
    "array<i64: 1, 1>",
    "array<i64: 0, 1>",
    "array<i64: 1>",
    "array<i64>",
    "array<i1: true, false>",
)


def filled(program: str, attributes: tuple[str, ...]) -> str:
    for number, attribute in enumerate(attributes):
        program = program.replace(f"${number}", attribute)
    return program


@pytest.mark.parametrize("program", PROGRAMS)
def test_arrays_as_elements_attributes_are_read(program: str) -> None:
    assert spec(filled(program, OLD)) == spec(filled(program, NEW))


def test_what_else_an_old_text_does_wrong_is_said_at_its_line() -> None:
    program = filled(PROGRAMS[0], ("dense<[0, 1]> : tensor<2xi64>",))
    with pytest.raises(InvalidProgram, match=r"line 2.*op inferred type"):
        spec(program)


@pytest.mark.parametrize(
    "numbers",
    ["dense<1> : tensor<999999999xi64>", "dense<[1, 0, 2]> : tensor<2xi64>", "dense<1> : tensor<2xi32>"],
)
def test_other_elements_are_rejected(numbers: str) -> None:
    with pytest.raises(InvalidProgram, match="line 2"):
        spec(filled(PROGRAMS[0], (numbers,)))


@pytest.mark.parametrize("program", PROGRAMS)
def test_artifacts_of_the_first_version_are_read(program: str) -> None:
    text = filled(program, NEW)
    module = mlir.parse_module(text, mlir.new_context())
    artifact: bytes = _stablehlo.serialize_portable_artifact(module, "0.9.0")  # pyright: ignore
    assert canonicalize(artifact, "stablehlo").spec_text == spec(text)
