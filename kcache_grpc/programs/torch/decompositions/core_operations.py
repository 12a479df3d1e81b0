"""Operations of ATen's core set that torch-mlir does not lower, or not as eager mode has them, taken apart.

Static shapes decide the loops here; what has symbols for sizes is left as it is (``NotImplemented``).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

#: ``mode`` compares each number with each other.
_MOST_OF_A_MODE = 4096
#: Comparisons of ``histc``, at most: of each number with each bin.
_MOST_OF_A_HISTOGRAM = 1 << 20
#: Integers below are exact in f32, and so are counts of this many numbers.
_EXACT = 1 << 24


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    return {
        aten.div.Tensor_mode: _by_tensor(aten.div.Tensor_mode),
        aten.floor_divide.default: _by_tensor(aten.floor_divide.default),
        **{
            operation: _in_int32(operation)
            for operation in (
                *(aten.max.default, aten.min.default, aten.amax.default, aten.amin.default),
                *(aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default),
            )
        },
        aten.bitwise_and.Scalar: _with_tensor(aten.bitwise_and.Tensor),
        aten.bitwise_or.Scalar: _with_tensor(aten.bitwise_or.Tensor),
        aten.bitwise_xor.Scalar: _with_tensor(aten.bitwise_xor.Tensor),
        aten.bitwise_and.Scalar_Tensor: _of_number(aten.bitwise_and.Tensor),
        aten.bitwise_or.Scalar_Tensor: _of_number(aten.bitwise_or.Tensor),
        aten.bitwise_xor.Scalar_Tensor: _of_number(aten.bitwise_xor.Tensor),
        aten.pow.Tensor_Scalar: _truth_to_truth,
        aten.addmm.default: _addmm,
        aten.cumsum.default: _cumsum,
        aten.histc.default: _histc,
        aten._cdist_forward.default: _cdist,
        aten._pdist_forward.default: _pdist,
        aten._adaptive_avg_pool3d.default: _adaptive_avg_pool3d,
        aten._adaptive_avg_pool2d_backward.default: _adaptive_avg_pool2d_backward,
        aten.avg_pool2d_backward.default: _avg_pool2d_backward,
        aten.convolution.default: _transposed,
        aten.max_pool2d_with_indices.default: _max_pool2d,
        aten.mode.default: _mode,
        aten.max_pool2d_with_indices_backward.default: _max_pool2d_backward,
    }


# -- numbers and booleans


def _with_tensor(operation: Any) -> Any:
    """An operation of a tensor and a number as that of two tensors."""

    def decomposed(x: Any, number: Any) -> Any:
        torch: Any = import_module("torch")
        dtype = torch.result_type(x, number)
        return operation(x.to(dtype), torch.full((), number, dtype=dtype))

    return decomposed


def _of_number(operation: Any) -> Any:
    """The same of a number and a tensor."""
    swapped = _with_tensor(operation)

    def decomposed(number: Any, x: Any) -> Any:
        return swapped(x, number)

    return decomposed


def _truth_to_truth(x: Any, power: Any) -> Any:
    """Powers of booleans to one are booleans."""
    torch: Any = import_module("torch")
    if x.dtype != torch.bool or not isinstance(power, bool):
        return NotImplemented
    return x.clone() if power else torch.ones_like(x)


def _addmm(x: Any, left: Any, right: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """Without the products with 1 that PyTorch's decomposition traces."""
    torch: Any = import_module("torch")
    if (beta, alpha) != (1, 1) or x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    return torch.mm(left, right) + x


def _cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    """In bytes modulo 256; torch-mlir ends the process over them."""
    torch: Any = import_module("torch")
    if dtype is None and not (x.is_floating_point() or x.is_complex()):
        dtype = torch.int64
    if not x.dim():
        return x.clone() if dtype is None else x.to(dtype, copy=True)
    if dtype not in (torch.int8, torch.uint8):
        return NotImplemented
    wide = x.to(dtype).to(torch.int32)
    return torch.ops.aten.cumsum.default(wide, dim, dtype=torch.int32).to(dtype)


def _histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """Between given integers, as eager mode has it on the CPU; its bounds may be the extremes of ``x``."""
    torch: Any = import_module("torch")
    is_static = all(isinstance(size, int) for size in x.shape)
    if x.dtype not in (torch.float32, torch.float64) or x.device.type != "cpu" or not is_static:
        return NotImplemented
    if not min < max or any(abs(bound) >= _EXACT or bound != int(bound) for bound in (min, max)):
        return NotImplemented
    if x.numel() >= _EXACT:
        return NotImplemented
    flat = x.flatten()
    inside = (flat >= min) & (flat <= max)
    place = torch.where(inside, (flat - min) * bins / (max - min), 0.0).to(torch.int64)
    place = torch.where(inside, place.clamp(max=bins - 1), bins)
    if bins * x.numel() > _MOST_OF_A_HISTOGRAM:
        return x.new_zeros((bins + 1,)).scatter_add(0, place, torch.ones_like(flat))[:bins].clone()
    numbers = torch.arange(bins, device=x.device)
    return (place.unsqueeze(0) == numbers.unsqueeze(1)).sum(1).to(x.dtype)


