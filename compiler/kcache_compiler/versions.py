"""Versions of the compiler's own code and of the libraries that it generates code with."""

from __future__ import annotations

import functools
from importlib.metadata import version

#: Raised by one if the bytes of any kernel change under an otherwise equal toolchain, which
#: tests/compiler/lower/test_golden.py detects.
CODE_VERSION = 27
#: The same for changes of GPU kernels only, which tests/compiler/gpu/test_golden.py detects.
GPU_CODE_VERSION = 12


@functools.cache
def library_versions() -> tuple[tuple[str, str], ...]:
    """Return the ordered (library, version) pairs of MLIR and LLVM."""
    from kcache_compiler.llvm.emission import llvm_version

    return (
        ("torch-mlir", version("torch-mlir")),
        ("llvmlite", version("llvmlite")),
        ("llvm", llvm_version()),
    )
