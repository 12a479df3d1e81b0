"""Exponentials of attention's weights, by the GPU's own instruction where the program rounds them anyway.

The weights that a program rounds to f16 or bf16 keep 11 or 8 bits. ``ex2.approx.ftz.f32`` is within 2^-22 of
2^x; it gives 1 at 0, infinity and NaN where 2^x has them, and 0 below 2^-126. With the product before it, an
exponential is two instructions in the place of seventeen, and half of what a thread does between barriers.
"""

from __future__ import annotations

import math

from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.gpu.intrinsics import intrinsic
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.attention.mark import members_by_role
from kcache_compiler.passes.expand_math import PREFIX
from kcache_compiler.passes.stage import Unit

_EXP = f"{PREFIX}exp_f32"
_ROUNDED = ("f16", "bf16")


def estimate_weights(unit: Unit) -> None:
    """Let every attention with rounded weights compute them from estimates; those in f64 or f32 stay."""
    if not isinstance(unit.target, Device) or not unit.target.gpu.cp_async:
        return
    for members in members_by_role(mlir.main_function(unit.module)):
        rounding = next((members[role][0] for role in ("guarded", "share") if role in members), None)
        if rounding is not None and str(mlir.element_type(rounding.results[0].type)) in _ROUNDED:
            _estimate(members["weights"][0])
    _drop_declaration(unit.module)


def _estimate(weights: mlir.Op) -> None:
    (yielded,) = mlir.operations(mlir.block_of(weights))[-1].operands
    call = mlir.defining(yielded)
    if call is None or mlir.name_of(call) != "func.call" or _callee(call) != _EXP:
        return
    with mlir.before(call):
        factor = mlir.float_constant(math.log2(math.e), yielded.type)
        scaled = arith.mulf(call.operands[0], factor)
        made = intrinsic("ex2.approx.ftz.f", [scaled], yielded.type)
    yielded.replace_all_uses_with(made)
    call.erase()


def _drop_declaration(module: mlir.Module) -> None:
    """A function that nobody calls by now is not declared."""
    if any(_callee(call) == _EXP for call in mlir.named(module, "func.call")):
        return
    for function in mlir.operations(module.body):
        if mlir.symbol_of(function) == _EXP:
            function.erase()


def _callee(call: mlir.Op) -> str:
    return str(call.attributes["callee"]).removeprefix("@")
