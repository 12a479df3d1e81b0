"""A subkernel: the separately compiled code of an operation that a program repeats."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.schedule.gemm_tiles import Form
from kcache_compiler.shapes.formula import Formula


@dataclass(frozen=True)
class Subkernel:
    """An entry with the C ABI under its own name, and all that a kernel must know to enter it.

    Its dynamic sizes are those of the kernel around it, which hands it its own.
    """

    name: str
    object_code: bytes
    assembly: str
    #: Bytes of workspace that it wants whoever calls, a multiple of 64, and for each worker after these.
    fixed: Formula
    scratch: Formula
    #: Operations of its launches, and extent and grain of the one with the most slices.
    ops: tuple[str, ...]
    extent: str
    grain: str
    forms: tuple[Form, ...]

    @property
    def declaration(self) -> str:
        """Its declaration, and ``@NAME_enter``, which calls it unless a launch before has failed."""
        pointers = ", ".join(["!llvm.ptr"] * 4)
        return f"""
llvm.func @{self.name}({pointers}) -> i32
llvm.func internal @{self.name}_enter(%host: !llvm.ptr, %code: !llvm.ptr, %buffers: !llvm.ptr,
    %sizes: !llvm.ptr, %workspace: !llvm.ptr) attributes {{passthrough = ["noinline", "nounwind"]}} {{
  %none = llvm.mlir.constant(0 : i32) : i32
  %before = llvm.load %code : !llvm.ptr -> i32
  %failed = llvm.icmp "ne" %before, %none : i32
  llvm.cond_br %failed, ^done, ^enter
^enter:
  %ran = llvm.call @{self.name}(%buffers, %sizes, %workspace, %host) : ({pointers}) -> i32
  llvm.store %ran, %code : i32, !llvm.ptr
  llvm.br ^done
^done:
  llvm.return
}}
"""
