"""Programs that break one constraint of the specification each, with words that the rejection must hold."""

# ruff: noqa: E501  (a line a program)
# fmt: off
from __future__ import annotations

from dataclasses import dataclass

_F, _I = "tensor<f32>", "tensor<i32>"
_SUM = (
    "({^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32> "
    '"stablehlo.return"(%s) : (tensor<f32>) -> ()})'
)
_CONV = (
    "dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, feature_group_count = {f} : i64, "
    "batch_group_count = {b} : i64"
)
_GATHER = (
    "dimension_numbers = #stablehlo.gather<offset_dims = [{o}], collapsed_slice_dims = [{c}], "
    "start_index_map = [{m}], index_vector_dim = {v}>, slice_sizes = array<i64: {s}>, indices_are_sorted = false"
)


@dataclass(frozen=True)
class Violation:
    """A program of ``op`` that breaks ``constraint``; each of ``words`` is part of the message."""

    op: str
    constraint: str
    words: tuple[str, ...]
    program: str

    @property
    def id(self) -> str:
        return f"{self.op}-{self.constraint}".replace(" ", "-")


def broken(
    op: str, constraint: str, words: str, operands: str, attributes: str, results: str, regions: str = ""
) -> Violation:
    """One of ``op``, with the types of its operands and results separated by ``;``."""
    types = [word.strip() for word in operands.split(";") if word.strip()]
    result_types = [word.strip() for word in results.split(";")]
    arguments = ", ".join(f"%a{number}: {type}" for number, type in enumerate(types))
    names = ", ".join(f"%a{number}" for number in range(len(types)))
    name = op if "." in op else f"stablehlo.{op}"
    many = f":{len(result_types)}" if len(result_types) > 1 else ""
    result_names = [f"%r#{number}" for number in range(len(result_types))] if len(result_types) > 1 else ["%r"]
    inherent = f" <{{{attributes}}}>" if attributes else ""
    inside = f" {regions}" if regions else ""
    text = (
        f"func.func @main({arguments}) -> ({', '.join(result_types)}) {{\n"
        f'%r{many} = "{name}"({names}){inherent}{inside} : ({", ".join(types)}) -> ({", ".join(result_types)})\n'
        f"return {', '.join(result_names)} : {', '.join(result_types)}\n}}\n"
    )
    return Violation(op, constraint, tuple(words.split("|")), text)


def violations() -> list[Violation]:
    """All of them."""
    return [*_elementwise(), *_shaping(), *_reducing(), *_indexing(), *_others()]


def _elementwise() -> list[Violation]:
    return [
        broken("add", "C1 one type", "same", "tensor<4xf32>; tensor<5xf32>", "", "tensor<4xf32>"),
        broken("and", "I1 boolean or integer", "must be|but got", "tensor<4xf32>; tensor<4xf32>", "", "tensor<4xf32>"),
        broken("abs", "C2 real result of complex", "tensor<4xcomplex", "tensor<4xcomplex<f32>>", "", "tensor<4xcomplex<f32>>"),
        broken("bitcast_convert", "C1 width", "rank of smaller element", "tensor<4xf32>", "", "tensor<4xi8>"),
        broken("clamp", "C1 rank of min", "min", "tensor<3xf32>; tensor<4xf32>; tensor<f32>", "", "tensor<4xf32>"),
        broken("compare", "C1 one element", "element types", "tensor<4xf32>; tensor<4xi32>", "comparison_direction = #stablehlo<comparison_direction EQ>", "tensor<4xi1>"),
        broken("compare", "C3 type of floats", "UNSIGNED|f32", "tensor<4xf32>; tensor<4xf32>", "comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type UNSIGNED>", "tensor<4xi1>"),
        broken("compare", "C3 type of integers", "TOTALORDER|i32", "tensor<4xi32>; tensor<4xi32>", "comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type TOTALORDER>", "tensor<4xi1>"),
        broken("compare", "C3 type of complex numbers", "TOTALORDER|c64", "tensor<4xcomplex<f32>>; tensor<4xcomplex<f32>>", "comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type TOTALORDER>", "tensor<4xi1>"),
        broken("chlo.broadcast_add", "shapes that broadcast", "axis of 3|to 4", "tensor<3xf32>; tensor<4xf32>", "", "tensor<4xf32>"),
        broken("complex", "C2 parts", "complex", "tensor<4xf32>; tensor<4xf32>", "", "tensor<4xcomplex<f64>>"),
        broken("convert", "C1 one shape", "shape", "tensor<4xf32>", "", "tensor<5xi32>"),
        broken("is_finite", "C1 one shape", "shape", "tensor<4xf32>", "", "tensor<5xi1>"),
        broken("not", "I1 boolean or integer", "must be", "tensor<4xf32>", "", "tensor<4xf32>"),
        broken("popcnt", "I1 integer", "must be", "tensor<4xf32>", "", "tensor<4xf32>"),
        broken("reduce_precision", "C2 exponent_bits", "exponent_bits", "tensor<4xf32>", "exponent_bits = 0 : i32, mantissa_bits = 3 : i32", "tensor<4xf32>"),
        broken("reduce_precision", "C3 mantissa_bits", "mantissa_bits", "tensor<4xf32>", "exponent_bits = 3 : i32, mantissa_bits = -1 : i32", "tensor<4xf32>"),
        broken("select", "C1 pred", "same shape", "tensor<3xi1>; tensor<4xf32>; tensor<4xf32>", "", "tensor<4xf32>"),
        broken("shift_left", "I1 integer", "must be", "tensor<4xf32>; tensor<4xf32>", "", "tensor<4xf32>"),
        broken("sine", "I1 float or complex", "must be", "tensor<4xi32>", "", "tensor<4xi32>"),
        broken("real", "C2 part", "real", "tensor<4xcomplex<f32>>", "", "tensor<4xf64>"),
    ]


