"""Exponentials of attention weights by the GPU's approximate instruction, if the program rounds the weights.

Weights that a program rounds to f16 or bf16 keep 11 or 8 bits. ``ex2.approx.ftz.f32`` is within 2^-22 of
2^x; it is 1 at 0, infinite and NaN where 2^x is, and 0 below 2^-126. With the preceding product, an
exponential is two instructions instead of seventeen, which were half of a thread's instructions between
barriers.
"""

from __future__ import annotations

import math

from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.gpu.intrinsics import intrinsic
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.attention.mark import members_by_role
from kcache_compiler.passes.inline_math_functions import PREFIX
from kcache_compiler.passes.stage import Unit

_EXP = f"{PREFIX}exp_f32"
_ROUNDED = ("f16", "bf16")


def estimate_weights(unit: Unit) -> None:
    """Use approximate exponentials in every attention with half-precision weights."""
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
        estimate = intrinsic("ex2.approx.ftz.f", [scaled], yielded.type)
    yielded.replace_all_uses_with(estimate)
    call.erase()


def _drop_declaration(module: mlir.Module) -> None:
    """Erase the function's declaration if it has no callers left."""
    if any(_callee(call) == _EXP for call in mlir.named(module, "func.call")):
        return
    for function in mlir.operations(module.body):
        if mlir.symbol_of(function) == _EXP:
            function.erase()


def _callee(call: mlir.Op) -> str:
    return str(call.attributes["callee"]).removeprefix("@")
