"""Subkernels of programs with dynamic sizes: operations that repeat at all samples are compiled once.

A part of such a program is lowered at the same samples, so its constants are formulas over the same
symbols, and the kernel around it hands it the sizes that it was called with itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kcache_compiler.errors import CompilerError
from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.subkernels.candidates import Candidate
from kcache_compiler.lower.subkernels.outline import MORE, finished, name_of_part, outermost, put_note
from kcache_compiler.lower.subkernels.sampled_lowering import lower_together
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Stage, Unit
from kcache_compiler.schedule.subkernel import Part
from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.recovery import RecoveredSizes, Sampling, integers_in

#: What takes long at samples. Not what may be done in place, as scatters: a part makes its results anew.
_NAMES = ("stablehlo.convolution", "stablehlo.reduce_window", "stablehlo.sort")


def cut_open_parts(units: Sequence[Unit], sampling: Sampling, pipeline: tuple[Stage, ...]) -> None:
    """Put a note in place of each operation that is a part at all samples, and compile the parts."""
    mains = [mlir.main_function(unit.module) for unit in units]
    if isinstance(units[0].target, Device) or len(mlir.named(mains[0], *_NAMES)) < MORE:
        return
    found = [[Candidate(op) for op in outermost(main, *_NAMES)] for main in mains]
    if len({len(pieces) for pieces in found}) != 1:
        return
    alike: dict[Hashable, list[tuple[Candidate, ...]]] = {}
    for pieces in zip(*found, strict=True):
        alike.setdefault(tuple(piece.key for piece in pieces), []).append(pieces)
    for group in alike.values():
        part = _part_of(units, group[0], sampling, pipeline) if len(group) >= MORE else None
        if part is None:
            continue
        for unit in units:
            unit.parts[part.name] = part
        for pieces in group:
            for piece in pieces:
                put_note(piece, part)


def _part_of(
    units: Sequence[Unit], pieces: Sequence[Candidate], sampling: Sampling, pipeline: tuple[Stage, ...]
) -> Part | None:
    """The part of one operation at all samples; None where it is no kernel by itself."""
    if not all(piece.may_be_a_part() for piece in pieces) or len({_said(piece) for piece in pieces}) != 1:
        return None
    texts = [piece.text() for piece in pieces]
    outer, first = units[0], pieces[0]
    inner = [Unit(text, len(first.given()), outer.target, outer.options) for text in texts]
    inner[0].libraries = outer.libraries
    try:
        given = _sizes(first, sampling.recover([integers_in(text) for text in texts]))
        for unit in inner:
            unit.given = given
        lower_together(inner, sampling, pipeline, lambda _: None)
        return finished(inner[0], name_of_part(*texts), pipeline)
    except CompilerError:
        return None  # what cannot be compiled is rejected where it stands


def _said(piece: Candidate) -> tuple[Hashable, ...]:
    """What must be the same at all samples: elements of constants are no sizes."""
    return (mlir.name_of(piece.op), len(piece.given()), piece.elements())


def _sizes(piece: Candidate, codes: RecoveredSizes) -> tuple[tuple[Formula, ...], ...]:
    """Sizes of what it is given; raises ``Ambiguous``."""
    return tuple(
        tuple(codes(size) for size in mlir.sizes_of(value.type) if size is not None)
        for value in piece.given()
    )
