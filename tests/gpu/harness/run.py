"""Runs a compiled GPU kernel in the emulator as a client would on a GPU: formulas, guards, workspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from kcache_compiler.llvm.emission import optimize, simplified
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.gpu.emission import is_written_out
from kcache_compiler.types import CompiledKernel, GpuLaunch, KernelInterface, TensorType
from kcache_grpc.model.sizes.expression import evaluate, holds
from kcache_grpc.runtime.dtypes import SMALL
from tests.compiler.codegen_harness import NUMPY
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
from tests.gpu.harness.promises import promises

#: Elements of 8 bits and fewer are bytes.
ELEMENTS: dict[str, Any] = {**dict.fromkeys(SMALL, np.uint8), **NUMPY}
#: Bytes of an output or a workspace that nothing has written: NaN in every float type.
_POISON = b"\xff"


def run_gpu(
    kernel: CompiledKernel,
    arrays: Sequence[np.ndarray[Any, Any]],
    constants: Sequence[np.ndarray[Any, Any]] = (),
    order: str = "forward",
    seed: int = 1,
    timeout: float = 240,
) -> list[np.ndarray[Any, Any]]:
    """The outputs of ``kernel``. Raises ``EmulationError`` where it does what it must not."""
    interface = kernel.interface
    symbols = {symbol.name: arrays[symbol.arg].shape[symbol.axis] for symbol in interface.symbols}
    for check in interface.checks:
        assert holds(check, symbols), f"the kernel is not for these sizes: {check} with {symbols}"
    shapes = [_shape(output, symbols) for output in interface.outputs]
    buffers = _buffers(interface, [*arrays], [*constants], shapes, symbols)
    chosen = [spec for spec in interface.gpu_launches if holds(spec.when, symbols)]
    runs = [(spec, run) for spec in chosen if all((run := run_of(spec, len(buffers) - 1, symbols)).grid)]
    ir = kernel.artifacts["llvm"].decode()
    _check_promises(ir, runs, empty=0 in symbols.values())
    launch(ir, buffers, [run for _, run in runs], order, seed, timeout)
    first = len(arrays) + len(constants)
    return [
        np.frombuffer(bytes(buffer.content), ELEMENTS[kind.dtype]).reshape(shape)
        for buffer, kind, shape in zip(buffers[first:-1], interface.outputs, shapes, strict=True)
    ]


def optimized(kernel_ir: str, entries: Iterable[str], target: str) -> str:
    """The IR that LLVM's optimizer leaves at level 3, which becomes PTX instruction by instruction."""
    device = target_named(target)
    if is_written_out(kernel_ir, entries):
        return str(simplified(kernel_ir, device, 3))
    bitcode = optimize(kernel_ir, device, 3, vectorize=False)
    return str(llvm.parse_bitcode(bitcode, llvm.create_context()))


def _check_promises(ir: str, runs: Sequence[tuple[GpuLaunch, Run]], empty: bool) -> None:
    """Where a size is 0, what follows a buffer without elements may begin where that does."""
    said = promises(ir)
    for spec, run in runs:
        broken = said[run.entry].broken(run.block, spec.params if empty else run.params)
        if broken:
            raise EmulationError(f"{run.entry}: {broken}")


def _shape(tensor: TensorType, symbols: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(str(dim), symbols) for dim in tensor.dims)


def _buffers(
    interface: KernelInterface,
    arrays: list[np.ndarray[Any, Any]],
    constants: list[np.ndarray[Any, Any]],
    shapes: list[tuple[int, ...]],
    symbols: Mapping[str, int],
) -> list[Buffer]:
    """Inputs, constants, outputs and, last, the workspace."""
    kinds = [
        ("input", INPUT, interface.inputs, arrays),
        ("constant", CONSTANT, interface.constants, constants),
    ]
    buffers = list[Buffer]()
    for name, kind, types, values in kinds:
        for i, (tensor, array) in enumerate(zip(types, values, strict=True)):
            assert array.shape == _shape(tensor, symbols), f"{name} {i} has shape {array.shape}, not {tensor}"
            content = np.ascontiguousarray(array, ELEMENTS[tensor.dtype]).tobytes()
            buffers.append(Buffer(f"{name} {i}", kind, bytearray(content)))
    for i, (output, shape) in enumerate(zip(interface.outputs, shapes, strict=True)):
        size = prod(shape) * np.dtype(ELEMENTS[output.dtype]).itemsize
        buffers.append(Buffer(f"output {i}", OUTPUT, bytearray(_POISON * size)))
    workspace = evaluate(interface.workspace, {**symbols, "workers": 1})
    return [*buffers, Buffer("the workspace", WORKSPACE, bytearray(_POISON * workspace))]


def run_of(spec: GpuLaunch, workspace: int, symbols: Mapping[str, int]) -> Run:
    """A launch at given sizes; buffer ``workspace`` is the workspace."""
    grid = tuple(evaluate(text, symbols) for text in spec.grid)
    assert max(grid[0] >> 15, *grid[1:]) < 1 << 16, f"{spec.name}: no GPU has a grid of {grid}"
    params = tuple(_param(text, workspace, symbols) for text in spec.params)
    return Run(
        spec.entry, (grid[0], grid[1], grid[2]), spec.block, evaluate(spec.shared_bytes, symbols), params
    )


def _param(text: str, workspace: int, symbols: Mapping[str, int]) -> Pointer | int:
    kind, _, value = text.partition(":")
    if kind == "buffer":
        return Pointer(int(value))
    if kind == "workspace":
        return Pointer(workspace, evaluate(value, symbols))
    assert kind == "i64", f"unknown parameter {text}"
    return evaluate(value, symbols)
