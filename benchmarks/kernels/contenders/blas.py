"""NumPy, whose products of matrices are OpenBLAS's; output arrays are used again."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from benchmarks.kernels.case import Array, Case, aligned_empty, flat
from benchmarks.kernels.contenders import Absent, Built

NAME = "NumPy"


def build(case: Case, inputs: list[Array], like: list[Array]) -> Built:
    """``like`` are results of this kernel, whose shapes and types the output arrays get."""
    if case.numpy is None:
        raise Absent("not in a few calls of NumPy")
    outputs = [aligned_empty(array.shape, inputs[0].dtype) for array in like]
    call = functools.partial(case.numpy, outputs, *inputs)
    return Built(call, lambda result: outputs if result is None else flat(result))


def core() -> str:
    """The kernels that NumPy's OpenBLAS chose for this machine."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.rpartition(" ")[2]
        if "openblas" in path:
            library = ctypes.CDLL(path)
            for name in ("scipy_openblas_get_corename64_", "openblas_get_corename"):
                if hasattr(library, name):
                    function = getattr(library, name)
                    function.restype = ctypes.c_char_p
                    return function().decode()
    return "unknown"
