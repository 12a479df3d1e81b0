"""Addresses, and loads and stores of contiguous elements."""

from __future__ import annotations

from kcache_compiler.lower.loops import memory
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import llvm


def at(base: mlir.Value, offset: mlir.Value) -> mlir.Value:
    """The address ``offset`` bytes from ``base``."""
    return _moved(base, [offset], memory.DYNAMIC_INDEX)


def ahead(place: mlir.Value, count: int) -> mlir.Value:
    """The address ``count`` bytes after ``place``, as an immediate offset of an instruction."""
    return _moved(place, [], count) if count else place


def _moved(base: mlir.Value, dynamic: list[mlir.Value], step: int) -> mlir.Value:
    byte = mlir.type_of("i8")
    return llvm.getelementptr(base.type, base, dynamic, [step], byte, llvm.GEPNoWrapFlags.none)


def store(place: mlir.Value, number: mlir.Value, alignment: int) -> None:
    llvm.store(number, place, alignment=alignment)


def load(place: mlir.Value, kind: mlir.Type, alignment: int) -> mlir.Value:
    return llvm.load(kind, place, alignment=alignment)


def load_each(place: mlir.Value, count: int, kind: mlir.Type, width: int) -> list[mlir.Value]:
    """Load ``count`` contiguous elements by aligned loads of ``width`` bytes."""
    size = memory.element_bytes(kind)
    lanes = width // size
    if lanes == 1:
        return [load(ahead(place, number * size), kind, width) for number in range(count)]
    numbers = [mlir.constant(lane) for lane in range(lanes)]
    wide = mlir.type_of(f"vector<{lanes}x{kind}>")
    values: list[mlir.Value] = []
    for first in range(0, count, lanes):
        loaded = load(ahead(place, first * size), wide, width)
        values += [llvm.extractelement(loaded, number) for number in numbers]
    return values


def store_each(place: mlir.Value, values: list[mlir.Value], width: int) -> None:
    """Store contiguous elements at ``place`` by aligned stores of ``width`` bytes."""
    kind = values[0].type
    size = memory.element_bytes(kind)
    lanes = width // size
    if lanes == 1:
        for number, value in enumerate(values):
            store(ahead(place, number * size), value, width)
        return
    wide = mlir.type_of(f"vector<{lanes}x{kind}>")
    numbers = [mlir.constant(lane) for lane in range(lanes)]
    for first in range(0, len(values), lanes):
        vector = llvm.mlir_poison(wide)
        for lane, number in enumerate(numbers):
            vector = llvm.insertelement(vector, values[first + lane], number)
        store(ahead(place, first * size), vector, width)
