"""A loop with a data-dependent trip count: one launch of one block, whose threads iterate together.

The operations of the loop are grouped as launches are. Each group is a step: its points are distributed over
the threads of the block, with a barrier before a step that depends on accesses of other threads. All threads
read the condition from memory. Each thread computes the scalars of the loop (offsets of slices) in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.llvm.gpu_targets import WARP_SIZE
from kcache_compiler.lower.gpu.intrinsics import barrier, special
from kcache_compiler.lower.gpu.kernel import Kernel, LaunchGeometry, Point, Program
from kcache_compiler.lower.gpu.loops.points import PointWriter
from kcache_compiler.lower.gpu.loops.rows import row_memory
from kcache_compiler.lower.gpu.loops.scalar_stores import STORE, Store, write_store
from kcache_compiler.lower.gpu.loops.sort_scatter import write_marker
from kcache_compiler.lower.gpu.operands import offsets_of, operands_of, read_by, written_by
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.launch import names_of
from kcache_compiler.lower.loops.memory import Pointer, root_of
from kcache_compiler.lower.loops.planned_launches import Planned
from kcache_compiler.lower.sort_scatter.loop_builder import compare, loop
from kcache_compiler.lower.sort_scatter.marker import is_marker, marked
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, scf
from kcache_compiler.schedule.loop_nest import Axis, Check
from kcache_compiler.shapes.formula import Formula, product

WHILE = "scf.while"
#: Operations without side effects that a loop may contain.
QUIET = (
    *("memref.alloc", "memref.get_global", "memref.dim", "builtin.unrealized_conversion_cast"),
    *("linalg.generic", *memory.VIEWS),
)
NUMBERS = ("arith.", "math.", "complex.")

#: The roots of the buffers that threads read and wrote since the last barrier; None if unknown.
Accesses: TypeAlias = tuple[set[mlir.Value] | None, set[mlir.Value] | None]


@dataclass(frozen=True)
class WhileLoop:
    """An outermost loop, and the groups in it."""

    op: mlir.Op
    steps: list[Planned]

    @property
    def generics(self) -> list[mlir.Op]:
        return [generic for step in self.steps for generic in step.generics]


def outermost(main: mlir.Op) -> list[mlir.Op]:
    """The outermost loops of ``main``. Raises ``UnsupportedOp`` for other control flow."""
    for op in mlir.named(main, "scf.for", "scf.if", "scf.index_switch", WHILE):
        carries = mlir.name_of(op) != WHILE or list(op.operands) or list(op.results)
        if carries and not _in_body(op):
            raise UnsupportedOp(
                mlir.name_of(op),
                "control flow that depends on data, but for loops, has no GPU form; compile it for a CPU",
                mlir.location_of(op),
            )
    return [op for op in mlir.named(main, WHILE) if mlir.within(op, main)]


def _in_body(op: mlir.Op) -> bool:
    """Whether ``op`` is in the body of a structured operation, which a single thread runs."""
    parent = mlir.parent_of(op)
    while mlir.name_of(parent) not in ("func.func", "linalg.generic"):
        parent = mlir.parent_of(parent)
    return mlir.name_of(parent) == "linalg.generic"


class WhileLoopKernel(Kernel):
    """The kernel of a loop: written block by block, with barriers between dependent steps.

    Buffers in the workspace are addressed from its start, since there may be more of them than kernel
    parameters.
    """

    def __init__(self, program: Program, name: str, written: set[mlir.Value], threads: int) -> None:
        super().__init__(program, name, written, written)
        self.threads = threads
        self.block = self.entry
        self._workspace: mlir.Value | None = None
        #: Roots that threads read and wrote since the last barrier; None: unknown.
        self._read: set[mlir.Value] | None = None
        self._wrote: set[mlir.Value] | None = set()

    def body(self) -> mlir.InsertionPoint:
        return mlir.at_end(self.block)

    def here(self) -> mlir.InsertionPoint:
        return self.body()

    def _allocated(self, offset: Formula, marks: str) -> mlir.Value:
        if self._workspace is None:
            self._workspace = self._parameter(memory.pointer_type(), "workspace:0")
        return memory.advance(self._workspace, mlir.type_of("i8"), self.value(offset))

    def deal(self, count: Formula, threads: int, point: Point) -> LaunchGeometry:
        first = arith.extui(memory.i64(), special("tid.x"))
        small = isinstance(count, int) and count < 2**31

        def numbered(number: mlir.Value) -> None:
            point(number, arith.trunci(mlir.type_of("i32"), number) if small else None)

        loop(first, self.value(count), numbered, self.threads)
        return LaunchGeometry((1, 1, 1), (self.threads, 1, 1))

    def anything_happened(self) -> None:
        """Note that the accesses since the last barrier are unknown."""
        self._read = self._wrote = None

    def touch(self, reads: set[mlir.Value], writes: set[mlir.Value]) -> None:
        """Emit a barrier if the following accesses conflict with those since the last one."""
        if _meet(writes, self._read) or _meet(reads | writes, self._wrote):
            with self.body():
                barrier()
            self._read, self._wrote = set(), set()
        self._read = None if self._read is None else self._read | reads
        self._wrote = None if self._wrote is None else self._wrote | writes

    def met(self) -> Accesses:
        """The accesses since the last barrier, for ``meet_again`` at an equivalent position."""
        return self._read, self._wrote

    def meet_again(self, met: Accesses) -> None:
        self._read, self._wrote = met

    def compute(self, op: mlir.Op) -> None:
        """Compute a scalar of the loop in place."""
        if mlir.name_of(op) == "memref.load":
            self.touch({root_of(op.operands[0])}, set())
        for result in op.results:
            self.scalar(result)


def _meet(roots: set[mlir.Value], accessed: set[mlir.Value] | None) -> bool:
    return bool(roots) and (accessed is None or not roots.isdisjoint(accessed))


def threads_of(while_loop: WhileLoop, most: int) -> int:
    """The threads of the block: the points of the largest step, in whole warps."""
    points = [product([axis.size for axis in _shared(step)]) for step in while_loop.steps]
    static_points = [count for count in points if isinstance(count, int)]
    if len(static_points) < len(points) or any(is_marker(step.generics[0]) for step in while_loop.steps):
        return most
    largest = max(static_points, default=1)
    return 1 if largest <= 1 else min(most, -(-largest // WARP_SIZE) * WARP_SIZE)


def _shared(step: Planned) -> list[Axis]:
    return list(step.fused.statements[0].nest.axes[: step.fused.shared])


def captured_values(while_loop: WhileLoop) -> list[mlir.Value]:
    """The scalars that the loop captures, including the offsets of captured views."""
    nested = set(mlir.walk(while_loop.op))
    operands = [operand for op in mlir.walk(while_loop.op) for operand in op.operands]
    numbers = [operand for operand in operands if not mlir.is_memref(operand.type)]
    numbers += offsets_of([operand for operand in operands if mlir.is_memref(operand.type)])
    owners = [(mlir.defining(number), number) for number in dict.fromkeys(numbers)]
    return [number for owner, number in owners if owner is not None and owner not in nested]


def write_while_loop(
    kernel: WhileLoopKernel, while_loop: WhileLoop
) -> tuple[LaunchGeometry, tuple[str, ...], tuple[Check, ...]]:
    """Write the kernel of a loop; returns its geometry, the names of its operations, and runtime checks."""
    for number in captured_values(while_loop):
        kernel.scalar(number)
    walk = _Walk(kernel, {step.generics[-1]: step for step in while_loop.steps})
    walk.loop(while_loop.op)
    names = tuple(dict.fromkeys(name for step in while_loop.steps for name in _names(step)))
    return LaunchGeometry((1, 1, 1), (kernel.threads, 1, 1)), names, tuple(walk.checks)


def _names(step: Planned) -> tuple[str, ...]:
    kind = marked(step.generics[0])
    return (kind[0],) if kind is not None else names_of([code.body for code in step.codes.values()])


class _Walk:
    """Writes the operations of blocks, in order; ``steps`` are groups by their last operation."""

    def __init__(self, kernel: WhileLoopKernel, steps: Mapping[mlir.Op, Planned]) -> None:
        self.kernel = kernel
        self.steps = steps
        self.checks: dict[Check, None] = {}

    def loop(self, op: mlir.Op) -> None:
        kernel, outer = self.kernel, self.kernel.block
        with kernel.body():
            while_op = scf.WhileOp([], []).operation
        kernel.anything_happened()
        met: Accesses | None = None
        for number in range(2):
            kernel.block = mlir.new_block(while_op, number, [])
            block = mlir.block_of(op, number)
            self.block(block)
            with kernel.body():
                operands = [kernel.scalar(operand) for operand in mlir.last(block).operands]
                if number == 0:
                    scf.condition(operands[0], operands[1:])
                else:
                    scf.yield_(operands)
            met = met or kernel.met()
        kernel.block = outer
        assert met is not None
        kernel.meet_again(met)

    def block(self, block: mlir.Block) -> None:
        *operations, _ = mlir.operations(block)
        for op in operations:
            name = mlir.name_of(op)
            if op in self.steps:
                self.step(self.steps[op])
            elif name == WHILE:
                self.loop(op)
            elif name == STORE:
                self.store(Store(op))
            elif name == "memref.load" or name.startswith(NUMBERS):
                self.kernel.compute(op)
            elif name not in QUIET:
                raise UnsupportedOp(name, "in a loop that data ends, on a GPU", mlir.location_of(op))

    def store(self, store: Store) -> None:
        kernel = self.kernel
        kernel.touch(set(), {store.root})
        with kernel.body():
            first = compare("eq", arith.extui(memory.i64(), special("tid.x")), mlir.constant(0))
            chosen = scf.IfOp(first).operation
        outer, kernel.block = kernel.block, mlir.block_of(chosen)
        write_store(kernel, store)
        with kernel.body():
            scf.yield_([])
        kernel.block = outer

    def step(self, step: Planned) -> None:
        kernel, fused = self.kernel, step.fused
        kernel.touch(read_by(step), written_by(step))
        if is_marker(step.generics[0]):
            self.checks |= dict.fromkeys(write_marker(kernel, step.generics[0])[2])
            return
        with kernel.body():
            operands = operands_of(kernel, step)
            for number, size in fused.rows:
                element = mlir.element_type(step.buffers[number].type)
                operands.pointers[number] = Pointer(row_memory(kernel, None, number, size), element, [])
            for number, source in fused.instead:
                operands.pointers[number] = operands.pointers[source]
            writer = PointWriter(
                kernel, fused, step.codes, operands.pointers, operands.views, operands.scalars
            )
            sizes = [axis.size for axis in _shared(step)]
            kernel.deal(product(sizes), kernel.threads, writer.numbered(sizes))
        self.checks |= dict.fromkeys(fused.checks)
