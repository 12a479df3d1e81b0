"""Programs over quantized values that break one constraint of the specification each."""

# ruff: noqa: E501  (a line a program)
# fmt: off
from __future__ import annotations

from dataclasses import replace

from tests.ops.harness.violations import Violation, broken

_Q = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>"
_R = "tensor<4x!quant.uniform<i8:f32, 0.25:3>>"
_ONE = "tensor<!quant.uniform<i8:f32, 0.5:3>>"
_M = "tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>"
_W = "tensor<2x2x!quant.uniform<i8:f32, 0.5>>"
_PRODUCT = "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>"
_LESS = "comparison_direction = #stablehlo<comparison_direction LT>"


def _type(element: str, shape: str = "4x") -> str:
    return f"tensor<{shape}!quant.uniform<{element}>>"


def _rows(axis: int, shape: str = "2x2x", numbers: str = "0.5, 0.25") -> str:
    return f"tensor<{shape}!quant.uniform<i8:f32:{axis}, {{{numbers}}}>>"


def quantized_violations() -> list[Violation]:
    """All of them."""
    return [*_types(), *_operations(), *_passed_on()]


def _types() -> list[Violation]:
    parsed = [
        broken("uniform_dequantize", "C4 storage bounds", "illegal storage", _type("i8<-200:5>:f32, 0.5"), "", "tensor<4xf32>"),
        broken("uniform_dequantize", "C4 storage order", "illegal storage", _type("i8<5:5>:f32, 0.5"), "", "tensor<4xf32>"),
        broken("uniform_dequantize", "C6 scale above 0", "scale", _type("i8:f32, 0.0"), "", "tensor<4xf32>"),
        broken("uniform_dequantize", "C7 finite scale", "scale", _type("i8:f16, 100000.0"), "", "tensor<4xf16>"),
    ]
    return [
        *(replace(element, op="quant.uniform") for element in parsed),
        broken("uniform_dequantize", "C8 zero point", "must be", _type("i8:f32, 0.5:200"), "", "tensor<4xf32>"),
        broken("uniform_dequantize", "C8 zero point in bounds", "must be", _type("i8<-3:5>:f32, 0.5:9"), "", "tensor<4xf32>"),
        broken("uniform_dequantize", "C12 dimension", "must be", _rows(4), "", "tensor<2x2xf32>"),
        broken("uniform_dequantize", "C13 scales", "must be", _rows(0, numbers="0.5, 0.25, 1.0"), "", "tensor<2x2xf32>"),
    ]


def _operations() -> list[Violation]:
    return [
        broken("uniform_dequantize", "C2 expressed type", "f16", _Q, "", "tensor<4xf16>"),
        broken("uniform_quantize", "C1 shape", "shape", "tensor<5xf32>", "", _Q),
        broken("uniform_quantize", "C2 expressed type", "Expressed type", "tensor<4xf16>", "", _Q),
        broken("add", "C3 storage types", "storage types", f"{_Q}; {_type('i16:f32, 0.5')}", "", _Q),
        broken("add", "C2 all quantized", "either quantized or non-quantized", f"tensor<4xf32>; {_Q}", "", _Q),
        broken("add", "C5 result per axis", "per_axis", f"{_rows(0)}; {_rows(0)}", "", _M),
        broken("add", "C7 one axis", "quantization_dimension", f"{_rows(0)}; {_rows(1)}", "", _rows(0)),
        broken("abs", "C1 baseline types", "incompatible", _Q, "", _type("i16:f32, 0.5:3")),
        broken("multiply", "I1 per tensor", "must be", f"{_rows(0)}; {_rows(0)}", "", _rows(0)),
        broken("compare", "C1 baseline types", "compatible", f"{_Q}; {_type('i16:f32, 0.5')}", _LESS, "tensor<4xi1>"),
        broken("select", "C2 one type", "compatible", f"tensor<4xi1>; {_Q}; {_R}", "", _Q),
        broken("convert", "I1 not quantized", "must be", _Q, "", "tensor<4xi8>"),
        broken("dot_general", "C15 zero points of rhs", "Zero point of rhs", f"{_M}; {_M}", _PRODUCT, _M),
        broken("dot_general", "C14 contracted axis", "contracting", f"{_M}; {_rows(0)}", _PRODUCT, _M),
        broken("dot_general", "C16 storage types", "storage types", f"{_M}; {_type('i16:f32, 0.5', '2x2x')}", _PRODUCT, _M),
        broken("dot_general", "C18 result per tensor", "granularity", f"{_M}; {_W}", _PRODUCT, _rows(1)),
        broken("dot_general", "C13 lhs and result", "is_quantized", f"{_M}; {_W}", _PRODUCT, "tensor<2x2xf32>"),
        broken("transpose", "C1 parameters", "scale", _rows(0), "permutation = array<i64: 1, 0>", _rows(1, numbers="0.5, 0.5")),
        broken("transpose", "C4 axis", "quantization_dimension", _rows(0), "permutation = array<i64: 1, 0>", _rows(0)),
        broken("reshape", "C1 parameters", "scale", _Q, "", _type("i8:f32, 0.25:3", "2x2x")),
        broken("reshape", "C3 axis", "quantization dimension", _rows(0), "", _rows(1)),
        broken("broadcast_in_dim", "C6 axis", "quantization_dimension", _rows(0), "broadcast_dimensions = array<i64: 1, 2>", _rows(0, "2x2x2x")),
        broken("broadcast_in_dim", "C6 scales", "scale", _rows(0, "1x2x", "0.5"), "broadcast_dimensions = array<i64: 0, 1>", _rows(0)),
        broken("reverse", "C1 one type", "same element type", _Q, "dimensions = array<i64: 0>", _R),
        broken("bitcast_convert", "C1 width", "rank of smaller", _Q, "", "tensor<4xi16>"),
        broken("constant", "C1 storage type", "incompatible", "", "value = dense<[1, 2, 3, 4]> : tensor<4xi16>", _Q),
    ]


def _passed_on() -> list[Violation]:
    other = _R.replace("4x", "")
    same = f"({{^bb0(%p: {_ONE}, %q: {_ONE}): %s = stablehlo.compare LT, %p, %q : ({_ONE}, {_ONE}) -> tensor<i1> \"stablehlo.return\"(%s) : (tensor<i1>) -> ()}})"
    forever = f"({{^bb0(%p: {_Q}): %c = stablehlo.constant dense<false> : tensor<i1> \"stablehlo.return\"(%c) : (tensor<i1>) -> ()}}, {{^bb0(%p: {_Q}): \"stablehlo.return\"(%p) : ({_Q}) -> ()}})"
    wider = f"({{^bb0(%p: {other}, %q: {other}): %s = stablehlo.add %p, %q : {other} \"stablehlo.return\"(%s) : ({other}) -> ()}})"

    return [
        broken("sort", "C4 types of results", "the same quantization", _Q, "dimension = 0 : i64, is_stable = true", _R, same),
        broken("while", "C3 types of results", "the same quantization", _Q, "", _R, forever),
        broken("torch_index_select", "result as operand", "the same quantization", f"{_Q}; tensor<4xi32>", "dim = 0 : i64, batch_dims = 0 : i64", _R),
        broken("get_tuple_element", "C2 type of the member", "the same quantization", f"tuple<{_Q}>", "index = 0 : i32", _R),
        broken("reduce", "C8 element types of results", "the same quantization|returned values of the function", f"{_Q}; {_ONE}", "dimensions = array<i64: 0>", _ONE, wider),
    ]
