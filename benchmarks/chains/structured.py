"""Operations that move, combine or call: those with attributes and bodies."""

# ruff: noqa: E501  (lines of programs)
from __future__ import annotations

from benchmarks.chains.kind import VALUE, Kind

_ROW, _INTEGER, _COMPLEX = (
    "tensor<8xf32>",
    "tensor<8x8xi32>",
    "tensor<8x8xcomplex<f32>>",
)
_PAIR = f"({VALUE}, {VALUE}) -> {VALUE}"
_HALF = "tensor<8x8xbf16>"
_QUANTIZED = "tensor<8x8x!quant.uniform<i8:f32, 5.0e-1:3>>"
_WEIGHTS = "tensor<8x8x!quant.uniform<i8:f32, 2.5e-1>>"
_BODY = "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n{lines}\nstablehlo.return %s : tensor<{kind}>"


def _body(op: str) -> str:
    """A region that combines two scalars."""
    lines = f"%s = stablehlo.{op} %p, %q : tensor<f32>"
    return "({{\n" + _BODY.format(lines=lines, kind="f32") + "\n}})"


def _less(how: str) -> str:
    """A region that compares two scalars."""
    lines = f"%s = stablehlo.compare {how}, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>"
    return "{{\n" + _BODY.format(lines=lines, kind="i1") + "\n}}"


def _spread(operation: str) -> str:
    """A row as the value of the chain."""
    return (
        f'{operation}\n{{y}} = "stablehlo.broadcast_in_dim"({{y}}r) <{{{{broadcast_dimensions = array<i64: 0>}}}}> : '
        f"({_ROW}) -> {VALUE}"
    )


def _norm(name: str, operands: str, count: int, results: str) -> str:
    kinds = ", ".join([VALUE] + [_ROW] * count)
    return (
        f'{results} = "stablehlo.{name}"({operands}) <{{{{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}}}}> : '
        f"({kinds}"
    )


