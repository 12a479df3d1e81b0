"""What callers pass as arguments: NumPy arrays, PyTorch tensors, DLPack exporters, Python scalars.

Each is read into a ``Buffer`` without a copy, or rejected with a text that says what to do.
"""

from __future__ import annotations

import enum
import math
import sys
from typing import Any, NamedTuple

import numpy as np

from kcache_grpc.runtime import dlpack
from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.cpu.memory import Array
from kcache_grpc.runtime.dtypes import (
    SMALL,
    SMALL_FLOATS,
    UNPACKED,
    limits_of,
    name_of_numpy,
    names_of_torch,
    numpy_dtype,
    numpy_dtypes,
)

_ADDRESS = ffi.typeof("uintptr_t")
_VOID = ffi.typeof("void *")
_FLOATS = ("f16", "bf16", "f32", "f64", "c64", "c128", *SMALL_FLOATS)
#: The largest number of floats that have neither infinities nor NaN.
_LARGEST = {"f6E2M3FN": 7.5, "f6E3M2FN": 28.0, "f4E2M1FN": 6.0}
_BITS = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


class RejectedArgument(Exception):
    """Why an argument cannot be used."""


class Framework(enum.Enum):
    """Whose arrays the outputs are."""

    NUMPY = "numpy"
    TORCH = "torch"
    NAMESPACE = "namespace"


class Buffer(NamedTuple):
    """One argument as the kernel sees it; ``owner`` keeps the memory for the call."""

    pointer: CData
    dtype: str
    shape: tuple[int, ...]
    owner: object


def framework_of(value: Any) -> Framework | None:
    """None for what has no say: Python scalars, and objects that will be rejected."""
    if isinstance(value, (np.ndarray, np.generic)):
        return Framework.NUMPY
    if is_torch(value):
        return Framework.TORCH
    if hasattr(value, "__dlpack__"):
        return Framework.NAMESPACE if hasattr(value, "__array_namespace__") else Framework.NUMPY
    return None


def is_torch(value: Any) -> bool:
    """Whether this is a PyTorch tensor; never imports PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def read(value: Any, expected: str) -> Buffer:
    """A view of ``value``, whose dtype should be ``expected``. Raises ``RejectedArgument``."""
    if isinstance(value, (np.ndarray, np.generic)):
        return _from_numpy(value, expected)
    if is_torch(value):
        return _from_torch(value)
    if _is_tracer(value):
        raise RejectedArgument(
            "got a JAX tracer; a kernel cannot be called inside jax.jit or another transformation"
        )
    if hasattr(value, "__dlpack__"):
        if expected in UNPACKED and hasattr(value, "__array__") and dlpack.on_cpu(value):
            return _from_numpy(np.asarray(value), expected)
        return _from_dlpack(value)
    if isinstance(value, (bool, int, float, complex)):
        return _from_scalar(value, expected)
    kind = value.__class__
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise RejectedArgument(f"got a {name}; pass a NumPy array, a PyTorch tensor, or an array with __dlpack__")


def _is_tracer(value: Any) -> bool:
    """Whether this stands for an array inside a transformation of JAX; never imports JAX."""
    bases = value.__class__.__mro__
    return any(base.__name__ == "Tracer" and base.__module__.partition(".")[0] == "jax" for base in bases)


def _from_numpy(value: Any, expected: str) -> Buffer:
    if isinstance(value, np.ma.MaskedArray):
        raise RejectedArgument("got a masked array; pass x.filled(...) or x.data")
    array: Array = np.asarray(value)
    dtype = name_of_numpy(array.dtype, expected)
    if not array.flags.c_contiguous:
        raise RejectedArgument("it is not row-major contiguous; pass np.ascontiguousarray(x)")
    if not array.flags.aligned:
        raise RejectedArgument(
            f"it is not aligned to its elements of {array.dtype.itemsize} bytes; pass x.copy()"
        )
    return Buffer(address_of(array), dtype, array.shape, array)


def address_of(array: Any) -> CData:
    """Where a contiguous array's elements are; the result keeps it alive."""
    try:
        return ffi.from_buffer(array)
    except ValueError:  # a dtype that the buffer protocol cannot name, bfloat16 among them
        bits = _BITS[array.dtype.itemsize]
        return ffi.from_buffer(array.view(bits))


