"""Operations whose sizes are open, or computed: chains of ``tensor<?x8xf32>``, and the dynamic operations."""

# ruff: noqa: E501  (lines of programs)
from __future__ import annotations

from benchmarks.chains.kind import VALUE, Kind, binary, unary

OPEN = "tensor<?x8xf32>"
_COLUMN = "tensor<?xf32>"
_SUM = (
    "({{\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%s = stablehlo.add %p, %q : tensor<f32>\n"
    "stablehlo.return %s : tensor<f32>\n}})"
)
#: The sizes of the value before, as ``jax.export`` reads them.
_SIZES = (
    f"{{y}}d = stablehlo.get_dimension_size {{x}}, dim = 0 : ({OPEN}) -> tensor<i32>\n"
    "{y}e = stablehlo.reshape {y}d : (tensor<i32>) -> tensor<1xi32>\n"
    "{y}f = stablehlo.constant dense<8> : tensor<1xi32>\n"
    "{y}s = stablehlo.concatenate {y}e, {y}f, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>\n"
)
_ONES = (
    "{y}n = stablehlo.constant dense<0> : tensor<2xi32>\n{y}o = stablehlo.constant dense<1> : tensor<2xi32>\n"
)

OPEN_SIZES: dict[str, Kind] = {
    **{f"{op} ?": unary(f"stablehlo.{op}", OPEN) for op in ("tanh", "cosine")},
    **{f"{op} ?": binary(f"stablehlo.{op}", OPEN) for op in ("add", "divide")},
    "concatenate ?": Kind(
        f'{{y}}c = "stablehlo.concatenate"({{x}}, %w) <{{{{dimension = 1 : i64}}}}> : ({OPEN}, {OPEN}) -> '
        "tensor<?x16xf32>\n"
        f'{{y}} = "stablehlo.reduce_window"({{y}}c, %z) <{{{{window_dimensions = array<i64: 1, 2>, '
        f"window_strides = array<i64: 1, 2>}}}}> {_SUM} : (tensor<?x16xf32>, tensor<f32>) -> {OPEN}",
        OPEN,
    ),
    "dot_general ?": Kind(
        f"{{y}} = stablehlo.dot_general {{x}}, %o, contracting_dims = [1] x [0] : ({OPEN}, {VALUE}) -> {OPEN}",
        OPEN,
        f"%o: {VALUE}",
    ),
    "dynamic_broadcast_in_dim ?": Kind(
        f'{{y}}r = "stablehlo.reduce"({{x}}, %z) <{{{{dimensions = array<i64: 1>}}}}> {_SUM} : '
        f"({OPEN}, tensor<f32>) -> {_COLUMN}\n{_SIZES}"
        f"{{y}} = stablehlo.dynamic_broadcast_in_dim {{y}}r, {{y}}s, dims = [0] : "
        f"({_COLUMN}, tensor<2xi32>) -> {OPEN}",
        OPEN,
    ),
    "dynamic_gather ?": Kind(
        "{y}w = stablehlo.constant dense<[1, 8]> : tensor<2xi32>\n"
        '{y}g = "stablehlo.dynamic_gather"({x}, %j, {y}w) <{{dimension_numbers = #stablehlo.gather<offset_dims = '
        "[1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
        f"indices_are_sorted = false}}}}> : ({OPEN}, tensor<8xi32>, tensor<2xi32>) -> {VALUE}\n"
        f'{{y}}r = "stablehlo.reduce"({{y}}g, %z) <{{{{dimensions = array<i64: 0>}}}}> {_SUM} : '
        f"({VALUE}, tensor<f32>) -> tensor<8xf32>\n{_SIZES}"
        f"{{y}} = stablehlo.dynamic_broadcast_in_dim {{y}}r, {{y}}s, dims = [1] : "
        f"(tensor<8xf32>, tensor<2xi32>) -> {OPEN}",
        OPEN,
    ),
    "dynamic_iota ?": Kind(
        f"{_SIZES}{{y}}i = stablehlo.dynamic_iota {{y}}s, dim = 0 : (tensor<2xi32>) -> {OPEN}\n"
        f"{{y}} = stablehlo.multiply {{y}}i, {{x}} : {OPEN}",
        OPEN,
    ),
    "dynamic_pad ?": Kind(
        f"{_ONES}{{y}}p = stablehlo.dynamic_pad {{x}}, %z, {{y}}o, {{y}}n, {{y}}n : "
        f"({OPEN}, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x9xf32>\n"
        f"{_SIZES}{{y}} = stablehlo.real_dynamic_slice {{y}}p, {{y}}n, {{y}}s, {{y}}o : "
        f"(tensor<?x9xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> {OPEN}",
        OPEN,
    ),
    "dynamic_reshape ?": Kind(
        f"{_SIZES}{{y}}h = stablehlo.constant dense<2> : tensor<1xi32>\n"
        "{y}g = stablehlo.constant dense<4> : tensor<1xi32>\n"
        "{y}t = stablehlo.concatenate {y}e, {y}h, {y}g, dim = 0 : "
        "(tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>\n"
        f"{{y}}r = stablehlo.dynamic_reshape {{x}}, {{y}}t : ({OPEN}, tensor<3xi32>) -> tensor<?x2x4xf32>\n"
        "{y}u = stablehlo.tanh {y}r : tensor<?x2x4xf32>\n"
        f"{{y}} = stablehlo.dynamic_reshape {{y}}u, {{y}}s : (tensor<?x2x4xf32>, tensor<2xi32>) -> {OPEN}",
        OPEN,
    ),
    "dynamic_conv ?": Kind(
        f"{_SIZES}{{y}}h = stablehlo.constant dense<1> : tensor<1xi32>\n"
        "{y}t = stablehlo.concatenate {y}h, {y}e, {y}f, dim = 0 : "
        "(tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>\n"
        f"{{y}}b = stablehlo.dynamic_reshape {{x}}, {{y}}t : ({OPEN}, tensor<3xi32>) -> tensor<1x?x8xf32>\n"
        "{y}p = stablehlo.constant dense<1> : tensor<1x2xi32>\n"
        '{y}k = "stablehlo.dynamic_conv"({y}b, %k, {y}p) <{{batch_group_count = 1 : i64, '
        "dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, feature_group_count = 1 : i64}}> : "
        "(tensor<1x?x8xf32>, tensor<3x8x8xf32>, tensor<1x2xi32>) -> tensor<1x?x8xf32>\n"
        f"{{y}} = stablehlo.dynamic_reshape {{y}}k, {{y}}s : (tensor<1x?x8xf32>, tensor<2xi32>) -> {OPEN}",
        OPEN,
    ),
    "reduce_window ?": Kind(
        '{y} = "stablehlo.reduce_window"({x}, %z) <{{window_dimensions = array<i64: 1, 3>, '
        "window_strides = array<i64: 1, 1>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>}}> "
        f"{_SUM} : ({OPEN}, tensor<f32>) -> {OPEN}",
        OPEN,
    ),
    "scatter ?": Kind(
        '{y} = "stablehlo.scatter"({x}, %j, %o) <{{scatter_dimension_numbers = #stablehlo.scatter<'
        "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        "index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}}> "
        f"{_SUM} : ({OPEN}, tensor<8xi32>, {VALUE}) -> {OPEN}",
        OPEN,
        f"%o: {VALUE}",
    ),
    "sort ?": Kind(
        '{y} = "stablehlo.sort"({x}) <{{dimension = {odd} : i64, is_stable = true}}> ({{\n'
        "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%s = stablehlo.compare LT, %p, %q : "
        "(tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %s : tensor<i1>\n}}) : "
        f"({OPEN}) -> {OPEN}",
        OPEN,
    ),
}
