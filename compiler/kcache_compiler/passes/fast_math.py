"""Fast-math flags of the bodies of structured operations, by numerics class.

``strict`` sets none: every operation rounds separately, and sums have the order of the program. ``default``
and ``fast`` let reductions be reassociated, which allows vectors of accumulators, and let the elements of a
row be multiplied by the reciprocal of their common divisor. ``fast`` lets maximum and minimum ignore NaN,
and allows the math library a larger error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kcache_compiler.llvm.target import Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.constant_divisors import inverse_parts, multiply_by_parts
from kcache_compiler.passes.narrow_types.formats import MENTION
from kcache_compiler.passes.software_fma import has_fma
from kcache_compiler.types import CompileOptions

#: What the combiner of a reduction gets. A maximum answers NaN for NaN in any order; of zeros of both
#: signs it may answer either.
_SUM = "#arith.fastmath<reassoc,contract>"
_EXTREME = "#arith.fastmath<reassoc,nsz>"
COMBINERS = {
    "arith.addf": _SUM,
    "arith.mulf": "#arith.fastmath<reassoc>",
    "arith.maximumf": _EXTREME,
    "arith.minimumf": _EXTREME,
    "arith.maxnumf": _EXTREME,
    "arith.minnumf": _EXTREME,
}

#: Under ``fast`` a maximum may leave a NaN out: one instruction on x86-64 in the place of three.
_FAST = {name: "#arith.fastmath<reassoc,nnan,nsz>" for name, flags in COMBINERS.items() if flags == _EXTREME}

#: What makes whole numbers of floats.
_WHOLE = frozenset(
    {
        *("math.roundeven", "math.round", "math.floor", "math.ceil", "math.trunc"),
        *("arith.fptosi", "arith.fptoui"),
    }
)
#: What begins to round to an element of few bits. Math functions look at bits too: it counts in programs only
#: that have such elements.
_BITS = "arith.bitcast"
#: What may stand between a quotient and the rounding of its quantization.
_TOWARDS_WHOLE = frozenset(
    {
        *("arith.addf", "arith.subf", "arith.maximumf", "arith.minimumf", "arith.select"),
        *("arith.truncf", "arith.extf"),
    }
)


def relax(module: mlir.Module, source: str, target: Target, options: CompileOptions) -> None:
    """Mark the combiners of all reductions of ``main`` as reorderable, unless numerics are strict."""
    if options.numerics == "strict":
        return
    flags = {**COMBINERS, **(_FAST if options.numerics == "fast" else {})}
    rounds = _WHOLE | {_BITS} if MENTION.search(source) else _WHOLE
    for generic in mlir.named(mlir.main_function(module), "linalg.generic"):
        if all("parallel" in kind for kind in mlir.iterator_types(generic)):
            _invert(generic, rounds, has_fma(target))
            continue
        _free(generic, flags)
        if target.triple.startswith("x86_64"):
            _take_old_values_last(generic)


def _take_old_values_last(generic: mlir.Op) -> None:
    """Turn the operands of each maximum and minimum around whose first one is the old value of the result.

    x86 selects the first operand if it is NaN. LLVM would store old values that are selected, and loaded from
    where the result goes, under a mask: ``vmaskmovps``, which takes ten cycles and more on CPUs of AMD.
    """
    outputs = list(mlir.block_of(generic).arguments)[mlir.input_count(generic) :]
    for combiner in combiners(generic):
        first, second = combiner.operands
        if COMBINERS[mlir.name_of(combiner)] == _EXTREME and first in outputs:
            combiner.operands[0], combiner.operands[1] = second, first


def free_sum(generic: mlir.Op) -> None:
    """Let the sums of one reduction be in any order."""
    _free(generic, COMBINERS)


def _free(generic: mlir.Op, flags: Mapping[str, str]) -> None:
    for combiner in combiners(generic):
        name = mlir.name_of(combiner)
        combiner.attributes["fastmath"] = mlir.attribute(flags[name])
        if name == "arith.addf":
            _contract(combiner)


def free_sums(generic: mlir.Op) -> list[bool]:
    """For each result, whether it is a sum that ``relax`` made reorderable."""
    return _marked(generic, [op for op in combiners(generic) if _is_free_sum(op)])


def free_results(generic: mlir.Op) -> list[bool]:
    """For each result, whether ``relax`` lets its elements be combined in any order."""
    return _marked(generic, [op for op in combiners(generic) if _is_free(op)])


def _marked(generic: mlir.Op, result: list[mlir.Op]) -> list[bool]:
    marked = {_result(generic, value) for value in result}
    return [number in marked for number in range(len(mlir.last(mlir.block_of(generic)).operands))]


def _is_free_sum(combiner: mlir.Op) -> bool:
    return _is_free(combiner) and mlir.name_of(combiner) == "arith.addf"


def _is_free(combiner: mlir.Op) -> bool:
    return "fastmath" in combiner.attributes and "reassoc" in str(combiner.attributes["fastmath"])


def _result(generic: mlir.Op, combiner: mlir.Op) -> int:
    yielded = list(mlir.last(mlir.block_of(generic)).operands)
    return next(number for number, value in enumerate(yielded) if mlir.defining(value) == combiner)


def combiners(generic: mlir.Op) -> list[mlir.Op]:
    """The operations that take the old value of a result and give the new one, where one operation does."""
    body = mlir.block_of(generic)
    yielded = list(mlir.last(body).operands)
    outputs = list(body.arguments)[-len(yielded) :]
    results: list[mlir.Op] = []
    for value, output in zip(yielded, outputs, strict=True):
        owner = mlir.defining(value)
        if owner is None or mlir.name_of(owner) not in COMBINERS:
            continue
        uses = [user for user, _ in mlir.uses(output)]
        once = len(list(mlir.uses(value))) == 1  # a scan yields it as an element too
        if uses == [owner] and once:
            results.append(owner)
    return results


def _invert(generic: mlir.Op, rounds: Collection[str], fuses: bool) -> None:
    """Let divisions by what is the same along the innermost axis of the result multiply by its inverse.

    Those by constants stay where the target does not fuse products and sums.
    """
    maps = mlir.indexing_maps(generic)
    innermost = mlir.plain_dim(maps[-1].results[-1]) if len(maps[-1].results) else None
    arguments = list(mlir.block_of(generic).arguments)
    for division in mlir.operations(mlir.block_of(generic)):
        if innermost is None or mlir.name_of(division) != "arith.divf":
            continue
        divisor = division.operands[1]
        if divisor not in arguments:
            continue
        number = arguments.index(divisor)
        dims = [mlir.plain_dim(result) for result in maps[number].results]
        if None in dims or innermost in dims or _feeds_rounding(division, rounds):
            continue
        constant = mlir.constant_float(generic.operands[number])
        parts = None if constant is None else inverse_parts(constant, str(division.results[0].type))
        if parts is None:
            division.attributes["fastmath"] = mlir.attribute("#arith.fastmath<arcp>")
        elif fuses:
            multiply_by_parts(division, parts)


def _feeds_rounding(division: mlir.Op, rounds: Collection[str]) -> bool:
    """Whether the quotient is rounded to a whole number, where the last bit may decide which one: at once, or
    when a zero point was added and the sum clamped. ``rounds`` are the operations that do.
    """
    pending, seen = [division], {division}
    while pending:
        for user, _ in mlir.uses(pending.pop().results[0]):
            name = mlir.name_of(user)
            if name in rounds:
                return True
            if name in _TOWARDS_WHOLE and user not in seen:
                seen.add(user)
                pending.append(user)
    return False


def _contract(combiner: mlir.Op) -> None:
    """Let a product that only the sum reads be fused into it."""
    for operand in combiner.operands:
        factor = mlir.defining(operand)
        if factor is not None and mlir.name_of(factor) == "arith.mulf" and len(list(operand.uses)) == 1:
            factor.attributes["fastmath"] = mlir.attribute("#arith.fastmath<contract>")
