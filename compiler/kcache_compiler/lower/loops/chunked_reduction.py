"""The launches of a long reduction or scan: reduce each chunk, combine the totals, rescan the chunks."""

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
    """Append the slice functions ``name``, ``name_1``, ``name_2`` to ``module``."""
    fused, split = planned.fused, planned.fused.split
    assert split is not None
    arguments = (planned.codes, planned.buffers, shapes, planned.combiners)
    if not split.scan:
        launch = outline(module, name, fused, *arguments)
        launch.after = [outline_combination(module, f"{name}_1", fused, planned.combiners, planned.buffers)]
        return launch
    relaxed = [] if strict else _free(planned)
    launch = outline(module, name, replace(fused, split=replace(split, totals_only=True)), *arguments)
    for operation, flags in relaxed:
        operation.attributes["fastmath"] = flags
    second_pass = outline(module, f"{name}_2", replace(fused, split=replace(split, begun=True)), *arguments)
    launch.after = [
        outline_combination(module, f"{name}_1", fused, planned.combiners, planned.buffers),
        second_pass,
    ]
    return launch


def _free(planned: Planned) -> list[tuple[mlir.Op, mlir.Attribute]]:
    """Allow reassociation of totals, since nothing else is stored; returns operations and previous flags."""
    flags: list[tuple[mlir.Op, mlir.Attribute]] = []
    for combiner in planned.combiners.values():
        if isinstance(combiner, Combiner) and combiner.name in COMBINERS:
            flags.append((combiner.operation, combiner.operation.attributes["fastmath"]))
            combiner.operation.attributes["fastmath"] = mlir.attribute(COMBINERS[combiner.name])
    return flags
