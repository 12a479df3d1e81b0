"""Queries, keys and values on their way to shared memory: past the registers where that is possible."""

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

#: Bits of an element: what its size is, and from which size on a number is infinite or huge (1e15).
_INFINITE = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52}
_HUGE = {"f16": 0x7C00, "bf16": 0x5863, "f32": 0x58635FA9, "f64": 0x430C6BF526340000}

#: Elements of a thread that are looked at without a loop, of which ptxas would make three.
_FEW = 16

#: Chunks in registers, by operand.
Fetched: TypeAlias = dict[str, tuple[Loader, list[mlir.Value]]]


class Operands:
    """Loads tiles of the three operands for a block of ``batch``; ``firsts`` are its first row and column."""

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
        found, core = plan.found, plan.core
        target = kernel.program.unit.target
        assert isinstance(target, Device)
        self._has_copies = target.gpu.cp_async
        parts = [part for axis in found.batch for part in axis.parts or (axis,)]
        digits = split(batch, None, [part.size for part in parts], kernel.value) if parts else []
        self.bases: dict[str, mlir.Value] = {}
        self.starts: dict[str, Pointer] = {}
        for name, walked in plan.walks.items():
            operand = found.operands[name]
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
        axes = self.plan.found.depth if name == "q" else self.plan.found.keys
        sizes = [axis.size for axis in axes]
        walked = self.plan.walks[name]
        return Loader(self.kernel, walked, self.starts[name], rows, depth, THREADS, sizes, self.thread, first)

    def _copied(self, name: str, loader: Loader) -> bool:
        """Chunks are what shared memory holds."""
        width = memory.element_bytes(loader.start.element)
        alike = isinstance(self.plan.core, MatrixRows) or str(loader.start.element) == self.plan.core.wide
        scaled = not isinstance(self.plan.core, MatrixRows) and self.plan.found.operands[name].scale != 1
        together = loader.lanes == 1 or self._lies_alike(name)
        return self._has_copies and alike and together and not scaled and loader.lanes * width >= 4

    def _lies_alike(self, name: str) -> bool:
        return self.plan.walks[name].along_k == (self.plan.fast[name] == "k")

    def prefetch(self, names: list[str], k: mlir.Value, stage: mlir.Value) -> None:
        """Fetch tiles and keep them."""
        self.keep(self.fetch(names, k, stage), stage)

    def fetch(self, names: list[str], k: mlir.Value, stage: mlir.Value) -> Fetched:
        """Begin to copy tiles from ``k`` on to ``stage``; those that cannot be copied come in registers."""
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
        """Where the chunks of a tile go."""
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
        """Chunks from registers to shared memory."""
        for name, (loader, chunks) in fetched.items():
            alike, width = self._lies_alike(name), self._width
            apart = width if alike else self.plan.staged[name].pitch * width
            for where, chunk in zip(self._lines(name, stage, loader), chunks, strict=True):
                if isinstance(self.plan.core, MatrixRows) and alike:
                    store(where, chunk, loader.width)
                    continue
                numbers = [self._number(name, loader, chunk, lane) for lane in range(loader.lanes)]
                if alike:
                    store_each(where, numbers, min(16, width * loader.lanes))
                    continue
                for lane, number in enumerate(numbers):
                    store(ahead(where, lane * apart), number, width)

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
        scale = self.plan.found.operands[name].scale
        if scale != 1:
            number = arith.mulf(number, mlir.float_constant(scale, wide))
        return number

    def commit(self) -> None:
        """What was fetched since the last call is one group."""
        if self._has_copies:
            commit_copies()

    def arrived(self) -> None:
        """Wait for what this thread copies."""
        if self._has_copies:
            wait_for_copies(0)

    def pieces(self, key: mlir.Value, stage: mlir.Value, scores: list[mlir.Value]) -> list[mlir.Value]:
        """Scores of a tile of keys, piece by piece of the depth."""
        plan, core = self.plan, self.plan.core
        end = self.kernel.value(plan.found.size("depth"))
        end = arith.maxsi(end, mlir.constant(1))  # values need the barrier as well
        made = mlir.for_loop((mlir.constant(0), end), mlir.constant(core.depth), scores)
        block = mlir.block_of(made)
        with mlir.at_end(block):
            first, *inside = list(block.arguments)
            loaders = {
                "q": (self._loader("q", core.rows, core.depth, self.row), first),
                "k": (self._loader("k", core.depth, core.keys, first), key),
            }
            zero = mlir.constant(0)
            for name, (loader, at) in loaders.items():
                chunks = self._fetch(name, loader, at, zero)
                if chunks is not None:
                    self.keep({name: chunks}, zero)
            self.commit()
            self.arrived()
            barrier()
            inside = core.multiply(plan.staged["q"], plan.staged["k"], stage, inside)
            barrier()
            scf.yield_(inside)
        return list(made.results)

    def holds_huge(self, name: str, stage: mlir.Value, finite: bool) -> mlir.Value:
        """Whether this thread's share of a tile in shared memory has an element that is huge, or infinite."""
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

        def seen(at: mlir.Value, some: mlir.Value) -> mlir.Value:
            where = index((over(at, line // lanes), staged.pitch * width), (rest(at, line // lanes), 16))
            loaded = self.shared.load(memory.plus(staged.start(stage), where), vector, 16)
            for lane in range(lanes):
                raw = llvm.extractelement(loaded, mlir.constant(lane))
                raw = arith.andi(raw, size)
                large = arith.cmpi(arith.CmpIPredicate.uge, raw, limit)
                some = arith.ori(some, large)
            return some

        none = mlir.constant(0, "i1")
        if count % THREADS == 0 and count // THREADS * lanes <= _FEW:
            turns = range(0, count, THREADS)
            places = [memory.plus(self.thread, mlir.constant(turn)) for turn in turns]
            return reduce(lambda some, at: seen(at, some), places, none)
        bounds = self.thread, mlir.constant(count)
        made = mlir.for_loop(bounds, mlir.constant(THREADS), [none])
        block = mlir.block_of(made)
        with mlir.at_end(block):
            scf.yield_([seen(*list(block.arguments))])
        return made.results[0]
