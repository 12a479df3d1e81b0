"""What executes kernels: the GPU of this machine, or what a file names in its place."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.gpu.kit.runtime.reading import PackedKernel
from kcache_grpc.model.gpu.launch import GpuCall
from kcache_grpc.model.gpu.target import Version


class NoGpu(Exception):
    """There is nothing to execute kernels; the message says what lacks."""


@dataclass(frozen=True)
class Execution:
    """A kernel with its arguments at given sizes; buffers are inputs, constants, outputs, workspace.

    ``fills`` are what each output holds before the kernel runs, over and over.
    """

    kernel: PackedKernel
    calls: tuple[GpuCall, ...]
    inputs: Sequence[bytes]
    constants: Sequence[bytes]
    output_sizes: Sequence[int]
    fills: Sequence[bytes]
    workspace: int


class Device(Protocol):
    """Executes kernels. Timing needs the methods of ``cuda.CudaDevice`` as well."""

    capability: Version

    def description(self) -> dict[str, Any]:
        """``device``, ``capability``, ``cuda``: texts for the file of results."""
        ...

    def execute(self, execution: Execution) -> list[bytes]:
        """Contents of the outputs; raises ``KcacheError`` where the kernel does what it must not."""
        ...


def opened(driver: str) -> Any:
    """GPU 0 where ``driver`` is empty, else what ``open_device()`` of the Python file ``driver`` returns.

    Raises ``NoGpu``.
    """
    if not driver:
        from benchmarks.gpu.kit.runtime.cuda import CudaDevice

        return CudaDevice()
    path = Path(driver).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise NoGpu(f"{driver} is no Python file with a function open_device")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.open_device()
