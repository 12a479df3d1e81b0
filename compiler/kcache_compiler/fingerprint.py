"""The compiler's fingerprints: everything besides the key's own ingredients that may change bytes.

One for CPU targets and one for GPU targets: what only one of them uses leaves the names
of the other's kernels as they are.
"""

from __future__ import annotations

import functools
import hashlib

from kcache_compiler.versions import CODE_VERSION, GPU_CODE_VERSION, library_versions


@functools.cache
def toolchain() -> tuple[tuple[str, str], ...]:
    """Of kernels for CPUs: ordered (ingredient, value) pairs; equal pairs give equal bytes for equal keys."""
    from kcache_compiler.llvm.link import FLAGS, linkers
    from kcache_compiler.passes.math import VERSION
    from kcache_compiler.passes.stage import describe
    from kcache_compiler.pipelines import cpu

    pipeline = describe(cpu()) + " ".join(FLAGS)
    linked_by = "; ".join(f"{linker.version}" for linker in linkers()) or "none"
    return (
        *library_versions(),
        ("math", str(VERSION)),
        ("linker", linked_by),
        ("pipeline", hashlib.sha256(pipeline.encode()).hexdigest()),
        ("code", str(CODE_VERSION)),
    )


@functools.cache
def gpu_toolchain() -> tuple[tuple[str, str], ...]:
    """The same of kernels for GPUs."""
    from kcache_compiler.lower.gpu.cubin import assembler
    from kcache_compiler.passes.math import VERSION
    from kcache_compiler.passes.stage import describe
    from kcache_compiler.pipelines import nvidia

    return (
        *library_versions(),
        ("math", str(VERSION)),
        ("ptxas", assembler()),
        ("pipeline", hashlib.sha256(describe(nvidia()).encode()).hexdigest()),
        ("code", str(CODE_VERSION)),
        ("gpu-code", str(GPU_CODE_VERSION)),
    )
