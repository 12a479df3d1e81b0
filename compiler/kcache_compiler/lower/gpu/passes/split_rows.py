"""Softmax, norms and losses of few long rows, in parts: several blocks compute each row.

The loops over a row are split into parts and elements of a part. A reduction becomes partial results of the
parts; operations that use the result combine the partial results themselves, in order and once per part, so
that a block needs no other launch in between. The operations between two reductions are a *phase*, which is
one launch: softmax has two phases, of which the first computes maxima and sums of exponentials of each part
relative to its own maximum, as attention does; layer norm has three.

Static rows only, and nothing under ``strict``: the order of a sum changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import prod

from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.gpu.loops.thread_combiners import Combiner
from kcache_compiler.lower.gpu.passes.split_reductions import (
    combiner_of,
    dims_of,
    divisor,
    is_tiled,
    ranges_of,
)
from kcache_compiler.lower.loops.wide_reductions import constant_fill
from kcache_compiler.lower.sort_scatter.marker import is_marker
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, linalg, tensor
from kcache_compiler.passes.attention.bodies import NEGATIVE_INFINITY, elementwise, maker, plain
from kcache_compiler.passes.attention.mark import MARK
from kcache_compiler.passes.generic import build_generic
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.groups import PHASE

#: Fewest elements of a row; fewest parts; fewest elements of a part, and of a part of f64, for registers.
ROW, PARTS, PART, WIDE_PART = 32768, 4, 2048, 4096
#: Parts of all rows per multiprocessor.
BLOCKS = 2
_EXPONENTIALS = ("@kcm_exp_f32", "@kcm_exp_f64")


@dataclass(frozen=True)
class _Shape:
    """The sizes of the outer loops, of the parts of a row, and of a part; the number of the shape."""

    number: int
    rows: tuple[int, ...]
    parts: int
    part: int

    @property
    def loops(self) -> list[int]:
        return [*self.rows, self.parts * self.part]

    @property
    def rank(self) -> int:
        return len(self.rows)

    def tag(self, phase: str) -> mlir.Attribute:
        return mlir.string_attr(f"{self.number} {phase}")


@dataclass(frozen=True)
class _Version:
    """A value with parts, and the first phase that may use it; ``per_row``: equal in all parts of a row."""

    value: mlir.Value
    phase: int
    per_row: bool


@dataclass(frozen=True)
class _Maximum:
    """The maxima of the parts of rows, the phase that computes them, and what they are the maxima of."""

    partial: mlir.Value
    phase: int
    of: int


@dataclass
class _Rows:
    """The rows of one shape that are split, while the operations of a program are visited in order."""

    shape: _Shape
    versions: dict[mlir.Value, _Version] = field(default_factory=dict[mlir.Value, _Version])
    #: By the value of whole rows.
    maxima: dict[mlir.Value, _Maximum] = field(default_factory=dict[mlir.Value, _Maximum])
    #: Numbers of what values of bodies compute.
    terms: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    #: Elementwise operations that were split, by the value of whole rows, until ``finish`` erases them.
    replaced: dict[mlir.Value, mlir.Op] = field(default_factory=dict[mlir.Value, mlir.Op])

    def visit(self, generic: mlir.Op, combiner: Combiner | None) -> None:
        """Split an operation on all elements: a reduction with its ``combiner``, or an elementwise one."""
        if combiner is not None:
            self._reduce(generic, combiner)
        else:
            self.elementwise(generic, per_row=False)

    def finish(self) -> None:
        """Erase the operations that no one uses any more."""
        for generic in reversed(self.replaced.values()):
            generic.erase()

    # Reductions.

    def _reduce(self, generic: mlir.Op, combiner: Combiner) -> None:
        start = constant_fill(generic.operands[-1])
        if start is None:
            return
        with mlir.before(generic):
            used = self._rescaled(generic, combiner, start) or self._partial(generic, combiner, start)
        whole, version = used
        self.versions[whole] = version
        generic.results[0].replace_all_uses_with(whole)
        generic.erase()

    def _partial(self, generic: mlir.Op, combiner: Combiner, start: float) -> tuple[mlir.Value, _Version]:
        """Partial results and their combination, for whole rows and in each part."""
        phase = self._phase(generic)
        partial = self._reduced(generic, combiner, phase, {})

        def combined(per_part: bool, phase: str) -> mlir.Value:
            return self._combined(
                [partial],
                [],
                per_part,
                phase,
                combiner.kind,
                start,
                lambda values: combiner.apply(values[-1], values[0]),
            )

        whole, per_part = combined(False, f"{phase} whole"), combined(True, str(phase + 1))
        if mlir.name_of(combiner.operation) == "arith.maximumf":
            self.maxima[whole] = _Maximum(partial, phase, self._term(generic, _added(generic)))
        return whole, _Version(per_part, phase + 1, per_row=True)

    def _rescaled(
        self, generic: mlir.Op, combiner: Combiner, start: float
    ) -> tuple[mlir.Value, _Version] | None:
        """A sum of exponentials below the maximum of a row: of parts below their own, which are rescaled."""
        exponentials = self._exponentials(generic, combiner)
        if exponentials is None:
            return None
        maker_op, number, call = exponentials
        top = maker_op.operands[number]
        maximum = self.maxima[top]
        if self._phase(maker_op, without=number) > maximum.phase:
            return None
        replaced = {number: self._subtracted(maximum)}
        if maker_op == generic:
            partial = self._reduced(generic, combiner, maximum.phase, replaced)
        else:
            weights = self._spread(maker_op, False, maximum.phase, replaced)
            partial = self._reduced(generic, combiner, maximum.phase, {0: weights})

        def rescaled(values: list[mlir.Value]) -> mlir.Value:
            sum_, part_top, row_top, total = values
            factor = mlir.clone(call)
            with mlir.before(factor):
                factor.operands[0] = arith.subf(part_top, row_top)
            return arith.addf(total, arith.mulf(sum_, factor.results[0]))

        parts, phase, kind = [partial, maximum.partial], maximum.phase, combiner.kind
        own_top = self.versions[top].value
        whole = self._combined(parts, [top], False, f"{phase} whole", kind, start, rescaled)
        per_part = self._combined(parts, [own_top], True, str(phase + 1), kind, start, rescaled)
        return whole, _Version(per_part, phase + 1, per_row=True)

    def _subtracted(self, maximum: _Maximum) -> mlir.Value:
        """What the exponentials of parts subtract: their maxima, or 0 for parts of nothing but -inf."""
        loops = len(self.shape.rows) + 1
        kind, each = maximum.partial.type, _map(loops, list(range(loops)))

        def body(values: list[mlir.Value]) -> list[mlir.Value]:
            top, element = values[0], values[0].type
            low = mlir.float_constant(NEGATIVE_INFINITY, element)
            nothing = arith.cmpf(arith.CmpFPredicate.OEQ, top, low)
            return [arith.select(nothing, mlir.float_constant(0, element), top)]

        inputs, outputs = [maximum.partial], [mlir.empty_tensor(kind)]
        used = build_generic(inputs, outputs, [each] * 2, ["parallel"] * loops, body)
        used.attributes[PHASE] = self.shape.tag(str(maximum.phase))
        return used.results[0]

    def _exponentials(self, generic: mlir.Op, combiner: Combiner) -> tuple[mlir.Op, int, mlir.Op] | None:
        """The operation whose body has ``exp(x - m)``, which ``generic`` adds; the number of m; the call."""
        if mlir.name_of(combiner.operation) != "arith.addf" or str(combiner.kind) not in ("f32", "f64"):
            return None
        arguments, value = list(mlir.block_of(generic).arguments), _added(generic)
        if value in arguments:
            weights_op = self.replaced.get(generic.operands[arguments.index(value)])
            weights = None if weights_op is None else elementwise(weights_op.results[0])
            single = len(arguments) == 2 and mlir.is_identity(mlir.indexing_maps(generic)[0])
            if (
                weights is None
                or not single
                or not plain(weights)
                or ranges_of(weights.op) != self.shape.loops
            ):
                return None
            generic, value = weights.op, mlir.last(weights.body).operands[0]
            arguments = list(weights.body.arguments)
        call = maker(value, "func.call")
        difference = None if call is None else maker(call.operands[0], "arith.subf")
        if call is None or difference is None or str(call.attributes["callee"]) not in _EXPONENTIALS:
            return None
        number = next((n for n, argument in enumerate(arguments) if argument == difference.operands[1]), None)
        if number is None or len(list(mlir.uses(arguments[number]))) != 1:
            return None
        return (generic, number, call) if self._is_maximum(generic, number, difference.operands[0]) else None

    def _is_maximum(self, op: mlir.Op, number: int, value: mlir.Value) -> bool:
        """Whether an operand is the maximum of ``value`` in each row, which parts of a row do not exceed."""
        maximum = self.maxima.get(op.operands[number])
        return maximum is not None and self._reads_rows(op, number) and maximum.of == self._term(op, value)

    def _term(self, op: mlir.Op, value: mlir.Value) -> int:
        """The number of what a value of a body computes, equal in operations that have the same loops."""
        owner, arguments = mlir.defining(value), list(mlir.block_of(op).arguments)
        if value in arguments:
            number = arguments.index(value)
            key: Hashable = (op.operands[number], tuple(dims_of(mlir.indexing_maps(op)[number])))
        elif owner is None:
            key = value
        else:
            operands = tuple(self._term(op, operand) for operand in owner.operands)
            key = (mlir.name_of(owner), mlir.attributes_text(owner), str(value.type), operands)
        return self.terms.setdefault(key, len(self.terms))

    def _reads_rows(self, op: mlir.Op, number: int) -> bool:
        return dims_of(mlir.indexing_maps(op)[number]) == list(range(self.shape.rank))

    def _reduced(
        self, generic: mlir.Op, combiner: Combiner, phase: int, replaced: dict[int, mlir.Value]
    ) -> mlir.Value:
        """Reduce the elements of each part."""
        rows = [*range(self.shape.rank), self.shape.rank]
        kind = self._type([*self.shape.rows, self.shape.parts], combiner.kind)
        starts = build_generic(
            [],
            [mlir.empty_tensor(kind)],
            [_map(len(rows), rows)],
            ["parallel"] * len(rows),
            lambda _: [combiner.neutral()],
        )
        tag = self.shape.tag(str(phase))
        starts.attributes[PHASE] = tag
        kinds = ["parallel"] * len(rows) + ["reduction"]
        return self._rebuilt(generic, kinds, starts.results[0], rows, phase, replaced)

    def _combined(
        self,
        parts: Sequence[mlir.Value],
        rows: Sequence[mlir.Value],
        per_part: bool,
        phase: str,
        element: mlir.Type,
        start: float,
        body: Callable[[list[mlir.Value]], mlir.Value],
    ) -> mlir.Value:
        """Reduce ``parts`` along the parts, from ``start``: for each row, or in each part of each row.

        ``body`` gets an element of each of ``parts``, one of each of ``rows``, and the total.
        """
        rank = self.shape.rank
        outer = list(range(rank + per_part))
        loops, along = len(outer) + 1, [*range(rank), len(outer)]
        sizes = [*self.shape.rows, *([self.shape.parts] if per_part else [])]
        empty = mlir.empty_tensor(self._type(sizes, element))
        starts = build_generic(
            [],
            [empty],
            [_map(len(outer), outer)],
            ["parallel"] * len(outer),
            lambda _: [mlir.float_constant(start, element)],
        )
        maps = [_map(loops, along)] * len(parts) + [_map(loops, outer)] * (len(rows) + 1)
        total = build_generic(
            [*parts, *rows],
            [starts.results[0]],
            maps,
            ["parallel"] * len(outer) + ["reduction"],
            lambda values: [body(values)],
        )
        for op in (starts, total):
            op.attributes[PHASE] = self.shape.tag(phase)
        return total.results[0]

    # Elementwise operations.

    def elementwise(self, generic: mlir.Op, per_row: bool) -> None:
        """Compute an elementwise operation on rows in the parts, if it uses a result of them."""
        read = elementwise(generic.results[0]) if len(generic.results) == 1 else None
        if (
            read is None
            or not plain(read)
            or not any(self._version(generic, number) for number in range(len(read.inputs)))
        ):
            return
        phase = self._phase(generic)
        with mlir.before(generic):
            value = self._spread(generic, per_row, phase, {})
            self.versions[generic.results[0]] = _Version(value, phase, per_row)
            if per_row:
                return
            rank = self.shape.rank
            merged = mlir.attribute(str([*([axis] for axis in range(rank)), [rank, rank + 1]]))
            whole = tensor.collapse_shape(generic.results[0].type, value, merged)
        self.versions[whole] = self.versions[generic.results[0]]
        generic.results[0].replace_all_uses_with(whole)
        self.replaced[whole] = generic

    def _spread(
        self, generic: mlir.Op, per_row: bool, phase: int, replaced: dict[int, mlir.Value]
    ) -> mlir.Value:
        """The result of an elementwise operation with parts."""
        sizes = [*self.shape.rows, self.shape.parts, *([] if per_row else [self.shape.part])]
        empty = mlir.empty_tensor(self._type(sizes, mlir.element_type(generic.results[0].type)))
        return self._rebuilt(
            generic, ["parallel"] * len(sizes), empty, list(range(len(sizes))), phase, replaced
        )

    # Both.

    def _version(self, generic: mlir.Op, number: int) -> _Version | None:
        """What an operation with parts reads instead of an operand: by rows, or by elements."""
        version = self.versions.get(generic.operands[number])
        dims = dims_of(mlir.indexing_maps(generic)[number])
        if version is None or dims != list(range(self.shape.rank + (not version.per_row))):
            return None
        return version

    def _phase(self, generic: mlir.Op, without: int = -1) -> int:
        """The first phase in which all operands are known."""
        versions = [
            self._version(generic, number) for number in range(mlir.input_count(generic)) if number != without
        ]
        return max((version.phase for version in versions if version is not None), default=0)

    def _rebuilt(
        self,
        generic: mlir.Op,
        kinds: Sequence[str],
        output: mlir.Value,
        results: list[int],
        phase: int,
        replaced: dict[int, mlir.Value],
    ) -> mlir.Value:
        """A copy of an operation with a loop over parts; ``replaced``: values with parts, by operand."""
        operands, maps = list[mlir.Value](), list[str]()
        rank, loops = self.shape.rank, len(kinds)
        for number in range(mlir.input_count(generic)):
            version, dims = self._version(generic, number), dims_of(mlir.indexing_maps(generic)[number])
            value = replaced.get(number, None if version is None else version.value)
            if value is not None:
                operands.append(value)
                maps.append(_map(loops, list(range(len(mlir.sizes_of(value.type))))))
                continue
            operands.append(self._expanded(generic.operands[number], dims))
            maps.append(_map(loops, [loop for dim in dims if dim is not None for loop in self._loops(dim)]))
        maps.append(_map(loops, results))
        iterators = ", ".join(f"#linalg.iterator_type<{kind}>" for kind in kinds)
        map_text = ", ".join(f"affine_map<{text}>" for text in maps)
        new = linalg.GenericOp(
            [output.type],
            operands,
            [output],
            mlir.attribute(f"[{map_text}]"),
            mlir.attribute(f"[{iterators}]"),
        ).operation
        copy = mlir.clone(generic)
        mlir.move_block(copy, new, 0)
        copy.erase()
        for index in mlir.named(new, "linalg.index"):
            if mlir.int_of(index.attributes["dim"]) == rank:
                self._replace_index(index)
        new.attributes[PHASE] = self.shape.tag(str(phase))
        return new.results[0]

    def _loops(self, dim: int) -> list[int]:
        """The loops of a copy that are loop ``dim`` of the operation."""
        return [dim, dim + 1] if dim == self.shape.rank else [dim]

    def _replace_index(self, index: mlir.Op) -> None:
        """Compute the index of an element of a row from those of its part and in its part."""
        with mlir.after(index):
            inner = linalg.index(self.shape.rank + 1)
            size = mlir.constant(self.shape.part, "index")
            whole = arith.addi(arith.muli(index.results[0], size), inner)
        product_op = mlir.definition(mlir.definition(whole).operands[0])
        for user, place in list(mlir.uses(index.results[0])):
            if user != product_op:
                user.operands[place] = whole

    def _expanded(self, value: mlir.Value, dims: list[int | None]) -> mlir.Value:
        """An operand with an axis for the parts, where it has elements of rows."""
        if self.shape.rank not in dims:
            return value
        place, shape, groups = dims.index(self.shape.rank), list[int](), list[list[int]]()
        for axis, size in enumerate(mlir.sizes_of(value.type)):
            assert size is not None
            own = [self.shape.parts, self.shape.part] if axis == place else [size]
            groups.append([*range(len(shape), len(shape) + len(own))])
            shape += own
        kind = self._type(shape, mlir.element_type(value.type))
        return tensor.expand_shape(kind, value, mlir.attribute(str(groups)), [], shape)

    def _type(self, sizes: Sequence[int], element: mlir.Type) -> mlir.Type:
        return mlir.type_of(f"tensor<{''.join(f'{size}x' for size in sizes)}{element}>")


def split_rows(unit: Unit) -> None:
    """Split operations on few long rows into parts, where a result of a row is used by its elements."""
    assert isinstance(unit.target, Device)
    if unit.options.numerics == "strict" or unit.given:  # sizes of a sample are not those of calls
        return
    rows: dict[tuple[int, ...], _Rows] = {}
    for generic in mlir.operations(mlir.block_of(mlir.main_function(unit.module))):
        if mlir.name_of(generic) != "linalg.generic" or is_marker(generic) or MARK in generic.attributes:
            continue
        ranges = ranges_of(generic)
        if ranges is None:
            continue
        combiner = _reduces_rows(generic, ranges)
        if combiner is not None and tuple(ranges) not in rows and _is_used(generic, ranges):
            part = WIDE_PART if str(combiner.kind) == "f64" else PART
            shape = _shape(len(rows), ranges, part, BLOCKS * unit.target.gpu.multiprocessors)
            if shape is not None:
                rows[tuple(ranges)] = _Rows(shape)
        for key, each in rows.items():
            if tuple(ranges) == key[:-1]:
                each.elementwise(generic, per_row=True)
        if tuple(ranges) in rows:
            rows[tuple(ranges)].visit(generic, combiner)
    for each in rows.values():
        each.finish()


def _shape(number: int, ranges: list[int], part: int, blocks: int) -> _Shape | None:
    """The split of rows with most parts within the limits; None if there are too few."""
    *rows, size = ranges
    if size < ROW or prod(rows) == 0:
        return None
    parts = divisor(size, min(blocks // prod(rows), size // part))
    return _Shape(number, tuple(rows), parts, size // parts) if parts >= PARTS else None


def _reduces_rows(generic: mlir.Op, ranges: list[int]) -> Combiner | None:
    """The combiner of a reduction of the last loop, whose elements or maxima need no rounding in between."""
    kinds, maps = mlir.iterator_types(generic), mlir.indexing_maps(generic)
    reduced = [loop for loop, kind in enumerate(kinds) if "reduction" in kind]
    combiner = combiner_of(generic, strict=False)
    if combiner is None or reduced != [len(ranges) - 1] or dims_of(maps[-1]) != list(range(len(ranges) - 1)):
        return None
    if is_tiled(generic, ranges) or not any(reduced[0] in dims_of(access) for access in maps[:-1]):
        return None
    exact = mlir.name_of(combiner.operation) in ("arith.maximumf", "arith.minimumf")
    narrow = exact and str(combiner.kind) in ("f16", "bf16")
    return combiner if narrow or str(combiner.kind) in ("f32", "f64") else None


def _is_used(generic: mlir.Op, ranges: list[int]) -> bool:
    """Whether an operation on all elements uses the result, or what operations on rows make of it."""
    waiting, seen = [generic.results[0]], 0
    while waiting and seen < 64:
        seen += 1
        for user, _ in mlir.uses(waiting.pop()):
            if mlir.name_of(user) != "linalg.generic" or MARK in user.attributes:
                continue
            loops = ranges_of(user)
            if loops == ranges:
                return True
            if loops == ranges[:-1] and len(user.results) == 1:
                waiting.append(user.results[0])
    return False


def _added(generic: mlir.Op) -> mlir.Value:
    """What a reduction combines with the total."""
    body = mlir.block_of(generic)
    combined, total = mlir.definition(mlir.last(body).operands[0]), list(body.arguments)[-1]
    (value,) = [operand for operand in combined.operands if operand != total]
    return value


def _map(loops: int, dims: Sequence[int]) -> str:
    domain = ", ".join(f"d{loop}" for loop in range(loops))
    return f"({domain}) -> ({', '.join(f'd{dim}' for dim in dims)})"
