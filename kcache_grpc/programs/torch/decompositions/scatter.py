"""Decompositions of scatters: of diagonals, strides, masks, slices, and with a reduction of equal indices.

For gradients and writes of slices torch-mlir scatters with an index for each element up to ``end``, of which
there are 2^63 where ``end`` stands for the size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

#: Places that are looked at one by one.
_MOST_PLACES = 4096


def decompositions() -> dict[Any, Any]:
    """ATen operation -> its decomposition; the result ``NotImplemented`` leaves the operation as it is."""
    aten: Any = import_module("torch").ops.aten
    return {
        aten.as_strided_scatter.default: _as_strided_scatter,
        aten.diagonal_scatter.default: _diagonal_scatter,
        aten.embedding.default: _embedding,
        aten.index_put.default: _masked_put,
        aten.index_reduce.default: _index_reduce,
        aten.put.default: _put,
        aten.scatter.reduce: _scatter,
        aten.scatter.value_reduce: _scatter_value,
        aten.scatter_reduce.two: _scatter_reduce,
        aten.slice_backward.default: _slice_backward,
        aten.select_backward.default: _select_backward,
        aten.slice_scatter.default: _slice_scatter,
    }


def _diagonal_scatter(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    torch: Any = import_module("torch")
    rows = x.movedim((dim1, dim2), (0, 1))
    if not all(type(size) is int for size in rows.shape[:2]):
        return NotImplemented
    above, below = max(offset, 0), max(-offset, 0)
    along = torch.arange(max(min(rows.shape[0] - below, rows.shape[1] - above), 0))
    result = torch.index_put(rows, (along + below, along + above), source.movedim(-1, 0))
    return result.movedim((0, 1), (dim1, dim2))


def _as_strided_scatter(x: Any, source: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """Only of a contiguous ``x``, and of strides that reach no element twice."""
    torch: Any = import_module("torch")
    integers = (*x.shape, *size, *stride, storage_offset or 0, x.storage_offset())
    if (
        not all(type(number) is int for number in integers)
        or not x.is_contiguous()
        or math.prod(size) > _MOST_PLACES
    ):
        return NotImplemented
    # Eager mode counts an offset from where the memory begins, of a view, too.
    first = 0 if storage_offset is None else storage_offset - x.storage_offset()
    places = [first]
    for extent, step in zip(size, stride, strict=True):
        places = [place + index * step for place in places for index in range(extent)]
    if len(set(places)) < len(places):
        return NotImplemented
    if not places:
        return x.clone()
    if min(places) < 0 or max(places) >= x.numel():
        return NotImplemented
    index = torch.full((1,), first)
    for extent, step in zip(size, stride, strict=True):
        index = (index.unsqueeze(1) + torch.arange(extent) * step).reshape(-1)
    return torch.index_put(x.reshape(-1), (index,), source.reshape(-1)).reshape(x.shape)


def _masked_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Only if the number of masked elements does not matter: one value for all of them, or one per column."""
    torch: Any = import_module("torch")
    used = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(used) != 1 or used[0][1].dtype != torch.bool or not used[0][1].dim():
        return NotImplemented
    first, mask = used[0]
    behind = x.dim() - first - mask.dim()
    if values.dim() > behind:
        counted = values.dim() - behind - 1
        if values.shape[counted] != 1:
            return NotImplemented
        spread = values.shape[:counted] + (1,) * mask.dim() + values.shape[counted + 1 :]
        values = values.reshape(spread)
    return torch.where(mask.reshape((*mask.shape, *(1,) * behind)), x + values if accumulate else values, x)


def _put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Indices count the elements of ``x`` as a flat, contiguous tensor."""
    torch: Any = import_module("torch")
    written = torch.index_put(x.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate)
    return written.reshape(x.shape)


def _embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scaled: bool = False, sparse: bool = False
) -> Any:
    """Drops arguments that state how gradients are computed, as they change no result."""
    if not scaled and not sparse:
        return NotImplemented
    return import_module("torch").ops.aten.embedding.default(weight, indices, padding_idx)


def _scatter(x: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Any:
    name = {"add": "sum", "multiply": "prod"}[reduce]
    result = _scatter_reduce(x, dim, index, source, name)
    if result is not NotImplemented:
        return result
    return import_module("torch").ops.aten.scatter_reduce.two(x, dim, index, source, name)


def _scatter_value(x: Any, dim: int, index: Any, number: Any, *, reduce: str) -> Any:
    torch: Any = import_module("torch")
    return _scatter(x, dim, index, torch.full(index.shape, number, dtype=x.dtype), reduce=reduce)


def _scatter_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Decomposes sums and means. The service lowers other reductions; without ``include_self``, elements of
    ``x`` that are written to are set to the identity element of the reduction first.
    """
    torch: Any = import_module("torch")
    if not x.dim():
        row, place, element = (tensor.reshape(1) for tensor in (x, index, source))
        result = torch.ops.aten.scatter_reduce.two(row, 0, place, element, reduce, include_self=include_self)
        return result.reshape(())
    if 0 in index.shape:
        return x.clone()
    start = x if include_self else x.scatter(dim, index, _identity(reduce, x.dtype))
    if reduce in ("sum", "mean") and x.dtype != torch.bool:
        source = source[tuple(slice(0, size) for size in index.shape)]
        total = torch.scatter_add(start, dim, index, source)
        return total if reduce == "sum" else _mean(total, x, dim, index, include_self)
    if include_self:
        return NotImplemented
    return torch.ops.aten.scatter_reduce.two(start, dim, index, source, reduce)


