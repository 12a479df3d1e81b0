"""Shared memory of a block: a static variable of the kernel, or dynamic memory of the launch."""

from __future__ import annotations

from kcache_compiler.llvm.gpu_targets import STATIC_SHARED
from kcache_compiler.lower.gpu.kernel import Kernel
from kcache_compiler.lower.loops.memory import pointer_type
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import llvm

#: Alignment of shared memory in bytes.
ALIGNMENT = 16


def shared_place(kernel: Kernel, name: str, size: int) -> mlir.Value:
    """Allocate ``size`` bytes for the whole kernel; returns a pointer into shared memory.

    More than the static limit is dynamic: ``dynamic_bytes`` are then part of the launch. A kernel may
    allocate dynamic memory once.
    """
    dynamic = dynamic_bytes(size)
    linkage, count = ("external", 0) if dynamic else ("internal", size)
    kernel.add_global(
        f"llvm.mlir.global {linkage} @{name}() {{addr_space = 3 : i32, alignment = {ALIGNMENT} : i64}}"
        f" : !llvm.array<{count} x i8>"
    )
    with kernel.before():
        return mlir.address_of_symbol(name, "!llvm.ptr<3>")


def tiled_symbol(kernel: str) -> str:
    """The symbol of the shared memory of a tiled kernel."""
    return f"{kernel}_tiles"


def dynamic_bytes(size: int) -> int:
    """The dynamic shared memory of a launch whose kernel allocates ``size`` bytes."""
    return size if size > STATIC_SHARED else 0


def shared_memory(kernel: Kernel, name: str, size: int) -> mlir.Value:
    """``shared_place`` as a generic pointer."""
    place = shared_place(kernel, name, size)
    with kernel.before():
        return llvm.addrspacecast(pointer_type(), place)
