"""Where an entry function finds the buffers of ``main``: of a kernel, and of one with bound arguments.

``kcache_run(buffers, dims, workspace, host)`` of a kernel with bound arguments takes the other inputs, the
prepared buffer and outputs. ``kcache_prepare(bound, dims, prepared, workspace, host)`` takes the bound
arguments, and writes prepared values to the prepared buffer, or packs them to it when they are computed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kcache_compiler.errors import CompileFailed
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.launch import Outlined
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import llvm
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.prepared import ALIGNMENT, Pack, PackedOperand, bytes_of


@dataclass
class Pointers:
    """The pointers that an entry is called with."""

    buffers: mlir.Value
    dims: mlir.Value
    prepared: mlir.Value
    workspace: mlir.Value
    host: mlir.Value

    def buffer(self, number: int) -> mlir.Value:
        """The address of a buffer of the caller."""
        slot = memory.advance(self.buffers, memory.pointer_type(), mlir.constant(number))
        return llvm.load(memory.pointer_type(), slot)


def _at(base: mlir.Value, offset: int) -> mlir.Value:
    return memory.advance(base, mlir.type_of("i8"), mlir.constant(offset))


class EntryBuffers:
    """Those of a kernel without bound arguments: one pointer for each argument of ``main``."""

    name = "kcache_run"
    #: The version of the C ABI that ``kcache_abi`` returns; None for an entry other than ``kcache_run``.
    abi: int | None = 1
    #: Bytes of the workspace that it uses itself.
    staged = 0
    #: The number of its parameters.
    count = 4

    def pointers(self, parameters: Sequence[mlir.Value]) -> Pointers:
        buffers, dims, workspace, host = parameters
        return Pointers(buffers, dims, buffers, workspace, host)

    def address(self, number: int, pointers: Pointers, staging: int) -> mlir.Value:
        """The address of argument ``number`` of ``main``; ``staging`` is the offset of ``staged`` bytes."""
        return pointers.buffer(number)

    def finish(self, pointers: Pointers, staging: int) -> None:
        """Emit what follows the launches."""


@dataclass
class RunBuffers(EntryBuffers):
    """Those of ``kcache_run`` with a prepared buffer: ``offsets`` of its values, which follow ``inputs``."""

    inputs: int
    offsets: list[int]
    abi = 2

    def address(self, number: int, pointers: Pointers, staging: int) -> mlir.Value:
        value = number - self.inputs
        if 0 <= value < len(self.offsets):
            return _at(pointers.buffer(self.inputs), self.offsets[value])
        return pointers.buffer(number if value < 0 else number - len(self.offsets) + 1)


@dataclass
class PrepareBuffers(EntryBuffers):
    """Those of ``kcache_prepare``: results of ``main`` are after ``inputs``, packed ones in the workspace."""

    inputs: int
    offsets: tuple[int | None, ...]
    packs: tuple[Pack, ...]
    #: By result: the offset in the workspace.
    stages: dict[int, int] = field(default_factory=dict[int, int])
    name = "kcache_prepare"
    abi = None
    count = 5

    def pointers(self, parameters: Sequence[mlir.Value]) -> Pointers:
        return Pointers(*parameters)

    def address(self, number: int, pointers: Pointers, staging: int) -> mlir.Value:
        if number < self.inputs:
            return pointers.buffer(number)
        offset = self.offsets[number - self.inputs]
        if offset is not None:
            return _at(pointers.prepared, offset)
        return _at(pointers.workspace, staging + self.stages[number - self.inputs])

    def finish(self, pointers: Pointers, staging: int) -> None:
        if not self.packs:
            return
        longest = max(len(pack.operand.facts) for pack in self.packs)
        table = mlir.stack_array(memory.i64(), longest, 8)
        for pack in self.packs:
            number = pack.number if pack.is_argument else self.inputs + pack.number
            source, target = self.address(number, pointers, staging), _at(pointers.prepared, pack.offset)
            for place, word in enumerate(pack.operand.facts):
                slot = memory.advance(table, memory.i64(), mlir.constant(place))
                llvm.store(mlir.constant(word), slot)
            mlir.call_llvm(f"{pack.operand.form.name}_prepack", [table, source, target])


def _require_panels(launches: Sequence[Outlined], shared: Collection[int], first: int) -> None:
    """Require equal panels where launches read ``shared`` prepared values: there is no other copy.

    The first of these values is argument ``first`` of ``main``.
    """
    operands: dict[int, PackedOperand | None] = {}
    for launch in [member for each in launches for member in (each, *each.after)]:
        for position, buffer in enumerate(launch.buffers):
            if not memory.is_argument(buffer):
                continue
            number = mlir.argument_number(buffer) - first
            packed = launch.packed[1] if launch.packed and launch.packed[0] == position else None
            if number in shared and operands.setdefault(number, packed) != packed:
                raise CompileFailed("launches", f"launches read prepared value {number} in several layouts")


def entry_buffers(unit: Unit, launches: Sequence[Outlined]) -> EntryBuffers:
    """The buffers of ``unit``, whose ``launches`` decide which prepared values are packed."""
    if unit.prepared is not None:
        first = len(unit.inputs)
        for launch in launches:
            if launch.packed is not None:
                position, operand = launch.packed
                number = mlir.argument_number(launch.buffers[position]) - first
                unit.prepared.packed[number] = operand
        _require_panels(launches, unit.prepared.shared, first)
        return RunBuffers(first, unit.prepared.layout(unit.constants)[0])
    if unit.targets is None:
        return EntryBuffers()
    buffers = PrepareBuffers(len(unit.inputs), unit.targets.offsets, unit.targets.packs)
    for number, offset in enumerate(buffers.offsets):
        if offset is None:
            buffers.stages[number] = buffers.staged
            buffers.staged += -(-bytes_of(unit.outputs[number]) // ALIGNMENT) * ALIGNMENT
    for form in dict.fromkeys(pack.operand.form for pack in buffers.packs):
        mlir.splice(unit.module, f"llvm.func @{form.name}_prepack(!llvm.ptr, !llvm.ptr, !llvm.ptr)")
        unit.gemm_forms.append(form)
    return buffers
