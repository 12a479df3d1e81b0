"""Element types: kcache's names, NumPy's, PyTorch's and DLPack's.

NumPy has no bfloat16 of its own: ``ml_dtypes.bfloat16`` is used where that package is installed,
otherwise arrays of ``uint16`` hold the bits, in and out.
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
DTYPES = (*_NUMPY_NAMES, "bf16")

#: DLPack's (type code, bits) -> ours.
DLPACK: Mapping[tuple[int, int], str] = {
    **{(0, bits): f"i{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"ui{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"f{bits}" for bits in (16, 32, 64)},
    (4, 16): "bf16",
    (5, 64): "c64",
    (5, 128): "c128",
    (6, 8): "i1",
}


@lru_cache(maxsize=1)
def numpy_dtypes() -> Mapping[str, np.dtype[Any]]:
    """Our name -> NumPy's dtype, in this machine's byte order."""
    return {name: np.dtype(theirs) for name, theirs in _NUMPY_NAMES.items()} | {"bf16": _bfloat16()}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Raises ``IntegrityError`` for a name from a later version."""
    if name not in DTYPES:
        raise IntegrityError(f"unknown dtype {name!r} in a manifest")
    return numpy_dtypes()[name]


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
    return {name: getattr(torch, theirs) for name, theirs in names.items() if hasattr(torch, theirs)}


@lru_cache(maxsize=1)
def names_of_torch() -> Mapping[Any, str]:
    """PyTorch's dtype -> our name."""
    return {dtype: name for name, dtype in torch_dtypes().items()}


def _bfloat16() -> np.dtype[Any]:
    try:
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        return np.dtype(np.uint16)