def _shaping() -> list[Violation]:
    return [
        broken("broadcast_in_dim", "C2 size of dims", "broadcast_dimensions", "tensor<4xf32>", "broadcast_dimensions = array<i64: 0, 1>", "tensor<4x5xf32>"),
        broken("broadcast_in_dim", "C3 dims in range", "broadcast_dimensions", "tensor<4xf32>", "broadcast_dimensions = array<i64: 2>", "tensor<5x4xf32>"),
        broken("broadcast_in_dim", "C4 unique dims", "broadcast_dimensions", "tensor<4x4xf32>", "broadcast_dimensions = array<i64: 0, 0>", "tensor<4x4xf32>"),
        broken("broadcast_in_dim", "C5 sizes", "size of operand dimension", "tensor<3xf32>", "broadcast_dimensions = array<i64: 0>", "tensor<4xf32>"),
        broken("concatenate", "C2 shapes", "shapes of operand", "tensor<4x3xf32>; tensor<4x2xf32>", "dimension = 0 : i64", "tensor<8x3xf32>"),
        broken("concatenate", "C4 dimension", "dimension", "tensor<4xf32>; tensor<4xf32>", "dimension = 1 : i64", "tensor<8xf32>"),
        broken("concatenate", "C6 result", "inferred", "tensor<4xf32>; tensor<4xf32>", "dimension = 0 : i64", "tensor<9xf32>"),
        broken("dynamic_slice", "C2 starts", "start", "tensor<4x4xf32>; tensor<i32>", "slice_sizes = array<i64: 2, 2>", "tensor<2x2xf32>"),
        broken("dynamic_slice", "C4 slice_sizes", "slice", "tensor<4xf32>; tensor<i32>", "slice_sizes = array<i64: 5>", "tensor<5xf32>"),
        broken("dynamic_update_slice", "C6 update", "update", "tensor<4xf32>; tensor<5xf32>; tensor<i32>", "", "tensor<4xf32>"),
        broken("get_dimension_size", "C1 dimension", "dimension", "tensor<4xf32>", "dimension = 1 : i64", "tensor<i32>"),
        broken("iota", "C1 dimension", "iota", "", "iota_dimension = 1 : i64", "tensor<4xf32>"),
        broken("pad", "C2 sizes of padding", "padding", "tensor<4xf32>; tensor<f32>", "edge_padding_low = array<i64: 0, 0>, edge_padding_high = array<i64: 0>, interior_padding = array<i64: 0>", "tensor<4xf32>"),
        broken("pad", "C3 interior", "Interior padding", "tensor<4xf32>; tensor<f32>", "edge_padding_low = array<i64: 0>, edge_padding_high = array<i64: 0>, interior_padding = array<i64: -1>", "tensor<1xf32>"),
        broken("pad", "C4 result", "inferred", "tensor<4xf32>; tensor<f32>", "edge_padding_low = array<i64: 1>, edge_padding_high = array<i64: 0>, interior_padding = array<i64: 0>", "tensor<4xf32>"),
        broken("reshape", "C2 count", "number of output elements", "tensor<4xf32>", "", "tensor<5xf32>"),
        broken("reverse", "C2 unique", "unique", "tensor<4x4xf32>", "dimensions = array<i64: 0, 0>", "tensor<4x4xf32>"),
        broken("reverse", "C3 range", "dimensions", "tensor<4xf32>", "dimensions = array<i64: 1>", "tensor<4xf32>"),
        broken("slice", "C2 ranks", "slice|rank", "tensor<4xf32>", "start_indices = array<i64: 0, 0>, limit_indices = array<i64: 4, 4>, strides = array<i64: 1, 1>", "tensor<4xf32>"),
        broken("slice", "C3 limits", "limit", "tensor<4xf32>", "start_indices = array<i64: 0>, limit_indices = array<i64: 5>, strides = array<i64: 1>", "tensor<5xf32>"),
        broken("slice", "C3 order", "start", "tensor<4xf32>", "start_indices = array<i64: 3>, limit_indices = array<i64: 2>, strides = array<i64: 1>", "tensor<0xf32>"),
        broken("slice", "C4 strides", "stride", "tensor<4xf32>", "start_indices = array<i64: 0>, limit_indices = array<i64: 4>, strides = array<i64: 0>", "tensor<4xf32>"),
        broken("transpose", "C2 permutation", "permutation", "tensor<4x4xf32>", "permutation = array<i64: 0, 0>", "tensor<4x4xf32>"),
        broken("transpose", "C3 result", "inferred", "tensor<4x3xf32>", "permutation = array<i64: 1, 0>", "tensor<4x3xf32>"),
    ]


