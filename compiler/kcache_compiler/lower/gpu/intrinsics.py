"""What threads ask of the GPU, as calls of LLVM's intrinsics."""

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
    """Wait for all threads of the block; what they wrote is seen after."""
    return _call("barrier.cta.sync.aligned.all", [mlir.constant(0, "i32")])


def warp_barrier() -> mlir.Op:
    """The same for the threads of a warp."""
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
        halves = [arith.extui(integer, shuffle_xor(one, lanes)) for one in (low, high)]
        moved = arith.shli(halves[1], mlir.constant(32))
        other = arith.ori(halves[0], moved)
    elif bits == 32:
        other = shuffle_xor(raw, lanes)
    else:
        wide = shuffle_xor(arith.extui(word, raw), lanes)
        other = arith.trunci(integer, wide)
    return other if kind == f"i{bits}" else arith.bitcast(number.type, other)


def any_lane(condition: mlir.Value) -> mlir.Value:
    """Whether ``condition`` holds in some lane of the warp."""
    return intrinsic("vote.any.sync", [mlir.constant(EVERY_LANE, "i32"), condition], mlir.type_of("i1"))


def copy_async(to: mlir.Value, start: mlir.Value, size: int, wanted: mlir.Value) -> None:
    """Copy ``size`` bytes to shared memory later: ``wanted`` of them (i32), zeros for the rest."""
    source = llvm.addrspacecast(mlir.type_of("!llvm.ptr<1>"), start)
    where = "cg" if size == 16 else "ca"
    _call(f"cp.async.{where}.shared.global.{size}.s", [to, source, wanted])


def commit_copies() -> None:
    """The copies since the last call are one group."""
    _call("cp.async.commit.group", ())


def wait_for_copies(left: int) -> None:
    """Wait until at most ``left`` groups of this thread are under way."""
    _call("cp.async.wait.group", [mlir.constant(left, "i32")])
