"""Elementwise operations of integers, complex numbers, other floats, quantized elements; those of CHLO."""

# ruff: noqa: E501  (lines of programs)
from __future__ import annotations

from benchmarks.chains.kind import VALUE, Kind, binary, unary

_INTEGER, _COMPLEX, _DOUBLE = "tensor<8x8xi32>", "tensor<8x8xcomplex<f32>>", "tensor<8x8xf64>"
_TRUTH, _HALF = "tensor<8x8xi1>", "tensor<8x8xf16>"
_QUANTIZED = "tensor<8x8x!quant.uniform<i8:f32, 5.0e-1:3>>"

_INTEGER_UNARY = ("abs", "count_leading_zeros", "not", "popcnt", "sign")
_INTEGER_BINARY = (
    *("and", "divide", "or", "multiply", "power", "remainder"),
    *("shift_left", "shift_right_arithmetic", "shift_right_logical", "xor"),
)
_COMPLEX_UNARY = (
    *("cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt"),
    *("sign", "sine", "sqrt", "tan", "tanh"),
)
_CHLO_UNARY = ("acos", "asin", "asinh", "atan", "atanh", "cosh", "erfc", "square", "tan")
_CHLO_COMPLEX = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "conj", "cosh", "sinh", "square", "tan")
_BROADCAST = (
    *("add", "atan2", "divide", "maximum", "minimum", "multiply", "next_after", "polygamma"),
    *("power", "remainder", "subtract", "zeta"),
)
_BROADCAST_INTEGER = (*("and", "or", "shift_left", "shift_right_arithmetic", "shift_right_logical", "xor"),)


def _chosen(test: str) -> Kind:
    return Kind(
        f"{{y}}p = {test} : ({VALUE}) -> {_TRUTH}\n"
        f"{{y}} = stablehlo.select {{y}}p, %w, {{x}} : {_TRUTH}, {VALUE}"
    )


ELEMENTWISE: dict[str, Kind] = {
    **{f"{op} i32": unary(f"stablehlo.{op}", _INTEGER) for op in _INTEGER_UNARY},
    **{f"{op} i32": binary(f"stablehlo.{op}", _INTEGER) for op in _INTEGER_BINARY},
    **{f"{op} c64": unary(f"stablehlo.{op}", _COMPLEX) for op in _COMPLEX_UNARY},
    **{
        f"{op} c64": binary(f"stablehlo.{op}", _COMPLEX)
        for op in ("add", "atan2", "divide", "multiply", "power")
    },
    **{f"{op} f64": unary(f"stablehlo.{op}", _DOUBLE) for op in ("cosine", "exponential", "log", "tanh")},
    **{f"{op} f64": binary(f"stablehlo.{op}", _DOUBLE) for op in ("power", "remainder")},
    **{f"{op} f16": unary(f"stablehlo.{op}", _HALF) for op in ("tanh", "cosine")},
    "add f16": binary("stablehlo.add", _HALF),
    "add f8": binary("stablehlo.add", "tensor<8x8xf8E4M3FN>"),
    "add i4": binary("stablehlo.add", "tensor<8x8xi4>"),
    **{f"chlo.{op}": unary(f"chlo.{op}") for op in _CHLO_UNARY},
    **{f"chlo.{op} c64": unary(f"chlo.{op}", _COMPLEX) for op in _CHLO_COMPLEX},
    "chlo.lgamma f64": unary("chlo.lgamma", _DOUBLE),
    "chlo.next_after": binary("chlo.next_after"),
    "chlo.mulhi i32": binary("chlo.mulhi", _INTEGER),
    **{f"chlo.broadcast_{op}": binary(f"chlo.broadcast_{op}") for op in _BROADCAST},
    **{f"chlo.broadcast_{op} i32": binary(f"chlo.broadcast_{op}", _INTEGER) for op in _BROADCAST_INTEGER},
    "chlo.broadcast_compare": Kind(
        f'{{y}}p = "chlo.broadcast_compare"({{x}}, %w) <{{{{comparison_direction = #chlo<comparison_direction LT>'
        f"}}}}> : ({VALUE}, {VALUE}) -> {_TRUTH}\n"
        f'{{y}} = "chlo.broadcast_select"({{y}}p, %w, {{x}}) : ({_TRUTH}, {VALUE}, {VALUE}) -> {VALUE}'
    ),
    "chlo.constant_like": Kind(
        f'{{y}}c = "chlo.constant_like"({{x}}) <{{{{value = 2.0 : f32}}}}> : ({VALUE}) -> {VALUE}\n'
        f"{{y}} = stablehlo.subtract {{y}}c, {{x}} : {VALUE}"
    ),
    **{op: _chosen(f'"{op}"({{x}})') for op in ("chlo.is_inf", "chlo.is_neg_inf", "chlo.is_pos_inf")},
    "is_finite": _chosen("stablehlo.is_finite {x}"),
    "bitcast_convert": Kind(
        f"{{y}}b = stablehlo.bitcast_convert {{x}} : ({VALUE}) -> {_INTEGER}\n"
        f"{{y}}c = stablehlo.not {{y}}b : {_INTEGER}\n"
        f"{{y}} = stablehlo.bitcast_convert {{y}}c : ({_INTEGER}) -> {VALUE}"
    ),
    "complex": Kind(
        f"{{y}}c = stablehlo.complex {{x}}, %w : {_COMPLEX}\n"
        f"{{y}}s = stablehlo.multiply {{y}}c, {{y}}c : {_COMPLEX}\n"
        f"{{y}}r = stablehlo.real {{y}}s : ({_COMPLEX}) -> {VALUE}\n"
        f"{{y}}i = stablehlo.imag {{y}}s : ({_COMPLEX}) -> {VALUE}\n"
        f"{{y}} = stablehlo.subtract {{y}}r, {{y}}i : {VALUE}"
    ),
    "chlo.broadcast_complex": Kind(
        f'{{y}}c = "chlo.broadcast_complex"({{x}}, %w) : ({VALUE}, {VALUE}) -> {_COMPLEX}\n'
        f"{{y}}s = stablehlo.exponential {{y}}c : {_COMPLEX}\n"
        f"{{y}} = stablehlo.imag {{y}}s : ({_COMPLEX}) -> {VALUE}"
    ),
    "uniform_quantize": Kind(
        f"{{y}}q = stablehlo.uniform_quantize {{x}} : ({VALUE}) -> {_QUANTIZED}\n"
        f"{{y}} = stablehlo.uniform_dequantize {{y}}q : ({_QUANTIZED}) -> {VALUE}"
    ),
    "add quantized": binary("stablehlo.add", _QUANTIZED),
    "multiply quantized": binary("stablehlo.multiply", _QUANTIZED),
    "tanh quantized": unary("stablehlo.tanh", _QUANTIZED),
}
