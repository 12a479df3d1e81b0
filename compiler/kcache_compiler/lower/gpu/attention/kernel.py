"""The kernel of an attention: one launch, no scores in memory.

A block has a tile of rows and goes along the keys. For each tile of keys: scores in registers, the maximum of
each row so far, weights from it; sums so far shrink to the new maximum, weighted values are added. Keys and
values of the next tile are on their way meanwhile.

Where the program masks the keys beyond a row's own (``reach``), a tile of them is left out if that changes
nothing: the masked score is so far below each row's maximum that its weight is 0, and the values are finite.
Where the mask is added to scores these have to be finite, too: no query and no key is huge.
"""

from __future__ import annotations

from functools import reduce

from kcache_compiler.lower.attention.evaluate import Coordinates
from kcache_compiler.lower.attention.operands import Gathered
from kcache_compiler.lower.attention.outline import VANISHED
from kcache_compiler.lower.attention.row_code import RowCode
from kcache_compiler.lower.gpu.addresses import ahead, load_each, store_each
from kcache_compiler.lower.gpu.attention.plan import AttentionPlan
from kcache_compiler.lower.gpu.attention.tile_products import THREADS, WARPS, Number, Weighed
from kcache_compiler.lower.gpu.attention.tiles import Operands
from kcache_compiler.lower.gpu.attention.vector_bodies import KeyCoordinates, Lanes, PerKeyValue
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
from kcache_compiler.shapes.formula import Formula, apply, product

#: The predicate of ``arith.cmpf``: greater, equal, or not comparable.
_UGE = 10


class _Rows(RowCode):
    def __init__(
        self,
        kernel: Kernel,
        found: Gathered,
        views: dict[mlir.Value, Pointer],
        scalars: dict[mlir.Value, mlir.Value],
    ) -> None:
        self.kernel = kernel
        super().__init__(found, views, scalars)

    def value(self, formula: Formula) -> mlir.Value:
        return self.kernel.value(formula)

    def begin(self, scores: PerKeyValue, count: int) -> None:
        """The scores of ``count`` keys that bodies read from now on."""
        buffer = self.found.one("scores").operands[-1]
        element = mlir.element_type(buffer.type)
        if str(element) != self.found.wide:
            numbers = [arith.truncf(element, one) for one in scores.each(count)]
            scores = PerKeyValue(numbers)
        self.lanes = Lanes(self.evaluator, count)
        self.lanes.known[buffer] = scores

    def _places(self, op: mlir.Op, rows: Coordinates, keys: PerKeyValue) -> KeyCoordinates:
        axes: KeyCoordinates = {**self.axes(rows), self.found.keys[0].name: keys}
        return {dim: axes[axis] for dim, axis in self.found.dims[op].items()}

    def compared(self, rows: Coordinates, keys: PerKeyValue) -> PerKeyValue:
        """What the maximum of a row is taken of."""
        op = self.found.one("top")
        last = len(list(op.operands)) - 1
        return self.lanes.spread(self.lanes.result(op, self._places(op, rows, keys), {last: self.least()}))

    def weights(self, rows: Coordinates, keys: PerKeyValue, used: mlir.Value) -> PerKeyValue:
        """The weights of a row whose maximum is ``used``."""
        op, top = self.found.one("weights"), self.found.one("top").operands[-1]
        number = next(number for number, operand in enumerate(op.operands) if operand == top)
        return self.lanes.spread(self.lanes.result(op, self._places(op, rows, keys), {number: used}))


def write_attention(
    kernel: Kernel,
    plan: AttentionPlan,
    views: dict[mlir.Value, Pointer],
    scalars: dict[mlir.Value, mlir.Value],
) -> LaunchGeometry:
    """The body of the kernel; ``views`` has its buffers, ``scalars`` the numbers that it asks for."""
    found, core = plan.found, plan.core
    shared = Shared(shared_place(kernel, tiled_symbol(kernel.name), plan.shared))
    tiles = [
        found.size("batch"),
        apply("ceildiv", found.size("rows"), core.rows),
        apply("ceildiv", found.size("columns"), core.columns),
    ]
    with kernel.body():
        block, thread = (arith.extui(i64(), special(name)) for name in ("ctaid.x", "tid.x"))
        at = split(block, None, tiles, kernel.value)
        _Attention(kernel, plan, views, scalars, shared, at, thread).write()
    return LaunchGeometry((product(tiles), 1, 1), (THREADS, 1, 1), dynamic_bytes(plan.shared))


