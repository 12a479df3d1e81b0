"""The builders of the dialects that the compiler creates operations of.

``torch_mlir.dialects.linalg`` also imports a domain-specific language, which takes longer than all others;
its generated builders alone are imported here.
"""

from __future__ import annotations

from torch_mlir.dialects import _linalg_ops_gen as linalg
from torch_mlir.dialects import arith, bufferization, builtin, complex, func, llvm, math, memref, scf, tensor

__all__ = [
    "arith",
    "bufferization",
    "builtin",
    "complex",
    "func",
    "linalg",
    "llvm",
    "math",
    "memref",
    "scf",
    "tensor",
]
