"""Inspects kernels of a worker before they are signed: a program may have compromised the worker."""

from __future__ import annotations

from kcache_compiler import errors as compiler
from kcache_compiler.llvm import elf
from kcache_compiler.llvm.target import target_named
from kcache_compiler.types import CompiledKernel
from kcache_grpc.errors import CompileFailed
from kcache_grpc.model.target import Target


def inspect(kernel: CompiledKernel, target: Target) -> CompiledKernel:
    """``kernel``, if its shared object is one that the compiler makes.

    It exports what kernels export, needs a few functions of the C library and nothing else, has no executable
    stack, no writable segment with code, and nothing that a loader runs. Raises ``CompileFailed``.
    """
    content = kernel.artifacts.get("so")
    if content is not None:
        inspect_shared_object(content, target, "a worker returned a kernel that is not published")
    return kernel


def inspect_shared_object(content: bytes, target: Target, problem: str) -> None:
    """See ``inspect``. ``problem`` begins the message of the error."""
    try:
        elf.check_untrusted(content, target_named(str(target)))
    except compiler.CompileFailed as error:
        raise CompileFailed(
            f"{problem}: {error.diagnostic}", stage=error.stage, diagnostic=error.diagnostic
        ) from None