def _by_tensor(operation: Any) -> Any:
    """A number that a tensor is divided by, as a tensor: torch-mlir's importer rounds it to f32."""

    def decomposed(x: Any, y: Any, **named: Any) -> Any:
        torch: Any = import_module("torch")
        if isinstance(y, torch.Tensor) or not x.is_floating_point():
            return NotImplemented
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        # Both may be of rank 0, and would be promoted to the wide dtype.
        return operation(x, torch.full((), y, dtype=wide), **named).to(x.dtype)

    return decomposed


def _in_int32(operation: Any) -> Any:
    """Extremes of booleans and bytes: torch-mlir begins them with those of signed numbers."""

    def decomposed(x: Any, *arguments: Any, **named: Any) -> Any:
        torch: Any = import_module("torch")
        if not x.dim() and arguments and operation.overloadpacket in (torch.ops.aten.max, torch.ops.aten.min):
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        if x.dtype not in (torch.bool, torch.uint8):
            return NotImplemented
        result = operation(x.to(torch.int32), *arguments, **named)
        if isinstance(result, torch.Tensor):
            return result if result.dtype == torch.int64 else result.to(x.dtype)
        return result[0].to(x.dtype), result[1]

    return decomposed


# -- distances


def _cdist(x: Any, y: Any, p: float, mode: int | None = None) -> Any:
    """Distances of each row from each other row, by the p-norm of their difference."""
    return _norm(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def _pdist(x: Any, p: float = 2.0) -> Any:
    """Distances of each row from all that follow it."""
    torch: Any = import_module("torch")
    count = x.shape[0]
    if not isinstance(count, int):
        return NotImplemented
    if count < 2:
        return x.new_zeros((0,))
    parts = [_norm(x.narrow(0, i, 1) - x.narrow(0, i + 1, count - i - 1), p) for i in range(count - 1)]
    return torch.cat(parts)


def _norm(difference: Any, p: float) -> Any:
    torch: Any = import_module("torch")
    size = difference.abs()
    if p == 0:
        return (size != 0).to(size.dtype).sum(-1)
    if p == float("inf"):
        empty = size.shape[-1] == 0
        return size.sum(-1) if empty else torch.amax(size, -1)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return torch.sqrt((size * size).sum(-1))
    return torch.pow(torch.pow(size, p).sum(-1), 1 / p)


# -- pools


def _bounds(size: int, out: int) -> list[tuple[int, int]]:
    """The windows of an adaptive pool along one axis."""
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def _are_known(*sizes: Any) -> bool:
    return all(type(size) is int for size in sizes)


def _adaptive_avg_pool3d(x: Any, output_size: Sequence[Any]) -> Any:
    """Means of windows, axis by axis: the windows of a cell are those of its three places."""
    torch: Any = import_module("torch")
    if not _are_known(*x.shape[-3:], *output_size):
        return NotImplemented
    wide = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    for axis, out in zip((-3, -2, -1), output_size, strict=True):
        windows = _bounds(wide.shape[axis], out)
        means = [wide.narrow(axis, start, end - start).mean(axis, keepdim=True) for start, end in windows]
        wide = torch.cat(means, axis)
    return wide.to(x.dtype)


def _adaptive_avg_pool2d_backward(grad: Any, x: Any) -> Any:
    """Each element's share of the gradients of its windows."""
    if not _are_known(*x.shape[-2:], *grad.shape[-2:]) or not grad.is_floating_point():
        return NotImplemented
    for axis in (-2, -1):
        windows = _bounds(x.shape[axis], grad.shape[axis])
        counts = [end - start for start, end in windows]
        grad = _spread(grad, axis, windows, counts, x.shape[axis])
    return grad


def _avg_pool2d_backward(
    grad: Any,
    x: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """As above, of windows with a stride, which may lie over padding."""
    if not _are_known(*x.shape[-2:], *grad.shape[-2:]) or not grad.is_floating_point():
        return NotImplemented  # eager mode rounds each share of an integer
    kernel = [*kernel_size] * (2 // len(kernel_size))
    steps = [*(stride or kernel)] * (2 // len(stride or kernel))
    pads = [*padding] * (2 // len(padding))
    for i, axis in enumerate((-2, -1)):
        size = x.shape[axis]
        starts = [place * steps[i] - pads[i] for place in range(grad.shape[axis])]
        padded = [(start, min(start + kernel[i], size + pads[i])) for start in starts]
        windows = [(max(start, 0), min(end, size)) for start, end in padded]
        counts = [end - start for start, end in (padded if count_include_pad else windows)]
        grad = _spread(grad, axis, windows, counts if divisor_override is None else None, size)
    return grad if divisor_override is None else grad / divisor_override


def _transposed(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """Behind each axis another number of zeros: torch-mlir mixes the axes up. They are padded afterwards."""
    torch: Any = import_module("torch")
    if not transposed or len(set(output_padding)) < 2:
        return NotImplemented
    none = [0] * len(output_padding)
    pads = [*padding] * (len(none) // len(padding))
    whole = torch.convolution(x, weight, None, stride, none, dilation, True, none, groups)
    margins = [(-pad, behind - pad) for pad, behind in zip(pads, output_padding, strict=True)]
    result = torch.constant_pad_nd(whole, [margin for both in reversed(margins) for margin in both])
    return result if bias is None else result + bias.reshape(-1, *(1,) * len(none))


def _spread(
    grad: Any, axis: int, windows: Sequence[tuple[int, int]], counts: Sequence[int] | None, size: int
) -> Any:
    """Each window's gradient, divided by its count, at each place of the window, added up."""
    torch: Any = import_module("torch")
    total = torch.zeros_like(grad.narrow(axis, 0, 1)).repeat_interleave(size, axis)
    for place, (start, end) in enumerate(windows):
        if end <= start:
            continue
        share = grad.narrow(axis, place, 1)
        share = share if counts is None else share / counts[place]
        low, high = (-1 - axis) * [0, 0], [start, size - end]
        spread = share.expand(*(end - start if d == grad.dim() + axis else -1 for d in range(grad.dim())))
        total = total + torch.constant_pad_nd(spread, [*low, *high])
    return total


def _max_pool2d(
    x: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """With a number of windows that is rounded up: of the tensor padded behind, whose indices are its own."""
    torch: Any = import_module("torch")
    if not ceil_mode or not _are_known(*x.shape[-2:]):
        return NotImplemented
    settings = [
        [*setting] * (2 // len(setting))
        for setting in (kernel_size, stride or kernel_size, padding, dilation)
    ]
    behind = [_behind(size, *setting) for size, *setting in zip(x.shape[-2:], *settings, strict=True)]
    least = -float("inf") if x.is_floating_point() else torch.iinfo(x.dtype).min
    padded = torch.constant_pad_nd(x, [0, behind[1], 0, behind[0]], least)
    values, places = torch.ops.aten.max_pool2d_with_indices.default(padded, *settings, False)
    width = x.shape[-1]
    rows = torch.div(places, width + behind[1], rounding_mode="floor")
    return values, places - rows * behind[1]


def _behind(size: int, window: int, stride: int, padding: int, dilation: int) -> int:
    """What to pad behind, on top of the padding, for the windows that begin before the padding behind."""
    reach = dilation * (window - 1) + 1
    count = -((reach - size - 2 * padding) // stride) + 1
    if (count - 1) * stride >= size + padding:
        count -= 1
    return max((count - 1) * stride + reach - size - 2 * padding, 0)


def _mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of the most frequent numbers, and the last place where it is."""
    torch: Any = import_module("torch")
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    if not _are_known(x.shape[dim]) or x.shape[dim] > _MOST_OF_A_MODE or x.dtype == torch.bool:
        return NotImplemented
    rows = x.movedim(dim, -1)
    # Of NaN none is like another, but a row may have nothing else.
    like = rows.unsqueeze(-1) == rows.unsqueeze(-2)
    counts = like.sum(-1)
    frequent = counts == counts.amax(-1, True)
    greatest = float("inf") if x.is_floating_point() else torch.iinfo(x.dtype).max
    values = torch.where(frequent, rows, greatest).amin(-1, True)
    places = torch.arange(x.shape[dim])
    indices = torch.where(frequent & ((rows == values) | rows.isnan()), places, -1).amax(-1, True)
    results = values.movedim(-1, dim), indices.movedim(-1, dim)
    return results if keepdim else tuple(result.squeeze(dim) for result in results)


def _max_pool2d_backward(
    grad: Any,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    """Each window's gradient is added where its greatest element was."""
    if not _are_known(*x.shape, *grad.shape):
        return NotImplemented
    outer = x.shape[:-2]
    total = x.new_zeros((*outer, x.shape[-2] * x.shape[-1]))
    return total.scatter_add(-1, indices.reshape(*outer, -1), grad.reshape(*outer, -1)).reshape(x.shape)
