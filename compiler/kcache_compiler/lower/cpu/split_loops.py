"""Splits innermost loops where a comparison of the counter with a constant changes, as in concatenations.

A concatenation along the innermost axis reads another operand from some index on. LLVM would vectorize the
loop with the address of each lane selected and loaded apart; the loops between these indices are copies.
"""

from __future__ import annotations

from itertools import pairwise

from kcache_compiler.mlir import operations as mlir

#: Loops that replace one at most, and iterations of each at least.
MOST_LOOPS, LEAST_ITERATIONS = 8, 16


def split_loops(module: mlir.Module) -> None:
    """Replace innermost loops of static bounds with loops in which such comparisons are constant."""
    for loop in mlir.named(module, "scf.for"):
        low, high, step = (mlir.constant_int(operand) for operand in list(loop.operands)[:3])
        if low is None or high is None or step != 1 or low < 0 or "loop_annotation" in loop.attributes:
            continue
        ends = sorted({bound for _, bound in _comparisons(loop, high) if low < bound < high})
        bounds = [low, *ends, high]
        shortest = min(end - start for start, end in pairwise(bounds))
        if not ends or len(bounds) > MOST_LOOPS + 1 or shortest < LEAST_ITERATIONS:
            continue
        _split(loop, bounds)


def _comparisons(loop: mlir.Op, high: int) -> list[tuple[mlir.Op, int]]:
    """Tests whether the counter is below a constant, with the constant; none if there is a loop inside.

    Casts to types that do not hold all numbers below ``high`` are not the counter.
    """
    counter = mlir.block_of(loop).arguments[0]
    names = {counter}
    found: list[tuple[mlir.Op, int]] = []
    for op in mlir.walk(loop)[1:]:
        name = mlir.name_of(op)
        if name in ("scf.for", "scf.while", "scf.parallel"):
            return []
        if name == "arith.index_cast" and op.operands[0] in names:
            if _holds(op.results[0].type, high):
                names.add(op.results[0])
        elif name == "arith.cmpi" and op.operands[0] in names and _is_below(op):
            bound = mlir.constant_int(op.operands[1])
            # A negative bound is a large one if it is compared without signs.
            if bound is not None and bound >= 0:
                found.append((op, bound))
    return found


def _holds(kind: mlir.Type, high: int) -> bool:
    """Whether a signed integer of this type may be any number below ``high``."""
    name = str(kind)
    return name == "index" or high <= 1 << (int(name.removeprefix("i")) - 1)


def _is_below(comparison: mlir.Op) -> bool:
    """Whether it is ``slt`` or ``ult``."""
    return int(str(comparison.attributes["predicate"]).split(" ")[0]) in (2, 6)


def _split(loop: mlir.Op, bounds: list[int]) -> None:
    carried = list(loop.operands)[3:]
    for start, end in pairwise(bounds):
        with mlir.before(loop):
            limits = [mlir.constant(start), mlir.constant(end)]
            part = mlir.clone(loop)
            for number, value in enumerate([*limits, loop.operands[2], *carried]):
                part.operands[number] = value
        for comparison, bound in _comparisons(part, bounds[-1]):
            with mlir.before(comparison):
                known = mlir.constant(int(end <= bound), "i1")
            comparison.results[0].replace_all_uses_with(known)
            comparison.erase()
        carried = list(part.results)
    for result, value in zip(list(loop.results), carried, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()
