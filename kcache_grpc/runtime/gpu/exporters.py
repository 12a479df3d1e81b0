"""The fast path of calls with arrays of CuPy, and of frameworks that export them through DLPack.

CuPy's are asked for their address; others hand out a capsule, of which only the numbers are looked at.
"""

from __future__ import annotations

import sys
from typing import Any

from kcache_grpc.runtime import dlpack
from kcache_grpc.runtime.cpu.plan import Short
from kcache_grpc.runtime.dtypes import NAMELESS, numpy_dtype
from kcache_grpc.runtime.gpu.arrays import INPUT_ALIGNMENT
from kcache_grpc.runtime.gpu.device_memory import DeviceArray, size_of
from kcache_grpc.runtime.gpu.driver import Handle
from kcache_grpc.runtime.gpu.plan import Plan
from kcache_grpc.runtime.gpu.streams import array_converter

_ODD = INPUT_ALIGNMENT - 1
#: The legacy default stream, as DLPack says it.
_LEGACY = 1


def for_exporters(plan: Plan, arrays: tuple[Any, ...]) -> Short:
    """For arrays of the type of the first one, on the legacy default stream."""
    device, packed, workspace_bytes = plan.device, plan.packed, plan.workspace_bytes
    driver, context, constants = device.driver, device.context, plan.constants
    kind: Any = arrays[0].__class__
    ordinal, dlpack_device = device.ordinal, (dlpack.CUDA, device.ordinal)
    inputs = zip(plan.manifest.inputs, plan.input_shapes, strict=True)
    checks = [dlpack.Facts.of(spec.dtype, shape) for spec, shape in inputs]
    outputs = [
        (spec.dtype, shape, size_of(spec.dtype, shape))
        for spec, shape in zip(plan.manifest.outputs, plan.output_shapes, strict=True)
    ]
    count, exported, convert = len(checks), dlpack.exported, array_converter(arrays[0])

    def run(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if driver.current_context() == context:
            return inside(arrays)
        driver.push_context(context)
        try:
            return inside(arrays)
        finally:
            driver.pop_context()

    def inside(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Call the kernel for arrays that export DLPack; None if they differ from those of the first call."""
        if len(arrays) != count:
            return None
        pointers: list[Handle] = []
        keep: list[object] = []
        for array, facts in zip(arrays, checks):  # noqa: B905 - of equal lengths
            if array.__class__ is not kind or array.__dlpack_device__() != dlpack_device:
                return None
            export = exported(array, _LEGACY, facts)
            if export is None or export[0] & _ODD:
                return None
            pointers.append(export[0])
            keep.append(export[1])
        results = [
            DeviceArray(driver, ordinal, 0, dtype, shape, context, size) for dtype, shape, size in outputs
        ]
        pointers += constants
        pointers += [array.pointer for array in results]
        workspace = driver.allocate(workspace_bytes, 0) if workspace_bytes else 0
        try:
            packed.run(driver, 0, workspace, pointers)
        finally:
            if workspace_bytes:
                driver.free(workspace, 0)
        return tuple(results) if convert is None else tuple(map(convert, results))

    return run


def for_cupy(plan: Plan) -> Short | None:
    """For plain arrays of CuPy on its current stream; None for dtypes that it lacks."""
    cupy: Any = sys.modules["cupy"]
    specs = (*plan.manifest.inputs, *plan.manifest.outputs)
    if any(spec.dtype in NAMELESS for spec in specs):
        return None
    device, packed, workspace_bytes = plan.device, plan.packed, plan.workspace_bytes
    driver, context, constants, ordinal = device.driver, device.context, plan.constants, device.ordinal
    inputs = zip(plan.manifest.inputs, plan.input_shapes, strict=True)
    checks = [(numpy_dtype(spec.dtype), shape) for spec, shape in inputs]
    outputs = [
        (numpy_dtype(spec.dtype), shape)
        for spec, shape in zip(plan.manifest.outputs, plan.output_shapes, strict=True)
    ]
    count, kind, empty, stream_of = len(checks), cupy.ndarray, cupy.empty, cupy.cuda.get_current_stream

    def run(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if len(arrays) != count or driver.current_context() != context:
            return None
        pointers: list[Handle] = []
        for array, (dtype, shape) in zip(arrays, checks):  # noqa: B905 - of equal lengths
            if (
                array.__class__ is not kind
                or array.dtype != dtype
                or array.shape != shape
                or not array.flags.c_contiguous
                or array.data.device_id != ordinal
                or (address := array.data.ptr) & _ODD
            ):
                return None
            pointers.append(address)
        results = [empty(shape, dtype) for dtype, shape in outputs]
        pointers += constants
        pointers += [array.data.ptr for array in results]
        # Given back to CuPy's pool at the end of the call, for what comes after on this stream.
        scratch = empty(workspace_bytes, "u1") if workspace_bytes else None
        packed.run(driver, int(stream_of().ptr), 0 if scratch is None else scratch.data.ptr, pointers)
        return tuple(results)

    return run
