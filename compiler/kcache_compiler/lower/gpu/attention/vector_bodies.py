"""Vectorized bodies of operations over several keys: LLVM vectors, one register per element.

A body of fifty operations at sixteen keys becomes fifty operations of the kernel, not eight hundred: compile
time is proportional to their number. Operations without a vector form are scalarized.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from kcache_compiler.lower.attention.evaluate import Evaluator
from kcache_compiler.lower.gpu.kernel import as_i64
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import i64
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm

_VECTORS = frozenset(
    f"arith.{name}"
    for name in (
        *("addf", "subf", "mulf", "divf", "negf", "maximumf", "minimumf", "maxnumf", "minnumf", "cmpf"),
        *(
            "addi",
            "subi",
            "muli",
            "shli",
            "shrsi",
            "shrui",
            "andi",
            "ori",
            "xori",
            "cmpi",
            "select",
            "bitcast",
        ),
        *("maxsi", "minsi", "maxui", "minui", "extsi", "extui", "trunci", "extf", "truncf", "sitofp"),
    )
) | {"math.fma", "math.absf"}
#: Casts of an index, represented as i64: the truncation and the extension.
_CASTS = {
    "arith.index_cast": (arith.trunci, arith.extsi),
    "arith.index_castui": (arith.trunci, arith.extui),
}
_ELEMENTS = ("f32", "f64", "i1", "i32", "i64")


@dataclass
class PerKeyValue:
    """One value per key, as a vector, as scalars or both; the other form is created on first use."""

    scalars: list[mlir.Value] = field(default_factory=list[mlir.Value])
    vector: mlir.Value | None = None

    @property
    def element(self) -> mlir.Type:
        return self.scalars[0].type if self.vector is None else mlir.element_type(self.vector.type)

    def each(self, count: int) -> list[mlir.Value]:
        if not self.scalars:
            assert self.vector is not None
            vector = self.vector
            self.scalars = [llvm.extractelement(vector, mlir.constant(lane)) for lane in range(count)]
        return self.scalars

    def together(self) -> mlir.Value:
        if self.vector is None:
            kind = mlir.type_of(f"vector<{len(self.scalars)}x{self.element}>")
            vector = llvm.mlir_poison(kind)
            for lane, number in enumerate(self.scalars):
                vector = llvm.insertelement(vector, number, mlir.constant(lane))
            self.vector = vector
        return self.vector


#: A value that is uniform over keys, or one per key.
Number: TypeAlias = "mlir.Value | PerKeyValue"
#: The current index of each loop of an operation.
KeyCoordinates: TypeAlias = dict[int, Number]


class Lanes:
    """Vectorizes ``evaluator`` over ``count`` keys."""

    def __init__(self, evaluator: Evaluator, count: int) -> None:
        self.evaluator, self.count = evaluator, count
        self.known: dict[mlir.Value, PerKeyValue] = {}

    def result(self, op: mlir.Op, places: KeyCoordinates, values: dict[int, Number]) -> Number:
        """The value that the body of ``op`` yields; ``values`` overrides some of its arguments, by number."""
        body = mlir.block_of(op)
        operations = mlir.operations(body)
        if any(mlir.has_regions(operation) for operation in operations):
            return self._in_turn(op, places, values)
        mapping = self._arguments(op, places, values)
        for operation in operations:
            if mlir.name_of(operation) == "linalg.yield":
                return self._mapped(operation.operands[0], mapping)
            mapping[operation.results[0]] = self._computed(operation, places, mapping)
        raise AssertionError("a body without a yield")

    def spread(self, number: Number) -> PerKeyValue:
        """``number`` as one value per key."""
        return number if isinstance(number, PerKeyValue) else PerKeyValue(vector=self._vector(number))

    def choose(self, conditions: PerKeyValue, numbers: PerKeyValue, otherwise: mlir.Value) -> PerKeyValue:
        """Select, per key, the number if the condition holds, else ``otherwise``."""
        vectors = [conditions.together(), numbers.together(), self._vector(otherwise)]
        return PerKeyValue(vector=arith.select(*vectors))

    def _in_turn(self, op: mlir.Op, places: KeyCoordinates, values: dict[int, Number]) -> PerKeyValue:
        saved, results = dict(self.evaluator.known), list[mlir.Value]()
        for lane in range(self.count):
            self.evaluator.known |= {buffer: self._at(number, lane) for buffer, number in self.known.items()}
            place = {dim: self._at(number, lane) for dim, number in places.items()}
            arguments = {number: self._at(value, lane) for number, value in values.items()}
            results.append(self.evaluator.result(op, place, arguments))
        self.evaluator.known = saved
        return PerKeyValue(results)

    def _at(self, number: Number, lane: int) -> mlir.Value:
        return number.each(self.count)[lane] if isinstance(number, PerKeyValue) else number

    def _arguments(
        self, op: mlir.Op, places: KeyCoordinates, values: dict[int, Number]
    ) -> dict[mlir.Value, Number]:
        maps = mlir.indexing_maps(op)
        mapping: dict[mlir.Value, Number] = dict(self.evaluator.scalars)
        for number, argument in enumerate(mlir.block_of(op).arguments):
            operand = op.operands[number]
            if number in values:
                mapping[argument] = values[number]
            elif list(argument.uses) and mlir.is_memref(operand.type):
                mapping[argument] = self._element(operand, list(maps[number].results), places)
            elif list(argument.uses):
                mapping[argument] = self._mapped(operand, mapping)
        return mapping

    def _element(self, buffer: mlir.Value, axes: list[mlir.AffineExpr], places: KeyCoordinates) -> Number:
        """The element of ``buffer`` that the index expressions ``axes`` select."""
        if buffer in self.known:
            return self.known[buffer]
        indices = [self._index(axis, places) for axis in axes]
        uniform = {dim: number for dim, number in places.items() if not isinstance(number, PerKeyValue)}
        if not any(isinstance(index, PerKeyValue) for index in indices):
            return self.evaluator.element(buffer, axes, uniform)
        if buffer in self.evaluator.makers:
            return self.result(self.evaluator.makers[buffer], dict(enumerate(indices)), {})
        return PerKeyValue(
            [
                self.evaluator.element(
                    buffer, axes, {dim: self._at(number, lane) for dim, number in places.items()}
                )
                for lane in range(self.count)
            ]
        )

    def _index(self, expression: mlir.AffineExpr, places: KeyCoordinates) -> Number:
        dim = mlir.plain_dim(expression)
        return mlir.constant(mlir.constant_of(expression)) if dim is None else places[dim]

    def _mapped(self, operand: mlir.Value, mapping: dict[mlir.Value, Number]) -> Number:
        if operand not in mapping:
            owner = mlir.defining(operand)
            mapping[operand] = operand if owner is None else mlir.clone(owner).results[0]
        value = mapping[operand]
        return value if isinstance(value, PerKeyValue) else as_i64(value) if _is_index(value) else value

    def _computed(
        self, operation: mlir.Op, places: KeyCoordinates, mapping: dict[mlir.Value, Number]
    ) -> Number:
        """Emit an operation for all keys of a thread; return a scalar if it is equal for all keys."""
        name = mlir.name_of(operation)
        if name == "linalg.index":
            return places.get(mlir.int_of(operation.attributes["dim"]), mlir.constant(0))
        if name == "arith.constant":
            return mlir.clone(operation).results[0]
        if name == "memref.load":
            return self._loaded(
                operation, [self._mapped(operand, mapping) for operand in list(operation.operands)[1:]]
            )
        operands = [self._mapped(operand, mapping) for operand in operation.operands]
        if name in _CASTS:
            return self._cast(name, operands[0], _plain(operation.results[0].type))
        scalars = [operand for operand in operands if not isinstance(operand, PerKeyValue)]
        if len(scalars) == len(operands):
            return self._scalar(operation, scalars)
        kinds = [_plain(operation.results[0].type), *(_element(operand) for operand in operands)]
        if name not in _VECTORS or any(str(kind) not in _ELEMENTS for kind in kinds):
            lanes = range(self.count)
            return PerKeyValue(
                [self._scalar(operation, [self._at(operand, lane) for operand in operands]) for lane in lanes]
            )
        vectors = [self._vector(operand) for operand in operands]
        return PerKeyValue(vector=_rebuilt(operation, vectors, self._kind(kinds[0])))

    def _scalar(self, operation: mlir.Op, operands: list[mlir.Value]) -> mlir.Value:
        return _rebuilt(operation, operands, _plain(operation.results[0].type))

    def _loaded(self, load: mlir.Op, indices: list[Number]) -> Number:
        pointer = self.evaluator.views[load.operands[0]]

        def at(lane: int) -> mlir.Value:
            offset = mlir.constant(0)
            for index, step in zip(indices, pointer.steps, strict=True):
                offset = memory.plus(offset, memory.times(self._at(index, lane), step))
            return memory.load(pointer, offset)

        if not any(isinstance(index, PerKeyValue) for index in indices):
            return at(0)
        return PerKeyValue([at(lane) for lane in range(self.count)])

    def _cast(self, name: str, number: Number, target: mlir.Type) -> Number:
        bits = [int(str(kind)[1:]) for kind in (_element(number), target)]
        if bits[0] == bits[1]:
            return number
        cast = _CASTS[name][bits[1] > bits[0]]
        if not isinstance(number, PerKeyValue):
            return cast(target, number)
        return PerKeyValue(vector=cast(self._kind(target), number.together()))

    def _kind(self, element: mlir.Type) -> mlir.Type:
        return mlir.type_of(f"vector<{self.count}x{element}>")

    def _vector(self, number: Number) -> mlir.Value:
        if isinstance(number, PerKeyValue):
            return number.together()
        kind = self._kind(number.type)
        literal = mlir.splat(number, kind)
        if literal is not None:
            return literal
        poison = llvm.mlir_poison(kind)
        first = llvm.insertelement(poison, number, mlir.constant(0))
        return llvm.shufflevector(kind, first, first, [0] * self.count)


def _element(number: Number) -> mlir.Type:
    return number.element if isinstance(number, PerKeyValue) else number.type


def _is_index(number: mlir.Value) -> bool:
    return str(number.type) == "index"


def _plain(kind: mlir.Type) -> mlir.Type:
    return i64() if str(kind) == "index" else kind


def _rebuilt(operation: mlir.Op, operands: list[mlir.Value], kind: mlir.Type) -> mlir.Value:
    """Clone ``operation`` with new operands and a new result type."""
    copy = mlir.clone(operation)
    for number, operand in enumerate(operands):
        copy.operands[number] = operand
    copy.results[0].set_type(kind)
    return copy.results[0]