class _Attention:
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
        self.plan, self.found, self.core = plan, plan.found, plan.core
        self.shared, self.thread = shared, thread
        self.rows = _Rows(kernel, plan.found, views, scalars)
        self.kind = mlir.type_of(plan.core.wide)
        self.width = memory.element_bytes(self.kind)
        self.core.begin(shared, thread, plan.scratch)
        batch, row, column = block
        self.first = memory.times(row, mlir.constant(self.core.rows))
        self.column = memory.times(column, mlir.constant(self.core.columns))
        self.limit = {name: kernel.value(self.found.size(name)) for name in ("rows", "keys", "columns")}
        self.batch = self.rows.digits(self.found.batch, batch)
        self.places = [self._row_place(self.core.row(number)) for number in range(self.core.own)]
        self.operands = Operands(kernel, plan, views, shared, thread, batch, (self.first, self.column))

    def _row_place(self, row: mlir.Value) -> Coordinates:
        """Counters of the axes of a row of the block; those beyond the last are the last one."""
        number = memory.plus(self.first, row)
        if not fits(self.found.size("rows"), self.core.rows):
            number = minimum(number, minus(self.limit["rows"], mlir.constant(1)))
        return {**self.batch, **self.rows.digits(self.found.rows, number)}

    def write(self) -> None:
        core, plan = self.core, self.plan
        zero, low = mlir.float_constant(0, self.kind), self.rows.least()
        carried = [low] * core.own + [zero] * (core.own + core.sums)
        if plan.whole:
            self.operands.prefetch(["q", "k", "v"], mlir.constant(0), mlir.constant(0))
            self.operands.commit()
        bounds = mlir.constant(0), self.limit["keys"]
        step, start = mlir.constant(core.keys), [mlir.constant(0), *carried]
        made = mlir.for_loop(bounds, step, start, no_unroll_annotation())
        inside = mlir.block_of(made)
        with mlir.at_end(inside):
            key, stage, *values = list(inside.arguments)
            following = arith.xori(stage, mlir.constant(plan.stages - 1))
            scf.yield_([following, *self._step(key, stage, following, values)])
        self._finish(list(made.results)[1:])

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
        """The values after a tile of keys, unless it is left out."""

        def weigh() -> list[mlir.Value]:
            staged = self.plan.staged
            scores = self.core.multiply(staged["q"], staged["k"], stage, self._nothing())
            return self._weigh(key, stage, scores, values)

        reach = self.found.reach
        if reach is None:
            return weigh()
        inner = self.rows.value(product([axis.size for axis in self.found.rows[1:]]))
        end = minimum(memory.plus(self.first, mlir.constant(self.core.rows)), self.limit["rows"])
        last = arith.divui(minus(end, mlir.constant(1)), inner)
        beyond = compare("ge", key, memory.plus(last, mlir.constant(reach.shift)))
        flag = mlir.type_of("i1")
        matters = if_else_values(
            beyond, [flag], lambda: [self._matters(key, stage, values)], lambda: [mlir.constant(1, "i1")]
        )
        return if_else_values(matters[0], [value.type for value in values], weigh, lambda: values)

    def _matters(self, key: mlir.Value, stage: mlir.Value, values: list[mlir.Value]) -> mlir.Value:
        """Whether masked keys may change something, for all threads of the block the same."""
        reach = self.found.reach
        assert reach is not None
        some = self.operands.holds_huge("v", stage, finite=True)
        if reach.added:
            for name, at in (("q", mlir.constant(0)), ("k", stage)):
                some = arith.ori(some, self.operands.holds_huge(name, at, finite=False))
        limit = mlir.float_constant(reach.limit, self.kind)
        gone = mlir.float_constant(VANISHED[self.core.wide], self.kind)
        for top in values[: self.core.own]:
            below = self.rows.float(arith.subf, [limit, top])
            here = arith.cmpf(arith.CmpFPredicate.UGE, below, gone)
            some = arith.ori(some, here)
        some = any_lane(some)
        slots = index((stage, 4 * WARPS), (self.plan.flags, 1))
        word = arith.extui(mlir.type_of("i32"), some)

        def leave() -> None:
            self.shared.store(memory.plus(slots, memory.times(self.core.warp, mlir.constant(4))), word, 4)

        if_then(compare("eq", self.core.lane, mlir.constant(0)), leave)
        barrier()
        total, *others = load_each(self.shared.at(slots), WARPS, word.type, 4 * WARPS)
        for other in others:
            total = arith.ori(total, other)
        return compare("ne", total, mlir.constant(0, "i32"))

    def _weigh(
        self, key: mlir.Value, stage: mlir.Value, scores: list[mlir.Value], values: list[mlir.Value]
    ) -> list[mlir.Value]:
        core, own = self.core, self.core.own
        first = memory.plus(key, core.first("scores"))
        found = [self._key(first, offset) for _, offset in core.line("scores", 0)]
        count, keys = len(found), PerKeyValue([at for at, _ in found])
        inside = None if found[0][1] is None else PerKeyValue([here for _, here in found if here is not None])

        def row(number: Number, mine: list[mlir.Value], top: mlir.Value, total: mlir.Value) -> Weighed:
            place = self.places[number] if isinstance(number, int) else self._row_place(core.row(number))
            self.rows.begin(self._scaled(PerKeyValue(mine), count), count)
            raised = self._top(place, keys, inside, top)
            used, shrink = self.rows.shrinking(top, raised)
            total = self.rows.float(arith.mulf, [total, shrink])
            weights = self.rows.weights(place, keys, used)
            if inside is not None:
                weights = self.rows.lanes.choose(inside, weights, mlir.float_constant(0, self.kind))
            for weight in weights.each(count):
                total = self.rows.summed(total, weight)
            return weights.each(count), raised, total, shrink

        divided = len(self.found.rows) > 1  # then a row's place is a division, which is done before all tiles
        weigh_all = core.each_row if divided else core.in_turns
        weights, left = weigh_all(scores, values, row)
        sums = core.mix(self.plan.staged["v"], stage, weights, left[2 * own :])
        return [*left[: 2 * own], *sums]

    def _scaled(self, scores: PerKeyValue, count: int) -> PerKeyValue:
        if self.plan.scale == 1:
            return scores
        vector = scores.together()
        scale = mlir.splat(mlir.float_constant(self.plan.scale, self.kind), vector.type)
        assert scale is not None
        return PerKeyValue(vector=arith.mulf(vector, scale))

    def _key(self, first: mlir.Value, offset: int) -> tuple[mlir.Value, mlir.Value | None]:
        """A key, which is the last one beyond it, and whether it is there."""
        at, keys = (memory.plus(first, mlir.constant(offset)) if offset else first), self.found.size("keys")
        if fits(keys, self.core.keys):
            return at, None
        limit = self.limit["keys"]
        return minimum(at, minus(limit, mlir.constant(1))), compare("lt", at, limit)

    def _top(
        self, place: Coordinates, keys: PerKeyValue, inside: PerKeyValue | None, top: mlir.Value
    ) -> mlir.Value:
        """The maximum of a row so far, in all of its lanes."""
        compared = self.rows.compared(place, keys)
        if inside is not None:
            compared = self.rows.lanes.choose(inside, compared, self.rows.least())
        for one in compared.each(self.rows.lanes.count):
            top = self.rows.float(arith.maximumf, [top, one], COMBINERS["arith.maximumf"])
        for lanes in (1, 2):
            top = self.rows.float(arith.maximumf, [top, shuffled(top, lanes)])
        return top

    def _finish(self, values: list[mlir.Value]) -> None:
        """Sums and totals to shared memory, and from there what they become, neighbours by neighbours."""
        core, own, width = self.core, self.core.own, self.width
        tops, totals, sums = values[:own], values[own : 2 * own], values[2 * own :]
        pitch = core.columns + core.pad
        at_tops = core.rows * pitch * width
        at_totals = at_tops + core.rows * width
        for number in range(own):
            for lanes in (1, 2):
                totals[number] = self.rows.summed(totals[number], shuffled(totals[number], lanes))
        self.operands.arrived()
        barrier()
        for number in range(own):
            row = core.row(number)
            start = self.shared.at(index((row, pitch * width), (core.first("sums"), width)))
            line = core.line("sums", number)
            for at in range(0, len(line), core.together):
                mine = [sums[place] for place, _ in line[at : at + core.together]]
                store_each(ahead(start, line[at][1] * width), mine, core.together * width)

            def leave(number: int = number, row: mlir.Value = row) -> None:
                self.shared.store(index((row, width), (at_tops, 1)), tops[number], width)
                self.shared.store(index((row, width), (at_totals, 1)), totals[number], width)

            if_then(compare("eq", core.quad, mlir.constant(0)), leave)
        warp_barrier()

        def element(step: mlir.Value) -> None:
            number = memory.plus(memory.times(step, mlir.constant(32)), core.lane)
            row = index((core.warp, 8 * own), (over(number, core.columns), 1))
            column = rest(number, core.columns)
            here = memory.plus(self.column, column)
            places = {"rows": (memory.plus(self.first, row), core.rows), "columns": (here, core.columns)}
            inside = [
                compare("lt", place, self.limit[name])
                for name, (place, tile) in places.items()
                if not fits(self.found.size(name), tile)
            ]

            def store() -> None:
                top, total = (
                    self.shared.load(index((row, width), (at, 1)), self.kind, width)
                    for at in (at_tops, at_totals)
                )
                sum_ = self.shared.load(index((row, pitch * width), (column, width)), self.kind, width)
                masked = self.rows.equal(top, self.rows.least())
                total = self.rows.total(masked, total)
                result = self.rows.quotient(masked, total, sum_)
                columns = self.rows.digits(self.found.columns, here)
                self.rows.result(result, self.rows.axes(self._row_place(row)), columns)

            if inside:
                if_then(reduce(logical_and, inside), store)
            else:
                store()

        loop(mlir.constant(0), mlir.constant(8 * own * core.columns // 32), element)
