"""What a kernel gives to the loops of attention: weights from scores, and results from sums.

``weigh(closure, batch, row, rows, key, keys, tile, tops, totals, shrinks)`` and ``finish(closure, batch, row,
last row, sums, tops, totals)``. Both read what the launch was given from ``closure``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.attention.evaluate import Evaluator, Place, after
from kcache_compiler.codegen.attention.form import AttentionForm
from kcache_compiler.codegen.attention.gather import Gathered, Walked
from kcache_compiler.codegen.formula import Formula, apply
from kcache_compiler.codegen.launch import Outlined
from kcache_compiler.codegen.memory import Pointer
from kcache_compiler.codegen.numerics import COMBINERS
from kcache_compiler.codegen.shape import Shapes

#: Numbers and pointers after the closure.
_WEIGH = (5, 4)
_FINISH = (3, 3)
#: The predicate of ``arith.cmpf``.
_EQUAL = 1
_LEAST = {"f32": "0xFF800000", "f64": "0xFFF0000000000000"}


def write_rows(
    module: mlir.Module, outlined: Outlined, found: Gathered, form: AttentionForm, shapes: Shapes
) -> tuple[str, str]:
    """Write both functions; their names."""
    names = f"{outlined.name}_weigh", f"{outlined.name}_finish"
    _function(
        module,
        outlined,
        names[0],
        _WEIGH,
        lambda values: _Rows(outlined, found, form, shapes, values, _WEIGH).weigh(),
    )
    _function(
        module,
        outlined,
        names[1],
        _FINISH,
        lambda values: _Rows(outlined, found, form, shapes, values, _FINISH).finish(),
    )
    return names


def _function(
    module: mlir.Module,
    outlined: Outlined,
    name: str,
    shape: tuple[int, int],
    write: Callable[[list[mlir.Value]], None],
) -> None:
    """``name`` and what it calls with the words of the closure: pointers that overlap nothing."""
    numbers, pointers = shape
    integer, pointer = memory.i64(), memory.pointer_type()
    words = [mlir.type_of(kind) for kind in outlined.pointer_types[:-1]]
    own = [integer] * numbers + [pointer] * pointers
    result = outlined.buffers[-1]
    marks = ["{}"] * numbers + ["{llvm.noalias}"] * pointers + ["{llvm.noalias, llvm.readonly}"]
    for buffer in outlined.buffers:
        apart = memory.known_apart(buffer, outlined.buffers, {result})
        marks.append("{llvm.noalias}" if apart else "{}")
    marks += ["{}"] * (len(words) - 1 - len(outlined.buffers))
    function = mlir.create(
        "func.func",
        attributes={
            "sym_name": mlir.string_attr(f"{name}_rows"),
            "function_type": mlir.type_attr(mlir.function_type(own + words, [])),
            "arg_attrs": mlir.attribute("[" + ", ".join(marks) + "]"),
            "sym_visibility": mlir.string_attr("private"),
            "llvm.linkage": mlir.attribute("#llvm.linkage<internal>"),
        },
        regions=1,
        at=mlir.at_end(module.body),
    )
    entry = mlir.new_block(function, 0, own + words)
    with mlir.at_end(entry):
        write(list(entry.arguments))
        mlir.create("func.return")
    kinds = ["i64"] * numbers + ["!llvm.ptr"] * pointers
    given = [f"%g{number}" for number in range(len(kinds))]
    arguments = "".join(f", {value}: {kind}" for value, kind in zip(given, kinds, strict=True))
    lines = [f"llvm.func internal @{name}(%closure: !llvm.ptr{arguments}) {{"]
    for number, word in enumerate(words):
        lines.append(
            f"  %a{number} = llvm.getelementptr %closure[{8 * number}] : (!llvm.ptr) -> !llvm.ptr, i8"
        )
        lines.append(f"  %w{number} = llvm.load %a{number} : !llvm.ptr -> {word}")
    passed = ", ".join([*given, *(f"%w{number}" for number in range(len(words)))])
    types = ", ".join([*kinds, *map(str, words)])
    lines.append(f"  func.call @{name}_rows({passed}) : ({types}) -> ()\n  llvm.return\n}}")
    mlir.splice(module, f"func.func private @{name}_rows({types})\n" + "\n".join(lines), f"{name}_rows")


class _Rows:
    """State while one of the functions is written."""

    def __init__(
        self,
        outlined: Outlined,
        found: Gathered,
        form: AttentionForm,
        shapes: Shapes,
        arguments: list[mlir.Value],
        shape: tuple[int, int],
    ) -> None:
        self.found, self.form = found, form
        numbers, pointers = shape
        self.numbers, self.pointers = arguments[:numbers], arguments[numbers : numbers + pointers]
        self.dims, *rest = arguments[numbers + pointers :]
        self.cache: dict[Formula, mlir.Value] = {}
        views: dict[Any, Pointer] = {}
        for buffer, base in zip(outlined.buffers, rest, strict=False):
            steps = [self._value(stride) for stride in shapes.strides(buffer)]
            views[buffer] = Pointer(base, buffer.type.element_type, steps)
        flat = iter(rest[len(outlined.buffers) :])
        scalars = {scalar: memory.receive(scalar.type, flat) for scalar in outlined.scalars}
        for axes in (found.batch, found.rows, found.columns):
            for axis in axes:
                self._value(axis.size)
        makers = {op.operands[-1]: op for op in found.roles.get("before", ())}
        self.evaluator = Evaluator(makers, views, scalars)
        self.views = views
        self.kind = mlir.type_of(found.wide)
        self.columns = self._value(found.size("columns"))
        self.step = self._value(_rounded(found.size("columns"), form.columns))

    def _value(self, formula: Formula) -> mlir.Value:
        return memory.emit_formula(formula, self.dims, self.cache)

    def _digits(self, axes: list[Walked], number: mlir.Value) -> Place:
        """The index on each axis of which ``number`` counts the points, outermost first."""
        place: Place = {}
        for axis in reversed(axes[1:]):
            size = self._value(axis.size)
            place[axis.name] = mlir.value("arith.remui", [number, size], memory.i64())
            number = mlir.value("arith.divui", [number, size], memory.i64())
        return {**place, axes[0].name: number} if axes else {}

    def _axes(self, *places: Place) -> Place:
        """Every axis of the scores: those of size 1 stay at 0."""
        every = {axis: mlir.constant(0) for axis in self.found.dims[self.found.one("scores")].values()}
        for place in places:
            every |= place
        return every

    def _place(self, op: mlir.Op, axes: Place) -> Place:
        return {dim: axes[axis] for dim, axis in self.found.dims[op].items()}

    def _element(self, base: mlir.Value, index: mlir.Value) -> mlir.Value:
        return memory.advance(base, self.kind, index)

    def _load(self, base: mlir.Value, index: mlir.Value) -> mlir.Value:
        return mlir.value("llvm.load", [self._element(base, index)], self.kind)

    def _store(self, value: mlir.Value, base: mlir.Value, index: mlir.Value) -> None:
        mlir.create("llvm.store", [value, self._element(base, index)])

    def _float(self, name: str, operands: list[mlir.Value], fast: str = "") -> mlir.Value:
        made = mlir.create(name, operands, [self.kind])
        if fast:
            made.attributes["fastmath"] = mlir.attribute(fast)
        return made.results[0]

    def _compare(self, left: mlir.Value, right: mlir.Value) -> mlir.Value:
        return mlir.value("arith.cmpf", [left, right], mlir.type_of("i1"), predicate=mlir.int_attr(_EQUAL))

    def _choose(self, condition: mlir.Value, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return mlir.value("arith.select", [condition, a, b], self.kind)

    def _least(self) -> mlir.Value:
        literal = mlir.attribute(f"{_LEAST[self.found.wide]} : {self.found.wide}")
        return mlir.value("arith.constant", (), self.kind, value=literal)

    def _loop(self, low: mlir.Value, high: mlir.Value, carried: list[mlir.Value]) -> mlir.Op:
        kinds = [value.type for value in carried]
        loop = mlir.create("scf.for", [low, high, mlir.constant(1), *carried], kinds, regions=1)
        mlir.new_block(loop, 0, [memory.i64(), *kinds])
        return loop

    def weigh(self) -> None:
        batch, row, rows, key, keys = self.numbers
        tile, tops, totals, shrinks = self.pointers
        fixed = self._digits(self.found.batch, batch)
        least, zero, one = self._least(), mlir.float_constant(0, self.kind), mlir.float_constant(1, self.kind)
        loop = self._loop(mlir.constant(0), rows, [])
        body = mlir.block_of(loop)
        with mlir.at_end(body):
            number = body.arguments[0]
            walked = self._digits(self.found.rows, memory.plus(row, number))
            start = self._element(tile, memory.times(number, mlir.constant(self.form.row_step)))
            before = self._load(tops, number)
            top = self._maximum(before, start, {**fixed, **walked}, key, keys)
            self._store(top, tops, number)
            low = self._compare(top, least)
            used = self._choose(low, zero, top)
            shrunk = after(
                self.found.one("weights"),
                difference_of(self.found).results[0],
                self._float("arith.subf", [before, top]),
            )
            same = self._compare(before, top)
            either = mlir.value("arith.ori", [low, same], mlir.type_of("i1"))
            shrink = self._choose(either, one, shrunk)
            self._store(shrink, shrinks, number)
            total = self._weights(used, start, {**fixed, **walked}, key, keys)
            earlier = self._float("arith.mulf", [self._load(totals, number), shrink])
            self._store(self._float("arith.addf", [earlier, total]), totals, number)
            mlir.create("scf.yield")

    def _maximum(
        self, before: mlir.Value, start: mlir.Value, rows: Place, key: mlir.Value, keys: mlir.Value
    ) -> mlir.Value:
        op = self.found.one("top")

        def step(number: mlir.Value, carried: mlir.Value) -> mlir.Value:
            place = self._place(op, self._axes(rows, {self.found.keys[0].name: memory.plus(key, number)}))
            self._know_score(start, number)
            last = len(list(op.operands)) - 1
            mapping = self.evaluator.arguments(op, place, {last: carried})
            raised = memory.clone_body(mlir.block_of(op), mapping, self.views, place)[0]
            maximum: Any = mlir.defining(raised)
            maximum.attributes["fastmath"] = mlir.attribute(COMBINERS["arith.maximumf"])
            return raised

        return self._along(keys, before, step)

    def _weights(
        self, used: mlir.Value, start: mlir.Value, rows: Place, key: mlir.Value, keys: mlir.Value
    ) -> mlir.Value:
        op = self.found.one("weights")
        number_of_top = next(
            number
            for number, operand in enumerate(op.operands)
            if operand == self.found.one("top").operands[-1]
        )

        def step(number: mlir.Value, carried: mlir.Value) -> mlir.Value:
            place = self._place(op, self._axes(rows, {self.found.keys[0].name: memory.plus(key, number)}))
            self._know_score(start, number)
            weight = self.evaluator.result(op, place, {number_of_top: used})
            self._store(weight, start, number)
            return self._float("arith.addf", [carried, weight], COMBINERS["arith.addf"])

        return self._along(keys, mlir.float_constant(0, self.kind), step)

    def _know_score(self, start: mlir.Value, number: mlir.Value) -> None:
        buffer = self.found.one("scores").operands[-1]
        score = self._load(start, number)
        element = buffer.type.element_type
        if str(element) != self.found.wide:
            score = mlir.value("arith.truncf", [score], element)
        self.evaluator.known[buffer] = score

    def _along(
        self, keys: mlir.Value, first: mlir.Value, step: Callable[[mlir.Value, mlir.Value], mlir.Value]
    ) -> mlir.Value:
        loop = self._loop(mlir.constant(0), keys, [first])
        body = mlir.block_of(loop)
        with mlir.at_end(body):
            mlir.create("scf.yield", [step(body.arguments[0], body.arguments[1])])
        return loop.results[0]

    def finish(self) -> None:
        batch, low, high = self.numbers
        sums, tops, totals = self.pointers
        fixed = self._digits(self.found.batch, batch)
        least = self._least()
        rows = mlir.value("arith.subi", [high, low], memory.i64())
        loop = self._loop(mlir.constant(0), rows, [])
        body = mlir.block_of(loop)
        with mlir.at_end(body):
            number = body.arguments[0]
            walked = self._digits(self.found.rows, memory.plus(low, number))
            masked = self._compare(self._load(tops, number), least)
            total = self._total(masked, self._load(totals, number))
            start = self._element(sums, memory.times(number, self.step))
            inner = self._loop(mlir.constant(0), self.columns, [])
            block = mlir.block_of(inner)
            with mlir.at_end(block):
                column = block.arguments[0]
                value = self._load(start, column)
                if "total" in self.found.roles and not self._late():
                    value = self._float("arith.divf", [value, total])
                else:
                    value = self._choose(masked, total, value)
                    self.evaluator.known[self.found.one("total").operands[-1]] = total
                self._result(value, self._axes(fixed, walked), self._digits(self.found.columns, column))
                mlir.create("scf.yield")
            mlir.create("scf.yield")

    def _late(self) -> bool:
        return not ("share" in self.found.roles or "guarded" in self.found.roles)

    def _total(self, masked: mlir.Value, total: mlir.Value) -> mlir.Value:
        """What the sums of a row are divided by: a row of nothing but -inf has what the program gives it."""
        if "guarded" in self.found.roles:
            return self._choose(masked, mlir.float_constant(1, self.kind), total)
        nothing = mlir.float_constant(float("nan"), self.kind)
        empty = total if self._late() else mlir.float_constant(1, self.kind)
        missing = self._choose(self._no_keys(), empty, nothing)
        return self._choose(masked, missing, total)

    def _no_keys(self) -> mlir.Value:
        keys = self._value(self.found.size("keys"))
        return mlir.value(
            "arith.cmpi", [keys, mlir.constant(0)], mlir.type_of("i1"), predicate=mlir.int_attr(0)
        )

    def _result(self, value: mlir.Value, axes: Place, columns: Place) -> None:
        """Store one element of the result, after what follows on it."""
        mixed = self.found.one("mixed")
        place = {**self._place(mixed, axes), **columns}
        for dim in range(len(list(mixed.attributes["iterator_types"]))):
            place.setdefault(dim, mlir.constant(0))
        element = mixed.operands[-1].type.element_type
        if str(element) != self.found.wide:
            value = mlir.value("arith.truncf", [value], element)
        buffer, maps = mixed.operands[-1], [entry.value for entry in mixed.attributes["indexing_maps"]]
        indices = [place[_plain(result)] for result in maps[-1].results]
        for op in self.found.roles.get("tail", ()):
            number = next(n for n, operand in enumerate(op.operands) if operand == buffer)
            access = [entry.value for entry in op.attributes["indexing_maps"]][number]
            here = {_plain(result): index for result, index in zip(access.results, indices, strict=True)}
            value = self.evaluator.result(op, here, {number: value})
            buffer, indices = op.operands[-1], [here[dim] for dim in range(len(here))]
        pointer = self.views[buffer]
        offset = mlir.constant(0)
        for index, step in zip(indices, pointer.steps, strict=True):
            offset = memory.plus(offset, memory.times(index, step))
        memory.store(pointer, offset, value)


def _plain(expression: Any) -> int:
    dim = mlir.plain_dim(expression)
    assert dim is not None
    return dim


def _rounded(size: Formula, step: int) -> Formula:
    return apply("roundup", size, step)


def difference_of(found: Gathered) -> mlir.Op:
    """In the body of the weights: the subtraction of a row's maximum."""
    op = found.one("weights")
    number = next(n for n, operand in enumerate(op.operands) if operand == found.one("top").operands[-1])
    (user,) = [user for user, _ in mlir.uses(mlir.block_of(op).arguments[number])]
    return user
