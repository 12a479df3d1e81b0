"""Elements that are written to places, several to one: sums, means, products and extremes of them."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any


def rows() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    return {
        aten.index_reduce.default: _index_reduce,
        aten.scatter.reduce: _scatter,
        aten.scatter.value_reduce: _scatter_value,
        aten.scatter_reduce.two: _scatter_reduce,
    }


def _scatter(x: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Any:
    name = {"add": "sum", "multiply": "prod"}[reduce]
    found = _scatter_reduce(x, dim, index, source, name)
    if found is not NotImplemented:
        return found
    return import_module("torch").ops.aten.scatter_reduce.two(x, dim, index, source, name)


def _scatter_value(x: Any, dim: int, index: Any, number: Any, *, reduce: str) -> Any:
    torch: Any = import_module("torch")
    return _scatter(x, dim, index, torch.full(index.shape, number, dtype=x.dtype), reduce=reduce)


def _scatter_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Sums and means; other reductions are lowered by the service, from a number that changes nothing where
    the tensor itself is left out.
    """
    torch: Any = import_module("torch")
    if not x.dim():
        row, place, one = (given.reshape(1) for given in (x, index, source))
        found = torch.ops.aten.scatter_reduce.two(row, 0, place, one, reduce, include_self=include_self)
        return found.reshape(())
    if 0 in index.shape:
        return x.clone()
    start = x if include_self else x.scatter(dim, index, _neutral(reduce, x.dtype))
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
    """The places of whole slices."""
    if not x.dim():
        row, place, one = (given.reshape(1) for given in (x, index, source))
        return _index_reduce(row, 0, place, one, reduce, include_self=include_self).reshape(())
    shape = [1] * source.dim()
    shape[dim] = -1
    places = index.reshape(shape).expand(source.shape)
    found = _scatter_reduce(x, dim, places, source, reduce, include_self=include_self)
    if found is not NotImplemented:
        return found
    return import_module("torch").ops.aten.scatter_reduce.two(x, dim, places, source, reduce)


def _mean(total: Any, x: Any, dim: int, index: Any, include_self: bool) -> Any:
    """A sum, divided by how many elements it is of."""
    torch: Any = import_module("torch")
    counted = torch.scatter_add(
        torch.ones_like(x) if include_self else torch.zeros_like(x),
        *(dim, index, torch.ones(index.shape, dtype=x.dtype)),
    ).clamp(min=1)
    return total / counted if x.is_floating_point() else torch.div(total, counted, rounding_mode="floor")


def _neutral(reduce: str, dtype: Any) -> Any:
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
