"""The GPU kernel of an attention, or of parts of its keys, without scores in global memory.

A block computes a tile of rows in a loop over tiles of keys. Each iteration computes scores in registers,
updates the maximum of each row, computes weights, rescales the sums to the new maximum and adds the weighted
values. Keys and values of the next tile are copied meanwhile.

If the program has a causal mask (``reach``), a tile of masked keys is skipped when this does not change the
result: the masked score is so far below each row's maximum that its weight is 0, and the values are finite.
If the mask is added to scores, the scores must also be finite: no query and no key is huge.
"""

from __future__ import annotations

from functools import reduce

from kcache_compiler.lower.attention.evaluate import Coordinates
from kcache_compiler.lower.attention.outline import VANISHED
from kcache_compiler.lower.gpu.addresses import ahead, load_each, store_each
from kcache_compiler.lower.gpu.attention.plan import AttentionPlan
from kcache_compiler.lower.gpu.attention.rows import Partial, Rows
from kcache_compiler.lower.gpu.attention.split_keys import SplitKeys
from kcache_compiler.lower.gpu.attention.tile_products import THREADS, WARPS, Number, Weighed
from kcache_compiler.lower.gpu.attention.tiles import Operands
from kcache_compiler.lower.gpu.attention.vector_bodies import PerKeyValue
from kcache_compiler.lower.gpu.intrinsics import any_lane, barrier, shuffled, special, warp_barrier
from kcache_compiler.lower.gpu.kernel import Kernel, LaunchGeometry, no_unroll_annotation, split
from kcache_compiler.lower.gpu.matmul.fma_tile import Shared, index, over, rest
from kcache_compiler.lower.gpu.matmul.loader import fits
from kcache_compiler.lower.gpu.shared_memory import dynamic_bytes, shared_place, tiled_symbol
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer, i64
from kcache_compiler.lower.sort_scatter.loop_builder import (
    compare,
    if_else_values,
    if_then,
    logical_and,
    loop,
    minimum,
    minus,
)
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, scf
from kcache_compiler.passes.fast_math import COMBINERS
from kcache_compiler.shapes.formula import apply, product


def write_attention(
    kernel: Kernel,
    plan: AttentionPlan,
    views: dict[mlir.Value, Pointer],
    scalars: dict[mlir.Value, mlir.Value],
    parts: SplitKeys | None = None,
) -> LaunchGeometry:
    """Write the body of the kernel; ``views`` are its buffers, ``scalars`` its captured scalars.

    With ``parts``, a block has a part of the keys and stores partial results.
    """
    attention, core = plan.attention, plan.core
    shared = Shared(shared_place(kernel, tiled_symbol(kernel.name), plan.shared))
    tiles = [
        attention.size("batch"),
        apply("ceildiv", attention.size("rows"), core.rows),
        apply("ceildiv", attention.size("columns"), core.columns),
    ]
    if parts is not None:
        tiles = [parts.count, *tiles]
    with kernel.body():
        block, thread = (arith.extui(i64(), special(name)) for name in ("ctaid.x", "tid.x"))
        *part, batch, row, column = split(block, None, tiles, kernel.value)
        code = _Attention(kernel, plan, views, scalars, shared, [batch, row, column], thread)
        if parts is not None:
            code.divide(parts, part[0])
        code.write()
    return LaunchGeometry((product(tiles), 1, 1), (THREADS, 1, 1), dynamic_bytes(plan.shared))


