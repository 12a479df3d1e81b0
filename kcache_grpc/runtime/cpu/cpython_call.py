"""Calls with NumPy arrays through ``kcache_cpython_call``, the function that a kernel brings for CPython.

The function reads arrays where NumPy's C interface has their fields, compares them with a table, and runs
the kernel: less than a comparison of two shapes costs in Python. docs/reference/c-abi.md has the table.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from kcache_grpc.runtime.cpu._abi import CData, Library, ffi
from kcache_grpc.runtime.cpu.memory import Array
from kcache_grpc.runtime.cpu.output_ring import COUNTS_ARE_EXACT

#: What a quick call returns: the kernel ran, or the arrays need the long way.
DONE, REFUSED = object(), object()
Quick = Callable[..., object]

#: ``MOST_BUFFERS`` of the compiler's side, and words of the table before the constants.
_MOST_BUFFERS, _HEAD = 64, 12
#: Bytes of a workspace on the stack at most.
_MOST_BYTES = 16 << 10
_FASTCALL = 0x80
_NAME = b"kernel\0\0"
_ADDRESS = ffi.typeof("uintptr_t")
#: Of an array: references, class, elements, rank, sizes, strides, base, type, flags.
_FIELDS = struct.Struct("=qQQi4xQQQQi")


def quick_call(
    library: Library,
    inputs: Sequence[tuple[np.dtype[Any], tuple[int, ...]]],
    outputs: int,
    constants: Sequence[CData],
    dims: CData,
    host: CData,
    workspace: int,
) -> Quick | None:
    """A function of all input and output arrays, which gives ``DONE`` or ``REFUSED``.

    It takes inputs of exactly these types and shapes, contiguous and aligned, or refuses; outputs are not
    looked at. ``workspace`` bytes are taken from the stack. ``library``, ``constants``, ``dims`` and
    ``host`` must outlive it. None where this interpreter or this kernel has no such thing.
    """
    many = len(inputs) + len(constants) + outputs > _MOST_BUFFERS or workspace > _MOST_BYTES
    if many or not layouts_are_known():
        return None
    try:
        function = _address(library.kcache_cpython_call)
    except ffi.error:
        return None
    head = [len(inputs), len(inputs) + outputs, len(constants), id(np.ndarray)]
    head += [_address(library.kcache_run), _address(dims), _address(host)]
    head += [_python("PyEval_SaveThread"), _python("PyEval_RestoreThread"), id(DONE), id(REFUSED), workspace]
    assert len(head) == _HEAD
    words = [*head, *map(_address, constants)]
    for dtype, shape in inputs:
        words += [id(dtype), len(shape), *shape]
    return _made(function, words)


def _made(function: int, words: list[int]) -> Quick:
    """The Python object. Its definition lies in its own table, so that neither outlives the other."""
    table = np.array([*words, 0, function, _FASTCALL, 0, *struct.unpack("=q", _NAME)], np.int64)
    definition = table.ctypes.data + 8 * len(words)
    table[len(words)] = definition + 32
    make = ctypes.pythonapi.PyCFunction_NewEx
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return new(ctypes.cast(make, ctypes.c_void_p).value or 0)(definition, table, None)


def _address(pointer: Any) -> int:
    return int(ffi.cast(_ADDRESS, pointer))


def _python(name: str) -> int:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


@lru_cache(maxsize=1)
def layouts_are_known() -> bool:
    """Whether objects lie in memory as the function reads them: tried on arrays of several kinds."""
    exact = sys.implementation.name == "cpython" and COUNTS_ARE_EXACT and struct.calcsize("P") == 8
    if not exact or object.__basicsize__ != 16 or np.ndarray.__basicsize__ < _FIELDS.size:
        return False
    square: Array = np.zeros((3, 4), np.float32)
    arrays: list[Array] = [square, square[::-1], square[1:, ::2], np.zeros((), np.int8)]
    return all(map(_is_as_known, arrays))


def _is_as_known(array: Array) -> bool:
    fields = _FIELDS.unpack(ctypes.string_at(id(array), _FIELDS.size))
    _, its_class, elements, rank, sizes, _, _, dtype, flags = fields
    if (its_class, elements, rank) != (id(np.ndarray), array.ctypes.data, array.ndim):
        return False
    shape = struct.unpack(f"={rank}q", ctypes.string_at(sizes, 8 * rank)) if rank else ()
    return shape == array.shape and dtype == id(array.dtype) and flags == array.flags.num
