"""Transposed accesses: tiles of any shape are turned by one function for each type of elements."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel

_SHAPES = ((48, 80), (67, 129), (256, 33))


def _program(shapes: tuple[tuple[int, int], ...], kinds: tuple[str, ...]) -> str:
    arguments: list[str] = []
    lines: list[str] = []
    results: list[str] = []
    for kind in kinds:
        for rows, columns in shapes:
            name, source_type, turned = (
                len(lines),
                f"tensor<{rows}x{columns}x{kind}>",
                f"tensor<{columns}x{rows}x{kind}>",
            )
            arguments.append(f"%a{name}: {source_type}")
            lines.append(
                f"%r{name} = stablehlo.transpose %a{name}, dims = [1, 0] : ({source_type}) -> {turned}"
            )
            results.append(turned)
    returned = ", ".join(f"%r{name}" for name in range(len(lines)))
    kinds_text = ", ".join(results)
    body = "\n".join(lines)
    head = f"func.func @main({', '.join(arguments)}) -> ({kinds_text})"
    return f"{head} {{\n{body}\nreturn {returned} : {kinds_text}\n}}"


def _kernel(shapes: tuple[tuple[int, int], ...], kinds: tuple[str, ...]) -> Kernel:
    text, count = _program(shapes, kinds), len(shapes) * len(kinds)
    return Kernel(lower_module(text, count, host_target().isa, CompileOptions(), lambda _: None))


def test_transposes_of_all_shapes_share_the_function_that_turns_a_tile() -> None:
    kernel = _kernel(_SHAPES, ("f32", "f64"))
    text = kernel.compiled.artifacts["llvm"].decode()
    defined = Counter(re.findall(r"^define internal void @transposed_\d+x\d+x(\w+)\(", text, re.MULTILINE))
    called = Counter(re.findall(r"call void @transposed_\d+x\d+x(\w+)\(", text))
    assert defined == {"f32": 1, "f64": 1}
    assert called == {"f32": len(_SHAPES), "f64": len(_SHAPES)}
    # LLVM inlines it nowhere, so that it is optimized and emitted once.
    assembly = kernel.compiled.artifacts["asm"].decode()
    emitted = Counter(re.findall(r"^transposed_\d+x\d+x(\w+?)(?:\.\w+)?:", assembly, re.MULTILINE))
    assert emitted == {"f32": 1, "f64": 1}
    assert len(re.findall(r"call\w*\s+transposed_|bl\s+transposed_", assembly)) >= 2 * len(_SHAPES)
    random = np.random.default_rng(0)
    inputs = [
        random.standard_normal(shape).astype(dtype) for dtype in (np.float32, np.float64) for shape in _SHAPES
    ]
    for matrix, result in zip(inputs, kernel(*inputs), strict=True):
        np.testing.assert_array_equal(result, matrix.T)
