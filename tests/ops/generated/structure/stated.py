"""Classes of attributes, shapes and values that each operation has in each dtype, and why it lacks others.

A pair that nothing here forbids must be hit: ``docs/results/generated-programs.md`` lists those that are not,
and the reasons for those that are forbidden.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.ops.harness.values import ALL, COMPLEX, DTYPES, FLOATS, INTEGERS, SIGNED

_BOTH = ("false", "true")
_ORDERS = ("EQ", "GE", "GT", "LE", "LT", "NE")
_TYPES = ("FLOAT", "SIGNED", "TOTALORDER", "UNSIGNED")
_PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")
_AXIS = ("0", "above 0")
_LIST = ("none", "in order", "out of order")
_SORTED = ("none", "in order")
_FROM_ONE = ("none", "one", "more")
_FROM_ZERO = ("none", "zero", "one", "more")
_ANY = ("none", "negative", "zero", "one", "more")
_GATHER: dict[str, tuple[str, ...]] = {
    "collapsed_slice_dims": _SORTED,
    "index": INTEGERS,
    "index_vector_dim": _AXIS,
    "offset_dims": _SORTED,
    "operand_batching_dims": _SORTED,
    "start_index_map": _LIST,
    "start_indices_batching_dims": _LIST,
}
_CONVOLUTION: dict[str, tuple[str, ...]] = {
    "": ("any order", "batch and feature first"),
    "batch_group_count": ("one", "more"),
    "feature_group_count": ("one", "more"),
    "lhs_dilation": _FROM_ONE,
    "precision_config": _PRECISIONS,
    "rhs_dilation": _FROM_ONE,
    "window_reversal": ("none", *_BOTH),
    "window_strides": _FROM_ONE,
}
_BODIES = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
_NORM: dict[str, tuple[str, ...]] = {"feature_index": _AXIS}
#: Attributes of operations, and the classes of their values.
_ATTRIBUTES: dict[str, dict[str, tuple[str, ...]]] = {
    "batch_norm_grad": _NORM,
    "batch_norm_inference": _NORM,
    "batch_norm_training": _NORM,
    "broadcast": {"broadcast_sizes": _FROM_ZERO},
    "broadcast_in_dim": {"broadcast_dimensions": _LIST},
    "chlo.broadcast_compare": {"comparison_direction": _ORDERS, "compare_type": _TYPES},
    "chlo.ragged_dot": {
        "lhs_batching_dimensions": _SORTED,
        "lhs_contracting_dimensions": ("in order",),
        "lhs_ragged_dimensions": ("in order",),
        "precision_config": _PRECISIONS,
        "rhs_batching_dimensions": _SORTED,
        "rhs_contracting_dimensions": ("in order",),
        "rhs_group_dimensions": _SORTED,
    },
    "chlo.scan": {"dimension": _AXIS, "is_reverse": _BOTH},
    "chlo.top_k": {"k": ("zero", "one", "more")},
    "cholesky": {"lower": _BOTH},
    "compare": {"comparison_direction": _ORDERS, "compare_type": _TYPES},
    "composite": {"version": ("zero", "one", "more")},
    "concatenate": {"dimension": _AXIS},
    "convert": {"to": tuple(DTYPES)},
    "convolution": _CONVOLUTION | {"padding": _ANY},
    "dot": {"precision_config": _PRECISIONS},
    "dot_general": {
        "lhs_batching_dimensions": _LIST,
        "lhs_contracting_dimensions": _LIST,
        "precision_config": _PRECISIONS,
        "rhs_batching_dimensions": _LIST,
        "rhs_contracting_dimensions": _LIST,
    },
    "dynamic_broadcast_in_dim": {
        "broadcast_dimensions": _LIST,
        "known_expanding_dimensions": _SORTED,
        "known_nonexpanding_dimensions": _SORTED,
    },
    "dynamic_conv": _CONVOLUTION,
    "dynamic_gather": _GATHER,
    "dynamic_iota": {"iota_dimension": _AXIS},
    "dynamic_slice": {"index": INTEGERS, "slice_sizes": _FROM_ZERO},
    "dynamic_update_slice": {"index": INTEGERS},
    "einsum": {
        "einsum_config": ("batch", "contracted", "diagonal", "kept", "summed alone", "transposed"),
    },
    "fft": {"fft_type": ("FFT", "IFFT", "IRFFT", "RFFT")},
    "gather": _GATHER | {"indices_are_sorted": _BOTH, "slice_sizes": ("zero", "one", "more")},
    "get_dimension_size": {"dimension": _AXIS},
    "iota": {"iota_dimension": _AXIS},
    "map": {"body": ("add", "maximum", "multiply", "subtract"), "dimensions": _SORTED},
    "pad": {"edge_padding_high": _ANY, "edge_padding_low": _ANY, "interior_padding": _FROM_ZERO},
    "reduce": {"body": (*_BODIES, "compare", "select"), "dimensions": _LIST},
    "reduce_precision": {"exponent_bits": ("one", "more"), "mantissa_bits": ("zero", "one", "more")},
    "reduce_window": {
        "base_dilations": ("one", "more"),
        "body": _BODIES,
        "padding": ("negative", "zero", "one", "more"),
        "window_dilations": ("one", "more"),
        "window_dimensions": ("one", "more"),
        "window_strides": ("one", "more"),
    },
    "reverse": {"dimensions": _LIST},
    "rng": {"rng_distribution": ("NORMAL", "UNIFORM")},
    "rng_bit_generator": {"rng_algorithm": ("DEFAULT", "PHILOX", "THREE_FRY")},
    "scatter": {
        "body": (*_BODIES, "subtract"),
        "index": INTEGERS,
        "index_vector_dim": _AXIS,
        "indices_are_sorted": _BOTH,
        "input_batching_dims": _SORTED,
        "inserted_window_dims": _SORTED,
        "scatter_dims_to_operand_dims": _LIST,
        "scatter_indices_batching_dims": _LIST,
        "unique_indices": _BOTH,
        "update_window_dims": _SORTED,
    },
    "select_and_scatter": {
        "body": ("add", "compare"),
        "padding": ("zero", "one", "more"),
        "window_dimensions": ("one", "more"),
        "window_strides": ("one", "more"),
    },
    "slice": {"limit_indices": _FROM_ZERO, "start_indices": _FROM_ZERO, "strides": _FROM_ONE},
    "sort": {
        "body": ("abs", "compare", "imag", "real", "select"),
        "dimension": _AXIS,
        "is_stable": _BOTH,
    },
    "torch_index_select": {"batch_dims": ("zero", "one", "more"), "dim": _AXIS},
    "transpose": {"permutation": _LIST},
    "triangular_solve": {
        "left_side": _BOTH,
        "lower": _BOTH,
        "transpose_a": ("ADJOINT", "NO_TRANSPOSE", "TRANSPOSE"),
        "unit_diagonal": _BOTH,
    },
    "unary_einsum": {"einsum_config": ("diagonal", "kept", "summed alone", "transposed")},
}
_RANKS = tuple(f"rank {rank}" for rank in range(7))
_VALUES = ("-0", "subnormal", "inf", "NaN", "least", "greatest", "0", "-1")
#: Operations whose results keep or tell the content of NaN.
_BITWISE = (
    *("bitcast_convert", "broadcast", "broadcast_in_dim", "chlo.broadcast_compare", "chlo.broadcast_select"),
    *("compare", "complex", "concatenate", "dynamic_broadcast_in_dim", "dynamic_gather", "dynamic_pad"),
    *("dynamic_reshape", "dynamic_slice", "dynamic_update_slice", "gather", "get_dimension_size", "imag"),
    *("optimization_barrier", "pad", "real", "real_dynamic_slice", "reshape", "reverse", "select", "slice"),
    *("sort", "torch_index_select", "transpose", "tuple"),
)
#: Operations without an argument of their dtype: shapes are those of their results, and values none.
MAKING = ("constant", "dynamic_iota", "iota", "rng", "rng_bit_generator")


def stated(op: str) -> list[str]:
    """Classes of an operation, whether programs had them or not."""
    named = [
        f"{name} {value}".strip() for name, values in _ATTRIBUTES.get(op, {}).items() for value in values
    ]
    values = [f"values {value}" for value in _VALUES]
    values += ["values NaN with content"] * (op in _BITWISE)
    return [*named, *_RANKS, "empty", "one element", *values]


def of_attribute(kind: str) -> bool:
    """Whether the class is of an attribute, and not of the arguments' shapes and values."""
    return not kind.startswith(("rank ", "empty", "one element", "values "))


