"""Operations whose dtypes or shapes torch-mlir takes for others, written so that it does not.

It takes bytes and booleans for signed numbers, converts one operand of a comparison to the dtype of the
other, and does not broadcast everywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    compared = (aten.lt, aten.le, aten.gt, aten.ge, aten.eq, aten.ne)
    bounded = (aten.clamp, aten.clamp_min, aten.clamp_max)
    return {
        **{packet.Tensor: _in_one_dtype(packet.Tensor) for packet in compared},
        **{
            operation: _truth(operation)
            for packet in (aten.any, aten.all)
            for operation in (packet.default, packet.dim, packet.dims)
        },
        aten.abs.default: _abs,
        aten.isinf.default: _isinf,
        aten.isfinite.default: _isfinite,
        aten.erf.default: _in_floats(aten.erf.default),
        aten.reciprocal.default: _in_floats(aten.reciprocal.default),
        aten.copysign.Tensor: _in_floats(aten.copysign.Tensor),
        aten.pow.Tensor_Tensor: _pow,
        **{packet.default: _clamp_in_one_dtype(packet.default) for packet in bounded},
        aten.clamp.Tensor: _clamp,
        aten.clamp_min.Tensor: _clamp,
        aten.clamp_max.Tensor: _clamp_max,
        aten.fmin.default: _one_or_other(aten.le.Tensor),
        aten.fmax.default: _one_or_other(aten.ge.Tensor),
        aten.masked_scatter.default: _masked_scatter,
        aten.index.Tensor: _index,
        aten.kthvalue.default: _of_rank_0(aten.kthvalue.default),
        aten.prod.default: _prod,
        aten.prod.dim_int: _prod,
    }


def first_of(row: Any, other: Any) -> Any:
    """A decomposition, and what takes its place where it does not apply."""

    def decomposed(*arguments: Any, **named: Any) -> Any:
        result = row(*arguments, **named)
        return other(*arguments, **named) if result is NotImplemented else result

    return decomposed


def not_of_bytes(decomposed: Any) -> Any:
    """A decomposition that rounds bytes otherwise than eager mode, for all but them."""

    def of_others(x: Any, *arguments: Any, **named: Any) -> Any:
        if x.dtype == import_module("torch").uint8:
            return NotImplemented
        return decomposed(x, *arguments, **named)

    return of_others


def _is_counted(x: Any) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def _in_one_dtype(operation: Any) -> Any:
    """Both operands in the dtype that PyTorch promotes them to."""

    def decomposed(x: Any, y: Any) -> Any:
        torch: Any = import_module("torch")
        if x.dtype == y.dtype:
            return NotImplemented
        dtype = torch.result_type(x, y)
        return operation(x.to(dtype), y.to(dtype))

    return decomposed


def _truth(operation: Any) -> Any:
    """Of bytes the result is a byte, 0 or 1."""

    def decomposed(x: Any, *arguments: Any, **named: Any) -> Any:
        torch: Any = import_module("torch")
        if x.dtype != torch.uint8:
            return NotImplemented
        return operation(x != 0, *arguments, **named).to(torch.uint8)

    return decomposed


def _abs(x: Any) -> Any:
    return x.clone() if x.dtype == import_module("torch").uint8 else NotImplemented


def _isinf(x: Any) -> Any:
    torch: Any = import_module("torch")
    return torch.zeros_like(x, dtype=torch.bool) if _is_counted(x) else NotImplemented


def _isfinite(x: Any) -> Any:
    torch: Any = import_module("torch")
    return torch.ones_like(x, dtype=torch.bool) if _is_counted(x) else NotImplemented


def _in_floats(operation: Any) -> Any:
    """Operands that are all counted, in the default dtype, which is the result's."""

    def decomposed(*tensors: Any) -> Any:
        torch: Any = import_module("torch")
        if not all(_is_counted(x) for x in tensors):
            return NotImplemented
        return operation(*(x.to(torch.get_default_dtype()) for x in tensors))

    return decomposed


