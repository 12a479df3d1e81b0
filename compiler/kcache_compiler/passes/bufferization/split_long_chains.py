"""Splits what upstream passes compare pairwise: uses of one buffer, and operations that look alike.

Every in-place update is another alias of one buffer, and bufferization compares all pairs of aliases: chains
of updates are split by copies. The same holds for all users of one constant, one argument, or one tensor that
gives the size of a window: these are duplicated, and merged again after bufferization. Common subexpression
elimination compares the bodies of all operations that read tensors only from within their bodies: a number as
an attribute distinguishes those that read different tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import bufferization

#: Updates of one buffer after which it is copied; and that in programs that update ``MANY`` times, as what
#: bufferization does takes the square of it for each update.
LINKS, LESS, MANY = 128, 64, 256
#: Readers of a constant, or of an argument, for which it is given once.
READERS = 16
_GIVEN = ("arith.constant", "bufferization.to_tensor", "tensor.empty")
#: On operations that read tensors from within: which ones, as a number.
_READS = "kcache.reads"
_INTO = {"tensor.insert": 1, "tensor.insert_slice": 1}


def split_update_chains(module: mlir.Module, target: Target) -> None:
    """Copy what was updated in place ``LINKS`` times, or ``LESS``, before it is updated again."""
    links: dict[mlir.Value, int] = {}
    main = mlir.main_function(module)
    device = isinstance(target, Device)
    _remove_reader_numbers(main)
    _duplicate_read_values(main, device)
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
        op.operands[number] = bufferization.alloc_tensor(source.type, [], copy=source)


def _duplicate_read_values(main: mlir.Op, constants: bool) -> None:
    """Give ``READERS`` readers each of a constant, an argument or what says a size one of their own; or of
    ``constants`` and arguments alone.
    """
    for source in mlir.named(main, *(_GIVEN[:2] if constants else _GIVEN)):
        if not mlir.is_tensor(source.results[0].type) or "writable" in source.attributes:
            continue
        readers = list(mlir.uses(source.results[0]))[::-1]
        for start in range(READERS, len(readers), READERS):
            with mlir.after(source):
                again = mlir.clone(source).results[0]
            for reader, number in readers[start : start + READERS]:
                reader.operands[number] = again


def distinguish_readers(module: mlir.Module, target: Target) -> None:
    """Tell operations apart that read different tensors from within their bodies, where they are many."""
    main = mlir.main_function(module)
    body, reads = mlir.block_of(main), dict[mlir.Op, list[mlir.Value]]()
    for extract in mlir.named(main, "tensor.extract"):
        reader = mlir.within_block(extract, body)
        if mlir.name_of(reader) == "linalg.generic":
            reads.setdefault(reader, []).append(extract.operands[0])
    if len(reads) < READERS or isinstance(target, Device):
        return
    numbers: dict[tuple[mlir.Value, ...], int] = {}
    for op, values in reads.items():
        number = numbers.setdefault(tuple(values), len(numbers))
        op.attributes[_READS] = mlir.int_attr(number)


def _remove_reader_numbers(main: mlir.Op) -> None:
    for op in mlir.operations(mlir.block_of(main)):
        if _READS in op.attributes:
            del op.attributes[_READS]
