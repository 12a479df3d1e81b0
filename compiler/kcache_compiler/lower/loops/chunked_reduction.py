"""The launches of a chunked reduction or scan: chunks, their combined totals, then a scan's chunks again."""

from __future__ import annotations

from dataclasses import replace

from kcache_compiler.lower.cpu.fusion_groups import Planned
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.combine_partials import outline_combination
from kcache_compiler.lower.loops.combiners import Combiner
from kcache_compiler.lower.loops.launch import Outlined, outline
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.fast_math import COMBINERS


def outline_chunks(
    module: mlir.Module, name: str, planned: Planned, shapes: Shapes, strict: bool
) -> Outlined:
    """The slice functions ``name``, ``name_1`` and on, at the end of ``module``."""
    fused, split = planned.fused, planned.fused.split
    assert split is not None
    given = (planned.codes, planned.buffers, shapes, planned.combiners)
    if not split.scan:
        first = outline(module, name, fused, *given)
        first.after = [outline_combination(module, f"{name}_1", fused, planned.combiners, planned.buffers)]
        return first
    marked = [] if strict else _free(planned)
    first = outline(module, name, replace(fused, split=replace(split, totals_only=True)), *given)
    for operation, before in marked:
        operation.attributes["fastmath"] = before
    again = outline(module, f"{name}_2", replace(fused, split=replace(split, begun=True)), *given)
    first.after = [
        outline_combination(module, f"{name}_1", fused, planned.combiners, planned.buffers),
        again,
    ]
    return first


def _free(planned: Planned) -> list[tuple[mlir.Op, mlir.Attribute]]:
    """Let totals be summed in any order, as nothing else is stored; the operations with their old flags."""
    found: list[tuple[mlir.Op, mlir.Attribute]] = []
    for combiner in planned.combiners.values():
        if isinstance(combiner, Combiner) and combiner.name in COMBINERS:
            found.append((combiner.operation, combiner.operation.attributes["fastmath"]))
            combiner.operation.attributes["fastmath"] = mlir.attribute(COMBINERS[combiner.name])
    return found
