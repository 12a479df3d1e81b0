"""Stores of single elements by ``main``: a launch of one thread each."""

from __future__ import annotations

from dataclasses import dataclass, field

from kcache_compiler.lower.gpu.kernel import Kernel, LaunchGeometry, as_i64, element_offset
from kcache_compiler.lower.gpu.operands import offsets_of
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import root_of
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import memref

STORE = "memref.store"


@dataclass(frozen=True)
class Store:
    """One element of a buffer, and the launch that writes it."""

    op: mlir.Op
    generics: list[mlir.Op] = field(default_factory=list[mlir.Op])
    spared: list[mlir.Op] = field(default_factory=list[mlir.Op])

    @property
    def buffer(self) -> mlir.Value:
        return self.op.operands[1]

    @property
    def numbers(self) -> list[mlir.Value]:
        """The scalars of ``main`` that it uses: the element, its indices, the buffer's offset."""
        value, buffer, *indices = self.op.operands
        return [value, *indices, *offsets_of([buffer])]

    @property
    def root(self) -> mlir.Value:
        return root_of(self.buffer)


def write_store(kernel: Kernel, store: Store) -> LaunchGeometry:
    """Write the element at the end of the body."""
    value, _, *indices = store.op.operands
    number, pointer = kernel.scalar(value), kernel.pointer(store.buffer)
    scalars = [kernel.scalar(index) for index in indices]
    with kernel.body():
        places = [as_i64(index) for index in scalars]
        memory.store(pointer, element_offset(pointer, places), number)
    return LaunchGeometry((1, 1, 1), (1, 1, 1), name="store")


def hold_numbers(main: mlir.Op) -> None:
    """Copy scalars that ``main`` loads from buffers which are written later to separate allocations.

    Each launch that uses such a scalar loads it again, when the original element may have changed.
    """
    loads = [load for load in mlir.named(main, "memref.load") if mlir.within(load, main)]
    if not loads:
        return
    order = {op: place for place, op in enumerate(mlir.walk(main))}
    last: dict[mlir.Value, int] = {}
    for op in mlir.named(main, "linalg.generic", STORE):
        last |= {root_of(target): order[op] for target in targets(op)}
    for load in loads:
        if last.get(root_of(load.operands[0]), -1) < order[load]:
            continue
        number = load.results[0]
        with mlir.after(load):
            place = memref.alloc(mlir.type_of(f"memref<{number.type}>"), [], [])
            memref.store(number, place, [])
            saved = memref.load(place, [])
        for user, position in list(mlir.uses(number)):
            if user in order:
                user.operands[position] = saved


def targets(op: mlir.Op) -> list[mlir.Value]:
    """The buffers that a structured operation or a store writes."""
    if mlir.name_of(op) == STORE:
        return [op.operands[1]]
    return list(op.operands)[mlir.input_count(op) :]
