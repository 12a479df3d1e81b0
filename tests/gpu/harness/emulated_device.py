"""The emulator in the place of a GPU: ``python -m benchmarks.gpu.kit run DIR --driver`` and this file.

The pack needs LLVM IR (``pack --ir``). ``KCACHE_EMULATED_ORDER`` is the order of threads.
"""

from __future__ import annotations

import os
from typing import Any

from benchmarks.gpu.kit.runtime.devices import Execution
from kcache_grpc.errors import KcacheError
from kcache_grpc.model.gpu.launch import GpuCall, Param
from tests.gpu.harness.emulate import (
    CONSTANT,
    INPUT,
    OUTPUT,
    WORKSPACE,
    Buffer,
    EmulationError,
    Pointer,
    Run,
    launch,
)

#: The kit has a limit of its own.
_SECONDS = 3600
_POISON = b"\xff"


class EmulatedDevice:
    """A device of the architecture that the kernels are for, as far as the emulator knows."""

    capability = (9, 0)

    def description(self) -> dict[str, Any]:
        return {"device": "emulator", "capability": "9.0", "cuda": "none"}

    def execute(self, execution: Execution) -> list[bytes]:
        """Contents of the outputs. Raises ``KcacheError`` for what the emulator detects."""
        ir = execution.kernel.artifact("llvm")
        if ir is None:
            raise KcacheError("the pack has no LLVM IR: make it with --ir")
        buffers = _buffers(execution)
        runs = [_run(call, len(buffers) - 1) for call in execution.calls]
        order = os.environ.get("KCACHE_EMULATED_ORDER", "random")
        try:
            launch(ir.decode(), buffers, runs, order, timeout=_SECONDS)
        except EmulationError as error:
            raise KcacheError(str(error)) from error
        first = len(execution.inputs) + len(execution.constants)
        return [bytes(buffer.content) for buffer in buffers[first:-1]]


def _buffers(execution: Execution) -> list[Buffer]:
    kinds = (("input", INPUT, execution.inputs), ("constant", CONSTANT, execution.constants))
    buffers = [
        Buffer(f"{name} {place}", kind, bytearray(content))
        for name, kind, contents in kinds
        for place, content in enumerate(contents)
    ]
    outputs = zip(execution.output_sizes, execution.fills, strict=True)
    buffers += [
        Buffer(f"output {place}", OUTPUT, bytearray(fill * (size // len(fill))))
        for place, (size, fill) in enumerate(outputs)
    ]
    return [*buffers, Buffer("the workspace", WORKSPACE, bytearray(_POISON * execution.workspace))]


def _run(call: GpuCall, workspace: int) -> Run:
    params = tuple(_param(param, workspace) for param in call.params)
    return Run(call.entry, call.grid, call.block, call.shared_bytes, params)


def _param(param: Param, workspace: int) -> Pointer | int:
    if param.kind == "buffer":
        return Pointer(param.value)
    return Pointer(workspace, param.value) if param.kind == "workspace" else param.value


def open_device() -> EmulatedDevice:
    """What the kit calls."""
    return EmulatedDevice()
