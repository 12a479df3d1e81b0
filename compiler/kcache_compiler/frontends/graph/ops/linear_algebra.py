"""Fourier transforms and linear algebra."""

from __future__ import annotations

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, integers
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    COMPLEX,
    COMPLEX_OF,
    FLOATS,
    REAL_OF,
    Type,
    Value,
    require_static,
    same_dtype,
)

KINDS = ("fft", "ifft", "rfft", "irfft")
TRANSPOSES = {"none": "NO_TRANSPOSE", "transpose": "TRANSPOSE", "adjoint": "ADJOINT"}
_REAL = ("f32", "f64")


def fft(e: Emitter, x: Value, *, kind: str, length: tuple[int, ...]) -> Value:
    """Emit a Fourier transform over the last one to three axes."""
    count = len(length)
    if not 1 <= count <= min(3, len(x.dims)):
        raise InvalidProgram(f"length has {count} entries for {x}: use one to three, for the last axes")
    if (x.dtype in COMPLEX) == (kind == "rfft"):
        raise InvalidProgram(f"{kind} takes {'floats' if kind == 'rfft' else 'complex'}, and x is {x}")
    sizes = [require_static(x, axis - count, "a transform needs its size") for axis in range(count)]
    expected = [*length[:-1], length[-1] // 2 + 1] if kind == "irfft" else list(length)
    if sizes != expected or any(size < 1 for size in length):
        raise InvalidProgram(f"length {list(length)} of {kind} does not fit {x}")
    dtype, last = x.dtype, length[-1]
    if kind == "rfft":
        dtype, last = COMPLEX_OF[x.dtype], last // 2 + 1
    elif kind == "irfft":
        dtype = REAL_OF[x.dtype]
    attributes = f"fft_type = #stablehlo<fft_type {kind.upper()}>, fft_length = {integers(length)}"
    return e.emit("fft", (x,), Type(dtype, (*x.dims[:-1], last)), attributes)


def cholesky(e: Emitter, x: Value, *, lower: bool = True) -> Value:
    """Emit the Cholesky factor of symmetric positive definite matrices."""
    if len(x.dims) < 2 or x.dims[-1] != x.dims[-2]:
        raise InvalidProgram(f"{x} does not hold square matrices in its last two axes")
    return e.emit("cholesky", (x,), x.type, f"lower = {'true' if lower else 'false'}")


def triangular_solve(
    e: Emitter,
    matrix: Value,
    rhs: Value,
    *,
    left_side: bool = True,
    lower: bool = True,
    unit_diagonal: bool = False,
    transpose: str = "none",
) -> Value:
    """Solve ``matrix @ y = rhs``, or ``y @ matrix = rhs``."""
    same_dtype(matrix, rhs)
    rank = len(matrix.dims)
    if rank < 2 or matrix.dims[-1] != matrix.dims[-2]:
        raise InvalidProgram(f"{matrix} does not hold square matrices in its last two axes")
    side = rank - 2 if left_side else rank - 1
    if rhs.dims[:-2] != matrix.dims[:-2] or len(rhs.dims) != rank or rhs.dims[side] != matrix.dims[-1]:
        raise InvalidProgram(f"{rhs} does not fit the matrices {matrix}")
    flags = {"left_side": left_side, "lower": lower, "unit_diagonal": unit_diagonal}
    text = ", ".join(f"{name} = {'true' if value else 'false'}" for name, value in flags.items())
    attributes = f"{text}, transpose_a = #stablehlo<transpose {TRANSPOSES[transpose]}>"
    return e.emit("triangular_solve", (matrix, rhs), rhs.type, attributes)


LINEAR = Group(
    "Transforms and linear algebra",
    (
        Op(
            "fft",
            "Discrete Fourier transform over the last one to three axes.",
            (Operand("x", (*_REAL, *COMPLEX)),),
            fft,
            "the shape and dtype of `x`; `rfft` maps floats to complex numbers with length // 2 + 1 as "
            "the last size, `irfft` is its inverse",
            "`stablehlo.fft`",
            (
                Attribute("kind", "string", "The transform.", choices=KINDS),
                Attribute("length", "ints", "The real sizes of the axes."),
            ),
        ),
        Op(
            "cholesky",
            "Cholesky factor of symmetric positive definite matrices, in the last two axes.",
            (Operand("x", (*FLOATS, *COMPLEX)),),
            cholesky,
            "the shape and dtype of `x`; only the elements of the requested triangle are defined",
            "`stablehlo.cholesky`",
            (
                Attribute(
                    "lower", "bool", "Whether to return the lower triangle, otherwise the upper one.", True
                ),
            ),
        ),
        Op(
            "triangular_solve",
            "The solution y of matrix @ y = rhs, or of y @ matrix = rhs, for triangular matrices.",
            (Operand("matrix", (*FLOATS, *COMPLEX)), Operand("rhs", (*FLOATS, *COMPLEX))),
            triangular_solve,
            "the shape and dtype of `rhs`, which has the batch axes of `matrix`",
            "`stablehlo.triangular_solve`",
            (
                Attribute("left_side", "bool", "Solve matrix @ y = rhs, otherwise y @ matrix = rhs.", True),
                Attribute("lower", "bool", "Whether the matrix is lower triangular, otherwise upper.", True),
                Attribute("unit_diagonal", "bool", "Whether the diagonal is taken as ones.", False),
                Attribute(
                    "transpose", "string", "The transposition of the matrix.", "none", tuple(TRANSPOSES)
                ),
            ),
        ),
    ),
)
