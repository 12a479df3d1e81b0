"""The compiler fingerprint: everything besides the key's own ingredients that may change bytes."""

from __future__ import annotations

import functools
import hashlib
from importlib.metadata import version

#: Rises by one when the bytes of any kernel change for the same toolchain otherwise; the golden
#: bytes test in tests/compiler/test_codegen_golden.py says when.
CODE_VERSION = 8


@functools.cache
def toolchain() -> tuple[tuple[str, str], ...]:
    """Ordered (ingredient, value) pairs; equal pairs give equal bytes for equal keys."""
    from kcache_compiler.codegen.gpu import PIPELINE as GPU_PIPELINE
    from kcache_compiler.codegen.gpu.cubin import assembler
    from kcache_compiler.codegen.llvmir import llvm_version
    from kcache_compiler.codegen.math import VERSION
    from kcache_compiler.codegen.stage import describe
    from kcache_compiler.compile import PIPELINE
    from kcache_compiler.package.link import FLAGS, linkers

    pipeline = describe(PIPELINE) + " ".join(FLAGS)
    linked_by = "; ".join(f"{linker.version}" for linker in linkers()) or "none"
    return (
        ("torch-mlir", version("torch-mlir")),
        ("llvmlite", version("llvmlite")),
        ("llvm", llvm_version()),
        ("linker", linked_by),
        ("math", str(VERSION)),
        ("pipeline", hashlib.sha256(pipeline.encode()).hexdigest()),
        ("gpu-pipeline", hashlib.sha256(describe(GPU_PIPELINE).encode()).hexdigest()),
        ("ptxas", assembler()),
        ("code", str(CODE_VERSION)),
    )
