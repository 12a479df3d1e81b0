"""Lowers a program with dynamic sizes at size samples, and proves that its code is valid for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.errors import CompileFailed
from kcache_compiler.passes.stage import Pass, Stage, Unit, run
from kcache_compiler.shapes.recovery import Sampling, integers_in

#: Samples that are lowered to LLVM IR, to verify that their code is equal.
PROOF = 2


def lower_together(
    units: Sequence[Unit],
    sampling: Sampling,
    pipeline: tuple[Stage, ...],
    on_stage: Callable[[str], None],
    cut: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Lower all samples until sizes are recovered, and two to LLVM IR; the first is valid for all sizes.

    ``cut`` outlines subkernels, at the stage where static programs are cut. Returns seconds by stage.
    """
    names = [stage.name for stage in pipeline]
    parts, read_back, proved = (names.index(name) for name in ("subkernels", "launches", "downgrade"))
    seconds: dict[str, float] = {}

    def go(unit: Unit, first: int, last: int) -> None:
        tell = on_stage if unit is units[0] else _quiet
        for name, spent in run(pipeline[first:last], unit, tell).items():
            seconds[name] = seconds.get(name, 0.0) + spent

    for unit in units:
        unit.verifies = unit is units[0]
        go(unit, 0, parts)
    seconds |= run((Pass("parts", cut),), units[0], on_stage)
    for unit in units:
        go(unit, parts + 1, read_back)
    texts = [integers_in(unit.module.operation.get_asm(large_elements_limit=8)) for unit in units]
    for number, unit in enumerate(units[:PROOF]):
        unit.codes = sampling.recover(texts, number)
        go(unit, read_back, proved)
    if len({(unit.llvm_ir, str(_facts(unit))) for unit in units[:PROOF]}) != 1:
        raise CompileFailed("sizes", "the code depends on a size in a way that is not understood")
    return seconds


def _quiet(_: str) -> None:
    """Ignore the stages of further samples."""


def _facts(unit: Unit) -> tuple[object, ...]:
    return (
        (unit.inputs, unit.constants, unit.outputs, unit.workspace, unit.scratch, unit.launches),
        (unit.gpu_launches, unit.checks),
    )
