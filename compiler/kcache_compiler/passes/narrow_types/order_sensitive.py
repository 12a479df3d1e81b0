"""Half precision values whose order or rounding a user depends on: a maximum, a sort, a selection, a floor.

Such users see rounded values. A user that carries the same value in f32 would find no element equal to the
maximum of its row, one above it, or a value below its floor. Therefore a value with such a user and another
one is rounded for every user, in all numerics classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.types import CompileOptions

#: The name of the first is within that of the second.
NARROW = ("f16", "bf16")
#: On the operation that computes a number: its rounding stays.
MARK = "kcache.rounded"
_NOT_ROUNDED = "#arith.fastmath<none>"

_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "tensor.cast")
#: What reads a number without asking for its order: results, sizes, destinations.
_PLAIN = ("func.return", "return", "tensor.dim", "bufferization.materialize_in_destination")
_EXTREMES = ("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")
_COMPARES = frozenset({*_EXTREMES, "arith.cmpf", "arith.cmpi"})
#: What makes a step of a rounded number in its own loop, and functions of the library that do.
_STEPS = frozenset(
    {
        *("arith.select", "arith.bitcast", "arith.fptosi", "arith.fptoui", "arith.remf"),
        *("math.floor", "math.ceil", "math.round", "math.roundeven", "math.trunc"),
    }
)
_STEPPING = re.compile(r"@kcm_(rem|sign|floor|ceil|round|roundeven|trunc|is[a-z]+)_")
#: What gives one of the numbers that it takes, or one of the same order.
_EXACT = frozenset(
    {
        *_EXTREMES,
        *("arith.negf", "arith.select", "arith.cmpf", "arith.cmpi", "arith.andi", "arith.ori", "arith.xori"),
        *("arith.constant", "arith.extf", "math.absf", "linalg.yield", "linalg.index", "arith.index_cast"),
    }
)


def mark_order_sensitive(module: mlir.Module, source: str, options: CompileOptions) -> None:
    """Mark, among bodies that are not fused yet, what computes a narrow number of which order matters."""
    if options.numerics == "strict" or NARROW[0] not in source:
        return
    readers: dict[mlir.Value, tuple[bool, bool]] = {}
    for generic in reversed(mlir.named(module, "linalg.generic", *_VIEWS)):
        for result in generic.results:
            _readers(result, readers)
        if mlir.name_of(generic) != "linalg.generic":
            continue
        yielded = mlir.last(mlir.block_of(generic)).operands
        for result, output in zip(generic.results, yielded, strict=False):
            owner = mlir.defining(output)
            if str(output.type) in NARROW and all(readers[result]) and owner is not None:
                owner.attributes[MARK] = mlir.unit_attr()


def _readers(number: mlir.Value, known: dict[mlir.Value, tuple[bool, bool]]) -> tuple[bool, bool]:
    """Whether something takes the order, or a step, of a tensor's elements, themselves or through exact
    operations; and whether several operations read them. ``known`` has the answers of later values.
    """
    if number not in known:
        stepped, shared = False, mlir.used_more_than_once(number)
        for user, _ in mlir.uses(number):
            stepped = stepped or _steps(user)
            for result in _same_numbers(user):
                further = _readers(result, known)
                stepped, shared = stepped or further[0], shared or further[1]
        known[number] = stepped, shared
    return known[number]


def _steps(user: mlir.Op) -> bool:
    name = mlir.name_of(user)
    if name in (*_VIEWS, *_PLAIN):
        return False
    if name != "linalg.generic":
        return True
    body = mlir.walk(user)[1:]
    names = {mlir.name_of(operation) for operation in body}
    if not names.isdisjoint(_STEPS) or (_reduces(user) and not names.isdisjoint(_COMPARES)):
        return True
    return any(
        _STEPPING.match(str(operation.attributes["callee"]))
        for operation in body
        if mlir.name_of(operation) == "func.call"
    )


def _reduces(generic: mlir.Op) -> bool:
    return any("parallel" not in kind for kind in mlir.iterator_types(generic))


def _same_numbers(user: mlir.Op) -> Iterator[mlir.Value]:
    """Results that are the numbers read, or of their order."""
    name = mlir.name_of(user)
    if name in _VIEWS:
        yield from user.results
        return
    if name != "linalg.generic" or _reduces(user):
        return
    if all(mlir.name_of(op) in _EXACT for op in mlir.operations(mlir.block_of(user))):
        yield from user.results


def keep_marked_roundings(module: mlir.Module, source: str) -> None:
    """Let the roundings of marked numbers stay, but where only an extreme of a row reads them."""
    if NARROW[0] not in source:
        return
    for generic in mlir.named(module, "linalg.generic"):
        body = mlir.block_of(generic)
        for result in mlir.operations(body):
            if MARK not in result.attributes:
                continue
            del result.attributes[MARK]
            for rounding, _ in mlir.uses(result.results[0]):
                if mlir.name_of(rounding) == "arith.truncf" and not _only_for_extremes(rounding, generic):
                    rounding.attributes["fastmath"] = mlir.attribute(_NOT_ROUNDED)


def _only_for_extremes(rounding: mlir.Op, generic: mlir.Op) -> bool:
    """The rounding of an extreme is the extreme of the roundings; a scan's numbers are read one by one."""
    if not _reduces(generic) or len(generic.results) != 1:
        return False
    total = list(mlir.block_of(generic).arguments)[-1]
    for widened, _ in mlir.uses(rounding.results[0]):
        if mlir.name_of(widened) != "arith.extf":
            return False
        for extreme, _ in mlir.uses(widened.results[0]):
            others = [mlir.defining(operand) for operand in extreme.operands]
            with_total = any(
                operation is not None and total in list(operation.operands) for operation in others
            )
            if mlir.name_of(extreme) not in _EXTREMES or not with_total:
                return False
    return True