def _index_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Indices are those of whole slices along ``dim``."""
    if not x.dim():
        row, place, element = (tensor.reshape(1) for tensor in (x, index, source))
        return _index_reduce(row, 0, place, element, reduce, include_self=include_self).reshape(())
    shape = [1] * source.dim()
    shape[dim] = -1
    places = index.reshape(shape).expand(source.shape)
    result = _scatter_reduce(x, dim, places, source, reduce, include_self=include_self)
    if result is not NotImplemented:
        return result
    return import_module("torch").ops.aten.scatter_reduce.two(x, dim, places, source, reduce)


def _mean(total: Any, x: Any, dim: int, index: Any, include_self: bool) -> Any:
    """``total`` divided by the number of elements that were added to each."""
    torch: Any = import_module("torch")
    counted = torch.scatter_add(
        torch.ones_like(x) if include_self else torch.zeros_like(x),
        *(dim, index, torch.ones(index.shape, dtype=x.dtype)),
    ).clamp(min=1)
    return total / counted if x.is_floating_point() else torch.div(total, counted, rounding_mode="floor")


def _identity(reduce: str, dtype: Any) -> Any:
    """The identity element of a reduction: the least value of a dtype for ``amax``."""
    torch: Any = import_module("torch")
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    least = reduce == "amax"
    if dtype == torch.bool:
        return not least
    if dtype.is_floating_point:
        return -math.inf if least else math.inf
    limits = torch.iinfo(dtype)
    return limits.min if least else limits.max


torch: Any = import_module("torch")
aten: Any = torch.ops.aten


def _slice_backward(gradient: Any, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Any:
    """The gradient between zeros."""
    if not _is_static((*sizes, *gradient.shape, start)):
        return NotImplemented
    dim %= len(sizes)
    size, count = sizes[dim], gradient.shape[dim]
    begin = _within(start, size)
    if step > 1:
        gradient = _pad(gradient.unsqueeze(dim + 1), dim + 1, 0, step - 1).flatten(dim, dim + 1)
        count = min(count * step, size - begin)
        gradient = gradient.narrow(dim, 0, count)
    return _pad(gradient, dim, begin, size - begin - count)


def _select_backward(gradient: Any, sizes: Sequence[int], dim: int, index: int) -> Any:
    """The gradient between zeros."""
    if not _is_static((*sizes, index)):
        return NotImplemented
    dim %= len(sizes)
    index %= sizes[dim]
    return _pad(gradient.unsqueeze(dim), dim, index, sizes[dim] - index - 1)


def _slice_scatter(
    input: Any, source: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """A concatenation for a step of 1; else the operator with an ``end`` that is no larger than the size."""
    dim %= input.dim()
    size = input.shape[dim]
    if not _is_static((size, start or 0, end or 0)):
        return NotImplemented
    begin, stop = _within(start or 0, size), _within(size if end is None else end, size)
    if step == 1 and begin < stop:
        source = source.expand(*input.shape[:dim], stop - begin, *input.shape[dim + 1 :]).to(input.dtype)
        parts = [input.narrow(dim, 0, begin), source, input.narrow(dim, stop, size - stop)]
        parts = [part for part in parts if part.shape[dim]]
        return torch.cat(parts, dim) if len(parts) > 1 else source.clone()
    if (begin, stop) == (start, end):
        return NotImplemented
    return aten.slice_scatter.default(input, source, dim, begin, stop, step)


def _is_static(sizes: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _within(position: int, size: int) -> int:
    return min(max(position + size if position < 0 else position, 0), size)


def _pad(tensor: Any, dim: int, before: int, after: int) -> Any:
    """Zeros before and after a tensor along a dimension."""
    if before == after == 0:
        return tensor
    return aten.constant_pad_nd(tensor, [*[0, 0] * (tensor.dim() - 1 - dim), before, after], 0.0)
