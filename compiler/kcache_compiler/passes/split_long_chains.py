"""Long chains, for passes of the toolchain that compare all pairs: of what is alike, or uses one buffer.

Every update of a value in place is one more name of one buffer, and bufferization compares all pairs of those
that read and write it: chains of updates are cut by copies. So it does with all that read one constant, one
argument, or one tensor that says the size of a window, which are therefore given in several places; what
comes after bufferization makes constants one again. And operations that read tensors from within their bodies
only are alike to what looks for common subexpressions, which then compares their bodies: a number tells them
apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kcache_compiler.llvm.target import Device
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit

#: Updates of one buffer after which it is copied; and that in programs that update ``MANY`` times, as what
#: bufferization does takes the square of it for each update.
LINKS, LESS, MANY = 128, 64, 256
#: Readers of a constant, or of an argument, for which it is given once.
READERS = 16
_GIVEN = ("arith.constant", "bufferization.to_tensor", "tensor.empty")
#: On operations that read tensors from within: which ones, as a number.
_READS = "kcache.reads"
_INTO = {"tensor.insert": 1, "tensor.insert_slice": 1}


def cut_links(unit: Unit) -> None:
    """Copy what was updated in place ``LINKS`` times, or ``LESS``, before it is updated again."""
    links: dict[Any, int] = {}
    main = mlir.main_function(unit.module)
    device = isinstance(unit.target, Device)
    _forget_reads(main)
    _give_apart(main, device)
    updates = [(op, number, result) for op in mlir.walk(main) for number, result in _updated(op)]
    most = LESS if not device and len(updates) >= MANY else LINKS
    for op, number, result in updates:
        length = links.get(op.operands[number], 0)
        if length >= most:
            _copy(op, number)
            length = 0
        links[result] = length + 1


def _updated(op: mlir.Op) -> Iterator[tuple[int, mlir.Value]]:
    """Operands that may be updated in place, each with the result that it becomes."""
    name = mlir.name_of(op)
    if name in ("linalg.generic", "scf.for", "scf.while"):
        results = list(op.results)
        start = len(op.operands) - len(results)
        pairs = list(enumerate(results, start)) if start >= 0 else []
    elif name in _INTO:
        pairs = [(_INTO[name], op.results[0])]
    else:
        return
    for number, result in pairs:
        if mlir.is_tensor(result.type) and op.operands[number].type == result.type:
            yield number, result


def _copy(op: mlir.Op, number: int) -> None:
    source = op.operands[number]
    with mlir.before(op):
        segments = mlir.attribute("array<i32: 0, 1, 0>")
        copied = mlir.create(
            "bufferization.alloc_tensor", [source], [source.type], {"operandSegmentSizes": segments}
        )
    op.operands[number] = copied.results[0]


def _give_apart(main: mlir.Op, constants: bool) -> None:
    """Give ``READERS`` readers each of a constant, an argument or what says a size one of their own; or of
    ``constants`` and arguments alone.
    """
    for given in mlir.named(main, *(_GIVEN[:2] if constants else _GIVEN)):
        if not mlir.is_tensor(given.results[0].type) or "writable" in given.attributes:
            continue
        readers = list(mlir.uses(given.results[0]))[::-1]
        for start in range(READERS, len(readers), READERS):
            with mlir.after(given):
                again = mlir.clone(given).results[0]
            for reader, number in readers[start : start + READERS]:
                reader.operands[number] = again


def tell_reads(unit: Unit) -> None:
    """Tell operations apart that read different tensors from within their bodies, where they are many."""
    main = mlir.main_function(unit.module)
    body, reads = mlir.block_of(main), dict[mlir.Op, list[mlir.Value]]()
    for extract in mlir.named(main, "tensor.extract"):
        reader = mlir.within_block(extract, body)
        if mlir.name_of(reader) == "linalg.generic":
            reads.setdefault(reader, []).append(extract.operands[0])
    if len(reads) < READERS or isinstance(unit.target, Device):
        return
    numbers: dict[tuple[mlir.Value, ...], int] = {}
    for op, values in reads.items():
        number = numbers.setdefault(tuple(values), len(numbers))
        op.attributes[_READS] = mlir.int_attr(number)


def _forget_reads(main: mlir.Op) -> None:
    for op in mlir.operations(mlir.block_of(main)):
        if _READS in op.attributes:
            del op.attributes[_READS]
