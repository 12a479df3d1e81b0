"""The operations as methods.

Made by `python -m scripts.generate_graph_format write`; not edited by hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kcache_grpc.graph import attributes as at

if TYPE_CHECKING:
    from kcache_grpc._proto.kcache.v1.graph_pb2 import GraphAttribute
    from kcache_grpc.graph.convert import Dims, DtypeLike, Number, ValueLike
    from kcache_grpc.graph.value import Value


class Operations(ABC):
    """Every operation of the op set as a method, as docs/reference/graph-format.md documents it."""

    @abstractmethod
    def node(
        self,
        op: str,
        operands: Iterable[ValueLike | None],
        attributes: Sequence[GraphAttribute] = (),
        results: int = 1,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """Add any operation by name."""

    def abs(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Absolute value; the magnitude of complex numbers."""
        return self.node("abs", (x,), at.given(), 1, name)[0]

    def negate(self, x: ValueLike, *, name: str | None = None) -> Value:
        """-x; unsigned integers wrap around."""
        return self.node("negate", (x,), at.given(), 1, name)[0]

    def sign(self, x: ValueLike, *, name: str | None = None) -> Value:
        """-1, 0 or 1; x/|x| for complex numbers."""
        return self.node("sign", (x,), at.given(), 1, name)[0]

    def exp(self, x: ValueLike, *, name: str | None = None) -> Value:
        """e raised to the power x."""
        return self.node("exp", (x,), at.given(), 1, name)[0]

    def expm1(self, x: ValueLike, *, name: str | None = None) -> Value:
        """exp(x) - 1."""
        return self.node("expm1", (x,), at.given(), 1, name)[0]

    def log(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Natural logarithm."""
        return self.node("log", (x,), at.given(), 1, name)[0]

    def log1p(self, x: ValueLike, *, name: str | None = None) -> Value:
        """log(1 + x)."""
        return self.node("log1p", (x,), at.given(), 1, name)[0]

    def sqrt(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Square root."""
        return self.node("sqrt", (x,), at.given(), 1, name)[0]

    def rsqrt(self, x: ValueLike, *, name: str | None = None) -> Value:
        """1 / sqrt(x)."""
        return self.node("rsqrt", (x,), at.given(), 1, name)[0]

    def cbrt(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Cube root."""
        return self.node("cbrt", (x,), at.given(), 1, name)[0]

    def sin(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Sine of radians."""
        return self.node("sin", (x,), at.given(), 1, name)[0]

    def cos(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Cosine of radians."""
        return self.node("cos", (x,), at.given(), 1, name)[0]

    def tan(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Tangent of radians."""
        return self.node("tan", (x,), at.given(), 1, name)[0]

    def sinh(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Hyperbolic sine."""
        return self.node("sinh", (x,), at.given(), 1, name)[0]

    def cosh(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Hyperbolic cosine."""
        return self.node("cosh", (x,), at.given(), 1, name)[0]

    def tanh(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Hyperbolic tangent."""
        return self.node("tanh", (x,), at.given(), 1, name)[0]

    def asin(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Inverse sine."""
        return self.node("asin", (x,), at.given(), 1, name)[0]

    def acos(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Inverse cosine."""
        return self.node("acos", (x,), at.given(), 1, name)[0]

    def atan(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Inverse tangent."""
        return self.node("atan", (x,), at.given(), 1, name)[0]

    def asinh(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Inverse hyperbolic sine."""
        return self.node("asinh", (x,), at.given(), 1, name)[0]

    def acosh(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Inverse hyperbolic cosine."""
        return self.node("acosh", (x,), at.given(), 1, name)[0]

    def atanh(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Inverse hyperbolic tangent."""
        return self.node("atanh", (x,), at.given(), 1, name)[0]

    def logistic(self, x: ValueLike, *, name: str | None = None) -> Value:
        """1 / (1 + exp(-x))."""
        return self.node("logistic", (x,), at.given(), 1, name)[0]

    def erf(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Error function."""
        return self.node("erf", (x,), at.given(), 1, name)[0]

    def erfc(self, x: ValueLike, *, name: str | None = None) -> Value:
        """1 - erf(x)."""
        return self.node("erfc", (x,), at.given(), 1, name)[0]

    def erf_inv(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Inverse of the error function."""
        return self.node("erf_inv", (x,), at.given(), 1, name)[0]

    def lgamma(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Logarithm of |gamma(x)|."""
        return self.node("lgamma", (x,), at.given(), 1, name)[0]

    def digamma(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Derivative of lgamma."""
        return self.node("digamma", (x,), at.given(), 1, name)[0]

    def floor(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Largest integer not above x."""
        return self.node("floor", (x,), at.given(), 1, name)[0]

    def ceil(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Smallest integer not below x."""
        return self.node("ceil", (x,), at.given(), 1, name)[0]

    def round(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Nearest integer, ties away from zero."""
        return self.node("round", (x,), at.given(), 1, name)[0]

    def round_even(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Nearest integer, ties to even."""
        return self.node("round_even", (x,), at.given(), 1, name)[0]

    def square(self, x: ValueLike, *, name: str | None = None) -> Value:
        """x * x."""
        return self.node("square", (x,), at.given(), 1, name)[0]

    def reciprocal(self, x: ValueLike, *, name: str | None = None) -> Value:
        """1 / x."""
        return self.node("reciprocal", (x,), at.given(), 1, name)[0]

    def is_finite(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Whether x is neither infinite nor NaN."""
        return self.node("is_finite", (x,), at.given(), 1, name)[0]

    def is_inf(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Whether x is infinite, of either sign."""
        return self.node("is_inf", (x,), at.given(), 1, name)[0]

    def is_nan(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Whether x is NaN."""
        return self.node("is_nan", (x,), at.given(), 1, name)[0]

    def not_(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Bitwise not; logical not of i1."""
        return self.node("not", (x,), at.given(), 1, name)[0]

    def popcnt(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Number of set bits."""
        return self.node("popcnt", (x,), at.given(), 1, name)[0]

    def clz(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Number of leading zero bits."""
        return self.node("clz", (x,), at.given(), 1, name)[0]

    def real(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Real part."""
        return self.node("real", (x,), at.given(), 1, name)[0]

    def imag(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Imaginary part."""
        return self.node("imag", (x,), at.given(), 1, name)[0]

    def conj(self, x: ValueLike, *, name: str | None = None) -> Value:
        """Complex conjugate."""
        return self.node("conj", (x,), at.given(), 1, name)[0]

    def add(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """lhs + rhs."""
        return self.node("add", (lhs, rhs), at.given(), 1, name)[0]

    def subtract(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """lhs - rhs."""
        return self.node("subtract", (lhs, rhs), at.given(), 1, name)[0]

    def multiply(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """lhs * rhs."""
        return self.node("multiply", (lhs, rhs), at.given(), 1, name)[0]

    def divide(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """lhs / rhs; integers are truncated towards zero."""
        return self.node("divide", (lhs, rhs), at.given(), 1, name)[0]

    def remainder(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """Remainder of the truncated division: it has the sign of lhs."""
        return self.node("remainder", (lhs, rhs), at.given(), 1, name)[0]

    def power(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """lhs raised to the power rhs."""
        return self.node("power", (lhs, rhs), at.given(), 1, name)[0]

    def maximum(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """The larger operand; NaN if one is NaN."""
        return self.node("maximum", (lhs, rhs), at.given(), 1, name)[0]

    def minimum(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """The smaller operand; NaN if one is NaN."""
        return self.node("minimum", (lhs, rhs), at.given(), 1, name)[0]

    def atan2(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """Angle of the point (x=rhs, y=lhs), in radians."""
        return self.node("atan2", (lhs, rhs), at.given(), 1, name)[0]

    def and_(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """Bitwise and."""
        return self.node("and", (lhs, rhs), at.given(), 1, name)[0]

    def or_(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """Bitwise or."""
        return self.node("or", (lhs, rhs), at.given(), 1, name)[0]

    def xor(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """Bitwise exclusive or."""
        return self.node("xor", (lhs, rhs), at.given(), 1, name)[0]

    def shift_left(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """lhs shifted left by rhs bits; 0 if rhs is the width or more."""
        return self.node("shift_left", (lhs, rhs), at.given(), 1, name)[0]

    def shift_right_arithmetic(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """lhs shifted right, filled with the sign bit."""
        return self.node("shift_right_arithmetic", (lhs, rhs), at.given(), 1, name)[0]

    def shift_right_logical(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """lhs shifted right, filled with zeros."""
        return self.node("shift_right_logical", (lhs, rhs), at.given(), 1, name)[0]

    def complex(self, real: ValueLike, imag: ValueLike, *, name: str | None = None) -> Value:
        """Complex numbers from their parts."""
        return self.node("complex", (real, imag), at.given(), 1, name)[0]

    def compare(
        self,
        lhs: ValueLike,
        rhs: ValueLike,
        direction: str,
        total_order: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Whether lhs is equal to, less than, ... rhs. NaN is unequal to everything, itself included."""
        return self.node(
            "compare",
            (lhs, rhs),
            at.given(at.text("direction", direction), at.flag("total_order", total_order)),
            1,
            name,
        )[0]

    def select(
        self, condition: ValueLike, on_true: ValueLike, on_false: ValueLike, *, name: str | None = None
    ) -> Value:
        """on_true where the condition is true, on_false elsewhere."""
        return self.node("select", (condition, on_true, on_false), at.given(), 1, name)[0]

    def clamp(self, low: ValueLike, x: ValueLike, high: ValueLike, *, name: str | None = None) -> Value:
        """min(max(x, low), high)."""
        return self.node("clamp", (low, x, high), at.given(), 1, name)[0]

    def convert(self, x: ValueLike, dtype: DtypeLike, *, name: str | None = None) -> Value:
        """The value in another dtype, rounded to the nearest."""
        return self.node("convert", (x,), at.given(at.dtype("dtype", dtype)), 1, name)[0]

    def bitcast(self, x: ValueLike, dtype: DtypeLike, *, name: str | None = None) -> Value:
        """The same bits, reinterpreted as another dtype."""
        return self.node("bitcast", (x,), at.given(at.dtype("dtype", dtype)), 1, name)[0]

    def reduce_precision(
        self, x: ValueLike, exponent_bits: int, mantissa_bits: int, *, name: str | None = None
    ) -> Value:
        """x rounded to a float with fewer bits, in its own dtype."""
        return self.node(
            "reduce_precision",
            (x,),
            at.given(at.integer("exponent_bits", exponent_bits), at.integer("mantissa_bits", mantissa_bits)),
            1,
            name,
        )[0]

    def full(self, value: Number, dtype: DtypeLike, shape: Dims, *, name: str | None = None) -> Value:
        """A tensor filled with one constant."""
        return self.node(
            "full",
            (),
            at.given(at.number("value", value), at.dtype("dtype", dtype), at.shape("shape", shape)),
            1,
            name,
        )[0]

    def scalar_like(self, x: ValueLike, value: Number, *, name: str | None = None) -> Value:
        """A scalar constant in the dtype of another value."""
        return self.node("scalar_like", (x,), at.given(at.number("value", value)), 1, name)[0]

    def iota(self, dtype: DtypeLike, shape: Dims, axis: int = 0, *, name: str | None = None) -> Value:
        """0, 1, 2, ... along an axis."""
        return self.node(
            "iota",
            (),
            at.given(at.dtype("dtype", dtype), at.shape("shape", shape), at.integer("axis", axis)),
            1,
            name,
        )[0]

    def size(self, x: ValueLike, axis: int, dtype: DtypeLike = "i32", *, name: str | None = None) -> Value:
        """The size of an axis as a scalar, also of a dynamic one."""
        return self.node("size", (x,), at.given(at.integer("axis", axis), at.dtype("dtype", dtype)), 1, name)[
            0
        ]

    def broadcast_to(self, x: ValueLike, shape: Dims, *, name: str | None = None) -> Value:
        """x broadcast to a shape by NumPy's rule."""
        return self.node("broadcast_to", (x,), at.given(at.shape("shape", shape)), 1, name)[0]

    def broadcast_in_dim(
        self, x: ValueLike, shape: Dims, axes: Sequence[int], *, name: str | None = None
    ) -> Value:
        """x broadcast along axes that it does not have."""
        return self.node(
            "broadcast_in_dim", (x,), at.given(at.shape("shape", shape), at.ints("axes", axes)), 1, name
        )[0]

    def reshape(self, x: ValueLike, shape: Dims, *, name: str | None = None) -> Value:
        """The same elements in row-major order in another shape."""
        return self.node("reshape", (x,), at.given(at.shape("shape", shape)), 1, name)[0]

    def expand_dims(self, x: ValueLike, axes: Sequence[int], *, name: str | None = None) -> Value:
        """x with new axes of size 1."""
        return self.node("expand_dims", (x,), at.given(at.ints("axes", axes)), 1, name)[0]

    def squeeze(self, x: ValueLike, axes: Sequence[int] | None = None, *, name: str | None = None) -> Value:
        """x without axes of size 1."""
        return self.node("squeeze", (x,), at.given(at.ints("axes", axes)), 1, name)[0]

    def transpose(
        self, x: ValueLike, permutation: Sequence[int] | None = None, *, name: str | None = None
    ) -> Value:
        """x with permuted axes."""
        return self.node("transpose", (x,), at.given(at.ints("permutation", permutation)), 1, name)[0]

    def reverse(self, x: ValueLike, axes: Sequence[int], *, name: str | None = None) -> Value:
        """x in reverse order along some axes."""
        return self.node("reverse", (x,), at.given(at.ints("axes", axes)), 1, name)[0]

    def concatenate(self, *xs: ValueLike, axis: int = 0, name: str | None = None) -> Value:
        """Values concatenated along an axis."""
        return self.node("concatenate", (*xs,), at.given(at.integer("axis", axis)), 1, name)[0]

    def stack(self, *xs: ValueLike, axis: int = 0, name: str | None = None) -> Value:
        """Values concatenated along a new axis."""
        return self.node("stack", (*xs,), at.given(at.integer("axis", axis)), 1, name)[0]

    def tile(self, x: ValueLike, repeats: Sequence[int], *, name: str | None = None) -> Value:
        """x repeated along each axis."""
        return self.node("tile", (x,), at.given(at.ints("repeats", repeats)), 1, name)[0]

    def slice(
        self,
        x: ValueLike,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """A slice of x with static bounds."""
        return self.node(
            "slice",
            (x,),
            at.given(
                at.ints("starts", starts),
                at.ints("limits", limits),
                at.ints("strides", strides),
                at.ints("axes", axes),
            ),
            1,
            name,
        )[0]

    def pad(
        self,
        x: ValueLike,
        padding: ValueLike | None = None,
        *,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
        name: str | None = None,
    ) -> Value:
        """x padded at its edges and between its elements."""
        return self.node(
            "pad",
            (x, padding),
            at.given(at.ints("low", low), at.ints("high", high), at.ints("interior", interior)),
            1,
            name,
        )[0]

    def take(self, x: ValueLike, indices: ValueLike, axis: int = 0, *, name: str | None = None) -> Value:
        """Entries of x along one axis; indices out of range are clamped."""
        return self.node("take", (x, indices), at.given(at.integer("axis", axis)), 1, name)[0]

    def take_along_axis(
        self, x: ValueLike, indices: ValueLike, axis: int = -1, *, name: str | None = None
    ) -> Value:
        """At each position the entry along one axis that the index selects."""
        return self.node("take_along_axis", (x, indices), at.given(at.integer("axis", axis)), 1, name)[0]

    def one_hot(
        self, x: ValueLike, depth: int, dtype: DtypeLike = "f32", *, name: str | None = None
    ) -> Value:
        """1 at the index x of a new last axis, 0 elsewhere."""
        return self.node(
            "one_hot", (x,), at.given(at.integer("depth", depth), at.dtype("dtype", dtype)), 1, name
        )[0]

    def dynamic_slice(
        self, x: ValueLike, *starts: ValueLike, sizes: Sequence[int], name: str | None = None
    ) -> Value:
        """A slice of x of static size; starts are clamped so that it lies within x."""
        return self.node("dynamic_slice", (x, *starts), at.given(at.ints("sizes", sizes)), 1, name)[0]

    def dynamic_update_slice(
        self, x: ValueLike, update: ValueLike, *starts: ValueLike, name: str | None = None
    ) -> Value:
        """x with a slice replaced; starts are clamped so that it lies within x."""
        return self.node("dynamic_update_slice", (x, update, *starts), at.given(), 1, name)[0]

    def gather(
        self,
        x: ValueLike,
        indices: ValueLike,
        offset_dims: Sequence[int],
        collapsed_slice_dims: Sequence[int],
        start_index_map: Sequence[int],
        index_vector_dim: int,
        slice_sizes: Sequence[int],
        operand_batching_dims: Sequence[int] = (),
        start_indices_batching_dims: Sequence[int] = (),
        indices_are_sorted: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Slices of x at given indices, in the general form of StableHLO."""
        return self.node(
            "gather",
            (x, indices),
            at.given(
                at.ints("offset_dims", offset_dims),
                at.ints("collapsed_slice_dims", collapsed_slice_dims),
                at.ints("start_index_map", start_index_map),
                at.integer("index_vector_dim", index_vector_dim),
                at.ints("slice_sizes", slice_sizes),
                at.ints("operand_batching_dims", operand_batching_dims),
                at.ints("start_indices_batching_dims", start_indices_batching_dims),
                at.flag("indices_are_sorted", indices_are_sorted),
            ),
            1,
            name,
        )[0]

    def scatter(
        self,
        x: ValueLike,
        indices: ValueLike,
        updates: ValueLike,
        kind: str,
        update_window_dims: Sequence[int],
        inserted_window_dims: Sequence[int],
        scatter_dims_to_operand_dims: Sequence[int],
        index_vector_dim: int,
        input_batching_dims: Sequence[int] = (),
        scatter_indices_batching_dims: Sequence[int] = (),
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """x with slices combined into it at given indices, in the general form of StableHLO."""
        return self.node(
            "scatter",
            (x, indices, updates),
            at.given(
                at.text("kind", kind),
                at.ints("update_window_dims", update_window_dims),
                at.ints("inserted_window_dims", inserted_window_dims),
                at.ints("scatter_dims_to_operand_dims", scatter_dims_to_operand_dims),
                at.integer("index_vector_dim", index_vector_dim),
                at.ints("input_batching_dims", input_batching_dims),
                at.ints("scatter_indices_batching_dims", scatter_indices_batching_dims),
                at.flag("indices_are_sorted", indices_are_sorted),
                at.flag("unique_indices", unique_indices),
            ),
            1,
            name,
        )[0]

    def reduce_sum(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Sum."""
        return self.node(
            "reduce_sum", (x,), at.given(at.ints("axes", axes), at.flag("keepdims", keepdims)), 1, name
        )[0]

    def reduce_product(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Product."""
        return self.node(
            "reduce_product", (x,), at.given(at.ints("axes", axes), at.flag("keepdims", keepdims)), 1, name
        )[0]

    def reduce_max(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Maximum; NaN if there is one."""
        return self.node(
            "reduce_max", (x,), at.given(at.ints("axes", axes), at.flag("keepdims", keepdims)), 1, name
        )[0]

    def reduce_min(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Minimum; NaN if there is one."""
        return self.node(
            "reduce_min", (x,), at.given(at.ints("axes", axes), at.flag("keepdims", keepdims)), 1, name
        )[0]

    def reduce_and(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Bitwise and; logical and of i1."""
        return self.node(
            "reduce_and", (x,), at.given(at.ints("axes", axes), at.flag("keepdims", keepdims)), 1, name
        )[0]

    def reduce_or(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Bitwise or; logical or of i1."""
        return self.node(
            "reduce_or", (x,), at.given(at.ints("axes", axes), at.flag("keepdims", keepdims)), 1, name
        )[0]

    def reduce_xor(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Bitwise exclusive or."""
        return self.node(
            "reduce_xor", (x,), at.given(at.ints("axes", axes), at.flag("keepdims", keepdims)), 1, name
        )[0]

    def mean(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Mean."""
        return self.node(
            "mean", (x,), at.given(at.ints("axes", axes), at.flag("keepdims", keepdims)), 1, name
        )[0]

    def variance(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        correction: int = 0,
        *,
        name: str | None = None,
    ) -> Value:
        """Mean square of the deviation from the mean."""
        return self.node(
            "variance",
            (x,),
            at.given(
                at.ints("axes", axes), at.flag("keepdims", keepdims), at.integer("correction", correction)
            ),
            1,
            name,
        )[0]

    def logsumexp(
        self,
        x: ValueLike,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Logarithm of the sum of exp(x), without overflow."""
        return self.node(
            "logsumexp", (x,), at.given(at.ints("axes", axes), at.flag("keepdims", keepdims)), 1, name
        )[0]

    def argmax(
        self,
        x: ValueLike,
        axis: int = -1,
        keepdims: bool = False,
        dtype: DtypeLike = "i32",
        *,
        name: str | None = None,
    ) -> Value:
        """Index of the largest element: of the first NaN, otherwise the first of equals."""
        return self.node(
            "argmax",
            (x,),
            at.given(at.integer("axis", axis), at.flag("keepdims", keepdims), at.dtype("dtype", dtype)),
            1,
            name,
        )[0]

    def argmin(
        self,
        x: ValueLike,
        axis: int = -1,
        keepdims: bool = False,
        dtype: DtypeLike = "i32",
        *,
        name: str | None = None,
    ) -> Value:
        """Index of the smallest element: of the first NaN, otherwise the first of equals."""
        return self.node(
            "argmin",
            (x,),
            at.given(at.integer("axis", axis), at.flag("keepdims", keepdims), at.dtype("dtype", dtype)),
            1,
            name,
        )[0]

    def cumsum(
        self, x: ValueLike, axis: int = -1, reverse: bool = False, *, name: str | None = None
    ) -> Value:
        """Inclusive cumulative sum."""
        return self.node(
            "cumsum", (x,), at.given(at.integer("axis", axis), at.flag("reverse", reverse)), 1, name
        )[0]

    def cumprod(
        self, x: ValueLike, axis: int = -1, reverse: bool = False, *, name: str | None = None
    ) -> Value:
        """Inclusive cumulative product."""
        return self.node(
            "cumprod", (x,), at.given(at.integer("axis", axis), at.flag("reverse", reverse)), 1, name
        )[0]

    def cummax(
        self, x: ValueLike, axis: int = -1, reverse: bool = False, *, name: str | None = None
    ) -> Value:
        """Inclusive cumulative maximum."""
        return self.node(
            "cummax", (x,), at.given(at.integer("axis", axis), at.flag("reverse", reverse)), 1, name
        )[0]

    def cummin(
        self, x: ValueLike, axis: int = -1, reverse: bool = False, *, name: str | None = None
    ) -> Value:
        """Inclusive cumulative minimum."""
        return self.node(
            "cummin", (x,), at.given(at.integer("axis", axis), at.flag("reverse", reverse)), 1, name
        )[0]

    def matmul(self, lhs: ValueLike, rhs: ValueLike, *, name: str | None = None) -> Value:
        """lhs @ rhs, by NumPy's rule."""
        return self.node("matmul", (lhs, rhs), at.given(), 1, name)[0]

    def dot_general(
        self,
        lhs: ValueLike,
        rhs: ValueLike,
        lhs_contracting: Sequence[int],
        rhs_contracting: Sequence[int],
        lhs_batch: Sequence[int] = (),
        rhs_batch: Sequence[int] = (),
        dtype: DtypeLike | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """A contraction in the general form of StableHLO."""
        return self.node(
            "dot_general",
            (lhs, rhs),
            at.given(
                at.ints("lhs_contracting", lhs_contracting),
                at.ints("rhs_contracting", rhs_contracting),
                at.ints("lhs_batch", lhs_batch),
                at.ints("rhs_batch", rhs_batch),
                at.dtype("dtype", dtype),
            ),
            1,
            name,
        )[0]

    def convolution(
        self,
        x: ValueLike,
        kernel: ValueLike,
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        input_dilation: Sequence[int] | None = None,
        kernel_dilation: Sequence[int] | None = None,
        groups: int = 1,
        batch_groups: int = 1,
        input_layout: str | None = None,
        kernel_layout: str | None = None,
        output_layout: str | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """Sums of products of a kernel with each position of a window; the kernel is not flipped."""
        return self.node(
            "convolution",
            (x, kernel),
            at.given(
                at.ints("strides", strides),
                at.ints("low", low),
                at.ints("high", high),
                at.ints("input_dilation", input_dilation),
                at.ints("kernel_dilation", kernel_dilation),
                at.integer("groups", groups),
                at.integer("batch_groups", batch_groups),
                at.text("input_layout", input_layout),
                at.text("kernel_layout", kernel_layout),
                at.text("output_layout", output_layout),
            ),
            1,
            name,
        )[0]

    def reduce_window(
        self,
        x: ValueLike,
        kind: str,
        window: Sequence[int],
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        base_dilation: Sequence[int] | None = None,
        window_dilation: Sequence[int] | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """A reduction of each position of a window; padding does not contribute."""
        return self.node(
            "reduce_window",
            (x,),
            at.given(
                at.text("kind", kind),
                at.ints("window", window),
                at.ints("strides", strides),
                at.ints("low", low),
                at.ints("high", high),
                at.ints("base_dilation", base_dilation),
                at.ints("window_dilation", window_dilation),
            ),
            1,
            name,
        )[0]

    def max_pool(
        self,
        x: ValueLike,
        window: Sequence[int],
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """Maximum of each window."""
        return self.node(
            "max_pool",
            (x,),
            at.given(
                at.ints("window", window),
                at.ints("strides", strides),
                at.ints("low", low),
                at.ints("high", high),
                at.ints("axes", axes),
            ),
            1,
            name,
        )[0]

    def avg_pool(
        self,
        x: ValueLike,
        window: Sequence[int],
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        count_padding: bool = False,
        *,
        name: str | None = None,
    ) -> Value:
        """Mean of each window."""
        return self.node(
            "avg_pool",
            (x,),
            at.given(
                at.ints("window", window),
                at.ints("strides", strides),
                at.ints("low", low),
                at.ints("high", high),
                at.ints("axes", axes),
                at.flag("count_padding", count_padding),
            ),
            1,
            name,
        )[0]

    def sort(
        self,
        x: ValueLike,
        axis: int = -1,
        descending: bool = False,
        stable: bool = True,
        *,
        name: str | None = None,
    ) -> Value:
        """Elements sorted along an axis; floats by the total order of IEEE 754, so that NaN comes last."""
        return self.node(
            "sort",
            (x,),
            at.given(at.integer("axis", axis), at.flag("descending", descending), at.flag("stable", stable)),
            1,
            name,
        )[0]

    def argsort(
        self,
        x: ValueLike,
        axis: int = -1,
        descending: bool = False,
        stable: bool = True,
        dtype: DtypeLike = "i32",
        *,
        name: str | None = None,
    ) -> Value:
        """Indices that sort x along an axis."""
        return self.node(
            "argsort",
            (x,),
            at.given(
                at.integer("axis", axis),
                at.flag("descending", descending),
                at.flag("stable", stable),
                at.dtype("dtype", dtype),
            ),
            1,
            name,
        )[0]

    def top_k(self, x: ValueLike, k: int, *, name: str | None = None) -> tuple[Value, Value]:
        """The k largest elements along the last axis, in descending order, and their indices."""
        values, indices = self.node("top_k", (x,), at.given(at.integer("k", k)), 2, name)
        return values, indices

    def fft(self, x: ValueLike, kind: str, length: Sequence[int], *, name: str | None = None) -> Value:
        """Discrete Fourier transform over the last one to three axes."""
        return self.node("fft", (x,), at.given(at.text("kind", kind), at.ints("length", length)), 1, name)[0]

    def cholesky(self, x: ValueLike, lower: bool = True, *, name: str | None = None) -> Value:
        """Cholesky factor of symmetric positive definite matrices, in the last two axes."""
        return self.node("cholesky", (x,), at.given(at.flag("lower", lower)), 1, name)[0]

    def triangular_solve(
        self,
        matrix: ValueLike,
        rhs: ValueLike,
        left_side: bool = True,
        lower: bool = True,
        unit_diagonal: bool = False,
        transpose: str = "none",
        *,
        name: str | None = None,
    ) -> Value:
        """The solution y of matrix @ y = rhs, or of y @ matrix = rhs, for triangular matrices."""
        return self.node(
            "triangular_solve",
            (matrix, rhs),
            at.given(
                at.flag("left_side", left_side),
                at.flag("lower", lower),
                at.flag("unit_diagonal", unit_diagonal),
                at.text("transpose", transpose),
            ),
            1,
            name,
        )[0]

    def relu(self, x: ValueLike, *, name: str | None = None) -> Value:
        """max(x, 0)."""
        return self.node("relu", (x,), at.given(), 1, name)[0]

    def leaky_relu(self, x: ValueLike, slope: float = 0.01, *, name: str | None = None) -> Value:
        """x, with a smaller slope below 0."""
        return self.node("leaky_relu", (x,), at.given(at.real("slope", slope)), 1, name)[0]

    def sigmoid(self, x: ValueLike, *, name: str | None = None) -> Value:
        """1 / (1 + exp(-x))."""
        return self.node("sigmoid", (x,), at.given(), 1, name)[0]

    def silu(self, x: ValueLike, *, name: str | None = None) -> Value:
        """x times its sigmoid."""
        return self.node("silu", (x,), at.given(), 1, name)[0]

    def softplus(self, x: ValueLike, *, name: str | None = None) -> Value:
        """log(1 + exp(x))."""
        return self.node("softplus", (x,), at.given(), 1, name)[0]

    def gelu(self, x: ValueLike, approximate: str = "none", *, name: str | None = None) -> Value:
        """x times the normal distribution function, or its approximation by tanh."""
        return self.node("gelu", (x,), at.given(at.text("approximate", approximate)), 1, name)[0]

    def softmax(self, x: ValueLike, axis: int = -1, *, name: str | None = None) -> Value:
        """exp(x) divided by its sum along an axis."""
        return self.node("softmax", (x,), at.given(at.integer("axis", axis)), 1, name)[0]

    def log_softmax(self, x: ValueLike, axis: int = -1, *, name: str | None = None) -> Value:
        """Logarithm of softmax."""
        return self.node("log_softmax", (x,), at.given(at.integer("axis", axis)), 1, name)[0]

    def layer_norm(
        self,
        x: ValueLike,
        weight: ValueLike | None = None,
        bias: ValueLike | None = None,
        *,
        axes: Sequence[int] = (-1,),
        epsilon: float = 1e-05,
        name: str | None = None,
    ) -> Value:
        """x normalized to mean 0 and variance 1 over some axes, then scaled and shifted."""
        return self.node(
            "layer_norm",
            (x, weight, bias),
            at.given(at.ints("axes", axes), at.real("epsilon", epsilon)),
            1,
            name,
        )[0]

    def rms_norm(
        self,
        x: ValueLike,
        weight: ValueLike | None = None,
        *,
        axes: Sequence[int] = (-1,),
        epsilon: float = 1e-06,
        name: str | None = None,
    ) -> Value:
        """x normalized to mean square 1 over some axes, then scaled."""
        return self.node(
            "rms_norm", (x, weight), at.given(at.ints("axes", axes), at.real("epsilon", epsilon)), 1, name
        )[0]

    def batch_norm_inference(
        self,
        x: ValueLike,
        scale: ValueLike,
        offset: ValueLike,
        mean: ValueLike,
        variance: ValueLike,
        axis: int = 1,
        epsilon: float = 1e-05,
        *,
        name: str | None = None,
    ) -> Value:
        """x normalized with a given mean and variance of each channel, then scaled and shifted."""
        return self.node(
            "batch_norm_inference",
            (x, scale, offset, mean, variance),
            at.given(at.integer("axis", axis), at.real("epsilon", epsilon)),
            1,
            name,
        )[0]