STRUCTURED: dict[str, Kind] = {
    "batch_norm_grad": Kind(
        _norm("batch_norm_grad", "{x}, %r, %r, %r, %w", 3, "{y}, {y}s, {y}o")
        + f", {VALUE}) -> ({VALUE}, {_ROW}, {_ROW})",
        given=f"%r: {_ROW}",
    ),
    "batch_norm_inference": Kind(
        _norm("batch_norm_inference", "{x}, %r, %r, %r, %r", 4, "{y}") + f") -> {VALUE}", given=f"%r: {_ROW}"
    ),
    "broadcast": Kind(
        f'{{y}}b = "stablehlo.broadcast"({{x}}) <{{{{broadcast_sizes = array<i64: 2>}}}}> : ({VALUE}) -> '
        "tensor<2x8x8xf32>\n"
        '{y}s = "stablehlo.slice"({y}b) <{{start_indices = array<i64: 1, 0, 0>, limit_indices = '
        "array<i64: 2, 8, 8>, strides = array<i64: 1, 1, 1>}}> : (tensor<2x8x8xf32>) -> tensor<1x8x8xf32>\n"
        f"{{y}}t = stablehlo.reshape {{y}}s : (tensor<1x8x8xf32>) -> {VALUE}\n"
        f"{{y}} = stablehlo.subtract {{y}}t, %w : {VALUE}"
    ),
    "composite": Kind(
        f'{{y}} = stablehlo.composite "own.twice" {{x}} {{{{decomposition = @twice}}}} : ({VALUE}) -> {VALUE}',
        functions=f"func.func private @twice(%a: {VALUE}) -> {VALUE} {{\n%b = stablehlo.tanh %a : {VALUE}\n"
        f"return %b : {VALUE}\n}}\n",
    ),
    "call": Kind(
        f"{{y}} = func.call @twice({{x}}) : ({VALUE}) -> {VALUE}",
        functions=f"func.func private @twice(%a: {VALUE}) -> {VALUE} {{\n%b = stablehlo.tanh %a : {VALUE}\n"
        f"return %b : {VALUE}\n}}\n",
    ),
    "convolution of groups": Kind(
        f"{{y}}b = stablehlo.reshape {{x}} : ({VALUE}) -> tensor<1x8x8xf32>\n"
        "{y}k = stablehlo.convolution({y}b, %g) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], "
        "window = {{pad = [[1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 8 : i64}} : "
        "(tensor<1x8x8xf32>, tensor<3x1x8xf32>) -> tensor<1x8x8xf32>\n"
        f"{{y}} = stablehlo.reshape {{y}}k : (tensor<1x8x8xf32>) -> {VALUE}",
        given="%g: tensor<3x1x8xf32>",
    ),
    "cholesky c64": Kind(
        f'{{y}} = "stablehlo.cholesky"({{x}}) <{{{{lower = true}}}}> : ({_COMPLEX}) -> {_COMPLEX}', _COMPLEX
    ),
    "chlo.top_k": Kind(f"{{y}}, {{y}}i = chlo.top_k({{x}}, k = 8) : {VALUE} -> ({VALUE}, {_INTEGER})"),
    "dot": Kind(f"{{y}} = stablehlo.dot {{x}}, %w : {_PAIR}"),
    **{
        f"dot_general {name}": Kind(
            f"{{y}} = stablehlo.dot_general {{x}}, %w, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}",
            kind,
        )
        for name, kind in {"bf16": _HALF, "c64": _COMPLEX, "i32": _INTEGER}.items()
    },
    "dot_general quantized": Kind(
        f"{{y}} = stablehlo.dot_general {{x}}, %q, contracting_dims = [1] x [0] : "
        f"({_QUANTIZED}, {_WEIGHTS}) -> {_QUANTIZED}",
        _QUANTIZED,
        f"%q: {_WEIGHTS}",
    ),
    "dynamic_update_slice": Kind(
        '{y}s = "stablehlo.dynamic_slice"({x}, %i, %i) <{{slice_sizes = array<i64: 4, 4>}}> : '
        f"({VALUE}, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>\n"
        f"{{y}} = stablehlo.dynamic_update_slice {{x}}, {{y}}s, %t, %t : "
        f"({VALUE}, tensor<4x4xf32>, tensor<i32>, tensor<i32>) -> {VALUE}"
    ),
    "einsum": Kind(f'{{y}} = "stablehlo.einsum"({{x}}, %w) <{{{{einsum_config = "ij,jk->ik"}}}}> : {_PAIR}'),
    "unary_einsum": Kind(
        _spread(
            f'{{y}}r = "stablehlo.unary_einsum"({{x}}) <{{{{einsum_config = "ij->i"}}}}> : ({VALUE}) -> {_ROW}'
        )
    ),
    "fft real": Kind(
        f"{{y}}c = stablehlo.fft {{x}}, type = RFFT, length = [8] : ({VALUE}) -> tensor<8x5xcomplex<f32>>\n"
        f"{{y}} = stablehlo.fft {{y}}c, type = IRFFT, length = [8] : (tensor<8x5xcomplex<f32>>) -> {VALUE}"
    ),
    "if": Kind(
        f'{{y}} = "stablehlo.if"(%c) ({{{{\n%a = stablehlo.add {{x}}, %w : {VALUE}\nstablehlo.return %a : {VALUE}\n'
        f"}}}}, {{{{\n%b = stablehlo.multiply {{x}}, %w : {VALUE}\nstablehlo.return %b : {VALUE}\n}}}}) : "
        f"(tensor<i1>) -> {VALUE}",
        given="%c: tensor<i1>",
    ),
    "iota": Kind(
        f"{{y}}i = stablehlo.iota dim = 1 : {VALUE}\n{{y}} = stablehlo.multiply {{y}}i, {{x}} : {VALUE}"
    ),
    "map": Kind(
        f'{{y}} = "stablehlo.map"({{x}}, %w) <{{{{dimensions = array<i64: 0, 1>}}}}> {_body("multiply")} : {_PAIR}'
    ),
    "optimization_barrier": Kind(f"{{y}} = stablehlo.optimization_barrier {{x}} : {VALUE}"),
    "reduce of two": Kind(
        _spread(
            f'{{y}}r, {{y}}m = "stablehlo.reduce"({{x}}, %w, %z, %z) <{{{{dimensions = array<i64: 1>}}}}> ({{{{\n'
            "^bb0(%p: tensor<f32>, %q: tensor<f32>, %u: tensor<f32>, %o: tensor<f32>):\n"
            "%s = stablehlo.add %p, %u : tensor<f32>\n%m = stablehlo.maximum %q, %o : tensor<f32>\n"
            "stablehlo.return %s, %m : tensor<f32>, tensor<f32>\n}}) : "
            f"({VALUE}, {VALUE}, tensor<f32>, tensor<f32>) -> ({_ROW}, {_ROW})"
        )
    ),
    "reduce_window of all before": Kind(
        '{y} = "stablehlo.reduce_window"({x}, %z) <{{window_dimensions = array<i64: 1, 8>, '
        "window_strides = array<i64: 1, 1>, padding = dense<[[0, 0], [7, 0]]> : tensor<2x2xi64>}}> "
        f"{_body('add')} : ({VALUE}, tensor<f32>) -> {VALUE}"
    ),
    "rng": Kind(
        "{y}d = stablehlo.constant dense<8> : tensor<2xi64>\n"
        "{y}g = stablehlo.rng %z, %z1, {y}d, distribution = UNIFORM : "
        f"(tensor<f32>, tensor<f32>, tensor<2xi64>) -> {VALUE}\n{{y}} = stablehlo.add {{y}}g, {{x}} : {VALUE}",
        given="%z1: tensor<f32>",
    ),
    "scatter of elements": Kind(
        '{y} = "stablehlo.scatter"({x}, %e, %r) <{{scatter_dimension_numbers = #stablehlo.scatter<'
        "inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>, "
        "indices_are_sorted = false, unique_indices = false}}> "
        f"{_body('add')} : ({VALUE}, tensor<8x2xi32>, {_ROW}) -> {VALUE}",
        given=f"%e: tensor<8x2xi32>, %r: {_ROW}",
    ),
    "select_and_scatter": Kind(
        '{y} = "stablehlo.select_and_scatter"({x}, %h, %z) <{{window_dimensions = array<i64: 2, 2>, '
        f"window_strides = array<i64: 2, 2>}}}}> ({_less('GE')}, {_body('add')[1:-1]}) : "
        f"({VALUE}, tensor<4x4xf32>, tensor<f32>) -> {VALUE}",
        given="%h: tensor<4x4xf32>",
    ),
    "slice": Kind(
        '{y}s = "stablehlo.slice"({x}) <{{start_indices = array<i64: 0, 1>, limit_indices = array<i64: 8, 2>, '
        f"strides = array<i64: 1, 1>}}}}> : ({VALUE}) -> tensor<8x1xf32>\n"
        f"{{y}}r = stablehlo.reshape {{y}}s : (tensor<8x1xf32>) -> {_ROW}\n"
        '{y}b = "stablehlo.broadcast_in_dim"({y}r) <{{broadcast_dimensions = array<i64: 0>}}> : '
        f"({_ROW}) -> {VALUE}\n{{y}} = stablehlo.add {{y}}b, %w : {VALUE}"
    ),
    "torch_index_select": Kind(
        '{y} = "stablehlo.torch_index_select"({x}, %j) <{{dim = 0 : i64, batch_dims = 0 : i64}}> : '
        f"({VALUE}, tensor<8xi32>) -> {VALUE}"
    ),
    "triangular_solve c64": Kind(
        '{y} = "stablehlo.triangular_solve"(%w, {x}) <{{left_side = true, lower = true, unit_diagonal = false, '
        f"transpose_a = #stablehlo<transpose ADJOINT>}}}}> : ({_COMPLEX}, {_COMPLEX}) -> {_COMPLEX}",
        _COMPLEX,
    ),
    "tuple": Kind(
        f"{{y}}t = stablehlo.tuple {{x}}, %w : tuple<{VALUE}, {VALUE}>\n"
        f"{{y}}g = stablehlo.get_tuple_element {{y}}t[0] : (tuple<{VALUE}, {VALUE}>) -> {VALUE}\n"
        f"{{y}} = stablehlo.negate {{y}}g : {VALUE}"
    ),
}
