"""Products of matrices as MLIR's own vector-to-nvgpu makes them: where fragments lie, said by others."""

from __future__ import annotations

import re

from torch_mlir import ir, passmanager
from torch_mlir.dialects import llvm

from kcache_compiler.llvm.compatibility import downgrade
from kcache_compiler.mlir import operations as mlir

_TO_MMA = "builtin.module(gpu.module(gpu.func(convert-vector-to-gpu{use-nvgpu=true})))"
_LOWER = (
    "builtin.module(nvvm-attach-target{chip=sm_80 O=3},convert-nvgpu-to-nvvm,convert-vector-to-scf,"
    "expand-strided-metadata,fold-memref-alias-ops,lower-affine,gpu.module(canonicalize,cse,convert-scf-to-cf,"
    "convert-vector-to-llvm,convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=true index-bitwidth=64},"
    "convert-math-to-llvm,convert-nvvm-to-llvm,reconcile-unrealized-casts,canonicalize,cse))"
)
_SPACE = ", #gpu.address_space<workgroup>"
_PRODUCT = """
#turned = affine_map<(i, j) -> (j, i)>
#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>
module attributes {{gpu.container_module}} {{ gpu.module @kernels {{
  {globals}
  gpu.func @product(%a: memref<{el}>, %b: memref<{el}>, %c: memref<{acc}>)
      kernel attributes {{known_block_size = array<i32: 32, 1, 1>}} {{
    %zero = arith.constant 0 : index
    %pad = arith.constant 0.0 : {el}
    {operands}
    %out = memref.reinterpret_cast %c to offset: [0], sizes: [{m}, 8], strides: [8, 1]
      : memref<{acc}> to memref<{m}x8x{acc}>
    %l = vector.transfer_read %left[%zero, %zero], %pad {{in_bounds = [true, true]}}
      : memref<{m}x{k}x{el}{space}>, vector<{m}x{k}x{el}>
    %r = vector.transfer_read %right[%zero, %zero], %pad
      {{in_bounds = [true, true], permutation_map = #turned}} : memref<{k}x8x{el}{space}>, vector<8x{k}x{el}>
    %none = arith.constant dense<0.0> : vector<{m}x8x{acc}>
    %sum = vector.contract {{indexing_maps = [#left, #right, #out], kind = #vector.kind<add>,
      iterator_types = ["parallel", "parallel", "reduction"]}} %l, %r, %none
      : vector<{m}x{k}x{el}>, vector<8x{k}x{el}> into vector<{m}x8x{acc}>
    vector.transfer_write %sum, %out[%zero, %zero] {{in_bounds = [true, true]}}
      : vector<{m}x8x{acc}>, memref<{m}x8x{acc}>
    gpu.return
  }}
}} }}
"""
_VIEWS = """
    {left} = memref.reinterpret_cast {a} to offset: [0], sizes: [{m}, {k}], strides: [{k}, 1]
      : memref<{el}> to memref<{m}x{k}x{el}>
    {right} = memref.reinterpret_cast {b} to offset: [0], sizes: [{k}, 8], strides: [8, 1]
      : memref<{el}> to memref<{k}x8x{el}>
"""
_GLOBALS = """
  memref.global "private" @left : memref<{m}x{k}x{el}{space}> {{alignment = 16}}
  memref.global "private" @right : memref<{k}x8x{el}{space}> {{alignment = 16}}
"""
_SHARED = """
    %left = memref.get_global @left : memref<{m}x{k}x{el}{space}>
    %right = memref.get_global @right : memref<{k}x8x{el}{space}>
    gpu.barrier
"""
_COPY = """
    scf.for %{name}_i = %lane to %{name}_size step %warp {{
      %row = arith.divui %{name}_i, %{name}_columns : index
      %column = arith.remui %{name}_i, %{name}_columns : index
      %value = memref.load %from_{name}[%row, %column] : memref<{shape}x{el}>
      memref.store %value, {to}[%row, %column] : memref<{shape}x{el}, {space}>
    }}
"""


def product(el: str, acc: str, m: int, k: int, shared: bool) -> str:
    """LLVM IR of a kernel of one warp: c[m, 8] = a[m, k] b[k, 8], its operands in shared memory or not."""
    space = _SPACE if shared else ""
    names = {"el": el, "acc": acc, "m": m, "k": k, "space": space}
    views = _VIEWS.format(left="%left", right="%right", a="%a", b="%b", **names)
    text = _PRODUCT.format(
        globals=_GLOBALS.format(**names) if shared else "",
        operands=_SHARED.format(**names) if shared else views,
        **names,
    )
    with mlir.new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        passmanager.PassManager.parse(_TO_MMA).run(module.operation)
        printed = str(module)
        assert "nvgpu.mma.sync" in printed
        if el == "f32":
            printed = printed.replace("mmaShape = [16, 8, 8]}", "mmaShape = [16, 8, 8], tf32Enabled}")
        if shared:
            assert printed.count("nvgpu.ldmatrix") == 2
            printed = printed.replace("gpu.barrier\n", _filled(printed, names), 1)
        module = ir.Module.parse(printed)
        passmanager.PassManager.parse(_LOWER).run(module.operation)
        assert "unrealized_conversion_cast" not in str(module), "translating these ends the process"
        (kernels,) = (
            operation for operation in module.body.operations if operation.operation.name == "gpu.module"
        )
        return downgrade(llvm.translate_module_to_llvmir(kernels.operation))


def _filled(printed: str, names: dict[str, object]) -> str:
    """Copies both operands to shared memory; it is put in later, as vector-to-nvgpu would stumble over it."""
    spaced = re.search(r"@left : memref<\S*, (.*)> \{", printed)
    assert spaced
    views = _VIEWS.format(left="%from_left", right="%from_right", a="%arg0", b="%arg1", **names)
    lines = [views, "%lane = gpu.thread_id x", "%warp = arith.constant 32 : index"]
    for name, rows, columns in (("left", names["m"], names["k"]), ("right", names["k"], 8)):
        to = re.search(rf"(%\S+) = memref.get_global @{name} ", printed)
        assert to
        lines.append(f"%{name}_size = arith.constant {int(str(rows)) * int(str(columns))} : index")
        lines.append(f"%{name}_columns = arith.constant {columns} : index")
        shape = f"{rows}x{columns}"
        lines.append(_COPY.format(name=name, shape=shape, el=names["el"], to=to[1], space=spaced[1]))
    return "\n".join([*lines, "gpu.barrier\n"])
