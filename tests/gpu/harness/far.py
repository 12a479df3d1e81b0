"""Kernels whose buffers have more elements than 32 bits count: their last blocks, over files with holes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from kcache_compiler.types import CompiledKernel, GpuLaunch
from kcache_grpc.model.sizes.expression import evaluate, holds
from tests.gpu.harness.emulate import INPUT, OUTPUT, WORKSPACE, Buffer, Run, launch
from tests.gpu.harness.run import ELEMENTS, run_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Window:
    """What of an array anybody looks at: ``content``, from its flat element ``first`` on."""

    shape: tuple[int, ...]
    first: int
    content: Array


def run_last(
    kernel: CompiledKernel, inputs: Sequence[Window], outputs: Sequence[Window], blocks: int, order: str
) -> list[Array]:
    """The windows of the outputs, after the last ``blocks`` of each launch. Raises ``EmulationError``."""
    interface = kernel.interface
    symbols = {symbol.name: inputs[symbol.arg].shape[symbol.axis] for symbol in interface.symbols}
    for check in interface.checks:
        assert holds(check, symbols), check
    assert not interface.constants
    stated = [tuple(evaluate(str(dim), symbols) for dim in output.dims) for output in interface.outputs]
    assert stated == [output.shape for output in outputs]
    buffers = [_buffer("input", INPUT, *pair) for pair in zip(inputs, interface.inputs, strict=True)]
    buffers += [_buffer("output", OUTPUT, *pair) for pair in zip(outputs, interface.outputs, strict=True)]
    workspace = evaluate(interface.workspace, {**symbols, "workers": 1})
    buffers.append(Buffer("the workspace", WORKSPACE, bytearray(), size=workspace))
    chosen = [spec for spec in interface.gpu_launches if holds(spec.when, symbols)]
    runs = [_last(spec, len(buffers) - 1, symbols, blocks) for spec in chosen]
    launch(kernel.artifacts["llvm"].decode(), buffers, runs, order, 7)
    results = buffers[len(inputs) : -1]
    return [
        np.frombuffer(bytes(buffer.content), ELEMENTS[kind.dtype])
        for buffer, kind in zip(results, interface.outputs, strict=True)
    ]


def _buffer(name: str, kind: int, window: Window, type: Any) -> Buffer:
    element = np.dtype(ELEMENTS[type.dtype])
    content = bytearray(np.ascontiguousarray(window.content, element).tobytes())
    width = element.itemsize
    return Buffer(name, kind, content, window.first * width, prod(window.shape) * width)


def _last(spec: GpuLaunch, workspace: int, symbols: Mapping[str, int], blocks: int) -> Run:
    run = run_of(spec, workspace, symbols)
    total = prod(run.grid)
    return replace(run, blocks=range(max(0, total - blocks), total))
