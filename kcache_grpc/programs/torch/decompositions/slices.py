"""Gradients of slices and writes of slices: torch-mlir scatters with an index for each element up to ``end``,
of which there are 2^63 where ``end`` stands for the size.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
aten: Any = torch.ops.aten


def decompositions() -> dict[Any, Any]:
    """Operation -> its decomposition."""
    return {
        aten.slice_backward.default: _slice_backward,
        aten.select_backward.default: _select_backward,
        aten.slice_scatter.default: _slice_scatter,
    }


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