def _from_torch(tensor: Any) -> Buffer:
    if tensor.device.type != "cpu":
        raise RejectedArgument(f"it is on {tensor.device}; pass x.cpu()")
    address = torch_address(tensor)
    if address % max(1, tensor.element_size() // (2 if tensor.is_complex() else 1)):
        raise RejectedArgument("it is not aligned to its elements; pass x.clone()")
    dtype = names_of_torch().get(tensor.dtype, str(tensor.dtype))
    return Buffer(ffi.cast(_VOID, address), dtype, tuple(tensor.shape), tensor)


def torch_address(tensor: Any) -> int:
    """Where a plain, contiguous tensor's elements are. Raises ``RejectedArgument`` for all others."""
    torch: Any = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise RejectedArgument(f"its layout is {tensor.layout}; pass x.to_dense()")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RejectedArgument(
            "it requires grad, and kernels have no gradients; pass x.detach(), or call under torch.no_grad()"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise RejectedArgument("it is a lazy conjugate or negative; pass x.resolve_conj().resolve_neg()")
    if not tensor.is_contiguous():
        raise RejectedArgument("it is not row-major contiguous; pass x.contiguous()")
    try:
        return int(tensor.data_ptr())
    except RuntimeError as error:
        raise RejectedArgument(f"it has no memory of its own: {error}") from error


def _from_dlpack(value: Any) -> Buffer:
    try:
        view = dlpack.read(value)
    except dlpack.NotOnCpu as error:
        raise RejectedArgument(f"it is on {error}; move it to the CPU first") from error
    except Exception as error:  # code of other projects
        raise RejectedArgument(f"its __dlpack__ failed: {error}") from error
    if not row_major(view.shape, view.strides):
        raise RejectedArgument("it is not row-major contiguous; pass a contiguous copy")
    known = numpy_dtypes().get(view.dtype)
    alignment = known.alignment if known is not None else 1
    if int(ffi.cast(_ADDRESS, view.pointer)) % alignment and 0 not in view.shape:
        raise RejectedArgument("it is not aligned to its elements; pass a copy")
    return Buffer(view.pointer, view.dtype, view.shape, view.owner)


def row_major(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    """Whether strides in elements are those of a contiguous array."""
    if strides is None or 0 in shape:
        return True
    expected = 1
    for dim, stride in zip(reversed(shape), reversed(strides), strict=True):
        if dim != 1 and stride != expected:
            return False
        expected *= dim
    return True


def _from_scalar(value: complex, expected: str) -> Buffer:
    """A Python number as NumPy's weak scalars are: of the expected dtype if its kind and range allow."""
    dtype: Any = numpy_dtype(expected)
    advice = f"pass np.asarray(x, dtype={dtype.name!r})"
    if isinstance(value, bool) != (expected == "i1"):
        raise RejectedArgument(f"got the Python {type(value).__name__} {value!r} for {expected}; {advice}")
    if isinstance(value, complex) and not expected.startswith("c"):
        raise RejectedArgument(f"got a Python complex for {expected}; {advice}")
    if isinstance(value, float) and expected.lstrip("u").startswith("i"):
        raise RejectedArgument(f"got a Python float for {expected}; {advice}")
    if isinstance(value, int) and expected not in ("i1", *_FLOATS) and not _fits(value, expected):
        raise RejectedArgument(f"{value} is out of range for {expected}")
    if expected in SMALL and dtype.kind == "u" and dtype == np.uint8:
        raise RejectedArgument(
            f"got the Python {type(value).__name__} {value!r} for {expected}; install ml_dtypes"
        )
    if expected in _LARGEST and not abs(value) <= _LARGEST[expected]:
        raise RejectedArgument(f"{value} is out of range for {expected}")
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(value, dtype)
    except (OverflowError, TypeError) as error:  # ml_dtypes says TypeError of integers beyond f64
        raise RejectedArgument(f"{value} is out of range for {expected}") from error
    if expected in _FLOATS and _overflowed(value, array):
        raise RejectedArgument(f"{value} is out of range for {expected}")
    return Buffer(address_of(array), expected, (), array)


def _fits(value: int, dtype: str) -> bool:
    least, greatest = limits_of(dtype)
    return least <= value <= greatest


def _overflowed(value: complex, array: Array) -> bool:
    number = complex(value)
    if not (math.isfinite(number.real) and math.isfinite(number.imag)):
        return False
    known: Any = array.astype(np.float64 if array.dtype.itemsize == 1 else np.complex128)
    return not bool(np.isfinite(known))