@dataclass(frozen=True)
class Rule:
    """Classes that match ``kinds`` are not of these operations in these dtypes, and why."""

    why: str
    kinds: str
    ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ALL

    def holds(self, op: str, kind: str, dtype: str) -> bool:
        """Whether it forbids the pair."""
        known = not self.ops or op in self.ops
        return known and dtype in self.dtypes and re.fullmatch(self.kinds, kind) is not None


_FLOATING = FLOATS + COMPLEX
_WHOLE = ("i1", *INTEGERS)
#: Operations of an axis.
_OF_AXES = (
    *("batch_norm_grad", "batch_norm_inference", "batch_norm_training", "chlo.scan", "chlo.top_k"),
    *(
        "concatenate",
        "dynamic_gather",
        "dynamic_iota",
        "fft",
        "gather",
        "get_dimension_size",
        "iota",
        "scatter",
    ),
    *("sort", "torch_index_select"),
)
#: Operations that the specification does not define for complex numbers with infinite or NaN parts.
_OPEN = (
    *("abs", "atan2", "convolution", "cosine", "divide", "dot", "dot_general", "dynamic_conv", "einsum"),
    *(
        "exponential",
        "exponential_minus_one",
        "log",
        "log_plus_one",
        "logistic",
        "multiply",
        "power",
        "rsqrt",
    ),
    *("sign", "sine", "sqrt", "tan", "tanh", "unary_einsum", "chlo._asin_acos_kernel", "chlo.acos"),
    *("chlo.acosh", "chlo.asin", "chlo.asinh", "chlo.atan", "chlo.atanh", "chlo.broadcast_multiply"),
    *("chlo.cosh", "chlo.ragged_dot", "chlo.sinh", "chlo.square", "chlo.tan"),
)
#: Why a pair is none. The first that holds is told.
RULES: tuple[Rule, ...] = (
    Rule("numbers of another kind of dtype", "values (least|greatest|0|-1)", (), (*_FLOATING, "i1")),
    Rule("numbers of another kind of dtype", "values (-0|subnormal|inf|NaN|NaN with content)", (), _WHOLE),
    Rule(
        "unsigned integers have no -1",
        "values -1",
        (),
        tuple(dtype for dtype in INTEGERS if dtype.startswith("u")),
    ),
    Rule("the operation takes no argument of the dtype", "values .*", MAKING),
    Rule(
        "the specification leaves open what becomes of infinite and NaN parts",
        "values (inf|NaN)",
        _OPEN,
        COMPLEX,
    ),
    Rule("an axis is named, and a scalar has none", "rank 0", _OF_AXES),
    Rule("an image has a batch and features", "rank [01]", ("convolution", "dynamic_conv")),
    Rule("a matrix has two axes", "rank [01]", ("chlo.ragged_dot", "cholesky", "triangular_solve")),
    Rule(
        "the interpreter takes other sides of branch cuts, and is less exact near zero",
        "values (-0|subnormal)",
        ("atan2",),
        COMPLEX,
    ),
    Rule("its state is a vector", "rank 0", ("rng_bit_generator",)),
    Rule("operands are vectors and matrices", "rank [03456]", ("dot",)),
    Rule(
        "what becomes of infinities and NaN in a transform or a solution is left open",
        "values (inf|NaN)",
        ("cholesky", "fft", "triangular_solve"),
    ),
    Rule(
        "what an order of complex numbers makes of NaN is left open",
        "values NaN.*",
        ("chlo.broadcast_maximum", "chlo.broadcast_minimum", "clamp", "maximum", "minimum", "sort"),
        COMPLEX,
    ),
    Rule("complex numbers have no order", "comparison_direction (G|L).", (), COMPLEX),
    Rule(
        "a comparison's type goes with its dtype",
        "compare_type SIGNED",
        (),
        tuple(dtype for dtype in ALL if dtype not in SIGNED),
    ),
    Rule("a comparison's type goes with its dtype", "compare_type FLOAT", (), _WHOLE),
    Rule("a comparison's type goes with its dtype", "compare_type TOTALORDER", (), (*_WHOLE, *COMPLEX)),
    Rule("a comparison's type goes with its dtype", "compare_type UNSIGNED", (), (*SIGNED, *_FLOATING)),
    Rule("only floats are normally distributed", "rng_distribution NORMAL", (), INTEGERS),
    Rule(
        "bits are of booleans and integers",
        "body (and|or|xor)",
        ("reduce", "reduce_window", "scatter"),
        _FLOATING,
    ),
    Rule("only complex numbers have parts", "body (real|imag)", ("sort",), (*_WHOLE, *FLOATS)),
    Rule(
        "sizes are of signed integers and floats",
        "body abs",
        ("sort",),
        tuple(dtype for dtype in ALL if dtype not in SIGNED + FLOATS),
    ),
    Rule("complex numbers have no order", "body (compare|select)", ("reduce",), COMPLEX),
)


def forbidden(op: str, kind: str, dtype: str) -> str:
    """Why programs of the operation and dtype cannot have the class, or nothing."""
    return next((rule.why for rule in RULES if rule.holds(op, kind, dtype)), "")


def table(op: str, dtypes: tuple[str, ...]) -> Mapping[tuple[str, str], str]:
    """Class and dtype of an operation: nothing, or why there is no such program."""
    return {(kind, dtype): forbidden(op, kind, dtype) for kind in stated(op) for dtype in dtypes}
