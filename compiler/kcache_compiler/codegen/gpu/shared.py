"""Shared memory of a block: a variable of the kernel's own."""

from __future__ import annotations

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.gpu.kernel import Kernel
from kcache_compiler.codegen.memory import pointer_type

#: Bytes that all accesses may count on.
ALIGNMENT = 16


def shared_place(kernel: Kernel, name: str, size: int) -> mlir.Value:
    """So many bytes of the block, for all of the body, as a pointer into shared memory."""
    kernel.add_global(
        f"llvm.mlir.global internal @{name}() {{addr_space = 3 : i32, alignment = {ALIGNMENT} : i64}}"
        f" : !llvm.array<{size} x i8>"
    )
    with kernel.before():
        return mlir.value(
            "llvm.mlir.addressof", (), mlir.type_of("!llvm.ptr<3>"), global_name=mlir.attribute(f"@{name}")
        )


def shared_memory(kernel: Kernel, name: str, size: int) -> mlir.Value:
    """The same as a pointer like any other."""
    place = shared_place(kernel, name, size)
    with kernel.before():
        return mlir.value("llvm.addrspacecast", [place], pointer_type())
