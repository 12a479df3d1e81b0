"""The functions that a kernel passes to the loops of attention: weights from scores, and results from sums.

``weigh(closure, batch, row, rows, key, keys, tile, tops, totals, shrinks)`` and ``finish(closure, batch, row,
last row, sums, tops, totals)``. Both read the arguments of the launch from ``closure``.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.lower.attention.blocking import AttentionForm
from kcache_compiler.lower.attention.evaluate import Coordinates
from kcache_compiler.lower.attention.operands import Gathered
from kcache_compiler.lower.attention.row_bodies import RowCode
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, read_nest
from kcache_compiler.lower.loops.masked_remainder import UNROLLED, has_loops, masked_annotation
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, func, llvm, scf
from kcache_compiler.shapes.formula import Formula, apply

#: Counts of integer and pointer arguments after the closure.
_WEIGH = (5, 4)
_FINISH = (3, 3)


def write_rows(
    module: mlir.Module, outlined: Outlined, attention: Gathered, form: AttentionForm, shapes: Shapes
) -> tuple[str, str]:
    """Write both functions and return their names."""
    names = f"{outlined.name}_weigh", f"{outlined.name}_finish"
    _function(
        module,
        outlined,
        names[0],
        _WEIGH,
        lambda values: _Rows(outlined, attention, form, shapes, values, _WEIGH).weigh(),
    )
    _function(
        module,
        outlined,
        names[1],
        _FINISH,
        lambda values: _Rows(outlined, attention, form, shapes, values, _FINISH).finish(),
    )
    return names


def _function(
    module: mlir.Module,
    outlined: Outlined,
    name: str,
    shape: tuple[int, int],
    write: Callable[[list[mlir.Value]], None],
) -> None:
    """Write ``name`` and the function that it calls with the words of the closure as ``noalias`` pointers."""
    numbers, pointers = shape
    integer, pointer = memory.i64(), memory.pointer_type()
    words = [mlir.type_of(kind) for kind in outlined.pointer_types[:-1]]
    own_types = [integer] * numbers + [pointer] * pointers
    result = outlined.buffers[-1]
    marks = ["{}"] * numbers + ["{llvm.noalias}"] * pointers + ["{llvm.noalias, llvm.readonly}"]
    for buffer in outlined.buffers:
        is_unaliased = memory.known_not_to_alias(buffer, outlined.buffers, {result})
        marks.append("{llvm.noalias}" if is_unaliased else "{}")
    marks += ["{}"] * (len(words) - 1 - len(outlined.buffers))
    _, entry = mlir.private_function(module, f"{name}_rows", own_types + words, [], marks)
    with mlir.at_end(entry):
        write(list(entry.arguments))
        func.return_([])
    kinds = ["i64"] * numbers + ["!llvm.ptr"] * pointers
    own_names = [f"%g{number}" for number in range(len(kinds))]
    arguments = "".join(f", {value}: {kind}" for value, kind in zip(own_names, kinds, strict=True))
    lines = [f"llvm.func internal @{name}(%closure: !llvm.ptr{arguments}) {{"]
    for number, word in enumerate(words):
        lines.append(
            f"  %a{number} = llvm.getelementptr %closure[{8 * number}] : (!llvm.ptr) -> !llvm.ptr, i8"
        )
        lines.append(f"  %w{number} = llvm.load %a{number} : !llvm.ptr -> {word}")
    passed = ", ".join([*own_names, *(f"%w{number}" for number in range(len(words)))])
    types = ", ".join([*kinds, *map(str, words)])
    lines.append(f"  func.call @{name}_rows({passed}) : ({types}) -> ()\n  llvm.return\n}}")
    mlir.splice(module, f"func.func private @{name}_rows({types})\n" + "\n".join(lines), f"{name}_rows")


class _Rows(RowCode):
    """Emits one of the functions.

    A NaN among its scores leaves the maximum of a row undefined: the weight of that score and so the total
    are NaN whatever is subtracted. A maximum is one instruction on x86-64 then, in the place of three.
    """

    maximum_flags = "#arith.fastmath<reassoc,nnan,nsz>"

    def __init__(
        self,
        outlined: Outlined,
        attention: Gathered,
        form: AttentionForm,
        shapes: Shapes,
        arguments: list[mlir.Value],
        shape: tuple[int, int],
    ) -> None:
        self.form = form
        numbers, pointers = shape
        self.numbers, self.pointers = arguments[:numbers], arguments[numbers : numbers + pointers]
        self.dims, *closure_values = arguments[numbers + pointers :]
        self.cache: dict[Formula, mlir.Value] = {}
        views: dict[mlir.Value, Pointer] = {}
        for buffer, base in zip(outlined.buffers, closure_values, strict=False):
            steps = [self.value(stride) for stride in shapes.strides(buffer)]
            views[buffer] = Pointer(base, mlir.element_type(buffer.type), steps)
        flat = iter(closure_values[len(outlined.buffers) :])
        scalars = {scalar: memory.receive(scalar.type, flat) for scalar in outlined.scalars}
        for axes in (attention.batch, attention.rows, attention.columns):
            for axis in axes:
                self.value(axis.size)
        super().__init__(attention, views, scalars)
        self.columns = self.value(attention.size("columns"))
        self.step = self.value(_rounded(attention.size("columns"), form.columns))
        self.masks = form.masked and _reads_along_keys(attention, shapes)

    def value(self, formula: Formula) -> mlir.Value:
        return memory.emit_formula(formula, self.dims, self.cache)

    def _element(self, base: mlir.Value, index: mlir.Value) -> mlir.Value:
        return memory.advance(base, self.kind, index)

    def _load(self, base: mlir.Value, index: mlir.Value) -> mlir.Value:
        return llvm.load(self.kind, self._element(base, index))

    def _store(self, value: mlir.Value, base: mlir.Value, index: mlir.Value) -> None:
        llvm.store(value, self._element(base, index))

    def _loop(self, low: mlir.Value, high: mlir.Value, carried: list[mlir.Value]) -> mlir.Op:
        return mlir.for_loop((low, high), mlir.constant(1), carried)

    def next_maximum(self, rows: Coordinates, key: mlir.Value, maximum: mlir.Value) -> mlir.Value:
        """The maximum after the current score; a rounded score is frozen.

        Otherwise LLVM moves the maximum into the selection of a NaN by the rounding, and the loop is no
        reduction.
        """
        updated = super().next_maximum(rows, key, maximum)
        operation = mlir.definition(updated)
        scores = self.attention.member("scores").operands[-1]
        if str(mlir.element_type(scores.type)) != self.attention.wide:
            with mlir.before(operation):
                for number, operand in enumerate(operation.operands):
                    if operand != maximum:
                        operation.operands[number] = llvm.freeze(operand)
        return updated

    def weigh(self) -> None:
        """Three passes over the rows, so that no row waits for what another one computes."""
        _, _, rows, _, _ = self.numbers
        self._per_row(rows, self._raise)
        self._per_row(rows, self._shrink, masked=True)
        self._per_row(rows, self._weigh)

    def _per_row(self, rows: mlir.Value, emit: Callable[[mlir.Value], None], masked: bool = False) -> None:
        loop = self._loop(mlir.constant(0), rows, [])
        if masked and self.form.masked:
            loop.attributes["loop_annotation"] = masked_annotation(self.form.lanes)
        body = mlir.block_of(loop)
        with mlir.at_end(body):
            emit(body.arguments[0])
            scf.yield_([])

    def _raise(self, number: mlir.Value) -> None:
        """Put the maximum of row ``number`` and its new scores into ``shrinks``."""
        _, tops, _, shrinks = self.pointers
        start, indices, key = self._scores_of(number)

        def higher(at: mlir.Value, carried: mlir.Value) -> mlir.Value:
            self.set_score(self._load(start, at))
            return self.next_maximum(indices, memory.plus(key, at), carried)

        self._store(self._along(self._load(tops, number), higher), shrinks, number)

    def _shrink(self, number: mlir.Value) -> None:
        """Replace the maximum in ``shrinks`` by the factor of the sums, which the total is multiplied by."""
        _, tops, totals, shrinks = self.pointers
        old_maximum, top = self._load(tops, number), llvm.freeze(self._load(shrinks, number))
        _, factor = self.rescaling(old_maximum, top)
        self._store(top, tops, number)
        self._store(factor, shrinks, number)
        self._store(self.float(arith.mulf, [self._load(totals, number), factor]), totals, number)

    def _weigh(self, number: mlir.Value) -> None:
        """Replace the scores of row ``number`` by weights, which are added to the total."""
        _, tops, totals, _ = self.pointers
        start, indices, key = self._scores_of(number)
        subtrahend, _ = self.subtrahend(self._load(tops, number))

        def weighed(at: mlir.Value, carried: mlir.Value) -> mlir.Value:
            self.set_score(self._load(start, at))
            weight = self.weight(indices, memory.plus(key, at), subtrahend)
            self._store(weight, start, at)
            return self.summed(carried, weight)

        total = self._along(mlir.float_constant(0, self.kind), weighed)
        self._store(self.float(arith.addf, [self._load(totals, number), total]), totals, number)

    def _scores_of(self, number: mlir.Value) -> tuple[mlir.Value, Coordinates, mlir.Value]:
        """The scores of row ``number`` of the panel, its indices, and the number of their first key."""
        batch, row, _, key, _ = self.numbers
        fixed = self.delinearize(self.attention.batch, batch)
        start = self._element(self.pointers[0], memory.times(number, mlir.constant(self.form.row_step)))
        return start, {**fixed, **self.delinearize(self.attention.rows, memory.plus(row, number))}, key

    def _along(self, first: mlir.Value, step: Callable[[mlir.Value, mlir.Value], mlir.Value]) -> mlir.Value:
        """The value that ``step`` carries over the keys of the tile; the last ones are masked."""
        keys = self.numbers[4]
        if not self.masks:
            return self._over(mlir.constant(0), keys, first, step)
        ends = mlir.constant(self.form.lanes * UNROLLED)
        whole = arith.subi(keys, arith.remui(keys, ends))
        carried = self._over(mlir.constant(0), whole, first, step)
        return self._over(whole, keys, carried, step, masked=True)

    def _over(
        self,
        low: mlir.Value,
        high: mlir.Value,
        first: mlir.Value,
        step: Callable[[mlir.Value, mlir.Value], mlir.Value],
        masked: bool = False,
    ) -> mlir.Value:
        loop = self._loop(low, high, [first])
        if masked:
            loop.attributes["loop_annotation"] = masked_annotation(self.form.lanes)
        body = mlir.block_of(loop)
        with mlir.at_end(body):
            scf.yield_([step(body.arguments[0], body.arguments[1])])
        return loop.results[0]

    def finish(self) -> None:
        """Emit the loop that divides the sums of each row by its total and stores the results."""
        batch, low, high = self.numbers
        sums, tops, totals = self.pointers
        fixed = self.delinearize(self.attention.batch, batch)
        negative_infinity = self.negative_infinity()
        rows = arith.subi(high, low)
        loop = self._loop(mlir.constant(0), rows, [])
        body = mlir.block_of(loop)
        with mlir.at_end(body):
            number = body.arguments[0]
            row_indices = self.delinearize(self.attention.rows, memory.plus(low, number))
            summed = self._load(totals, number)
            is_number = arith.cmpf(arith.CmpFPredicate.ORD, summed, summed)
            masked = arith.andi(self.equal(self._load(tops, number), negative_infinity), is_number)
            total = self.total(masked, summed)
            start = self._element(sums, memory.times(number, self.step))
            inner = self._loop(mlir.constant(0), self.columns, [])
            block = mlir.block_of(inner)
            with mlir.at_end(block):
                column = block.arguments[0]
                value = self.quotient(masked, total, self._load(start, column))
                self.result(
                    value, self.axes(fixed, row_indices), self.delinearize(self.attention.columns, column)
                )
                scf.yield_([])
            scf.yield_([])


def _reads_along_keys(attention: Gathered, shapes: Shapes) -> bool:
    """Whether all that weights are computed from is contiguous or constant along the keys."""
    key_axis = attention.keys[0].name
    for op in (op for role in ("before", "top", "weights") for op in attention.roles.get(role, ())):
        if has_loops(op):
            return False
        if op not in attention.dims:  # a mask: what reads it determines its loops
            if len(op.operands) > 1:
                return False
            continue
        loops = [loop for loop, axis in attention.dims[op].items() if axis == key_axis]
        nest, _ = read_nest(op, shapes)
        if any(access.strides[loop] not in (0, 1) for access in nest.accesses for loop in loops):
            return False
    return True


def _rounded(size: Formula, step: int) -> Formula:
    return apply("roundup", size, step)
