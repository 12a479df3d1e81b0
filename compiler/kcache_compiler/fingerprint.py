"""The compiler's fingerprints: everything besides the key's own ingredients that may change bytes.

One for CPU targets and one for GPU targets: what only one of them uses leaves the names
of the other's kernels as they are.
"""

from __future__ import annotations

import functools
import hashlib
from importlib.metadata import version

#: Rises by one when the bytes of any kernel change for the same toolchain otherwise; the golden
#: bytes test in tests/compiler/test_codegen_golden.py says when.
CODE_VERSION = 15
#: The same, where only kernels for GPUs change; tests/compiler/gpu/test_golden.py says when.
GPU_CODE_VERSION = 6


@functools.cache
def toolchain() -> tuple[tuple[str, str], ...]:
    """Of kernels for CPUs: ordered (ingredient, value) pairs; equal pairs give equal bytes for equal keys."""
    from kcache_compiler.codegen.stage import describe
    from kcache_compiler.compile import PIPELINE
    from kcache_compiler.package.link import FLAGS, linkers

    pipeline = describe(PIPELINE) + " ".join(FLAGS)
    linked_by = "; ".join(f"{linker.version}" for linker in linkers()) or "none"
    return (
        *_libraries(),
        ("linker", linked_by),
        ("pipeline", hashlib.sha256(pipeline.encode()).hexdigest()),
        ("code", str(CODE_VERSION)),
    )


@functools.cache
def gpu_toolchain() -> tuple[tuple[str, str], ...]:
    """The same of kernels for GPUs."""
    from kcache_compiler.codegen.gpu import AMD_PIPELINE, PIPELINE
    from kcache_compiler.codegen.gpu.cubin import assembler
    from kcache_compiler.codegen.stage import describe
    from kcache_compiler.package.link import linkers

    pipelines = describe(PIPELINE) + describe(AMD_PIPELINE)
    links = next((linker.version for linker in linkers() if linker.emulations is None), "none")

    return (
        *_libraries(),
        ("ptxas", assembler()),
        ("linker", links),
        ("pipeline", hashlib.sha256(pipelines.encode()).hexdigest()),
        ("code", str(CODE_VERSION)),
        ("gpu-code", str(GPU_CODE_VERSION)),
    )


def _libraries() -> tuple[tuple[str, str], ...]:
    from kcache_compiler.codegen.llvmir import llvm_version
    from kcache_compiler.codegen.math import VERSION

    return (
        ("torch-mlir", version("torch-mlir")),
        ("llvmlite", version("llvmlite")),
        ("llvm", llvm_version()),
        ("math", str(VERSION)),
    )
