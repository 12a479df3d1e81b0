"""Which operations depend only on bound arguments and constants."""

from __future__ import annotations

from collections.abc import Collection

from kcache_compiler.mlir import operations as mlir

#: Operations whose results are not a function of their operands.
_IMPURE = frozenset({"stablehlo.rng"})

#: The bound arguments that something depends on; None where it depends on others, too.
Sources = frozenset[int] | None


def sources_of(body: mlir.Block, bound: Collection[int], varying: Collection[int] = ()) -> list[Sources]:
    """For each operation of ``body`` the bound arguments that it depends on; None for the last one, and for
    those that depend on the operations at the positions ``varying``.
    """
    known: dict[mlir.Value, Sources] = {
        argument: frozenset({index}) if index in bound else None
        for index, argument in enumerate(body.arguments)
    }
    sources: list[Sources] = []
    for number, op in enumerate(mlir.operations(body)):
        depends: Sources = frozenset()
        for operand in read_values(op):
            source = known[operand]
            depends = None if depends is None or source is None else depends | source
        dynamic = number in varying or any(None in mlir.sizes_of(result.type) for result in op.results)
        if dynamic or is_impure(op):
            depends = None
        sources.append(depends)
        known.update(dict.fromkeys(op.results, depends))
    sources[-1] = None
    return sources


def bound_values(body: mlir.Block, bound: Collection[int]) -> set[mlir.Value]:
    """The values of ``body`` that depend only on bound arguments and constants."""
    values = {body.arguments[index] for index in bound}
    for op, source in zip(mlir.operations(body), sources_of(body, bound), strict=True):
        if source is not None:
            values.update(op.results)
    return values


def read_values(op: mlir.Op) -> list[mlir.Value]:
    """The operands of ``op``, and the values from outside that its regions read."""
    return [*op.operands, *(mlir.outside_values(op) if mlir.has_regions(op) else ())]


def is_impure(op: mlir.Op) -> bool:
    """Whether ``op`` has effects, or results that are not a function of its operands."""
    if "has_side_effect" in op.attributes and str(op.attributes["has_side_effect"]) == "true":
        return True
    return mlir.name_of(op) in _IMPURE


def erase_unused(body: mlir.Block, impure: bool = False) -> None:
    """Erase operations whose results nothing reads; if ``impure``, those with effects, too."""
    for op in reversed(mlir.operations(body)[:-1]):
        if not any(list(result.uses) for result in op.results) and (impure or not is_impure(op)):
            op.erase()
