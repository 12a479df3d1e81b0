"""Functions that torch-mlir does not lower, or not as eager mode has them, in those that it does."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    torch: Any = import_module("torch")
    aten = torch.ops.aten
    sums = (
        *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.prod.default),
        *(aten.prod.dim_int, aten.cumsum.default, aten.cumprod.default, aten.linalg_vector_norm.default),
    )
    return {
        aten.isclose.default: _isclose,
        aten._softmax_backward_data.default: _softmax_backward,
        aten.hypot.default: _hypot,
        aten.angle.default: _angle,
        aten.polar.default: _polar,
        aten.rrelu_with_noise_backward.default: _rrelu_backward,
        aten.logaddexp2.default: _logaddexp2,
        aten.logaddexp.default: _widely(aten.logaddexp.default),
        aten.gelu.default: _widely(aten.gelu.default),
        aten.round.decimals: _widely(aten.round.decimals),
        aten.logcumsumexp.default: _logcumsumexp,
        aten.addcmul.default: _addcmul,
        aten.addcdiv.default: _addcdiv,
        **{operation: _summed_widely(operation) for operation in sums},
        aten.copysign.Scalar: _copysign,
        aten.ldexp.Tensor: _ldexp,
        aten.all.dims: _all,
        aten.addbmm.default: _addbmm,
        aten.addmv.default: _addmv,
        aten.dist.default: _dist,
        aten.unfold.default: _unfold,
        aten.constant_pad_nd.default: _pad,
        aten.cat.default: _cat,
        aten.slice.Tensor: _slice,
        aten.empty_strided.default: _empty,
        aten.special_spherical_bessel_j0.default: _spherical_bessel,
        aten.unbind_copy.int: _unbind_copy,
        aten.view_copy.default: aten.view.default,
        aten.permute_copy.default: aten.permute.default,
        aten.as_strided_copy.default: aten.as_strided.default,
        aten.narrow_copy.default: _narrow_copy,
        torch.ops.prims.scalar_tensor.default: _scalar_tensor,
    }


def _is_counted(x: Any) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def _wide(x: Any) -> Any:
    """As eager mode computes: half precision in f32, integers in the default dtype."""
    torch: Any = import_module("torch")
    if _is_counted(x):
        return x.to(torch.get_default_dtype())
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def _rrelu_backward(
    gradient: Any, x: Any, noise: Any, lower: float, upper: float, training: bool, self_is_result: bool
) -> Any:
    """The operands are in the order of eager mode, which decides about strides."""
    if training:
        return noise * gradient
    aten: Any = import_module("torch").ops.aten
    return aten.leaky_relu_backward.default(gradient, x, (lower + upper) / 2, self_is_result)


def _widely(operation: Any) -> Any:
    """Half precision is computed in f32 and rounded once: rounding each step loses too much."""

    def decomposed(x: Any, *arguments: Any, **named: Any) -> Any:
        torch: Any = import_module("torch")
        if x.dtype not in (torch.float16, torch.bfloat16):
            return NotImplemented
        arguments = tuple(
            argument.to(torch.float32) if isinstance(argument, torch.Tensor) else argument
            for argument in arguments
        )
        return operation(x.to(torch.float32), *arguments, **named).to(x.dtype)

    return decomposed


def _summed_widely(operation: Any) -> Any:
    """Half precision is computed in f32 and rounded once, as in eager mode: in bf16 a sum of ones ends at
    256.
    """

    def decomposed(x: Any, *arguments: Any, dtype: Any = None, **named: Any) -> Any:
        torch: Any = import_module("torch")
        result = dtype or x.dtype
        if result not in (torch.float16, torch.bfloat16):
            return NotImplemented
        return operation(x.to(result).to(torch.float32), *arguments, **named).to(result)

    return decomposed


def _addcmul(x: Any, y: Any, z: Any, *, value: Any = 1) -> Any:
    """The number is a factor of the first one: the product of both may leave the range."""
    if value == 1:
        return NotImplemented
    dtype, (a, b, c), value = _in_the_result(x, y, z, value)
    return (a + (b * value) * c).to(dtype)


def _addcdiv(x: Any, y: Any, z: Any, *, value: Any = 1) -> Any:
    if value == 1:
        return NotImplemented
    dtype, (a, b, c), value = _in_the_result(x, y, z, value)
    return (a + (b * value) / c).to(dtype)


def _in_the_result(x: Any, y: Any, z: Any, value: Any) -> tuple[Any, list[Any], Any]:
    """The dtype of the result; tensors and scalars are converted to it before the computation, half
    precision to f32.
    """
    common: Any = import_module("torch._prims_common")
    kind = common.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    _, dtype = common.elementwise_dtypes(x, y, z, type_promotion_kind=kind)
    tensors = [tensor.to(dtype) for tensor in (x, y, z)]
    if not (dtype.is_floating_point or dtype.is_complex):
        return dtype, tensors, int(value)
    return dtype, [_wide(tensor) for tensor in tensors], value


def _isclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    torch: Any = import_module("torch")
    close = x == y
    if equal_nan and not _is_counted(x):
        close = close | (torch.isnan(x) & torch.isnan(y))
    if not rtol and not atol:
        return close
    other = y.to(torch.get_default_dtype()) if _is_counted(x) else y
    allowed = atol + (rtol * other).abs()
    actual = ((x.to(torch.get_default_dtype()) if x.dtype == torch.bool else x) - other).abs()
    return close | (torch.isfinite(actual) & (actual <= allowed))


def _softmax_backward(grad: Any, output: Any, dim: int, dtype: Any) -> Any:
    """With one product for both terms, as eager mode: two that are infinite would cancel."""
    gradient, result = _wide(grad), _wide(output)
    return ((gradient - (gradient * result).sum(dim, True)) * result).to(dtype)


def _hypot(x: Any, y: Any) -> Any:
    """Scaled by the greater one, so that no square leaves the range."""
    torch: Any = import_module("torch")
    dtype = torch.result_type(x, y)
    a, b = (_wide(operand.to(dtype)).abs() for operand in (x, y))
    most, least = torch.maximum(a, b), torch.minimum(a, b)
    ratio = least / torch.where(most == 0, 1.0, most)
    result = most * torch.sqrt(1 + ratio * ratio)
    return torch.where(torch.isinf(a) | torch.isinf(b), math.inf, result).to(dtype)


def _angle(x: Any) -> Any:
    torch: Any = import_module("torch")
    if x.is_complex():
        return NotImplemented
    wide = x.to(torch.get_default_dtype()) if _is_counted(x) else x
    angle = torch.where(wide < 0, math.pi, torch.zeros_like(wide))
    return torch.where(torch.isnan(wide), wide, angle)


def _spherical_bessel(x: Any) -> Any:
    torch: Any = import_module("torch")
    wide = x.to(torch.get_default_dtype()) if _is_counted(x) else x
    ratio = torch.sin(wide) / torch.where(wide == 0, 1.0, wide)
    return torch.where(torch.isinf(wide), 0.0, torch.where(wide == 0, 1.0, ratio))


def _polar(size: Any, angle: Any) -> Any:
    torch: Any = import_module("torch")
    return torch.complex(size * torch.cos(angle), size * torch.sin(angle))


def _logaddexp2(x: Any, y: Any) -> Any:
    torch: Any = import_module("torch")
    if x.is_complex() or y.is_complex():
        return NotImplemented
    dtype = torch.result_type(x, y)
    a, b = (_wide(operand.to(dtype)) for operand in (x, y))
    sum = torch.maximum(a, b) + torch.log1p(torch.exp2(-(a - b).abs())) * (1 / math.log(2))
    return torch.where(torch.isinf(a) & (a == b), a, sum).to(dtype)


def _logcumsumexp(x: Any, dim: int) -> Any:
    """In steps of doubled distance, none of which leaves the range."""
    torch: Any = import_module("torch")
    if x.is_complex() or (x.dim() and not isinstance(x.shape[dim], int)):
        return NotImplemented
    sums = _wide(x)
    size, distance = x.shape[dim] if x.dim() else 1, 1
    while distance < size:
        kept, ahead = sums.narrow(dim, 0, distance), sums.narrow(dim, distance, size - distance)
        before = sums.narrow(dim, 0, size - distance)
        sums = torch.cat([kept, torch.ops.aten.logaddexp.default(ahead, before)], dim)
        distance *= 2
    return sums.to(x.dtype)


def _ldexp(x: Any, y: Any) -> Any:
    """In the dtype of a float where the exponent is an integer; else times a power.

    Rounded once, but for f64 below its normal numbers.
    """
    torch: Any = import_module("torch")
    if not x.is_floating_point() or y.is_floating_point() or y.dtype == torch.bool:
        return x * torch.pow(2.0, y)
    # The power alone may leave the range, its thirds in f64 do not: none is 0 or infinite.
    power = y.to(torch.int64).clamp(-2100, 2100)
    third = torch.div(power, 3, rounding_mode="floor")
    first, last = (torch.pow(2.0, exponent.to(torch.float64)) for exponent in (third, power - 2 * third))
    return (x.to(torch.float64) * first * first * last).to(x.dtype)


def _copysign(x: Any, number: float) -> Any:
    torch: Any = import_module("torch")
    return torch.ops.aten.copysign.Tensor(x, torch.full((), number, dtype=torch.result_type(x, number)))


def _all(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Axis by axis."""
    torch: Any = import_module("torch")
    axes = range(x.dim()) if dim is None else [axis % x.dim() for axis in dim] if x.dim() else []
    result = x if x.dtype == torch.bool else x != 0
    for axis in sorted(axes, reverse=True):
        result = torch.ops.aten.all.dim(result, axis, keepdim)
    return result.to(torch.uint8) if x.dtype == torch.uint8 else result


