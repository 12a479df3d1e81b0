"""The fast path of a call: arrays exactly as the last call's, checked in a few comparisons.

Anything else, right or wrong, takes the long way, which knows every framework and explains itself.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from kcache_grpc.runtime.arrays import address_of
from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.cpu.plan import Plan, Short
from kcache_grpc.runtime.dtypes import NAMELESS, numpy_dtype, torch_dtypes
from kcache_grpc.runtime.results import torch_makers

#: ``ndarray.flags.num``: C_CONTIGUOUS and ALIGNED.
_READY = 0x101
_VOID = ffi.typeof("void *")


def nothing(_: tuple[Any, ...]) -> None:
    """Before the first call there is no fast path."""
    return


def for_numpy(plan: Plan) -> Short:
    """For plain ``ndarray``s."""
    return plan.fast_call() or _through_cffi(plan)


def _through_cffi(plan: Plan) -> Short:
    """Checks every array in Python; for installations without the extension module."""
    specs = plan.manifest.inputs
    dtypes, shapes = [numpy_dtype(spec.dtype) for spec in specs], plan.input_shapes
    count = len(dtypes)
    nameless = any(spec.dtype in NAMELESS for spec in specs)
    address = address_of if nameless else ffi.from_buffer
    take, call, ndarray = plan.outputs.take, plan.call, np.ndarray

    def run(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if len(arrays) != count:
            return None
        pointers: list[CData] = []
        for array, dtype, shape in zip(arrays, dtypes, shapes):  # noqa: B905 - of equal lengths; the hot loop
            if (
                array.__class__ is not ndarray
                or array.dtype is not dtype
                or array.shape != shape
                or array.flags.num & _READY != _READY
            ):
                return None
            pointers.append(address(array))
        results, tail = take()
        pointers += tail
        call(pointers)
        return results

    return run


def for_torch(plan: Plan) -> Short:
    """For plain CPU tensors without gradients."""
    torch: Any = sys.modules["torch"]
    specs, dtypes = plan.manifest.inputs, torch_dtypes()
    pairs = zip(specs, plan.input_shapes, strict=True)
    checks = [
        (dtypes.get(spec.dtype), shape, numpy_dtype(spec.dtype).alignment - 1, spec.dtype.startswith("c"))
        for spec, shape in pairs
    ]
    makers = torch_makers(plan.manifest.outputs, plan.output_shapes)
    count, constants, call = len(checks), plan.constants, plan.call
    kind, strided, cast = torch.Tensor, torch.strided, ffi.cast

    def run(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if len(arrays) != count:
            return None
        pointers: list[CData] = []
        for tensor, (dtype, shape, odd, is_complex) in zip(arrays, checks):  # noqa: B905 - as above
            if (
                tensor.__class__ is not kind
                or tensor.dtype is not dtype
                or tensor.shape != shape
                or not tensor.is_cpu
                or tensor.layout is not strided
                or tensor.requires_grad
                or not tensor.is_contiguous()
                or (is_complex and tensor.is_conj())
                or tensor.is_neg()
                or (address := tensor.data_ptr()) & odd
            ):
                return None
            pointers.append(cast(_VOID, address))
        results = [make() for make in makers]
        pointers.extend(constants)
        pointers.extend([pointer for _, pointer in results])
        call(pointers)
        return tuple([tensor for tensor, _ in results])

    return run
