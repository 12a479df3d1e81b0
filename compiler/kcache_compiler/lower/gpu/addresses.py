"""Addresses, and the loads and stores of neighbours behind them."""

from __future__ import annotations

from kcache_compiler.lower.loops import memory
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import llvm


def at(base: mlir.Value, offset: mlir.Value) -> mlir.Value:
    """The address ``offset`` bytes from ``base``."""
    return _moved(base, [offset], memory.DYNAMIC_INDEX)


def ahead(place: mlir.Value, count: int) -> mlir.Value:
    """The address so many bytes after ``place``: no arithmetic, but a part of an instruction."""
    return _moved(place, [], count) if count else place


def _moved(base: mlir.Value, dynamic: list[mlir.Value], step: int) -> mlir.Value:
    byte = mlir.type_of("i8")
    return llvm.getelementptr(base.type, base, dynamic, [step], byte, llvm.GEPNoWrapFlags.none)


def store(place: mlir.Value, number: mlir.Value, alignment: int) -> None:
    llvm.store(number, place, alignment=alignment)


def load(place: mlir.Value, kind: mlir.Type, alignment: int) -> mlir.Value:
    return llvm.load(kind, place, alignment=alignment)


def load_each(place: mlir.Value, count: int, kind: mlir.Type, width: int) -> list[mlir.Value]:
    """So many neighbours, by loads of ``width`` bytes at multiples of it."""
    size = memory.element_bytes(kind)
    lanes = width // size
    if lanes == 1:
        return [load(ahead(place, number * size), kind, width) for number in range(count)]
    numbers = [mlir.constant(lane) for lane in range(lanes)]
    wide = mlir.type_of(f"vector<{lanes}x{kind}>")
    found: list[mlir.Value] = []
    for first in range(0, count, lanes):
        loaded = load(ahead(place, first * size), wide, width)
        found += [llvm.extractelement(loaded, number) for number in numbers]
    return found


def store_each(place: mlir.Value, values: list[mlir.Value], width: int) -> None:
    """Neighbours from ``place`` on, by stores of ``width`` bytes at multiples of it."""
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
        made = llvm.mlir_poison(wide)
        for lane, number in enumerate(numbers):
            made = llvm.insertelement(made, values[first + lane], number)
        store(ahead(place, first * size), made, width)
