"""GPU operations of threads, as calls of LLVM's NVVM intrinsics."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm

#: All lanes of a warp.
EVERY_LANE = -1


def intrinsic(name: str, operands: Sequence[mlir.Value], result: mlir.Type) -> mlir.Value:
    """The result of a call of ``llvm.nvvm.{name}``."""
    return _call(name, operands, result).results[0]


def _call(name: str, operands: Sequence[mlir.Value], result: mlir.Type | None = None) -> mlir.Op:
    return llvm.CallIntrinsicOp(result, f"llvm.nvvm.{name}", operands, [], []).operation


def special(name: str) -> mlir.Value:
    """A special register as i32: ``tid.x``, ``ctaid.x``."""
    return intrinsic(f"read.ptx.sreg.{name}", (), mlir.type_of("i32"))


def barrier() -> mlir.Op:
    """Wait for all threads of the block; their earlier writes are visible afterwards."""
    return _call("barrier.cta.sync.aligned.all", [mlir.constant(0, "i32")])


def warp_barrier() -> mlir.Op:
    """``barrier`` for the threads of a warp."""
    return _call("bar.warp.sync", [mlir.constant(EVERY_LANE, "i32")])


def shuffle_xor(number: mlir.Value, lanes: int) -> mlir.Value:
    """The i32 ``number`` of the lane whose index differs in the bits ``lanes``."""
    operands = [
        mlir.constant(EVERY_LANE, "i32"),
        number,
        mlir.constant(lanes, "i32"),
        mlir.constant(31, "i32"),
    ]
    return intrinsic("shfl.sync.bfly.i32", operands, mlir.type_of("i32"))


def shuffled(number: mlir.Value, lanes: int) -> mlir.Value:
    """A number of any width of the lane whose index differs in the bits ``lanes``."""
    kind = str(number.type)
    bits = int("".join(filter(str.isdigit, kind)))
    integer = mlir.type_of(f"i{bits}")
    raw = number if kind == f"i{bits}" else arith.bitcast(integer, number)
    word = mlir.type_of("i32")
    if bits == 64:
        low = arith.trunci(word, raw)
        high = arith.trunci(word, arith.shrui(raw, mlir.constant(32)))
        halves = [arith.extui(integer, shuffle_xor(word, lanes)) for word in (low, high)]
        moved = arith.shli(halves[1], mlir.constant(32))
        result = arith.ori(halves[0], moved)
    elif bits == 32:
        result = shuffle_xor(raw, lanes)
    else:
        wide = shuffle_xor(arith.extui(word, raw), lanes)
        result = arith.trunci(integer, wide)
    return result if kind == f"i{bits}" else arith.bitcast(number.type, result)


def any_lane(condition: mlir.Value) -> mlir.Value:
    """Whether ``condition`` holds in some lane of the warp."""
    return intrinsic("vote.any.sync", [mlir.constant(EVERY_LANE, "i32"), condition], mlir.type_of("i1"))


def copy_async(to: mlir.Value, start: mlir.Value, size: int, valid_bytes: mlir.Value) -> None:
    """Copy ``size`` bytes to shared memory asynchronously: ``valid_bytes`` of them (i32), then zeros."""
    source = llvm.addrspacecast(mlir.type_of("!llvm.ptr<1>"), start)
    cache_operator = "cg" if size == 16 else "ca"
    _call(f"cp.async.{cache_operator}.shared.global.{size}.s", [to, source, valid_bytes])


def commit_copies() -> None:
    """Commit the copies since the last call as one group."""
    _call("cp.async.commit.group", ())


def wait_for_copies(pending: int) -> None:
    """Wait until at most ``pending`` groups of this thread are incomplete."""
    _call("cp.async.wait.group", [mlir.constant(pending, "i32")])
