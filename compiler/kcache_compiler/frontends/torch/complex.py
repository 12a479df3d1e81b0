"""Complex numbers and Fourier transforms of the Torch dialect.

torch-mlir does not lower them, or loses the imaginary part (``abs``). Ops on complex numbers that have no
lowering here and do not only move elements are rejected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.torch.torch_op import TorchOp, float_text, integer_constants, name_of
from kcache_compiler.mlir import context as mlir

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Op, Type, Value

_DATA_MOVEMENT = re.compile(
    r"torch\.(aten|prims)\.(view|_unsafe_view|reshape|permute|transpose\.int|t|unsqueeze|squeeze|squeeze\.dim"
    r"|squeeze\.dims|expand|slice\.Tensor|select\.int|cat|stack|clone|alias|flip|to\.dtype|repeat"
    r"|index_select|contiguous|detach|flatten\.using_ints|unflatten\.int|broadcast_to|collapse|roll)$"
)
_STRUCTURAL = re.compile(
    r"torch\.(prim\.|constant\.)|torch_c\.|stablehlo\.optimization_barrier|func\.|builtin\."
)


def reject_complex(operation: Op, complex_types: dict[Type, bool]) -> None:
    """Raise ``UnsupportedOp`` for an op on complex numbers that has no lowering.

    ``complex_types`` remembers which types are of complex numbers: they are few, and their text takes long.
    """
    if not any(_is_complex(value.type, complex_types) for value in (*operation.operands, *operation.results)):
        return
    name = name_of(operation)
    if (
        name not in (*COMPLEX, *CONVERSIONS)
        and not _DATA_MOVEMENT.match(name)
        and not _STRUCTURAL.match(name)
    ):
        reason = "it is not supported for complex numbers: compute with torch.view_as_real"
        raise UnsupportedOp(name, reason, mlir.describe_location(operation.location))


def _is_complex(type: Type, known: dict[Type, bool]) -> bool:
    is_complex = known.get(type)
    if is_complex is None:
        is_complex = known[type] = "complex<" in str(type)
    return is_complex


def _complex(op: TorchOp) -> Value | None:
    """Return complex numbers from their real and imaginary parts."""
    parts = [op.builtin_tensor(operand) for operand in op.operation.operands]
    return op.to_torch(op.elementwise("complex", parts))


def _component(op: TorchOp, name: str, value: Value) -> Value:
    dims, element = _dims_and_element(value)
    return op.create(f"stablehlo.{name}", [value], f"tensor<{dims}{_component_type(element)}>")


def _component_type(element: str) -> str:
    return element.removeprefix("complex<").removesuffix(">")


def _dims_and_element(value: Value) -> tuple[str, str]:
    """Return dimensions and element type of a builtin tensor."""
    match = re.fullmatch(r"tensor<((?:[\d?]+x)*)(.+)>", str(value.type))
    assert match is not None
    return match[1], match[2]


def _sizes(value: Value) -> list[int] | None:
    parts = _dims_and_element(value)[0].split("x")[:-1]
    return None if "?" in parts else [int(part) for part in parts]


def _view_as_real(op: TorchOp) -> Value | None:
    """Concatenate both components along a last axis of size 2."""
    value = op.builtin_tensor(op.operation.operands[0])
    if _sizes(value) is None:
        return None
    dims, element = _dims_and_element(value)
    type = f"tensor<{dims}1x{_component_type(element)}>"
    components = [
        op.create("stablehlo.reshape", [_component(op, name, value)], type) for name in ("real", "imag")
    ]
    rank = dims.count("x")
    pairs = op.create(
        "stablehlo.concatenate",
        components,
        f"tensor<{dims}2x{_component_type(element)}>",
        dimension=f"{rank} : i64",
    )
    return op.to_torch(pairs)


def _view_as_complex(op: TorchOp) -> Value | None:
    value = op.builtin_tensor(op.operation.operands[0])
    sizes = _sizes(value)
    if sizes is None:
        return None
    dims, element = _dims_and_element(value)
    outer_dims = dims.removesuffix("2x")
    components: list[Value] = []
    for index in (0, 1):
        ranges = {
            "start_indices": [*[0] * (len(sizes) - 1), index],
            "limit_indices": [*sizes[:-1], index + 1],
            "strides": [1] * len(sizes),
        }
        attributes = {name: _array(indices) for name, indices in ranges.items()}
        component = op.create("stablehlo.slice", [value], f"tensor<{outer_dims}1x{element}>", **attributes)
        components.append(op.create("stablehlo.reshape", [component], f"tensor<{outer_dims}{element}>"))
    return op.to_torch(op.create("stablehlo.complex", components, f"tensor<{outer_dims}complex<{element}>>"))


def _array(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>"


def _conjugate(op: TorchOp) -> Value:
    value = op.builtin_tensor(op.operation.operands[0])
    if "complex" not in op.element:
        return op.to_torch(value)
    real, imag = (_component(op, name, value) for name in ("real", "imag"))
    imag = op.create("stablehlo.negate", [imag], str(imag.type))
    return op.to_torch(op.create("stablehlo.complex", [real, imag], str(value.type)))


def _convert(op: TorchOp) -> Value | None:
    """Convert to complex numbers, or complex numbers to their real part."""
    value = op.builtin_tensor(op.operation.operands[0])
    if "complex" in str(value.type) and "complex" not in op.element:
        return op.to_torch(op.convert(_component(op, "real", value), op.dims))
    if "complex" not in op.element or str(value.type) == f"tensor<{op.dims}{op.element}>":
        return None
    return op.to_torch(op.convert(value, op.dims))


def _abs(op: TorchOp) -> Value | None:
    value = op.builtin_tensor(op.operation.operands[0])
    if "complex" not in str(value.type):
        return None
    return op.to_torch(op.create("stablehlo.abs", [value], f"tensor<{op.dims}{op.element}>"))


def _negate(op: TorchOp) -> Value | None:
    if "complex" not in op.element:
        return None
    value = op.builtin_tensor(op.operation.operands[0])
    return op.to_torch(op.create("stablehlo.negate", [value], str(value.type)))


def _arithmetic(name: str) -> Callable[[TorchOp], Value | None]:
    def lower(op: TorchOp) -> Value | None:
        left, right, *alpha = op.operation.operands
        if "complex" not in op.element:
            return None
        if "vtensor" not in str(right.type) or any(integer_constants(factor) != [1] for factor in alpha):
            reason = "it is only supported for two complex tensors without a factor"
            raise UnsupportedOp(name_of(op.operation), reason, mlir.describe_location(op.operation.location))
        return op.to_torch(op.elementwise(name, [op.tensor(left), op.tensor(right)]))

    return lower


def _c2c(op: TorchOp) -> Value | None:
    x, dims, norm, forward = op.operation.operands
    value, axes = op.builtin_tensor(x), integer_constants(dims)
    sizes, mode, is_forward = _sizes(value), integer_constants(norm), integer_constants(forward)
    if sizes is None or axes is None or not mode or not is_forward:
        return None
    for axis in axes:
        value = _transform_axis(op, value, axis, "FFT" if is_forward[0] else "IFFT", sizes[axis])
    count = math.prod(sizes[axis] for axis in axes)
    return op.to_torch(_normalize(op, value, mode[0], count, 1 if is_forward[0] else count))


def _r2c(op: TorchOp) -> Value | None:
    """Transform the last of the axes first, which is halved if the result is one-sided."""
    x, dims, norm, onesided = op.operation.operands
    value, axes = op.builtin_tensor(x), integer_constants(dims)
    sizes, mode, is_one_sided = _sizes(value), integer_constants(norm), integer_constants(onesided)
    if sizes is None or not axes or not mode or not is_one_sided:
        return None
    *other_axes, last = axes
    if is_one_sided[0]:
        value = _transform_axis(op, value, last, "RFFT", sizes[last])
    else:
        real_type = _dims_and_element(value)
        value = op.create("stablehlo.convert", [value], f"tensor<{real_type[0]}complex<{real_type[1]}>>")
        other_axes = axes
    for axis in other_axes:
        value = _transform_axis(op, value, axis, "FFT", sizes[axis])
    return op.to_torch(_normalize(op, value, mode[0], math.prod(sizes[axis] for axis in axes), 1))


def _c2r(op: TorchOp) -> Value | None:
    x, dims, norm, size = op.operation.operands
    value, axes = op.builtin_tensor(x), integer_constants(dims)
    sizes, mode, length = _sizes(value), integer_constants(norm), integer_constants(size)
    if sizes is None or not axes or not mode or not length or sizes[axes[-1]] != length[0] // 2 + 1:
        return None
    *other_axes, last = axes
    for axis in other_axes:
        value = _transform_axis(op, value, axis, "IFFT", sizes[axis])
    value = _transform_axis(op, value, last, "IRFFT", length[0])
    count = math.prod(sizes[axis] for axis in other_axes) * length[0]
    return op.to_torch(_normalize(op, value, mode[0], count, count))


def _transform_axis(op: TorchOp, value: Value, axis: int, kind: str, length: int) -> Value:
    """Transform along one axis, which is moved to the end meanwhile."""
    sizes = _sizes(value)
    assert sizes is not None
    last = len(sizes) - 1
    axis %= len(sizes)
    value = _swap_axes(op, value, axis, last)
    dims, element = _dims_and_element(value)
    outer_dims = dims.split("x")[:-2]
    count = length // 2 + 1 if kind == "RFFT" else length
    element = (
        f"complex<{element}>" if kind == "RFFT" else _component_type(element) if kind == "IRFFT" else element
    )
    type = f"tensor<{''.join(f'{size}x' for size in (*outer_dims, count))}{element}>"
    transformed = op.create(
        "stablehlo.fft", [value], type, fft_type=f"#stablehlo<fft_type {kind}>", fft_length=_array([length])
    )
    return _swap_axes(op, transformed, axis, last)


def _swap_axes(op: TorchOp, value: Value, axis: int, last: int) -> Value:
    if axis == last:
        return value
    dims, element = _dims_and_element(value)
    order = list(range(last + 1))
    order[axis], order[last] = last, axis
    sizes = dims.split("x")[:-1]
    type = f"tensor<{''.join(f'{sizes[axis]}x' for axis in order)}{element}>"
    return op.create("stablehlo.transpose", [value], type, permutation=_array(order))


def _normalize(op: TorchOp, value: Value, mode: int, count: int, inverse_scale: int) -> Value:
    """Scale by PyTorch's normalization modes: none, by the root of the size, by the size.

    ``inverse_scale`` is the factor by which StableHLO's inverse transform divides.
    """
    factor = inverse_scale / (1.0, math.sqrt(count), float(count))[mode] if count else 1.0
    if factor == 1:
        return value
    real = _component_type(_dims_and_element(value)[1])
    factor_constant = op.create(
        "stablehlo.constant",
        (),
        f"tensor<{real}>",
        value=f"dense<{float_text(factor, real)}> : tensor<{real}>",
    )

    def multiply(component: Value) -> Value:
        return op.create("chlo.broadcast_multiply", [component, factor_constant], str(component.type))

    if "complex" not in str(value.type):
        return multiply(value)
    components = [multiply(_component(op, name, value)) for name in ("real", "imag")]
    return op.create("stablehlo.complex", components, str(value.type))


CONVERSIONS: dict[str, Callable[[TorchOp], Value | None]] = {
    "torch.prims.convert_element_type": _convert,
    "torch.aten._to_copy": _convert,
}
COMPLEX: dict[str, Callable[[TorchOp], Value | None]] = {
    "torch.aten.complex": _complex,
    "torch.aten.view_as_real": _view_as_real,
    "torch.aten.view_as_complex": _view_as_complex,
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
