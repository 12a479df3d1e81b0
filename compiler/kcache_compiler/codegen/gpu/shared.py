"""Shared memory of a block: a variable of the kernel's own."""

from __future__ import annotations

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.gpu.kernel import Kernel
from kcache_compiler.codegen.memory import pointer_type

#: Bytes that all accesses may count on.
ALIGNMENT = 16


def shared_memory(kernel: Kernel, name: str, size: int) -> mlir.Value:
    """A pointer, for all of the body, to so many bytes of the block."""
    kernel.add_global(
        f"llvm.mlir.global internal @{name}() {{addr_space = 3 : i32, alignment = {ALIGNMENT} : i64}}"
        f" : !llvm.array<{size} x i8>"
    )
    with kernel.before():
        place = mlir.value(
            "llvm.mlir.addressof", (), mlir.type_of("!llvm.ptr<3>"), global_name=mlir.attribute(f"@{name}")
        )
        return mlir.value("llvm.addrspacecast", [place], pointer_type())