def _scalar_tensor(
    number: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **named: Any
) -> Any:
    torch: Any = import_module("torch")
    return torch.ops.aten.scalar_tensor.default(number, dtype=dtype)


def _addbmm(x: Any, y: Any, z: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    torch: Any = import_module("torch")
    beta, alpha = _factors(x, beta, alpha)
    total = torch.bmm(_wide_float(y), _wide_float(z)).sum(0).to(x.dtype)
    total = total if alpha == 1 else total * alpha
    return total if beta == 0 else (x if beta == 1 else x * beta) + total


def _addmv(x: Any, matrix: Any, vector: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    torch: Any = import_module("torch")
    beta, alpha = _factors(x, beta, alpha)
    total = torch.mv(_wide_float(matrix), _wide_float(vector))
    total = total if alpha == 1 else total * alpha
    if beta == 0:
        return total.to(x.dtype)
    wide = _wide_float(x)
    return ((wide if beta == 1 else wide * beta) + total).to(x.dtype)


def _factors(x: Any, *numbers: Any) -> list[Any]:
    """Of integers whole numbers, without their fraction."""
    return [int(number) if _is_counted(x) else number for number in numbers]


def _wide_float(x: Any) -> Any:
    return _wide(x) if x.is_floating_point() else x


def _dist(x: Any, y: Any, p: Any = 2) -> Any:
    return import_module("torch").linalg.vector_norm(x - y, p)


def _unfold(x: Any, dim: int, size: int, step: int) -> Any:
    """Windows along an axis, at the places that they have; the window is the last axis."""
    torch: Any = import_module("torch")
    if not x.dim():
        return x.reshape(1).narrow(0, 0, size)
    if not isinstance(x.shape[dim], int):
        return NotImplemented
    dim %= x.dim()
    count = (x.shape[dim] - size) // step + 1
    places = (torch.arange(count) * step).unsqueeze(1) + torch.arange(size)
    windows = x.index_select(dim, places.reshape(-1))
    return windows.reshape(*x.shape[:dim], count, size, *x.shape[dim + 1 :]).movedim(dim + 1, -1)


def _pad(x: Any, pad: Any, value: Any = 0) -> Any:
    """Of complex numbers both parts."""
    torch: Any = import_module("torch")
    if not x.is_complex():
        return NotImplemented
    real = value.real if isinstance(value, complex) else value
    imag = value.imag if isinstance(value, complex) else 0
    parts = torch.view_as_real(x)
    padded = (torch.constant_pad_nd(parts.select(-1, at), pad, (real, imag)[at]) for at in (0, 1))
    return torch.complex(*padded)


def _cat(tensors: Any, dim: int = 0) -> Any:
    """Of tensors without elements: torch-mlir leaves each of them out."""
    torch: Any = import_module("torch")
    if not all(_is_empty(x) for x in tensors):
        return NotImplemented
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = torch.promote_types(dtype, x.dtype)
    shaped = [x for x in tensors if x.dim() > 1] or tensors[:1]
    shape = list(shaped[0].shape)
    shape[dim] = sum(x.shape[dim] for x in shaped) if shaped[0].dim() > 1 else 0
    return torch.scalar_tensor(0, dtype=dtype).expand(shape)


def _is_empty(x: Any) -> bool:
    return all(type(size) is int for size in x.shape) and 0 in x.shape


def _empty(size: Any, stride: Any, *, dtype: Any = None, **named: Any) -> Any:
    """Without elements, whose strides torch-mlir does not take."""
    if not all(type(dim) is int for dim in size) or 0 not in size:
        return NotImplemented
    return import_module("torch").scalar_tensor(0, dtype=dtype).expand(size)


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Of no element: torch-mlir takes an end at 0 for the end of the axis."""
    size = x.shape[dim]
    if end is None or not all(type(bound) is int for bound in (size, end, start or 0)):
        return NotImplemented
    if range(*slice(start, end, step).indices(size)):
        return NotImplemented
    shape = list(x.shape)
    shape[dim] = 0
    return import_module("torch").scalar_tensor(0, dtype=x.dtype).expand(shape)


def _unbind_copy(x: Any, dim: int = 0) -> list[Any]:
    return [part.clone() for part in x.unbind(dim)]


def _narrow_copy(x: Any, dim: int, start: Any, length: Any) -> Any:
    return x.narrow(dim, start, length)