class _Attention:
    """Emits the code of an attention kernel: loads of tiles, products, softmax, and stores of results."""

    def __init__(
        self,
        kernel: Kernel,
        plan: AttentionPlan,
        views: dict[mlir.Value, Pointer],
        scalars: dict[mlir.Value, mlir.Value],
        shared: Shared,
        block: list[mlir.Value],
        thread: mlir.Value,
    ) -> None:
        self.plan, self.attention, self.core = plan, plan.attention, plan.core
        self.shared, self.thread = shared, thread
        self.rows = Rows(kernel, plan.attention, views, scalars)
        self.kind = mlir.type_of(plan.core.wide)
        self.width = memory.element_bytes(self.kind)
        self.core.begin(shared, thread, plan.scratch)
        self.number, row, column = block
        self.first = memory.times(row, mlir.constant(self.core.rows))
        self.column = memory.times(column, mlir.constant(self.core.columns))
        self.limit = {name: kernel.value(self.attention.size(name)) for name in ("rows", "keys", "columns")}
        self.batch = self.rows.delinearize(self.attention.batch, self.number)
        self.places = [self._row_place(self.core.row(number)) for number in range(self.core.own)]
        firsts = self.first, self.column
        self.operands = Operands(kernel, plan, views, shared, thread, self.number, firsts)
        self.keys = mlir.constant(0), self.limit["keys"]
        self.parts: tuple[SplitKeys, Pointer, mlir.Value] | None = None

    def divide(self, parts: SplitKeys, part: mlir.Value) -> None:
        """Restrict this block to one of the parts."""
        kernel = self.rows.kernel
        with kernel.before():
            start, keys = parts.start(kernel, written=True), kernel.value(parts.keys)
        first = memory.times(part, keys)
        self.keys = first, minimum(memory.plus(first, keys), self.limit["keys"])
        self.parts = parts, start, part

    def _row_place(self, row: mlir.Value) -> Coordinates:
        """The indices of a row of the block, clamped to the last row."""
        number = memory.plus(self.first, row)
        if not fits(self.attention.size("rows"), self.core.rows):
            number = minimum(number, minus(self.limit["rows"], mlir.constant(1)))
        return self.plan.place(self.batch, self.rows.delinearize(self.attention.rows, number))

    def write(self) -> None:
        core, plan = self.core, self.plan
        zero, low = mlir.float_constant(0, self.kind), self.rows.negative_infinity()
        carried = [low] * core.own + [zero] * (core.own + core.sums)
        if plan.whole:
            self.operands.prefetch(["q"], mlir.constant(0), mlir.constant(0))
            self.operands.prefetch(["k", "v"], self.keys[0], mlir.constant(0))
            self.operands.commit()
        step, start = mlir.constant(core.keys), [mlir.constant(0), *carried]
        key_loop = mlir.for_loop(self.keys, step, start, no_unroll_annotation())
        block = mlir.block_of(key_loop)
        with mlir.at_end(block):
            key, stage, *values = list(block.arguments)
            following = arith.xori(stage, mlir.constant(plan.stages - 1))
            scf.yield_([following, *self._step(key, stage, following, values)])
        self._finish(list(key_loop.results)[1:])

    def _step(
        self, key: mlir.Value, stage: mlir.Value, following: mlir.Value, values: list[mlir.Value]
    ) -> list[mlir.Value]:
        plan, operands = self.plan, self.operands
        if plan.whole:
            operands.arrived()
            barrier()
            fetched = operands.fetch(["k", "v"], memory.plus(key, mlir.constant(self.core.keys)), following)
            operands.commit()
            values = self._used(key, stage, values)
            operands.keep(fetched, following)
            return values
        barrier()
        operands.prefetch(["v"], key, stage)
        return self._weigh(key, stage, operands.pieces(key, stage, self._nothing()), values)

    def _nothing(self) -> list[mlir.Value]:
        return [mlir.float_constant(0, self.kind)] * self.core.scores

    def _used(self, key: mlir.Value, stage: mlir.Value, values: list[mlir.Value]) -> list[mlir.Value]:
        """The loop-carried values after a tile of keys, which may be skipped."""

        def weigh() -> list[mlir.Value]:
            staged = self.plan.staged
            scores = self.core.multiply(staged["q"], staged["k"], stage, self._nothing())
            return self._weigh(key, stage, scores, values)

        reach = self.attention.reach
        if reach is None:
            return weigh()
        inner = self.rows.value(product([axis.size for axis in self.attention.rows[1:]]))
        end = minimum(memory.plus(self.first, mlir.constant(self.core.rows)), self.limit["rows"])
        last = arith.divui(minus(end, mlir.constant(1)), inner)
        beyond = compare("ge", key, memory.plus(last, mlir.constant(reach.shift)))
        flag = mlir.type_of("i1")
        matters = if_else_values(
            beyond, [flag], lambda: [self._matters(key, stage, values)], lambda: [mlir.constant(1, "i1")]
        )
        return if_else_values(matters[0], [value.type for value in values], weigh, lambda: values)

    def _matters(self, key: mlir.Value, stage: mlir.Value, values: list[mlir.Value]) -> mlir.Value:
        """Whether masked keys may change the result; uniform in the block."""
        reach = self.attention.reach
        assert reach is not None
        changes_result = self.operands.holds_huge("v", stage, finite=True)
        if reach.added:
            for name, at in (("q", mlir.constant(0)), ("k", stage)):
                changes_result = arith.ori(changes_result, self.operands.holds_huge(name, at, finite=False))
        limit = mlir.float_constant(reach.limit, self.kind)
        vanished = mlir.float_constant(VANISHED[self.core.wide], self.kind)
        for top in values[: self.core.own]:
            difference = self.rows.float(arith.subf, [limit, top])
            contributes = arith.cmpf(arith.CmpFPredicate.UGE, difference, vanished)
            changes_result = arith.ori(changes_result, contributes)
        changes_result = any_lane(changes_result)
        slots = index((stage, 4 * WARPS), (self.plan.flags, 1))
        word = arith.extui(mlir.type_of("i32"), changes_result)

        def leave() -> None:
            self.shared.store(memory.plus(slots, memory.times(self.core.warp, mlir.constant(4))), word, 4)

        if_then(compare("eq", self.core.lane, mlir.constant(0)), leave)
        barrier()
        combined, *other_flags = load_each(self.shared.at(slots), WARPS, word.type, 4 * WARPS)
        for flag in other_flags:
            combined = arith.ori(combined, flag)
        return compare("ne", combined, mlir.constant(0, "i32"))

    def _weigh(
        self, key: mlir.Value, stage: mlir.Value, scores: list[mlir.Value], values: list[mlir.Value]
    ) -> list[mlir.Value]:
        """Emit the softmax of a tile of scores; return the updated maxima, totals and sums."""
        core, own = self.core, self.core.own
        first = memory.plus(key, core.first("scores"))
        key_places = [self._key(first, offset) for _, offset in core.line("scores", 0)]
        count, keys = len(key_places), PerKeyValue([at for at, _ in key_places])
        in_bounds = (
            None
            if key_places[0][1] is None
            else PerKeyValue([is_key for _, is_key in key_places if is_key is not None])
        )

        def row(number: Number, row_scores: list[mlir.Value], top: mlir.Value, total: mlir.Value) -> Weighed:
            place = self.places[number] if isinstance(number, int) else self._row_place(core.row(number))
            self.rows.begin(self._scaled(PerKeyValue(row_scores), count), count)
            raised = self._top(place, keys, in_bounds, top)
            subtrahend, factor = self.rows.rescaling(top, raised)
            total = self.rows.float(arith.mulf, [total, factor])
            weights = self.rows.weights(place, keys, subtrahend)
            if in_bounds is not None:
                weights = self.rows.lanes.choose(in_bounds, weights, mlir.float_constant(0, self.kind))
            for weight in weights.each(count):
                total = self.rows.summed(total, weight)
            return weights.each(count), raised, total, factor

        divided = len(self.attention.rows) > 1  # indices of a row need divisions, which are hoisted
        weigh_all = core.each_row if divided else core.in_turns
        weights, results = weigh_all(scores, values, row)
        sums = core.mix(self.plan.staged["v"], stage, weights, results[2 * own :])
        return [*results[: 2 * own], *sums]

    def _scaled(self, scores: PerKeyValue, count: int) -> PerKeyValue:
        if self.plan.scale == 1:
            return scores
        vector = scores.together()
        scale = mlir.splat(mlir.float_constant(self.plan.scale, self.kind), vector.type)
        assert scale is not None
        return PerKeyValue(vector=arith.mulf(vector, scale))

    def _key(self, first: mlir.Value, offset: int) -> tuple[mlir.Value, mlir.Value | None]:
        """The index of a key, clamped to the last one, and whether it is in bounds; None if always."""
        at, keys = (
            (memory.plus(first, mlir.constant(offset)) if offset else first),
            self.attention.size("keys"),
        )
        if fits(keys, self.core.keys):
            return at, None
        limit = self.limit["keys"]
        return minimum(at, minus(limit, mlir.constant(1))), compare("lt", at, limit)

    def _top(
        self, place: Coordinates, keys: PerKeyValue, in_bounds: PerKeyValue | None, top: mlir.Value
    ) -> mlir.Value:
        """The updated maximum of a row, in all of its lanes."""
        compared = self.rows.compared(place, keys)
        if in_bounds is not None:
            compared = self.rows.lanes.choose(in_bounds, compared, self.rows.negative_infinity())
        for candidate in compared.each(self.rows.lanes.count):
            top = self.rows.float(arith.maximumf, [top, candidate], COMBINERS["arith.maximumf"])
        for lanes in (1, 2):
            top = self.rows.float(arith.maximumf, [top, shuffled(top, lanes)])
        return top

    def _finish(self, values: list[mlir.Value]) -> None:
        """Store sums and totals in shared memory, then compute and store results with coalesced accesses."""
        core, own = self.core, self.core.own
        tops, totals, sums = values[:own], values[own : 2 * own], values[2 * own :]
        for number in range(own):
            for lanes in (1, 2):
                totals[number] = self.rows.summed(totals[number], shuffled(totals[number], lanes))
        self.operands.arrived()
        barrier()
        self._leave(tops, totals, sums)
        if core.key_warps > 1:
            barrier()
            workers, worker, count = THREADS, self.thread, core.rows
        else:
            warp_barrier()
            workers, worker, count = 32, core.lane, 8 * own

        def element(step: mlir.Value) -> None:
            number = memory.plus(memory.times(step, mlir.constant(workers)), worker)
            row = over(number, core.columns)
            if core.key_warps == 1:
                row = index((core.warp, 8 * own), (row, 1))
            self._element(row, rest(number, core.columns))

        loop(mlir.constant(0), mlir.constant(count * core.columns // workers), element)

    @property
    def _pitch(self) -> int:
        """Bytes from the sums of one row to the next in shared memory."""
        return (self.core.columns + self.core.pad) * self.width

    @property
    def _left(self) -> tuple[int, int]:
        """The offsets of maxima and totals in shared memory, after all sums."""
        tops = self.core.lines * self._pitch
        return tops, tops + self.core.lines * self.width

    def _leave(self, tops: list[mlir.Value], totals: list[mlir.Value], sums: list[mlir.Value]) -> None:
        """Store the maxima, totals and sums of this thread in shared memory."""
        core, width = self.core, self.width
        for number in range(core.own):
            row = core.line_of_warp(number)
            start = self.shared.at(index((row, self._pitch), (core.first("sums"), width)))
            line = core.line("sums", number)
            for at in range(0, len(line), core.together):
                neighbors = [sums[place] for place, _ in line[at : at + core.together]]
                store_each(ahead(start, line[at][1] * width), neighbors, core.together * width)

            def leave(number: int = number, row: mlir.Value = row) -> None:
                for place, value in zip(self._left, (tops[number], totals[number]), strict=True):
                    self.shared.store(index((row, width), (place, 1)), value, width)

            if_then(compare("eq", core.quad, mlir.constant(0)), leave)

    def _element(self, row: mlir.Value, column: mlir.Value) -> None:
        """Store one column of a row of the block, if they are in bounds."""
        core = self.core
        column_number = memory.plus(self.column, column)
        places = {
            "rows": (memory.plus(self.first, row), core.rows),
            "columns": (column_number, core.columns),
        }
        in_bounds = [
            compare("lt", place, self.limit[name])
            for name, (place, tile) in places.items()
            if not fits(self.attention.size(name), tile)
        ]

        def store() -> None:
            whole = self.rows.combined([self._loaded(row, column, warp) for warp in range(core.key_warps)])
            if self.parts is not None:
                self._store_part(places["rows"][0], column_number, whole)
                return
            columns = self.rows.delinearize(self.attention.columns, column_number)
            self.rows.finish(whole, self._row_place(row), columns)

        if in_bounds:
            if_then(reduce(logical_and, in_bounds), store)
        else:
            store()

    def _loaded(self, row: mlir.Value, column: mlir.Value, warp: int) -> Partial:
        """What ``_leave`` stored of a row of the block, or the part of it of a warp."""
        width, line = self.width, 8 * self.core.own * warp
        top, total = (
            self.shared.load(index((row, width), (at + line * width, 1)), self.kind, width)
            for at in self._left
        )
        at = index((row, self._pitch), (column, width), (line * self._pitch, 1))
        return top, total, self.shared.load(at, self.kind, width)

    def _store_part(self, row: mlir.Value, column: mlir.Value, whole: Partial) -> None:
        """Store one column of a row of this part, and with the first one its maximum and total."""
        assert self.parts is not None
        parts, start, part = self.parts
        top, total, sum_ = whole
        first = parts.row(self.rows.kernel, part, self.number, row)
        memory.store(start, memory.plus(first, column), sum_)

        def leave() -> None:
            at_top = memory.plus(first, self.limit["columns"])
            memory.store(start, at_top, top)
            memory.store(start, memory.plus(at_top, mlir.constant(1)), total)

        if_then(compare("eq", column, mlir.constant(0)), leave)
