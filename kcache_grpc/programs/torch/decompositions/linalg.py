"""``torch.linalg`` in the factorizations that the service has: Cholesky, LU, QR, eigen- and singular values.

A kernel raises nothing: where eager mode raises, because a matrix is singular or not positive definite, the
results of that matrix are NaN. Where PyTorch runs what no kernel computes, ``checked_rows`` keep its checks.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    table = {
        aten.linalg_cholesky.default: _cholesky,
        aten.linalg_qr.default: _qr,
        aten.linalg_lu.default: _lu,
        aten.linalg_lu_factor.default: _lu_factor,
        aten.lu_unpack.default: _lu_unpack,
        aten.linalg_lu_solve.default: _lu_solve,
        aten.linalg_solve.default: _solve,
        aten.linalg_solve_ex.default: _solve_and_info,
        aten._linalg_solve_ex.default: _solve_ex,
        aten.linalg_inv.default: _inverse_alone,
        aten.inverse.default: _inverse_alone,
        aten.linalg_inv_ex.default: _inverse,
        aten.linalg_matrix_power.default: _power,
        aten.linalg_tensorinv.default: _tensor_inverse,
        aten._linalg_det.default: _det,
        aten.linalg_slogdet.default: _slogdet_alone,
        aten._linalg_slogdet.default: _slogdet,
        aten.linalg_pinv.atol_rtol_tensor: _pseudo_inverse,
        aten.cholesky_solve.default: _cholesky_solve,
        aten.cholesky_inverse.default: _cholesky_inverse,
        aten.triangular_solve.default: _triangular_solve,
    }
    if hasattr(aten, "cholesky"):  # PyTorch 2.15 removed it.
        table[aten.cholesky.default] = _old_cholesky
    return table


def checked_rows(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """Rows of operations that raise for some matrices: those of ``table``, and PyTorch's check, which raises.

    A row of an operation with ``check_errors`` has the check where the caller asks for it. Operations that
    are composed of one of these ask for it: in an export, theirs would be an effect with a token.
    """
    aten: Any = import_module("torch").ops.aten
    checked: dict[Any, Any] = {
        aten.linalg_cholesky.default: _composed(aten.linalg_cholesky_ex.default, 1),
        aten.linalg_lu_factor.default: _composed(aten.linalg_lu_factor_ex.default, 2),
        aten.linalg_solve.default: _composed(aten._linalg_solve_ex.default, 1),
        aten.linalg_solve_ex.default: _checked_solve,
        aten.linalg_inv.default: _composed(aten.linalg_inv_ex.default, 1),
        aten.inverse.default: _composed(aten.linalg_inv_ex.default, 1),
        aten.linalg_matrix_power.default: _checked_power(table[aten.linalg_matrix_power.default]),
        aten.linalg_tensorinv.default: _checked_tensor_inverse,
        aten.cholesky_inverse.default: _checked_cholesky_inverse,
        aten._linalg_svd.default: _checked_singular_values(aten._linalg_svd.default),
    }
    for name, api in (
        ("linalg_inv_ex", "linalg.inv_ex"),
        ("_linalg_solve_ex", "torch.linalg.solve_ex"),
        ("linalg_cholesky_ex", "linalg.cholesky_ex"),
        ("linalg_lu_factor_ex", "torch.linalg.lu_factor_ex"),
    ):
        operator = getattr(aten, name).default
        checked[operator] = _checked(operator, table.get(operator), api)
    if hasattr(aten, "cholesky"):
        checked[aten.cholesky.default] = _old_checked_cholesky
    return checked


def _composed(operator: Any, count: int) -> Callable[..., Any]:
    """The first ``count`` results of ``operator``, which raises."""

    def composed(*args: Any, **kwargs: Any) -> Any:
        results = operator(*args, **kwargs, check_errors=True)
        return results[0] if count == 1 else results[:count]

    return composed


def _checked_solve(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> tuple[Any, Any]:
    aten: Any = import_module("torch").ops.aten
    result, _, _, info = aten._linalg_solve_ex.default(a, b, left=left, check_errors=check_errors)
    return result, info


def _checked_power(row: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    """``row``, of an inverse that raises for negative powers."""

    def power(x: Any, n: int) -> Any:
        aten: Any = import_module("torch").ops.aten
        return row(aten.linalg_inv_ex.default(x, check_errors=True)[0], -n) if n < 0 else row(x, n)

    return power


def _checked_tensor_inverse(x: Any, ind: int = 2) -> Any:
    aten: Any = import_module("torch").ops.aten
    inverse = aten.linalg_inv_ex.default(_as_matrix(x, ind), check_errors=True)[0]
    return inverse.reshape(*x.shape[ind:], *x.shape[:ind])


def _checked(operator: Any, row: Callable[..., Any] | None, api: str) -> Callable[..., Any]:
    """``row`` of an operation whose last result is how it ended for each matrix; ``None``: it is whole."""

    @functools.wraps(row or operator)
    def checked(x: Any, *args: Any, check_errors: bool = False, **kwargs: Any) -> Any:
        if not check_errors:
            return NotImplemented if row is None else row(x, *args, **kwargs)
        results = (row or operator)(x, *args, **kwargs)
        if results is not NotImplemented:
            check = import_module("torch").ops.aten._linalg_check_errors.default
            check(results[-1], api, is_matrix=x.dim() == 2)
        return results

    return checked


def _old_checked_cholesky(x: Any, upper: bool = False) -> Any:
    aten: Any = import_module("torch").ops.aten
    factor, info = aten.linalg_cholesky_ex.default(x, upper=upper)
    aten._linalg_check_errors.default(info, "cholesky", is_matrix=x.dim() == 2)
    return factor


def _checked_cholesky_inverse(factor: Any, upper: bool = False) -> Any:
    """The inverse, and PyTorch's check that no element of the factor's diagonal is 0."""
    torch: Any = import_module("torch")
    size = factor.shape[-1]
    if size != 0:
        numbers = torch.arange(1, size + 1, dtype=torch.int32, device=factor.device)
        first = torch.where(factor.diagonal(0, -2, -1) == 0, numbers, size + 1).amin(-1)
        info = torch.where(first > size, 0, first)
        torch.ops.aten._linalg_check_errors.default(info, "cholesky_inverse", is_matrix=factor.dim() == 2)
    return _cholesky_inverse(factor, upper)


def _checked_singular_values(operator: Any) -> Callable[..., Any]:
    """The operator, which is whole, and PyTorch's check that the matrix has no NaN.

    Of NaN a kernel's singular values are NaN, but the rank that is counted from them is 0.
    """
    state = threading.local()

    def checked(x: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(state, "is_inside", False):
            return NotImplemented
        state.is_inside = True
        try:
            results = operator(x, *args, **kwargs)
        finally:
            state.is_inside = False
        if x.device.type == "cpu":
            torch: Any = import_module("torch")
            info = torch.where(x.isnan().any(-1).any(-1), -4, 0).to(torch.int32)
            torch.ops.aten._linalg_check_errors.default(info, "linalg.svd", is_matrix=x.dim() == 2)
        return results

    return checked


def _where_it_worked(x: Any, info: Any) -> Any:
    """NaN where ``info`` is not 0."""
    torch: Any = import_module("torch")
    factor = torch.where(info == 0, 1.0, float("nan")).to(x.real.dtype if x.is_complex() else x.dtype)
    return x * factor.reshape(*info.shape, *(1,) * (x.dim() - info.dim()))


def _cholesky(x: Any, *, upper: bool = False) -> Any:
    factor, info = import_module("torch").ops.aten.linalg_cholesky_ex.default(x, upper=upper)
    return _where_it_worked(factor, info)


def _old_cholesky(x: Any, upper: bool = False) -> Any:
    return _cholesky(x, upper=upper)


def _qr(x: Any, mode: str = "reduced") -> tuple[Any, Any]:
    torch: Any = import_module("torch")
    rows, columns = x.shape[-2:]
    packed, taus = torch.ops.aten.geqrf.default(x)
    if mode == "r":
        return x.new_empty((0,)), packed[..., : min(rows, columns), :].triu()
    count = rows if mode == "complete" else min(rows, columns)
    reflections = packed[..., :count]
    if count > columns:
        reflections = torch.cat([reflections, x.new_zeros((*x.shape[:-1], count - columns))], -1)
    return torch.ops.aten.linalg_householder_product.default(reflections, taus), packed[..., :count, :].triu()


def _factored(x: Any) -> tuple[Any, Any, Any]:
    aten: Any = import_module("torch").ops.aten
    factors: tuple[Any, Any, Any] = aten.linalg_lu_factor_ex.default(x)
    return factors


def _lu_factor(x: Any, *, pivot: bool = True) -> Any:
    if not pivot:
        return NotImplemented
    packed, pivots, info = _factored(x)
    return _where_it_worked(packed, info), pivots


def _lu(x: Any, *, pivot: bool = True) -> Any:
    if not pivot:
        return NotImplemented
    packed, pivots, _ = _factored(x)
    return _lu_unpack(packed, pivots)


def _permutation(packed: Any, pivots: Any) -> Any:
    aten: Any = import_module("torch").ops.aten
    return aten.lu_unpack.default(packed, pivots, False, True)[0]


def _lu_unpack(packed: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    if not unpack_data:
        return NotImplemented  # the service has only the permutation
    torch: Any = import_module("torch")
    count = min(packed.shape[-2:])
    lower = packed[..., :count].tril(-1) + torch.eye(packed.shape[-2], count, dtype=packed.dtype)
    permutation = _permutation(packed, pivots) if unpack_pivots else packed.new_empty((0,))
    return permutation, lower, packed[..., :count, :].triu()


def _solved(packed: Any, pivots: Any, wanted: Any) -> Any:
    """The sums ``wanted``, matrices of the same batch, by a factorization."""
    torch: Any = import_module("torch")
    if 0 in packed.shape:
        return wanted.clone()  # the service names the factorization of a matrix without elements
    order = _permutation(packed, pivots).abs().argmax(-2)
    moved = wanted.gather(-2, order.unsqueeze(-1).expand(wanted.shape))
    solve = torch.ops.aten.linalg_solve_triangular.default
    return solve(packed, solve(packed, moved, upper=False, unitriangular=True), upper=True)


def _expanded(x: Any, batch: Any) -> Any:
    return x.expand(*batch, *x.shape[-2:]).contiguous()


def _lu_solve(packed: Any, pivots: Any, wanted: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    torch: Any = import_module("torch")
    if not left or adjoint:
        return NotImplemented
    batch = torch.broadcast_shapes(packed.shape[:-2], wanted.shape[:-2])
    factors = _expanded(packed, batch), pivots.expand(*batch, pivots.shape[-1]).contiguous()
    return _solved(*factors, _expanded(wanted, batch))


def _solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> tuple[Any, Any, Any, Any]:
    torch: Any = import_module("torch")
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    wanted = b.unsqueeze(-1) if vector else b
    packed, pivots, info = _factored(a)
    matrix = a if left else a.mT.contiguous()
    factors = (packed, pivots) if left else _factored(matrix)[:2]
    solution = _lu_solve(*factors, wanted if left else wanted.mT)
    result = solution if left else solution.mT
    bad = torch.broadcast_to(info, result.shape[:-2])
    result = _where_it_worked(result, bad)
    return result.squeeze(-1) if vector else result, packed, pivots, info


def _solve(a: Any, b: Any, *, left: bool = True) -> Any:
    return _solve_ex(a, b, left=left)[0]


def _solve_and_info(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> tuple[Any, Any]:
    result, _, _, info = _solve_ex(a, b, left=left)
    return result, info


def _inverse(x: Any, *, check_errors: bool = False) -> tuple[Any, Any]:
    torch: Any = import_module("torch")
    packed, pivots, info = _factored(x)
    identity = torch.eye(x.shape[-1], dtype=x.dtype).expand(x.shape).contiguous()
    return _where_it_worked(_solved(packed, pivots, identity), info), info


def _inverse_alone(x: Any) -> Any:
    return _inverse(x)[0]


def _power(x: Any, n: int) -> Any:
    if n >= 0:
        return NotImplemented
    return import_module("torch").ops.aten.linalg_matrix_power.default(_inverse(x)[0], -n)


def _as_matrix(x: Any, ind: int) -> Any:
    """``x`` with its first ``ind`` axes as rows."""
    return x.reshape(math.prod(x.shape[:ind]), -1)


def _tensor_inverse(x: Any, ind: int = 2) -> Any:
    inverse = _inverse(_as_matrix(x, ind))[0]
    return inverse.reshape(*x.shape[ind:], *x.shape[:ind])


def _sign(pivots: Any) -> Any:
    """Of the permutation: -1 for each row that changes places with another."""
    torch: Any = import_module("torch")
    moved = (pivots != torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)).sum(-1)
    return 1 - 2 * (moved % 2)


def _det(x: Any) -> tuple[Any, Any, Any]:
    packed, pivots, _ = _factored(x)
    diagonal = packed.diagonal(0, -2, -1)
    return _product(diagonal) * _sign(pivots).to(_real_dtype(x)), packed, pivots


def _product(numbers: Any) -> Any:
    """Of the last axis; halves times halves, which complex numbers can be."""
    torch: Any = import_module("torch")
    if numbers.shape[-1] == 0:
        return numbers.new_ones(numbers.shape[:-1])
    while numbers.shape[-1] > 1:
        half = numbers.shape[-1] // 2
        rest = numbers[..., 2 * half :]
        numbers = torch.cat([numbers[..., :half] * numbers[..., half : 2 * half], rest], -1)
    return numbers.squeeze(-1)


def _real_dtype(x: Any) -> Any:
    return x.real.dtype if x.is_complex() else x.dtype


def _slogdet(x: Any) -> tuple[Any, Any, Any, Any]:
    packed, pivots, _ = _factored(x)
    diagonal = packed.diagonal(0, -2, -1)
    sizes = diagonal.abs()
    sign = _product(diagonal.sgn() if x.is_complex() else diagonal.sign())
    return sign * _sign(pivots).to(_real_dtype(x)), sizes.log().sum(-1), packed, pivots


def _slogdet_alone(x: Any) -> tuple[Any, Any]:
    sign, logarithm, _, _ = _slogdet(x)
    return sign, logarithm


def _pseudo_inverse(x: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """By singular values, of which those next to 0 do not count."""
    torch: Any = import_module("torch")
    if hermitian:
        return NotImplemented
    left, values, right = torch.ops.aten._linalg_svd.default(x)
    if rtol is None:
        rtol = max(x.shape[-2:]) * torch.finfo(x.dtype).eps if atol is None else 0.0
    least = values[..., :1] * (rtol.unsqueeze(-1) if isinstance(rtol, torch.Tensor) else rtol)
    if atol is not None:
        least = torch.maximum(least, atol.unsqueeze(-1))
    inverted = torch.where(values > least, 1 / values, torch.where(values.isnan(), values, 0.0))
    return (right.mH * inverted.unsqueeze(-2)) @ left.mH


def _cholesky_solve(wanted: Any, factor: Any, upper: bool = False) -> Any:
    torch: Any = import_module("torch")
    batch = torch.broadcast_shapes(factor.shape[:-2], wanted.shape[:-2])
    lower = _expanded(factor.mH if upper else factor, batch)
    solve = torch.ops.aten.linalg_solve_triangular.default
    forward = solve(lower, _expanded(wanted, batch), upper=False)
    return solve(_expanded(lower.mH, batch), forward, upper=True)


def _cholesky_inverse(factor: Any, upper: bool = False) -> Any:
    torch: Any = import_module("torch")
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    return _cholesky_solve(identity, factor, upper)


def _triangular_solve(
    wanted: Any, matrix: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Any, Any]:
    torch: Any = import_module("torch")
    batch = torch.broadcast_shapes(matrix.shape[:-2], wanted.shape[:-2])
    oriented = _expanded(matrix.mT if transpose else matrix, batch)
    solution = torch.ops.aten.linalg_solve_triangular.default(
        oriented, _expanded(wanted, batch), upper=upper != transpose, unitriangular=unitriangular
    )
    return solution, matrix.clone()
