"""Packing by one name: what fills panels of A and B."""

from kcache_compiler.codegen.gemm.pack_a import pack_a
from kcache_compiler.codegen.gemm.pack_b import copy_b, pack_b
from kcache_compiler.codegen.gemm.packing import consecutive, table

__all__ = ["consecutive", "copy_b", "pack_a", "pack_b", "table"]
