"""What threads ask of the GPU, as calls of LLVM's intrinsics."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.codegen import mlir

#: All lanes of a warp.
EVERY_LANE = -1


def intrinsic(
    name: str, operands: Sequence[mlir.Value] = (), result: mlir.Type | None = None
) -> mlir.Value | None:
    """Call ``llvm.nvvm.{name}``; its result where it has one."""
    call = mlir.create(
        "llvm.call_intrinsic",
        operands,
        [] if result is None else [result],
        {
            "intrin": mlir.string_attr(f"llvm.nvvm.{name}"),
            "operandSegmentSizes": mlir.attribute(f"array<i32: {len(operands)}, 0>"),
            "op_bundle_sizes": mlir.attribute("array<i32>"),
        },
    )
    return None if result is None else call.results[0]


def special(name: str) -> mlir.Value:
    """A special register as i32: ``tid.x``, ``ctaid.x``."""
    return intrinsic(f"read.ptx.sreg.{name}", (), mlir.type_of("i32"))


def barrier() -> None:
    """Wait for all threads of the block; what they wrote is seen after."""
    intrinsic("barrier.cta.sync.aligned.all", [mlir.constant(0, "i32")])


def warp_barrier() -> None:
    """The same for the threads of a warp."""
    intrinsic("bar.warp.sync", [mlir.constant(EVERY_LANE, "i32")])


def shuffle_xor(number: mlir.Value, lanes: int) -> mlir.Value:
    """The i32 ``number`` of the lane whose index differs in the bits ``lanes``."""
    operands = [
        mlir.constant(EVERY_LANE, "i32"),
        number,
        mlir.constant(lanes, "i32"),
        mlir.constant(31, "i32"),
    ]
    return intrinsic("shfl.sync.bfly.i32", operands, mlir.type_of("i32"))
