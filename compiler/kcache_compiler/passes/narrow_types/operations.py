"""Which operations move small elements, which compute with them, and how exactly."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith

Binary = Callable[[mlir.Value, mlir.Value], mlir.Value]

#: The importer's name of an assertion: a value, and a condition on sizes under which it is defined.
ASSERTED = "kcache.asserted"
#: Move elements and look at none: they move bytes.
MOVES = frozenset(
    f"stablehlo.{op}"
    for op in (
        *("broadcast", "broadcast_in_dim", "concatenate", "dynamic_broadcast_in_dim", "dynamic_gather"),
        *("dynamic_pad", "dynamic_reshape", "dynamic_slice", "dynamic_update_slice", "gather"),
        *("get_dimension_size", "optimization_barrier", "pad", "real_dynamic_slice", "reshape", "reverse"),
        *("select", "set_dimension_size", "slice", "torch_index_select", "transpose"),
    )
)
#: Hold other operations, which say what becomes of elements.
FLOWS = frozenset({"stablehlo.while", "stablehlo.if", "stablehlo.case"})
#: Combine elements in a region of scalars.
COMBINES = frozenset(
    f"stablehlo.{op}" for op in ("map", "reduce", "reduce_window", "scatter", "select_and_scatter", "sort")
)
#: Give elements that the type has.
EXACT = frozenset({*COMBINES, "stablehlo.clamp", "stablehlo.maximum", "stablehlo.minimum", "chlo.top_k"})
PRODUCTS = frozenset(
    f"stablehlo.{op}" for op in ("convolution", "dot", "dot_general", "dynamic_conv", "einsum")
)

_BOTH = ("abs", "add", "divide", "multiply", "negate", "power", "remainder", "sign", "subtract")
_FLOAT = (
    *("atan2", "batch_norm_grad", "batch_norm_inference", "batch_norm_training", "cbrt", "ceil", "cholesky"),
    *("cosine", "exponential", "exponential_minus_one", "floor", "log", "log_plus_one", "logistic"),
    *("round_nearest_afz", "round_nearest_even", "rsqrt", "sine", "sqrt", "tan", "tanh"),
    "triangular_solve",
)
_CHLO = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cosh", "digamma", "erf", "erf_inv"),
    *("erfc", "lgamma", "polygamma", "sinh", "square", "tan", "zeta"),
)
_INTEGER = ("and", "not", "or", "shift_left", "xor")
_QUESTIONS = ("stablehlo.compare", "stablehlo.is_finite", "chlo.is_inf", "chlo.is_neg_inf", "chlo.is_pos_inf")

#: Computed in f32 and rounded to the float.
ON_FLOATS = frozenset(
    {*(f"stablehlo.{op}" for op in (*_BOTH, *_FLOAT)), *(f"chlo.{op}" for op in _CHLO), *_QUESTIONS, *EXACT}
)
#: Computed in bytes, of which the low bits are kept.
ON_INTEGERS = frozenset({*(f"stablehlo.{op}" for op in (*_BOTH, *_INTEGER)), *EXACT, "stablehlo.compare"})
#: The low bits of their results depend on the low bits of their operands only.
ON_LOW_BITS = frozenset(
    f"stablehlo.{op}" for op in ("add", "and", "multiply", "negate", "not", "or", "subtract", "xor")
)
#: Computed and rounded in one step, by the name that ``arith`` has for it.
AT_ONCE: dict[str, Binary] = {
    "stablehlo.add": arith.addf,
    "stablehlo.divide": arith.divf,
    "stablehlo.multiply": arith.mulf,
    "stablehlo.subtract": arith.subf,
}
#: Of integers, by what is before and after: ask for the bits alone.
ON_BITS = frozenset(
    f"stablehlo.{op}"
    for op in ("count_leading_zeros", "popcnt", "shift_right_arithmetic", "shift_right_logical")
)
