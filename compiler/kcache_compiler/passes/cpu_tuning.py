"""Tuning for a CPU without using more of its features: LLVM's tuning model, and interleaved loops."""

from __future__ import annotations

from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.target import Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.types import CompileOptions

#: Bytes of the vectors of targets whose loops ``interleave`` marks, and the vectors of an iteration.
VECTOR_BYTES, VECTORS = 32, 4
#: Minimum number of iterations of a loop of static bounds: of few, many would be left for shorter vectors.
FEWEST = 64
#: Minimum and maximum number of arithmetic operations of a body whose loop is interleaved.
SHORTEST, LONGEST = 28, 160
#: Operations that take no time in a vectorized loop.
_FREE = ("arith.constant", "arith.bitcast", "llvm.getelementptr", "scf.yield")


def interleave(module: mlir.Module, target: Target) -> None:
    """Mark innermost loops with long elementwise bodies: LLVM computes four vectors in an iteration.

    The operations of such a body, such as a GELU, depend on one another, and the CPU holds too few iterations
    at a time to hide their latency. LLVM itself interleaves short bodies alone.
    """
    if target.vector_bytes != VECTOR_BYTES or target.architecture != "x86_64":
        return
    mark = mlir.attribute(f"#llvm.loop_annotation<interleave = <count = {VECTORS} : i32>>")
    for loop in mlir.named(module, "scf.for"):
        if "loop_annotation" not in loop.attributes and _is_long(loop):
            loop.attributes["loop_annotation"] = mark


def _is_long(loop: mlir.Op) -> bool:
    """Whether a loop has no results, a long body, and accesses contiguous or constant addresses."""
    low, high = (mlir.constant_int(bound) for bound in list(loop.operands)[:2])
    if list(loop.results) or (low is not None and high is not None and high - low < FEWEST):
        return False
    body = mlir.block_of(loop)
    operations = mlir.operations(body)
    if not SHORTEST <= sum(mlir.name_of(op) not in _FREE for op in operations) <= LONGEST:
        return False
    strides: dict[mlir.Value, int | None] = {body.arguments[0]: 1}
    for op in operations:
        name, known = mlir.name_of(op), [strides.get(operand, 0) for operand in op.operands]
        if list(op.regions) or name.endswith("call"):
            return False
        if name == "arith.addi":
            strides[op.results[0]] = None if None in known else sum(stride or 0 for stride in known)
        elif name == "llvm.getelementptr":
            if any(stride not in (0, 1) for stride in known):
                return False
        elif name not in ("llvm.load", "llvm.store") and any(stride != 0 for stride in known):
            strides |= dict.fromkeys(op.results, None)
    return True


def tune(module: mlir.Module, target: Target, options: CompileOptions) -> None:
    """Give every function the tuning model of the options."""
    model = tuning_for(target.name, options.tuning).llvm
    if not model:
        return
    for function in mlir.named(module, "llvm.func"):
        function.attributes["tune_cpu"] = mlir.string_attr(model)
