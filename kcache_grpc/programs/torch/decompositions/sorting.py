"""Operations that sort, rank and search, taken apart into those that torch-mlir lowers.

Static shapes decide the loops here; what has symbols for sizes is left as it is (``NotImplemented``).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    return {
        aten.sort.stable: _sort,
        aten.cummax.default: _running(aten.ge.Tensor),
        aten.cummin.default: _running(aten.le.Tensor),
        aten.median.default: _median,
        aten.median.dim: _median_along,
        aten.nanmedian.default: _nanmedian,
        aten.nanmedian.dim: _nanmedian_along,
        aten.kthvalue.default: _kthvalue,
        aten.searchsorted.Tensor: _searchsorted,
        aten.searchsorted.Scalar: _searchsorted_number,
        aten.bucketize.Tensor: _bucketize,
    }


def _sort(x: Any, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    """Every sort of a kernel is stable."""
    return import_module("torch").ops.aten.sort.default(x, dim, descending)


def _running(ahead: Any) -> Any:
    """Extremes of each element and all before it, in steps of doubled distance; of equal elements the last
    place, and NaN is above all.
    """

    def decomposed(x: Any, dim: int) -> Any:
        torch: Any = import_module("torch")
        if not x.dim():
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        size, distance = x.shape[dim], 1
        if not isinstance(size, int):
            return NotImplemented
        shape = [size if axis == dim % x.dim() else 1 for axis in range(x.dim())]
        value, place = x, torch.arange(size).reshape(shape).expand(x.shape)
        while distance < size:
            (kept, later), (first, last) = (
                (whole.narrow(dim, 0, distance), whole.narrow(dim, distance, size - distance))
                for whole in (value, place)
            )
            before, there = (whole.narrow(dim, 0, size - distance) for whole in (value, place))
            chosen = ahead(_counted(later), _counted(before))
            if x.is_floating_point():
                chosen = torch.isnan(later) | (chosen & ~torch.isnan(before))
            value = torch.cat([kept, torch.where(chosen, later, before)], dim)
            place = torch.cat([first, torch.where(chosen, last, there)], dim)
            distance *= 2
        return value, place

    return decomposed


def _counted(x: Any) -> Any:
    """Truth values as numbers, for which there is an order."""
    torch: Any = import_module("torch")
    return x.to(torch.int32) if x.dtype == torch.bool else x


def _chosen(x: Any, dim: int, keepdim: bool, rank: Any) -> Any:
    """The element of a rank, and its place; NaN is the greatest. ``rank`` is a number, or one of each row."""
    torch: Any = import_module("torch")
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = torch.ops.aten.sort.default(x, dim)
    if isinstance(rank, int):
        slices = (whole.narrow(dim, rank, 1) for whole in (values, places))
    else:
        slices = (torch.gather(whole, dim, rank) for whole in (values, places))
    return tuple(whole if keepdim else whole.squeeze(dim) for whole in slices)


def _kthvalue(x: Any, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    return _chosen(x, dim, keepdim, k - 1) if isinstance(k, int) else NotImplemented


def _median_along(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower one of two, and where a row has NaN its first NaN."""
    torch: Any = import_module("torch")
    if x.dim() and (not isinstance(x.shape[dim], int) or not x.shape[dim]):
        return NotImplemented
    value, place = _chosen(x, dim, keepdim, (x.shape[dim] - 1) // 2 if x.dim() else 0)
    if not x.is_floating_point() or not x.dim():
        return value, place
    missing = torch.isnan(x)
    first = torch.argmax(missing.to(torch.int32), dim, keepdim)
    some = missing.any(dim, keepdim)
    return torch.where(some, float("nan"), value), torch.where(some, first, place)


def _nanmedian_along(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower one of two of those that are not NaN."""
    torch: Any = import_module("torch")
    if x.dim() and (not isinstance(x.shape[dim], int) or not x.shape[dim]):
        return NotImplemented
    if not x.is_floating_point() or not x.dim():
        return _median_along(x, dim, keepdim)
    count = torch.isnan(x).logical_not().to(torch.int64).sum(dim, True)
    rank = torch.where(count > 0, torch.floor_divide(count - 1, 2), 0)
    return _chosen(x, dim, keepdim, rank)


def _median(x: Any) -> Any:
    return _of_all(_median_along, x)


def _nanmedian(x: Any) -> Any:
    return _of_all(_nanmedian_along, x)


def _of_all(along: Any, x: Any) -> Any:
    result = along(x.reshape(-1), 0)
    return result if result is NotImplemented else result[0]


def _searchsorted(
    boundaries: Any,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Where each number belongs between boundaries, by the steps of eager mode's search."""
    torch: Any = import_module("torch")
    size = boundaries.shape[-1]
    if not isinstance(size, int):
        return NotImplemented
    dtype = torch.result_type(boundaries, x)
    if not x.dim():
        # A single number has no say in the dtype: where it is one of a row it would have.
        row, number = boundaries.to(dtype), x.to(dtype).reshape(1)
        positions = _searchsorted(row, number, out_int32=out_int32, right=right, side=side, sorter=sorter)
        return positions.reshape(())
    if sorter is not None:
        boundaries = torch.gather(boundaries, -1, sorter)
    rows, numbers = boundaries.to(dtype), x.to(dtype)
    start = torch.zeros_like(x, dtype=torch.int64)
    end = torch.full_like(start, size)
    for _ in range(size.bit_length()):
        middle = (start + end) // 2
        at = middle.clamp(max=size - 1)
        value = rows[at] if rows.dim() == 1 else torch.gather(rows, -1, at)
        ahead = value > numbers if right or side == "right" else value >= numbers
        moves = start < end
        start, end = (
            torch.where(moves & ~ahead, middle + 1, start),
            torch.where(moves & ahead, middle, end),
        )
    return start.to(torch.int32) if out_int32 else start


def _searchsorted_number(boundaries: Any, x: Any, **named: Any) -> Any:
    torch: Any = import_module("torch")
    wide = torch.float64 if isinstance(x, float) else torch.int64
    number = torch.full((), x, dtype=wide).to(torch.result_type(boundaries, x))
    return _searchsorted(boundaries, number, **named)


def _bucketize(x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return _searchsorted(boundaries, x, out_int32=out_int32, right=right)