def _pow(x: Any, y: Any) -> Any:
    """Of bytes, modulo 256."""
    torch: Any = import_module("torch")
    if torch.result_type(x, y) != torch.uint8:
        return NotImplemented
    wide = torch.ops.aten.pow.Tensor_Tensor(x.to(torch.int32), y.to(torch.int32))
    return wide.to(torch.uint8)


def _clamp_in_one_dtype(operation: Any) -> Any:
    """Numbers as bounds promote a tensor of another kind; torch-mlir has none that are booleans."""

    def decomposed(x: Any, *bounds: Any, **named: Any) -> Any:
        torch: Any = import_module("torch")
        dtype = x.dtype
        for bound in (*bounds, *named.values()):
            dtype = dtype if bound is None else torch.result_type(torch.empty(x.shape, dtype=dtype), bound)
        truths = any(isinstance(bound, bool) for bound in (*bounds, *named.values()))
        if dtype == x.dtype and not truths and dtype != torch.bool:
            return NotImplemented
        bounds = tuple(_plain(bound) for bound in bounds)
        named = {name: _plain(bound) for name, bound in named.items()}
        if dtype == torch.bool:
            return operation(x.to(torch.int32), *bounds, **named).to(dtype)
        return operation(x.to(dtype), *bounds, **named)

    return decomposed


def _plain(bound: Any) -> Any:
    return int(bound) if isinstance(bound, bool) else bound


def _clamp(x: Any, least: Any = None, most: Any = None) -> Any:
    """Bounds that are broadcast; the upper one wins."""
    torch: Any = import_module("torch")
    if least is None and most is None:
        return NotImplemented
    if least is not None:
        x = torch.maximum(x, least)
    return x if most is None else torch.minimum(x, most)


def _clamp_max(x: Any, most: Any) -> Any:
    return _clamp(x, None, most)


def _one_or_other(ahead: Any) -> Any:
    """The extreme of two elements, of which one that is NaN does not count."""

    def decomposed(x: Any, y: Any) -> Any:
        torch: Any = import_module("torch")
        dtype = torch.result_type(x, y)
        x, y = torch.broadcast_tensors(x.to(dtype), y.to(dtype))
        first = ahead(x, y)
        return torch.where(first if _is_counted(x) else first | torch.isnan(y), x, y)

    return decomposed


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """With the mask in the shape of ``x``."""
    torch: Any = import_module("torch")
    if x.shape == mask.shape:
        return NotImplemented
    x, mask = torch.broadcast_tensors(x, mask)
    return torch.ops.aten.masked_scatter.default(x.clone(), mask.clone(), source)


def _index(x: Any, indices: Any) -> Any:
    """Of a tensor without elements: StableHLO gathers nothing from it, not even nothing."""
    torch: Any = import_module("torch")
    used = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    masks = any(index.dtype in (torch.bool, torch.uint8) for _, index in used)
    if masks or not used or not all(type(size) is int for size in x.shape) or 0 not in x.shape:
        return NotImplemented
    axes = [axis for axis, _ in used]
    if axes != list(range(axes[0], axes[-1] + 1)):
        return NotImplemented
    index_shape = torch.broadcast_shapes(*(index.shape for _, index in used))
    shape = (*x.shape[: axes[0]], *index_shape, *x.shape[axes[-1] + 1 :])
    return x.new_zeros(shape) if 0 in shape else NotImplemented


def _of_rank_0(operation: Any) -> Any:
    """An extreme along an axis and its place, of a tensor that is one number."""

    def decomposed(x: Any, *arguments: Any, **named: Any) -> Any:
        torch: Any = import_module("torch")
        return NotImplemented if x.dim() else (x.clone(), torch.zeros_like(x, dtype=torch.int64))

    return decomposed


def _prod(x: Any, dim: int = 0, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The product of a tensor that is one number."""
    torch: Any = import_module("torch")
    if x.dim():
        return NotImplemented
    if dtype is None and _is_counted(x):
        dtype = torch.int64
    return x.to(dtype) if dtype is not None and dtype != x.dtype else x.clone()
