"""Custom calls by which JAX asks LAPACK and BLAS on CPUs: here they are definitions, not calls."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.expansions import jacobi as rotations
from kcache_compiler.passes.legalize.expansions import lu_qr as factors
from kcache_compiler.passes.legalize.expansions import triangular as triangles
from kcache_compiler.passes.legalize.expansions import tridiagonal as bands
from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor

_TARGET = re.compile(r"lapack_([sdcz])(\w+)_ffi")
_ELEMENTS = {"s": "f32", "d": "f64", "c": "complex<f32>", "z": "complex<f64>"}
_LETTER = re.compile(r"(\w+) = (\d+) : ui8")
_END = re.compile(r"(low|high) = (\d+) : i32")
#: Attributes of JAX that describe a call, in addition to its parameters.
_SETTINGS = ("mhlo.backend_config", "backend_config")

#: Results of operands with one batch axis, and of the letters that say what is asked for.
Routine = Callable[[Lines, list[Tensor], dict[str, str], list[Tensor]], list[Tensor]]


def lapack(op: mlir.Op, lines: Lines, operands: list[Tensor], results: list[Tensor]) -> list[Tensor]:
    """The results of a call that ``is_lapack``."""
    routine, axes, _ = _TABLE[_routine(op)]
    flat = [
        lines.reshape(operand, _flat(operand.shape, axes[position]))
        for position, operand in enumerate(operands)
    ]
    output = routine(lines, flat, _letters(op), results)
    return [lines.reshape(value, result.shape) for value, result in zip(output, results, strict=True)]


def is_lapack(op: mlir.Op) -> bool:
    """Whether a custom call is of a routine that has a definition here, and asks for what it does."""
    routine = _routine(op)
    if routine not in _TABLE or not op.operands:
        return False
    _, axes, letters = _TABLE[routine]
    kinds = [value.type for value in op.operands]
    prefix = _TARGET.fullmatch(_target(op))
    assert prefix is not None
    elements = [str(mlir.element_of(kind)) for kind in kinds]
    expected = [_ELEMENTS[prefix[1]]] * len(axes)
    if routine == "laswp":
        expected[-1] = "i32"
    if elements != expected:
        return False
    size = mlir.sizes_of(kinds[0])[-1] or 0
    if routine in ("gehrd", "sytrd", "hetrd") and size < 2:
        return False
    if routine == "gtsv" and not _is_tridiagonal(kinds):
        return False
    if routine == "gehrd" and dict(_END.findall(_settings(op))) != {"low": "1", "high": str(size)}:
        return False
    actual = _letters(op)
    return all(actual.get(name, " ") in allowed for name, allowed in letters.items())


def _is_tridiagonal(kinds: list[mlir.Type]) -> bool:
    """Whether three diagonals are of one shape, of which the sums have as many rows."""
    *diagonals, expected = (mlir.sizes_of(kind) for kind in kinds)
    return all(diagonal == expected[:-1] for diagonal in diagonals)


def is_open_routine(op: mlir.Op) -> bool:
    """Whether a definition is the same at all sizes: one that has a turn for each row or column. Rounds of a
    tournament, and what is one shorter than an axis, are not.
    """
    return _routine(op) in ("potrf", "trsm", "getrf", "geqrf", "orgqr", "ungqr")


def _target(op: mlir.Op) -> str:
    return mlir.string_of(op.attributes["call_target_name"])


def _routine(op: mlir.Op) -> str:
    result = _TARGET.fullmatch(_target(op))
    return result[2] if result else ""


def _letters(op: mlir.Op) -> dict[str, str]:
    return {name: chr(int(code)) for name, code in _LETTER.findall(_settings(op))}


def _settings(op: mlir.Op) -> str:
    return " ".join(str(op.attributes[name]) for name in _SETTINGS if name in op.attributes)


def _flat(shape: tuple[int, ...], axes: int) -> tuple[int, ...]:
    """One batch axis before the last ``axes``."""
    position = len(shape) - axes
    return (math.prod(shape[:position]), *shape[position:])


def _potrf(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    """The factor, and the first pivot (from 1) that is not above 0. The other triangle stays."""
    lower = how["uplo"] == "L"
    factor = triangles.cholesky(lines, operands[0], lower)
    rows, columns = (lines.iota("i32", factor.shape, axis) for axis in (1, 2))
    factor = lines.choose(lines.compare("GE" if lower else "LE", rows, columns), factor, operands[0])
    diagonal = rotations.diagonal(lines, factor)
    above = lines.compare("GT", diagonal, lines.zeros(diagonal.element, diagonal.shape))
    return [factor, factors.first_of(lines, lines.each("not", above))]


def _trsm(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    turn = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[how["trans_x"]]
    left, lower, unit = how["side"] == "L", how["uplo"] == "L", how["diag"] == "U"
    return [triangles.triangular_solve(lines, operands[0], operands[1], left, lower, unit, turn)]


def _getrf(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    return factors.lu(lines, operands[0])


def _geqrf(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    return factors.qr(lines, operands[0])


def _orgqr(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    return [factors.orthogonal(lines, operands[0], operands[1], results[0].shape[-1])]


def _gehrd(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    """Never fails."""
    return [*factors.hessenberg(lines, operands[0]), lines.number("0", "i32", operands[0].shape[:1])]


def _sytrd(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    """The Hessenberg form of a Hermitian matrix, whose other triangle stays. Never fails."""
    (matrix,) = operands
    size = matrix.shape[-1]
    packed, taus = factors.hessenberg(lines, rotations.hermitian(lines, matrix, True))
    rows, columns = (lines.iota("i32", matrix.shape, axis) for axis in (1, 2))
    whole = lines.choose(lines.compare("GE", rows, columns), packed, matrix)
    under = lines.cut(rotations.diagonal(lines, packed, 1), 1, 1, size)
    return [whole, rotations.diagonal(lines, packed), under, taus, lines.number("0", "i32", matrix.shape[:1])]


def _syevd(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    return rotations.eigen(lines, operands[0], how["uplo"] == "L")


def _gesdd(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    """The operand comes back as it was: LAPACK leaves nothing of use there."""
    values, left, right, bad = rotations.singular(
        lines, operands[0], "S" if how["mode"] == "N" else how["mode"]
    )
    if how["mode"] == "N":
        left, right = (lines.zeros(result.element, result.shape) for result in results[2:4])
    return [operands[0], values, left, right, bad]


def _gtsv(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    under, middle, over, expected = operands
    return bands.tridiagonal_solve(lines, under, middle, over, expected)


def _laswp(lines: Lines, operands: list[Tensor], how: dict[str, str], results: list[Tensor]) -> list[Tensor]:
    return [factors.exchanged(lines, operands[0], operands[1])]


#: Routine -> its definition, the axes of each operand that are not batch, the letters that it takes.
_TABLE: dict[str, tuple[Routine, tuple[int, ...], dict[str, str]]] = {
    "potrf": (_potrf, (2,), {"uplo": "LU"}),
    "trsm": (_trsm, (2, 2), {"side": "LR", "uplo": "LU", "trans_x": "NTC", "diag": "NU"}),
    "getrf": (_getrf, (2,), {}),
    "laswp": (_laswp, (2, 1), {}),
    "geqrf": (_geqrf, (2,), {}),
    "orgqr": (_orgqr, (2, 1), {}),
    "ungqr": (_orgqr, (2, 1), {}),
    "gtsv": (_gtsv, (1, 1, 1, 2), {}),
    "gehrd": (_gehrd, (2,), {}),
    "sytrd": (_sytrd, (2,), {"uplo": "L"}),
    "hetrd": (_sytrd, (2,), {"uplo": "L"}),
    "syevd": (_syevd, (2,), {"mode": "NV", "uplo": "LU"}),
    "heevd": (_syevd, (2,), {"mode": "NV", "uplo": "LU"}),
    "gesdd": (_gesdd, (2,), {"mode": "ASN"}),
}
