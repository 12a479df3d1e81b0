"""Element types: kcache's names, NumPy's, PyTorch's and DLPack's.

NumPy has no bfloat16 of its own: ``ml_dtypes.bfloat16`` is used where that package is installed,
otherwise arrays of ``uint16`` hold the bits, in and out. The same is true of elements of 8 bits and fewer,
which arrays of ``uint8`` hold otherwise.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from kcache_grpc.errors import IntegrityError

_NUMPY_NAMES: Mapping[str, str] = {
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "ui8": "uint8",
    "ui16": "uint16",
    "ui32": "uint32",
    "ui64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
#: Names of the package ``ml_dtypes``; an element takes a byte.
_SMALL_NAMES: Mapping[str, str] = {
    "i2": "int2",
    "i4": "int4",
    "ui2": "uint2",
    "ui4": "uint4",
    "f8E3M4": "float8_e3m4",
    "f8E4M3": "float8_e4m3",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
    "f8E5M2": "float8_e5m2",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    "f6E2M3FN": "float6_e2m3fn",
    "f6E3M2FN": "float6_e3m2fn",
    "f4E2M1FN": "float4_e2m1fn",
}
PLAIN = (*_NUMPY_NAMES, "bf16")
SMALL = tuple(_SMALL_NAMES)
SMALL_FLOATS = tuple(name for name in SMALL if name.startswith("f"))
#: One byte an element, which DLPack has no type for.
UNPACKED = frozenset(name for name in SMALL if not name.startswith("f8"))
#: Types without a name in the buffer protocol.
NAMELESS = frozenset({"bf16", *SMALL})
DTYPES = (*PLAIN, *SMALL)

#: DLPack's (type code, bits) -> ours.
DLPACK: Mapping[tuple[int, int], str] = {
    **{(0, bits): f"i{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"ui{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"f{bits}" for bits in (16, 32, 64)},
    (4, 16): "bf16",
    (5, 64): "c64",
    (5, 128): "c128",
    (6, 8): "i1",
    (7, 8): "f8E3M4",
    (8, 8): "f8E4M3",
    (9, 8): "f8E4M3B11FNUZ",
    (10, 8): "f8E4M3FN",
    (11, 8): "f8E4M3FNUZ",
    (12, 8): "f8E5M2",
    (13, 8): "f8E5M2FNUZ",
    (14, 8): "f8E8M0FNU",
}


@lru_cache(maxsize=1)
def _own_dtypes() -> Mapping[str, np.dtype[Any]]:
    """Those that NumPy has itself."""
    return {name: np.dtype(theirs) for name, theirs in _NUMPY_NAMES.items()}


@lru_cache(maxsize=1)
def numpy_dtypes() -> Mapping[str, np.dtype[Any]]:
    """Our name -> NumPy's dtype, in this machine's byte order; imports ``ml_dtypes``."""
    own = dict(_own_dtypes())
    small = {name: _of_package(theirs, np.uint8) for name, theirs in _SMALL_NAMES.items()}
    return own | {"bf16": _of_package("bfloat16", np.uint16)} | small


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Raises ``IntegrityError`` for a name from a later version."""
    if name not in DTYPES:
        raise IntegrityError(f"unknown dtype {name!r} in a manifest")
    return _own_dtypes().get(name) or numpy_dtypes()[name]


def name_of_numpy(dtype: Any, expected: str) -> str:
    """Our name of a dtype, or NumPy's own text where we have none.

    ``expected`` decides what ``uint16`` is where it may be bfloat16.
    """
    if dtype == numpy_dtypes().get(expected):
        return expected
    if not dtype.isnative:
        return f"{dtype.name} in the other byte order ({dtype.str})"
    return next((name for name, known in numpy_dtypes().items() if known == dtype), dtype.name)


@lru_cache(maxsize=1)
def torch_dtypes() -> Mapping[str, Any]:
    """Our name -> PyTorch's dtype, where it has one. PyTorch must be imported already."""
    torch: Any = importlib.import_module("torch")
    names = {**_NUMPY_NAMES, "bf16": "bfloat16"}
    names |= {name: theirs for name, theirs in _SMALL_NAMES.items() if theirs.startswith("float8")}
    return {name: getattr(torch, theirs) for name, theirs in names.items() if hasattr(torch, theirs)}


@lru_cache(maxsize=1)
def names_of_torch() -> Mapping[Any, str]:
    """PyTorch's dtype -> our name."""
    return {dtype: name for name, dtype in torch_dtypes().items()}


def _of_package(name: str, otherwise: type[np.unsignedinteger[Any]]) -> np.dtype[Any]:
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ImportError, AttributeError):
        return np.dtype(otherwise)


def limits_of(dtype: str) -> tuple[int, int]:
    """The least and the greatest of an integer dtype."""
    bits = int(dtype.lstrip("ui"))
    return (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
