"""The toolchain fingerprints: versions and pipelines that may change the bytes of kernels.

The fingerprint is part of the kernel digest, the name of a stored kernel (not of the key, the integer that
names a spec): a kernel of another fingerprint is not found. All the rules by which a stored kernel is stale:
``kcache_grpc/model/staleness.py``. CPU and GPU targets have one fingerprint each, so that a change for one
does not invalidate kernels of the other.
"""

from __future__ import annotations

import functools
import hashlib

from kcache_compiler.versions import CODE_VERSION, GPU_CODE_VERSION, library_versions


@functools.cache
def toolchain() -> tuple[tuple[str, str], ...]:
    """Return the ordered (ingredient, value) pairs of CPU targets.

    Equal pairs give equal bytes for kernels of equal spec, arg spec, guard, target and options.
    """
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
    """Return the ordered (ingredient, value) pairs of GPU targets."""
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
