"""Copies tiles of queries, keys and values to shared memory, asynchronously if possible."""

from __future__ import annotations

from functools import reduce
from typing import TypeAlias

from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.gpu.addresses import ahead, store, store_each
from kcache_compiler.lower.gpu.attention.plan import AttentionPlan
from kcache_compiler.lower.gpu.attention.tile_products import THREADS, MatrixRows
from kcache_compiler.lower.gpu.intrinsics import barrier, commit_copies, wait_for_copies
from kcache_compiler.lower.gpu.kernel import Kernel, split
from kcache_compiler.lower.gpu.matmul.fma_tile import Shared, index, over, rest
from kcache_compiler.lower.gpu.matmul.loader import Loader
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm, scf

#: The bits of the smallest magnitude that is infinite, or huge (1e15), by element type.
_INFINITE = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52}
_HUGE = {"f16": 0x7C00, "bf16": 0x5863, "f32": 0x58635FA9, "f64": 0x430C6BF526340000}

#: Maximum number of elements of a thread that are tested without a loop, which ptxas would split into three.
_FEW = 16

#: Chunks in registers, by operand.
Fetched: TypeAlias = dict[str, tuple[Loader, list[mlir.Value]]]


class Operands:
    """Loads tiles of the operands for a block of ``batch``; ``firsts`` are its first row and column."""

    def __init__(
        self,
        kernel: Kernel,
        plan: AttentionPlan,
        views: dict[mlir.Value, Pointer],
        shared: Shared,
        thread: mlir.Value,
        batch: mlir.Value,
        firsts: tuple[mlir.Value, mlir.Value],
    ) -> None:
        self.kernel, self.plan, self.shared, self.thread = kernel, plan, shared, thread
        attention, core = plan.attention, plan.core
        target = kernel.program.unit.target
        assert isinstance(target, Device)
        self._has_copies = target.gpu.cp_async
        parts = [part for axis in attention.batch for part in axis.parts or (axis,)]
        digits = split(batch, None, [part.size for part in parts], kernel.value) if parts else []
        self.bases: dict[str, mlir.Value] = {}
        self.starts: dict[str, Pointer] = {}
        for name, walked in plan.walks.items():
            operand = attention.operands[name]
            base = kernel.value(operand.offset)
            for counter, step in zip(digits, walked.batch_steps, strict=True):
                base = memory.plus(base, memory.times(counter, kernel.value(step)))
            self.bases[name] = base
            self.starts[name] = Pointer(
                views[operand.buffer].base, mlir.element_type(operand.buffer.type), []
            )
        self.row, self.column = firsts
        self.loaders = {"v": self._loader("v", core.columns, core.keys, self.column)}
        if plan.whole:
            self.loaders["q"] = self._loader("q", core.rows, core.depth, self.row)
            self.loaders["k"] = self._loader("k", core.depth, core.keys, mlir.constant(0))

    def _loader(self, name: str, rows: int, depth: int, first: mlir.Value) -> Loader:
        axes = self.plan.attention.depth if name == "q" else self.plan.attention.keys
        sizes = [axis.size for axis in axes]
        walked = self.plan.walks[name]
        return Loader(self.kernel, walked, self.starts[name], rows, depth, THREADS, sizes, self.thread, first)

    def _copied(self, name: str, loader: Loader) -> bool:
        """Whether chunks are copied to shared memory without conversion."""
        width = memory.element_bytes(loader.start.element)
        same_type = isinstance(self.plan.core, MatrixRows) or str(loader.start.element) == self.plan.core.wide
        scaled = not isinstance(self.plan.core, MatrixRows) and self.plan.attention.operands[name].scale != 1
        contiguous = loader.lanes == 1 or self._lies_alike(name)
        return self._has_copies and same_type and contiguous and not scaled and loader.lanes * width >= 4

    def _lies_alike(self, name: str) -> bool:
        return self.plan.walks[name].along_k == (self.plan.fast[name] == "k")

    def prefetch(self, names: list[str], k: mlir.Value, stage: mlir.Value) -> None:
        """Fetch tiles and store them in shared memory."""
        self.keep(self.fetch(names, k, stage), stage)

    def fetch(self, names: list[str], k: mlir.Value, stage: mlir.Value) -> Fetched:
        """Begin to copy tiles at ``k`` to ``stage``; returns registers for tiles that cannot be copied."""
        return {
            name: chunks
            for name in names
            if (chunks := self._fetch(name, self.loaders[name], k, stage)) is not None
        }

    def _fetch(
        self, name: str, loader: Loader, k: mlir.Value, stage: mlir.Value
    ) -> tuple[Loader, list[mlir.Value]] | None:
        if not self._copied(name, loader):
            return loader, loader.load(self.bases[name], k)
        loader.copy(self.bases[name], k, self._lines(name, stage, loader))
        return None

    def _lines(self, name: str, stage: mlir.Value, loader: Loader) -> list[mlir.Value]:
        """The addresses of the chunks of a tile in shared memory."""
        step = self.plan.staged[name].pitch * self._width if self._lies_alike(name) else self._width
        return loader.lines(lambda row, depth: self._place(name, stage, row, depth), step)

    def _place(self, name: str, stage: mlir.Value, row: mlir.Value, depth: mlir.Value) -> mlir.Value:
        staged = self.plan.staged[name]
        slow, fast = (row, depth) if self.plan.fast[name] == "k" else (depth, row)
        width = self._width
        return self.shared.at(
            memory.plus(staged.start(stage), index((slow, staged.pitch * width), (fast, width)))
        )

    @property
    def _width(self) -> int:
        core = self.plan.core
        return 2 if isinstance(core, MatrixRows) else memory.element_bytes(mlir.type_of(core.wide))

    def keep(self, fetched: Fetched, stage: mlir.Value) -> None:
        """Store chunks from registers in shared memory."""
        for name, (loader, chunks) in fetched.items():
            same_layout, width = self._lies_alike(name), self._width
            step = width if same_layout else self.plan.staged[name].pitch * width
            for address, chunk in zip(self._lines(name, stage, loader), chunks, strict=True):
                if isinstance(self.plan.core, MatrixRows) and same_layout:
                    store(address, chunk, loader.width)
                    continue
                numbers = [self._number(name, loader, chunk, lane) for lane in range(loader.lanes)]
                if same_layout:
                    store_each(address, numbers, min(16, width * loader.lanes))
                    continue
                for lane, number in enumerate(numbers):
                    store(ahead(address, lane * step), number, width)

    def _number(self, name: str, loader: Loader, chunk: mlir.Value, lane: int) -> mlir.Value:
        element = loader.start.element
        raw = chunk
        if loader.lanes > 1:
            raw = llvm.extractelement(chunk, mlir.constant(lane))
        if isinstance(self.plan.core, MatrixRows):
            return raw
        wide = mlir.type_of(self.plan.core.wide)
        number = memory.from_memory(raw, element)
        if number.type != wide:
            number = arith.extf(wide, number)
        scale = self.plan.attention.operands[name].scale
        if scale != 1:
            number = arith.mulf(number, mlir.float_constant(scale, wide))
        return number

    def commit(self) -> None:
        """Commit the copies since the last call as one group."""
        if self._has_copies:
            commit_copies()

    def arrived(self) -> None:
        """Wait for the copies of this thread."""
        if self._has_copies:
            wait_for_copies(0)

    def pieces(self, key: mlir.Value, stage: mlir.Value, scores: list[mlir.Value]) -> list[mlir.Value]:
        """The scores of a tile of keys, accumulated over pieces of the depth."""
        plan, core = self.plan, self.plan.core
        end = self.kernel.value(plan.attention.size("depth"))
        end = arith.maxsi(end, mlir.constant(1))  # values need the barrier as well
        loop = mlir.for_loop((mlir.constant(0), end), mlir.constant(core.depth), scores)
        block = mlir.block_of(loop)
        with mlir.at_end(block):
            first, *partial_scores = list(block.arguments)
            loaders = {
                "q": (self._loader("q", core.rows, core.depth, self.row), first),
                "k": (self._loader("k", core.depth, core.keys, first), key),
            }
            zero = mlir.constant(0)
            for name, (loader, depth_start) in loaders.items():
                chunks = self._fetch(name, loader, depth_start, zero)
                if chunks is not None:
                    self.keep({name: chunks}, zero)
            self.commit()
            self.arrived()
            barrier()
            partial_scores = core.multiply(plan.staged["q"], plan.staged["k"], stage, partial_scores)
            barrier()
            scf.yield_(partial_scores)
        return list(loop.results)

    def holds_huge(self, name: str, stage: mlir.Value, finite: bool) -> mlir.Value:
        """Whether this thread's part of a tile in shared memory has an infinite or huge element."""
        core, staged = self.plan.core, self.plan.staged[name]
        kind = str(self.starts[name].element) if isinstance(core, MatrixRows) else core.wide
        bits, width = 8 * self._width, self._width
        integer = mlir.type_of(f"i{bits}")
        size = mlir.constant((1 << bits - 1) - 1, f"i{bits}")
        limit = mlir.constant((_INFINITE if finite else _HUGE)[kind], f"i{bits}")
        lanes = 16 // width
        line = staged.pitch - core.pad
        count = staged.size // width // staged.pitch * line // lanes
        vector = mlir.type_of(f"vector<{lanes}x{integer}>")

        def test_chunk(at: mlir.Value, found_huge: mlir.Value) -> mlir.Value:
            offset = index((over(at, line // lanes), staged.pitch * width), (rest(at, line // lanes), 16))
            loaded = self.shared.load(memory.plus(staged.start(stage), offset), vector, 16)
            for lane in range(lanes):
                raw = llvm.extractelement(loaded, mlir.constant(lane))
                raw = arith.andi(raw, size)
                large = arith.cmpi(arith.CmpIPredicate.uge, raw, limit)
                found_huge = arith.ori(found_huge, large)
            return found_huge

        none = mlir.constant(0, "i1")
        if count % THREADS == 0 and count // THREADS * lanes <= _FEW:
            starts = range(0, count, THREADS)
            places = [memory.plus(self.thread, mlir.constant(turn)) for turn in starts]
            return reduce(lambda found_huge, at: test_chunk(at, found_huge), places, none)
        bounds = self.thread, mlir.constant(count)
        loop = mlir.for_loop(bounds, mlir.constant(THREADS), [none])
        block = mlir.block_of(loop)
        with mlir.at_end(block):
            scf.yield_([test_chunk(*list(block.arguments))])
        return loop.results[0]
