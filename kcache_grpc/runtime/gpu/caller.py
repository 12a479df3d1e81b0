"""A kernel on the GPU of its arguments: loaded once for the life of the process, and called."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError
from kcache_grpc.model.gpu.launch import GpuCall, TooLarge, calls
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.sizes.expression import evaluate, holds
from kcache_grpc.runtime.arrays import RejectedArgument
from kcache_grpc.runtime.cpu.plan import Short
from kcache_grpc.runtime.gpu.arrays import DeviceBuffer, device_of, read
from kcache_grpc.runtime.gpu.device import Device, device_numbered
from kcache_grpc.runtime.gpu.driver import Function, Handle, open_driver
from kcache_grpc.runtime.gpu.launch_graph import Prepared
from kcache_grpc.runtime.gpu.packed_launches import Packed
from kcache_grpc.runtime.gpu.plan import Plan
from kcache_grpc.runtime.gpu.repeated_call import nothing, short_way
from kcache_grpc.runtime.gpu.streams import DriverStreamContext, stream_context

_NOT_FOUND = "CUDA_ERROR_NOT_FOUND"
_MAX_PLANS = 256


class Loaded:
    """Module, functions and constants in the primary context of ``device``."""

    def __init__(
        self,
        device: Device,
        manifest: Manifest,
        target: GpuTarget,
        artifact: Callable[[str], bytes],
        constants: Sequence[bytes],
    ) -> None:
        self._device = device
        self._functions: dict[str, Function] = {}
        self._allowed: dict[str, int] = {}
        self._lock = threading.Lock()
        with device.driver.within(device.context):
            self._module = device.driver.load_module(_image(device, manifest, target, artifact))
            #: Their addresses, in buffer order.
            self.constants = tuple(device.driver.upload(content) for content in constants)

    def function(self, call: GpuCall) -> Function:
        """The function of a launch, which may then be launched so. Raises ``ArgumentError``."""
        driver, most = self._device.driver, self._device.shared_most
        function = self._functions.get(call.entry)
        if function is None:
            function = self._functions[call.entry] = self._find(call.entry)
        static = driver.static_shared(function)
        if static + call.shared_bytes > most:
            raise ArgumentError(
                f"launch {call.name} takes {static + call.shared_bytes} bytes of shared memory a block, and "
                f"cuda:{self._device.ordinal} has {most}; compile for its own architecture"
            )
        x, y, z = call.block
        threads = driver.most_threads(function)
        if x * y * z > threads:
            raise ArgumentError(
                f"launch {call.name} takes blocks of {x * y * z} threads, and its code allows {threads} here"
            )
        if static + call.shared_bytes > self._device.shared_default:
            self._allow(call.entry, function, call.shared_bytes)
        return function

    def _find(self, entry: str) -> Function:
        try:
            return self._device.driver.function(self._module, entry)
        except KcacheError as error:
            if error.metadata.get("code") != _NOT_FOUND:
                raise
            raise IntegrityError(
                f"the kernel's code has no entry {entry!r}, which its manifest names"
            ) from error

    def _allow(self, entry: str, function: Function, size: int) -> None:
        """The limit only rises: launches of other sizes may run at the same time."""
        with self._lock:
            if size > self._allowed.get(entry, 0):
                self._device.driver.allow_dynamic_shared(function, size)
                self._allowed[entry] = size


def _image(device: Device, manifest: Manifest, target: GpuTarget, artifact: Callable[[str], bytes]) -> bytes:
    """The cubin where the device runs it, which costs no compile; else the PTX."""
    cubin = manifest.artifact("cubin") is not None and target.cubin_runs_on(device.capability)
    if cubin and (target.capability == device.capability or not device.takes_ptx(target)):
        return artifact("cubin")
    device.require_ptx(target)
    return artifact("ptx") + b"\0"


class GpuCaller:
    """Runs one kernel on whichever device its arguments are; loads it there at its first call.

    No call waits for the GPU. Safe from many threads at once.
    """

    def __init__(
        self,
        manifest: Manifest,
        target: GpuTarget,
        artifact: Callable[[str], bytes],
        constants: Callable[[], Sequence[bytes]],
    ) -> None:
        """``artifact`` gives verified bytes by kind, ``constants`` those of the lifted constants."""
        self._manifest = manifest
        self._target = target
        self._artifact = artifact
        self._constants = constants
        self._lock = threading.Lock()
        self._loaded: dict[int, Loaded] = {}
        self._plans: dict[tuple[Any, ...], Plan] = {}
        #: The fast path of calls exactly as the last one.
        self.short: Short = nothing

    def apart(self) -> GpuCaller:
        """The same kernel, loaded where this one is, without the plans of its calls."""
        twin = copy.copy(self)
        twin._plans, twin.short = {}, nothing
        return twin

    def load(self, ordinal: int = 0) -> Loaded:
        """Loads the kernel on a device, as the first call there would. Raises ``ArgumentError``."""
        with self._lock:
            if ordinal not in self._loaded:
                device = device_numbered(ordinal)
                device.require(self._target)
                self._loaded[ordinal] = Loaded(
                    device, self._manifest, self._target, self._artifact, self._constants()
                )
            return self._loaded[ordinal]

    def __call__(
        self,
        arrays: tuple[Any, ...],
        argument_error: Callable[[int, str], ArgumentError],
        check: Callable[[list[DeviceBuffer]], None],
    ) -> tuple[Any, ...]:
        """``argument_error`` makes an argument's error; ``check`` raises it for wrong dtypes and sizes."""
        driver = open_driver()
        ordinal = self._device_of(arrays, argument_error)
        device = device_numbered(ordinal)
        with driver.within(device.context):
            context = stream_context(driver, arrays[0] if arrays else None, ordinal)
            buffers = self._read(arrays, context.stream, argument_error)
            plan = self._planned(buffers, device, context.stream, check)
            outputs = [
                context.empty(spec.dtype, shape)
                for spec, shape in zip(self._manifest.outputs, plan.output_shapes, strict=True)
            ]
            owner, workspace = context.scratch(plan.workspace_bytes) if plan.workspace_bytes else (None, 0)
            pointers = [*(b.pointer for b in buffers), *plan.constants, *(p for _, p in outputs)]
            plan.packed.run(driver, context.stream, workspace, pointers)
            del owner
            self.short = short_way(plan, arrays)
            return context.finish([array for array, _ in outputs])

    def prepare(
        self,
        arrays: tuple[Any, ...],
        argument_error: Callable[[int, str], ArgumentError],
        check: Callable[[list[DeviceBuffer]], None],
    ) -> Prepared:
        """The launches of a call, with memory for its results and its workspace that they keep."""
        device = device_numbered(self._device_of(arrays, argument_error))
        with device.driver.within(device.context):
            context = DriverStreamContext(device.driver, device.ordinal, None)
            buffers = self._read(arrays, context.stream, argument_error)
            plan = self._planned(buffers, device, context.stream, check)
            outputs = zip(self._manifest.outputs, plan.output_shapes, strict=True)
            results = [context.empty(spec.dtype, shape) for spec, shape in outputs]
            owner, workspace = context.scratch(max(1, plan.workspace_bytes))
            pointers = [*(b.pointer for b in buffers), *plan.constants, *(p for _, p in results)]
            return Prepared(device, plan.packed, workspace, tuple(pointers), (owner, buffers, results))

    def plan(
        self,
        buffers: list[DeviceBuffer],
        ordinal: int,
        stream: Handle,
        check: Callable[[list[DeviceBuffer]], None],
    ) -> Plan:
        """The plan for these dtypes and shapes on a device; loads the kernel there unless ``stream`` is
        captured. Raises what ``check`` raises.
        """
        device = device_numbered(ordinal)
        with device.driver.within(device.context):
            return self._planned(buffers, device, stream, check)

    def _device_of(self, arrays: tuple[Any, ...], argument_error: Callable[[int, str], ArgumentError]) -> int:
        first = 0
        for index, value in enumerate(arrays):
            try:
                ordinal = device_of(value)
            except RejectedArgument as error:
                raise argument_error(index, str(error)) from error
            if index == 0:
                first = ordinal
            elif ordinal != first:
                raise argument_error(index, f"it is on cuda:{ordinal}, and argument 0 is on cuda:{first}")
        return first

    def _read(
        self, arrays: tuple[Any, ...], stream: Handle, argument_error: Callable[[int, str], ArgumentError]
    ) -> list[DeviceBuffer]:
        def buffer_of(index: int, value: Any) -> DeviceBuffer:
            try:
                return read(value, stream)
            except RejectedArgument as error:
                raise argument_error(index, str(error)) from error

        return [buffer_of(index, value) for index, value in enumerate(arrays)]

    def _planned(
        self,
        buffers: list[DeviceBuffer],
        device: Device,
        stream: Handle,
        check: Callable[[list[DeviceBuffer]], None],
    ) -> Plan:
        """The plan for these sizes; arguments that have one were checked before."""
        known = (device.ordinal, *((buffer.dtype, buffer.shape) for buffer in buffers))
        plan = self._plans.get(known)
        if plan is not None:
            return plan
        check(buffers)
        if device.ordinal not in self._loaded and device.driver.is_capturing(stream):
            raise ArgumentError(
                "the kernel is not loaded on this device, and loading it cannot be part of a CUDA graph: "
                "call it once before the capture"
            )
        loaded = self.load(device.ordinal)
        plan = self._plan(buffers, device, loaded)
        if len(self._plans) >= _MAX_PLANS:
            self._plans = {}
        self._plans[known] = plan
        return plan

    def _plan(self, buffers: list[DeviceBuffer], device: Device, loaded: Loaded) -> Plan:
        manifest = self._manifest
        symbols = {symbol.name: buffers[symbol.arg].shape[symbol.axis] for symbol in manifest.symbols}
        sizes = ", ".join(f"{name} = {size}" for name, size in symbols.items())
        for text in manifest.checks:
            if not holds(text, symbols):
                raise ArgumentError(
                    f"the sizes of the arguments do not fit each other or the program: {text} ({sizes})"
                )
        try:
            launches = calls(manifest.gpu_launches, symbols)
        except TooLarge as error:
            raise ArgumentError(f"{error} ({sizes or 'at these sizes'})") from error
        packed = Packed([(loaded.function(call), call) for call in launches])
        shapes = tuple(spec.shape(symbols) for spec in manifest.outputs)
        if any(size < 0 for shape in shapes for size in shape):
            raise IntegrityError(f"an output has a negative size ({sizes})")
        workspace = evaluate(manifest.workspace_bytes, {**symbols, "workers": 1})
        if workspace < 0:
            raise IntegrityError(f"the workspace has a negative size ({sizes})")
        inputs = tuple(buffer.shape for buffer in buffers)
        return Plan(device, manifest, packed, loaded.constants, inputs, shapes, workspace)
