"""The emulator in the place of a GPU: ``python -m benchmarks.gpu.kit run DIR --driver`` and this file.

The pack needs LLVM IR (``pack --ir``). A kernel runs in every order of threads, with the same results.
``KCACHE_EMULATED_CAPABILITY`` is the compute capability. With ``KCACHE_EMULATED_IR=optimized``, the IR that
LLVM's optimizer leaves is executed. If ``KCACHE_EMULATOR_FOLDER`` names a folder, processes share results in
it: what several targets have in common runs once.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.runtime.devices import Execution
from kcache_grpc.errors import KcacheError
from kcache_grpc.model.gpu.launch import GpuCall, Param
from tests.gpu.harness.emulate import (
    CONSTANT,
    INPUT,
    ORDERS,
    OUTPUT,
    WORKSPACE,
    Buffer,
    EmulationError,
    Pointer,
    Run,
    launch,
)
from tests.gpu.harness.promises import promises
from tests.gpu.harness.run import optimized

#: The kit has a limit of its own.
_SECONDS = 3600
_POISON = b"\xff"


class EmulatedDevice:
    """A device of an architecture, as far as the emulator knows."""

    def __init__(self) -> None:
        major, _, minor = os.environ.get("KCACHE_EMULATED_CAPABILITY", "9.0").partition(".")
        self.capability = (int(major), int(minor))

    def description(self) -> dict[str, Any]:
        return {"device": "emulator", "capability": "{}.{}".format(*self.capability), "cuda": "none"}

    def execute(self, execution: Execution) -> list[bytes]:
        """Contents of the outputs. Raises ``KcacheError`` for what the emulator detects."""
        ir = execution.kernel.artifact("llvm")
        if ir is None:
            raise KcacheError("the pack has no LLVM IR: make it with --ir")
        if os.environ.get("KCACHE_EMULATED_IR") == "optimized":
            entries = [launch.entry for launch in execution.kernel.launches]
            ir = optimized(ir.decode(), entries, execution.kernel.target.arch).encode()
        known = _known(execution, ir)
        if known is not None and known.exists():
            return pickle.loads(known.read_bytes())
        results = [_outputs(execution, ir.decode(), order) for order in ORDERS]
        if differ := [order for order, result in zip(ORDERS, results, strict=True) if result != results[0]]:
            raise KcacheError(
                f"results of threads in {' and '.join(differ)} order are not those of {ORDERS[0]}"
            )
        if known is not None:
            part = known.with_suffix(f".{os.getpid()}")
            part.write_bytes(pickle.dumps(results[0]))
            part.replace(known)
        return results[0]


def _known(execution: Execution, ir: bytes) -> Path | None:
    """Where the results of this kernel for these arguments are, if processes share them."""
    folder = os.environ.get("KCACHE_EMULATOR_FOLDER")
    if not folder:
        return None
    hashed = hashlib.sha256()
    sizes = (execution.calls, execution.output_sizes, execution.workspace)
    for content in (ir, repr(sizes).encode(), *execution.fills, *execution.inputs, *execution.constants):
        hashed.update(len(content).to_bytes(8, "little") + content)
    return Path(folder) / f"{hashed.hexdigest()}.results"


def _outputs(execution: Execution, ir: str, order: str) -> list[bytes]:
    buffers = _buffers(execution)
    runs = [_run(call, len(buffers) - 1) for call in execution.calls]
    _check_promises(ir, runs, all(execution.inputs))
    try:
        launch(ir, buffers, runs, order, timeout=_SECONDS)
    except EmulationError as error:
        raise KcacheError(str(error)) from error
    first = len(execution.inputs) + len(execution.constants)
    return [bytes(buffer.content) for buffer in buffers[first:-1]]


def _check_promises(ir: str, runs: Sequence[Run], whole: bool) -> None:
    """Where a size is 0, what follows a buffer without elements may begin where that does."""
    said = promises(ir)
    for run in runs if whole else ():
        if broken := said[run.entry].broken(run.block, run.params):
            raise KcacheError(f"{run.entry}: {broken}")


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
