"""Versions of the compiler's own code and of the libraries that it generates code with."""

from __future__ import annotations

import functools
from importlib.metadata import version

#: Rises by one when the bytes of any kernel change for the same toolchain otherwise; the golden
#: bytes test in tests/compiler/lower/test_golden.py says when.
CODE_VERSION = 17
#: The same, where only kernels for GPUs change; tests/compiler/gpu/test_golden.py says when.
GPU_CODE_VERSION = 6


@functools.cache
def library_versions() -> tuple[tuple[str, str], ...]:
    """(library, version) of MLIR and LLVM, in order."""
    from kcache_compiler.llvm.emission import llvm_version

    return (
        ("torch-mlir", version("torch-mlir")),
        ("llvmlite", version("llvmlite")),
        ("llvm", llvm_version()),
    )