def _reducing() -> list[Violation]:
    dot = "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [{}], rhs_contracting_dimensions = [{}]>"
    window = "window_dimensions = array<i64: {w}>, window_strides = array<i64: {s}>, base_dilations = array<i64: {b}>, window_dilations = array<i64: {d}>, padding = dense<0> : tensor<1x2xi64>"
    ones = {"w": 2, "s": 1, "b": 1, "d": 1}
    return [
        broken("dot_general", "C2 contracting sizes", "contracting dimension", "tensor<3x4xf32>; tensor<5x6xf32>", dot.format(1, 0), "tensor<3x6xf32>"),
        broken("dot_general", "C3 unique", "duplicated", "tensor<4x4xf32>; tensor<4x4xf32>", dot.format("0, 0", "0, 0"), "tensor<4x4xf32>"),
        broken("dot_general", "C5 range", "range", "tensor<3x4xf32>; tensor<4x6xf32>", dot.format(2, 0), "tensor<3x6xf32>"),
        broken("reduce", "C2 range of dimensions", "dimension", f'tensor<4xf32>; {_F}', "dimensions = array<i64: 1>", "tensor<4xf32>", _SUM),
        broken("reduce", "C5 unique dimensions", "dimension", f'tensor<4x4xf32>; {_F}', "dimensions = array<i64: 0, 0>", "tensor<4xf32>", _SUM),
        broken("reduce", "C6 body", "reduction-region", f'tensor<4xi32>; {_I}', "dimensions = array<i64: 0>", _I, _SUM),
        broken("reduce_window", "C4 window", "window", f'tensor<4xf32>; {_F}', window.format(**ones | {"w": 0}), "tensor<5xf32>", _SUM),
        broken("reduce_window", "C6 strides", "stride", f'tensor<4xf32>; {_F}', window.format(**ones | {"s": 0}), "tensor<3xf32>", _SUM),
        broken("reduce_window", "C8 base", "base dilation", f'tensor<4xf32>; {_F}', window.format(**ones | {"b": 0}), "tensor<3xf32>", _SUM),
        broken("reduce_window", "C10 dilation", "window dilation", f'tensor<4xf32>; {_F}', window.format(**ones | {"d": 0}), "tensor<3xf32>", _SUM),
        broken("convolution", "C11 features", "feature_group_count", "tensor<1x4x2xf32>; tensor<2x3x1xf32>", _CONV.format(f=1, b=1), "tensor<1x3x1xf32>"),
        broken("convolution", "C15 batch_group_count", "batch", "tensor<3x4x1xf32>; tensor<2x1x2xf32>", _CONV.format(f=1, b=2), "tensor<1x3x2xf32>"),
        broken("convolution", "C21 feature_group_count", "feature_group_count", "tensor<1x4x2xf32>; tensor<2x2x1xf32>", _CONV.format(f=0, b=1), "tensor<1x3x1xf32>"),
        broken("convolution", "C23 one group count", "batch_group_count", "tensor<2x4x2xf32>; tensor<2x1x2xf32>", _CONV.format(f=2, b=2), "tensor<1x3x2xf32>"),
        broken("cholesky", "C3 square", "cholesky", "tensor<3x4xf32>", "lower = true", "tensor<3x4xf32>"),
        broken("triangular_solve", "C4 square", "minor dimensions", "tensor<3x4xf32>; tensor<3x2xf32>", "left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>", "tensor<3x2xf32>"),
        broken("fft", "C1 rank", "fft", "tensor<4xcomplex<f32>>", "fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 4, 4>", "tensor<4xcomplex<f32>>"),
        broken("fft", "C2 types", "complex", "tensor<4xf32>", "fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 4>", "tensor<4xf32>"),
        broken("fft", "C4 lengths", "fft|length|dimension", "tensor<5xf32>", "fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 4>", "tensor<3xcomplex<f32>>"),
        broken("batch_norm_inference", "C1 feature_index", "featureIndex", "tensor<4x3xf32>; tensor<3xf32>; tensor<3xf32>; tensor<3xf32>; tensor<3xf32>", "epsilon = 0.1 : f32, feature_index = 2 : i64", "tensor<4x3xf32>"),
        broken("batch_norm_training", "C3 sizes", "feature", "tensor<4x3xf32>; tensor<2xf32>; tensor<2xf32>", "epsilon = 0.1 : f32, feature_index = 1 : i64", "tensor<4x3xf32>; tensor<2xf32>; tensor<2xf32>"),
    ]


