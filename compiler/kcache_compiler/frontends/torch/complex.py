"""Complex numbers of the Torch dialect, and Fourier transforms: torch-mlir lowers none of them, or loses the
imaginary part (``abs``). What is not lowered here and does not only move elements is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.torch.site import Site, float_text, name_of, whole_numbers
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

_MOVING = re.compile(
    r"torch\.(aten|prims)\.(view|_unsafe_view|reshape|permute|transpose\.int|t|unsqueeze|squeeze|squeeze\.dim"
    r"|squeeze\.dims|expand|slice\.Tensor|select\.int|cat|stack|clone|alias|flip|to\.dtype|repeat"
    r"|index_select|contiguous|detach|flatten\.using_ints|unflatten\.int|broadcast_to|collapse|roll)$"
)
_OTHERS = re.compile(r"torch\.(prim\.|constant\.)|torch_c\.|stablehlo\.optimization_barrier|func\.|builtin\.")


def refuse_complex(operation: Native) -> None:
    """Raise for an operation of complex numbers that has no lowering."""
    name = name_of(operation)
    values = (*operation.operands, *operation.results)
    if not any("complex<" in str(value.type) for value in values):
        return
    if name not in (*COMPLEX, *CONVERSIONS) and not _MOVING.match(name) and not _OTHERS.match(name):
        reason = "of complex numbers it is not lowered: compute with torch.view_as_real of them"
        raise UnsupportedOp(name, reason, mlir.describe_location(operation.location))


def _complex(site: Site) -> Native | None:
    """Of a real and an imaginary part."""
    parts = [site.whole(operand) for operand in site.operation.operands]
    return site.result(site.elementwise("complex", parts))


def _part(site: Site, name: str, value: Native) -> Native:
    dims, element = _split(value)
    return site.op(f"stablehlo.{name}", [value], f"tensor<{dims}{_real(element)}>")


def _real(element: str) -> str:
    return element.removeprefix("complex<").removesuffix(">")


def _split(value: Native) -> tuple[str, str]:
    """Dimensions and element type of a builtin tensor."""
    match = re.fullmatch(r"tensor<((?:[\d?]+x)*)(.+)>", str(value.type))
    assert match is not None
    return match[1], match[2]


def _sizes(value: Native) -> list[int] | None:
    parts = _split(value)[0].split("x")[:-1]
    return None if "?" in parts else [int(part) for part in parts]


def _as_real(site: Site) -> Native | None:
    """Both parts along a last axis of size 2."""
    value = site.whole(site.operation.operands[0])
    if _sizes(value) is None:
        return None
    dims, element = _split(value)
    type = f"tensor<{dims}1x{_real(element)}>"
    parts = [site.op("stablehlo.reshape", [_part(site, name, value)], type) for name in ("real", "imag")]
    rank = dims.count("x")
    made = site.op(
        "stablehlo.concatenate", parts, f"tensor<{dims}2x{_real(element)}>", dimension=f"{rank} : i64"
    )
    return site.result(made)


def _as_complex(site: Site) -> Native | None:
    value = site.whole(site.operation.operands[0])
    sizes = _sizes(value)
    if sizes is None:
        return None
    dims, element = _split(value)
    outer = dims.removesuffix("2x")
    parts: list[Native] = []
    for at in (0, 1):
        ranges = {
            "start_indices": [*[0] * (len(sizes) - 1), at],
            "limit_indices": [*sizes[:-1], at + 1],
            "strides": [1] * len(sizes),
        }
        texts = {name: _array(numbers) for name, numbers in ranges.items()}
        cut = site.op("stablehlo.slice", [value], f"tensor<{outer}1x{element}>", **texts)
        parts.append(site.op("stablehlo.reshape", [cut], f"tensor<{outer}{element}>"))
    return site.result(site.op("stablehlo.complex", parts, f"tensor<{outer}complex<{element}>>"))


def _array(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>"


def _conjugate(site: Site) -> Native:
    value = site.whole(site.operation.operands[0])
    if "complex" not in site.element:
        return site.result(value)
    real, imag = (_part(site, name, value) for name in ("real", "imag"))
    imag = site.op("stablehlo.negate", [imag], str(imag.type))
    return site.result(site.op("stablehlo.complex", [real, imag], str(value.type)))


def _converted(site: Site) -> Native | None:
    """To complex numbers, or to the real part of some."""
    value = site.whole(site.operation.operands[0])
    if "complex" in str(value.type) and "complex" not in site.element:
        return site.result(site.convert(_part(site, "real", value), site.dims))
    if "complex" not in site.element or str(value.type) == f"tensor<{site.dims}{site.element}>":
        return None
    return site.result(site.convert(value, site.dims))


def _abs(site: Site) -> Native | None:
    value = site.whole(site.operation.operands[0])
    if "complex" not in str(value.type):
        return None
    return site.result(site.op("stablehlo.abs", [value], f"tensor<{site.dims}{site.element}>"))


def _negate(site: Site) -> Native | None:
    if "complex" not in site.element:
        return None
    value = site.whole(site.operation.operands[0])
    return site.result(site.op("stablehlo.negate", [value], str(value.type)))


def _arithmetic(name: str) -> Callable[[Site], Native | None]:
    def lower(site: Site) -> Native | None:
        left, right, *alpha = site.operation.operands
        if "complex" not in site.element:
            return None
        if "vtensor" not in str(right.type) or any(whole_numbers(one) != [1] for one in alpha):
            reason = "of complex tensors without a factor only"
            raise UnsupportedOp(
                name_of(site.operation), reason, mlir.describe_location(site.operation.location)
            )
        return site.result(site.elementwise(name, [site.tensor(left), site.tensor(right)]))

    return lower


# -- Fourier transforms


def _c2c(site: Site) -> Native | None:
    x, dims, norm, forward = site.operation.operands
    value, axes = site.whole(x), whole_numbers(dims)
    sizes, mode, ahead = _sizes(value), whole_numbers(norm), whole_numbers(forward)
    if sizes is None or axes is None or not mode or not ahead:
        return None
    for axis in axes:
        value = _along(site, value, axis, "FFT" if ahead[0] else "IFFT", sizes[axis])
    count = math.prod(sizes[axis] for axis in axes)
    return site.result(_scaled(site, value, mode[0], count, 1 if ahead[0] else count))


def _r2c(site: Site) -> Native | None:
    """Along the last axis of the list first, which is cut in half where the result is one-sided."""
    x, dims, norm, onesided = site.operation.operands
    value, axes = site.whole(x), whole_numbers(dims)
    sizes, mode, half = _sizes(value), whole_numbers(norm), whole_numbers(onesided)
    if sizes is None or not axes or not mode or not half:
        return None
    *others, last = axes
    if half[0]:
        value = _along(site, value, last, "RFFT", sizes[last])
    else:
        given = _split(value)
        value = site.op("stablehlo.convert", [value], f"tensor<{given[0]}complex<{given[1]}>>")
        others = axes
    for axis in others:
        value = _along(site, value, axis, "FFT", sizes[axis])
    return site.result(_scaled(site, value, mode[0], math.prod(sizes[axis] for axis in axes), 1))


def _c2r(site: Site) -> Native | None:
    x, dims, norm, size = site.operation.operands
    value, axes = site.whole(x), whole_numbers(dims)
    sizes, mode, length = _sizes(value), whole_numbers(norm), whole_numbers(size)
    if sizes is None or not axes or not mode or not length or sizes[axes[-1]] != length[0] // 2 + 1:
        return None
    *others, last = axes
    for axis in others:
        value = _along(site, value, axis, "IFFT", sizes[axis])
    value = _along(site, value, last, "IRFFT", length[0])
    count = math.prod(sizes[axis] for axis in others) * length[0]
    return site.result(_scaled(site, value, mode[0], count, count))


def _along(site: Site, value: Native, axis: int, kind: str, length: int) -> Native:
    """A transform along one axis, which is the last one meanwhile."""
    sizes = _sizes(value)
    assert sizes is not None
    last = len(sizes) - 1
    axis %= len(sizes)
    value = _swapped(site, value, axis, last)
    dims, element = _split(value)
    rows = dims.split("x")[:-2]
    count = length // 2 + 1 if kind == "RFFT" else length
    element = f"complex<{element}>" if kind == "RFFT" else _real(element) if kind == "IRFFT" else element
    type = f"tensor<{''.join(f'{size}x' for size in (*rows, count))}{element}>"
    made = site.op(
        "stablehlo.fft", [value], type, fft_type=f"#stablehlo<fft_type {kind}>", fft_length=_array([length])
    )
    return _swapped(site, made, axis, last)


def _swapped(site: Site, value: Native, axis: int, last: int) -> Native:
    if axis == last:
        return value
    dims, element = _split(value)
    order = list(range(last + 1))
    order[axis], order[last] = last, axis
    sizes = dims.split("x")[:-1]
    type = f"tensor<{''.join(f'{sizes[at]}x' for at in order)}{element}>"
    return site.op("stablehlo.transpose", [value], type, permutation=_array(order))


def _scaled(site: Site, value: Native, mode: int, count: int, taken: int) -> Native:
    """As PyTorch's modes say: by nothing, by the root of the size, by the size; ``taken`` undoes what
    StableHLO's inverse divides by.
    """
    factor = taken / (1.0, math.sqrt(count), float(count))[mode] if count else 1.0
    if factor == 1:
        return value
    real = _real(_split(value)[1])
    by = site.op(
        "stablehlo.constant",
        (),
        f"tensor<{real}>",
        value=f"dense<{float_text(factor, real)}> : tensor<{real}>",
    )

    def times(part: Native) -> Native:
        return site.op("chlo.broadcast_multiply", [part, by], str(part.type))

    if "complex" not in str(value.type):
        return times(value)
    parts = [times(_part(site, name, value)) for name in ("real", "imag")]
    return site.op("stablehlo.complex", parts, str(value.type))


CONVERSIONS: dict[str, Callable[[Site], Native | None]] = {
    "torch.prims.convert_element_type": _converted,
    "torch.aten._to_copy": _converted,
}
COMPLEX: dict[str, Callable[[Site], Native | None]] = {
    "torch.aten.complex": _complex,
    "torch.aten.view_as_real": _as_real,
    "torch.aten.view_as_complex": _as_complex,
    "torch.aten._conj": _conjugate,
    "torch.aten._conj_physical": _conjugate,
    "torch.aten.conj_physical": _conjugate,
    "torch.aten.abs": _abs,
    "torch.aten.neg": _negate,
    "torch.aten.add.Tensor": _arithmetic("add"),
    "torch.aten.sub.Tensor": _arithmetic("subtract"),
    "torch.aten.mul.Tensor": _arithmetic("multiply"),
    "torch.aten.div.Tensor": _arithmetic("divide"),
    "torch.aten._fft_c2c": _c2c,
    "torch.aten._fft_r2c": _r2c,
    "torch.aten._fft_c2r": _c2r,
}
