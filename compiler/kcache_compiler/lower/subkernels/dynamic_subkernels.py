"""Subkernels of programs with dynamic sizes: operations that repeat at all samples are compiled once.

A subkernel is lowered at the same samples as the program, so its constants are formulas over the same
symbols; the enclosing kernel passes on the sizes that it was called with.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kcache_compiler.errors import CompilerError
from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.subkernels.candidates import Candidate
from kcache_compiler.lower.subkernels.outline import (
    MIN_EQUAL_FUSED,
    finished,
    outermost,
    replace_by_stand_in,
    reports_launches,
    subkernel_name,
)
from kcache_compiler.lower.subkernels.size_samples import lower_together
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Stage, Unit
from kcache_compiler.schedule.subkernel import Subkernel
from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.recovery import RecoveredSizes, Sampling, integers_in

#: Operations that take long to lower. Not those that may work in place, such as scatters: a subkernel
#: allocates its results.
_NAMES = ("stablehlo.convolution", "stablehlo.reduce_window", "stablehlo.sort")


def cut_dynamic_subkernels(units: Sequence[Unit], sampling: Sampling, pipeline: tuple[Stage, ...]) -> None:
    """Replace each operation that is a subkernel at all samples by a stand-in, and compile the subkernels."""
    mains = [mlir.main_function(unit.module) for unit in units]
    if isinstance(units[0].target, Device) or reports_launches(units[0]):
        return
    if len(mlir.named(mains[0], *_NAMES)) < MIN_EQUAL_FUSED:
        return
    candidates = [[Candidate(op) for op in outermost(main, *_NAMES)] for main in mains]
    if len({len(pieces) for pieces in candidates}) != 1:
        return
    by_key: dict[Hashable, list[tuple[Candidate, ...]]] = {}
    for pieces in zip(*candidates, strict=True):
        by_key.setdefault(tuple(piece.key for piece in pieces), []).append(pieces)
    for group in by_key.values():
        subkernel = (
            _subkernel_of(units, group[0], sampling, pipeline) if len(group) >= MIN_EQUAL_FUSED else None
        )
        if subkernel is None:
            continue
        for unit in units:
            unit.subkernels[subkernel.name] = subkernel
        for pieces in group:
            for piece in pieces:
                replace_by_stand_in(piece, subkernel)


def _subkernel_of(
    units: Sequence[Unit], pieces: Sequence[Candidate], sampling: Sampling, pipeline: tuple[Stage, ...]
) -> Subkernel | None:
    """The subkernel of one operation at all samples; None if it cannot be compiled separately."""
    if not all(piece.may_be_subkernel() for piece in pieces) or len({_said(piece) for piece in pieces}) != 1:
        return None
    texts = [piece.text() for piece in pieces]
    outer, first = units[0], pieces[0]
    inner = [Unit(text, len(first.given()), outer.target, outer.options) for text in texts]
    inner[0].libraries = outer.libraries
    try:
        input_sizes = _sizes(first, sampling.recover([integers_in(text) for text in texts]))
        for unit in inner:
            unit.given = input_sizes
        lower_together(inner, sampling, pipeline, lambda _: None)
        return finished(inner[0], subkernel_name(*texts), pipeline)
    except CompilerError:
        return None  # compiling the operation in place reports the error


def _said(piece: Candidate) -> tuple[Hashable, ...]:
    """A key that must be equal at all samples: the elements of constants are not sizes."""
    return (mlir.name_of(piece.op), len(piece.given()), piece.elements())


def _sizes(piece: Candidate, codes: RecoveredSizes) -> tuple[tuple[Formula, ...], ...]:
    """The sizes of the inputs; raises ``Ambiguous``."""
    return tuple(
        tuple(codes(size) for size in mlir.sizes_of(value.type) if size is not None)
        for value in piece.given()
    )