def _indexing() -> list[Violation]:
    usual = {"o": 1, "c": 0, "m": 0, "v": 1, "s": "1, 3"}
    types = "tensor<5x3xf32>; tensor<2x1xi32>"
    return [
        broken("gather", "C2 index_vector_dim", "index_vector_dim", types, _GATHER.format(**usual | {"v": 3}), "tensor<2x3xf32>"),
        broken("gather", "C4 offset_dims", "offset_dims", types, _GATHER.format(**usual | {"o": "1, 1"}), "tensor<2x3xf32>"),
        broken("gather", "C7 collapsed", "collapsed", types, _GATHER.format(**usual | {"c": 4}), "tensor<2x3xf32>"),
        broken("gather", "C13 start_index_map", "start_index_map", types, _GATHER.format(**usual | {"m": 7}), "tensor<2x3xf32>"),
        broken("gather", "C20 slice_sizes", "slice", types, _GATHER.format(**usual | {"s": "1, 4"}), "tensor<2x4xf32>"),
        broken("gather", "C21 collapsed slices", "slice|collapsed", types, _GATHER.format(**usual | {"s": "2, 3"}), "tensor<2x3xf32>"),
        broken("scatter", "C2 ranks", "update", "tensor<5xf32>; tensor<2x1xi32>; tensor<2x1x1xf32>", "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false", "tensor<5xf32>", _SUM),
        broken("scatter", "C6 elements of updates", "updates|f64 is scattered into f32", "tensor<5xf32>; tensor<2x1xi32>; tensor<2xf64>", "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false", "tensor<5xf32>", _SUM),
        broken("scatter", "C13 map", "scatter_dims_to_operand_dims", "tensor<5xf32>; tensor<2x1xi32>; tensor<2xf32>", "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [3], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false", "tensor<5xf32>", _SUM),
        broken("sort", "C4 dimension", "dimension", "tensor<5xf32>", "dimension = 1 : i64, is_stable = true", "tensor<5xf32>", '({^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1> "stablehlo.return"(%s) : (tensor<i1>) -> ()})'),
        broken("sort", "C5 comparator", "comparator", "tensor<5xf32>", "dimension = 0 : i64, is_stable = true", "tensor<5xf32>", '({^bb0(%p: tensor<i32>, %q: tensor<i32>): %s = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1> "stablehlo.return"(%s) : (tensor<i1>) -> ()})'),
        broken("chlo.top_k", "k in range", "k", "tensor<5xf32>", "k = 6 : i64", "tensor<6xf32>; tensor<6xi32>"),
    ]


def _others() -> list[Violation]:
    bits = "rng_algorithm = #stablehlo<rng_algorithm {}>"
    return [
        Violation("case", "C3 result types", ("branch",), 'func.func @main(%a0: tensor<i32>, %a1: tensor<4xf32>, %a2: tensor<5xf32>) -> tensor<4xf32> {\n%r = "stablehlo.case"(%a0) ({ "stablehlo.return"(%a1) : (tensor<4xf32>) -> () }, { "stablehlo.return"(%a2) : (tensor<5xf32>) -> () }) : (tensor<i32>) -> tensor<4xf32>\nreturn %r : tensor<4xf32>\n}\n'),
        Violation("while", "C1 condition", ("condition",), 'func.func @main(%a0: tensor<4xf32>) -> tensor<4xf32> {\n%r = "stablehlo.while"(%a0) ({ ^bb0(%x: tensor<4xf32>): "stablehlo.return"(%x) : (tensor<4xf32>) -> () }, { ^bb0(%x: tensor<4xf32>): "stablehlo.return"(%x) : (tensor<4xf32>) -> () }) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %r : tensor<4xf32>\n}\n'),
        Violation("if", "C2 result types", ("branch",), 'func.func @main(%a0: tensor<i1>, %a1: tensor<4xf32>, %a2: tensor<5xf32>) -> tensor<4xf32> {\n%r = "stablehlo.if"(%a0) ({ "stablehlo.return"(%a1) : (tensor<4xf32>) -> () }, { "stablehlo.return"(%a2) : (tensor<5xf32>) -> () }) : (tensor<i1>) -> tensor<4xf32>\nreturn %r : tensor<4xf32>\n}\n'),
        broken("map", "C2 dimensions", "dimension", "tensor<4xf32>; tensor<4xf32>", "dimensions = array<i64: 1>", "tensor<4xf32>", _SUM),
        broken("rng_bit_generator", "C2 state of THREE_FRY", "initial_state|THREE_FRY", "tensor<3xui64>", bits.format("THREE_FRY"), "tensor<3xui64>; tensor<4xui32>"),
        broken("rng_bit_generator", "C2 state of PHILOX", "initial_state|PHILOX", "tensor<4xui64>", bits.format("PHILOX"), "tensor<4xui64>; tensor<4xui32>"),
        broken("rng_bit_generator", "C1 one state", "state", "tensor<2xui64>", bits.format("PHILOX"), "tensor<3xui64>; tensor<4xui32>"),
        broken("unary_einsum", "a letter an axis", "iij|letters", "tensor<3x3xf32>", 'einsum_config = "iij->j"', "tensor<3xf32>"),
        broken("unary_einsum", "a letter one size", '"i"|3 and 2', "tensor<3x2xf32>", 'einsum_config = "ii->i"', "tensor<3xf32>"),
        broken("unary_einsum", "letters of the operand", "the result", "tensor<3xf32>", 'einsum_config = "i->ij"', "tensor<3x3xf32>"),
        broken("einsum", "a letter one size", '"j"|3 and 4', "tensor<2x3xf32>; tensor<4x5xf32>", 'einsum_config = "ij,jk->ik"', "tensor<2x5xf32>"),
        broken("einsum", "one term an operand", "must name each operand", "tensor<2x3xf32>; tensor<3x5xf32>", 'einsum_config = "ij->ij"', "tensor<2x3xf32>"),
        broken("dynamic_reshape", "C4 shape", "shape", "tensor<4xf32>; tensor<2xi32>", "", "tensor<4xf32>"),
        broken("uniform_dequantize", "I1 quantized", "must be", "tensor<4xf32>", "", "tensor<4xf32>"),
        broken("set_dimension_size", "C3 dimension", "dimension", "tensor<4xf32>; tensor<i32>", "dimension = 1 : i64", "tensor<?xf32>"),
    ]
