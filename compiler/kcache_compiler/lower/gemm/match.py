"""Matches structured operations that are contractions, and classifies their axes as batch, M, N and K.

``C[batch, m, n] += A[batch, m, k] * B[batch, k, n]``, where each index is a group of axes with strides:
matrix products, batched and transposed products, every ``dot_general``, and convolutions (window axes belong
to K, image and group axes to the batch).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.target import Target
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import read_nest
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.product_bodies import read_products
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.schedule.gemm_tiles import FEW_CELLS, FEW_COLUMNS, LONE_COLUMNS, Form, form_for
from kcache_compiler.schedule.loop_nest import SLICE_WORK, Access, Nest
from kcache_compiler.shapes.formula import Formula, apply, mul, product, proves

#: Rows of A, and multiplications per product of a batch, up to which plain loops are at least as fast.
FEW_ROWS, FEW_STEPS = 4, 4096
#: Minimum number of multiplications for which the library is faster for few rows, if B needs no packing.
MANY_STEPS = 1 << 16
#: Rows of A at most, and steps of K of which there are more, for which plain loops are faster if columns are
#: less than a vector: packing them would take most of the time. Fewer steps may be prepacked.
NARROW_ROWS, NARROW_STEPS = 16, 512
#: Elements of panels for each element of the operand, at most, beyond ``SMALL`` elements.
MOST_PADDING, SMALL = 2, 1 << 14


@dataclass(frozen=True)
class GemmAxis:
    """Adjacent loops that every access traverses as one; strides in A, B and C.

    ``sources`` are the loops of the operation, with their sizes.
    """

    size: Formula
    a: Formula
    b: Formula
    c: Formula
    sources: tuple[tuple[int, Formula], ...]


@dataclass(frozen=True)
class Groups:
    """The axes by kind, from outermost to innermost."""

    batch: tuple[GemmAxis, ...]
    m: tuple[GemmAxis, ...]
    n: tuple[GemmAxis, ...]
    k: tuple[GemmAxis, ...]

    def sizes(self, name: str) -> Formula:
        axes: tuple[GemmAxis, ...] = getattr(self, name)
        return product([axis.size for axis in axes])

    def sources(self, name: str) -> list[tuple[int, Formula]]:
        """The loops of the operation with their sizes, outermost first."""
        axes: tuple[GemmAxis, ...] = getattr(self, name)
        return [source for axis in axes for source in axis.sources]

    @property
    def swapped(self) -> Groups:
        """The transposed product, with A and B exchanged."""
        groups = [
            tuple(replace(axis, a=axis.b, b=axis.a) for axis in axes)
            for axes in (self.batch, self.n, self.m, self.k)
        ]
        return Groups(*groups)


@dataclass(frozen=True)
class GemmNest(Nest):
    """The loop nest of the launch: a grid of cells over C."""

    cells: Formula = 1
    work: Formula = 1

    @property
    def extent(self) -> Formula:
        return self.cells

    @property
    def grain(self) -> Formula:
        return apply("ceildiv", 4 * SLICE_WORK, apply("max", 1, self.work))


@dataclass(frozen=True)
class InPlace:
    """Where rows of A lie: words of the driver's table by name, and bytes of scratch for a padded image."""

    words: dict[str, Formula]
    scratch: int


@dataclass(frozen=True)
class Contraction:
    """A recognized operation: operand numbers of A, B and C, offsets of their first elements, axes.

    ``in_place`` if the form is.
    """

    form: Form
    operands: tuple[int, int, int]
    offsets: tuple[Formula, Formula, Formula]
    groups: Groups
    nest: GemmNest
    in_place: InPlace | None = None


def is_contraction(generic: mlir.Op) -> bool:
    """Whether the body is a sum of products over at least one axis; cheap."""
    kinds = mlir.iterator_types(generic)
    if not any("reduction" in kind for kind in kinds) or not any("parallel" in kind for kind in kinds):
        return False
    return read_products(generic) is not None


def makes_zero(operation: mlir.Op) -> bool:
    """Whether ``operation`` fills its result with zeros."""
    if any("parallel" not in kind for kind in mlir.iterator_types(operation)):
        return False
    body = mlir.operations(mlir.block_of(operation))
    if len(body) != 1 or not mlir.is_permutation(mlir.indexing_maps(operation)[-1]):
        return False
    value = body[0].operands[0]
    if mlir.defining(value) is None:
        arguments = list(mlir.block_of(operation).arguments)
        value = operation.operands[arguments.index(value)]
    owner = mlir.defining(value)
    if owner is None or mlir.name_of(owner) != "arith.constant":
        return False
    return str(owner.attributes["value"]).startswith("0.000000e+00 ")


def packable(unit: Unit, value: mlir.Value) -> bool:
    """Whether ``value`` is a prepared value with one use, or that several launches read as equal panels."""
    number = prepared_number(unit, value)
    if number is None or unit.prepared is None:
        return False
    return number in unit.prepared.shared or not mlir.used_more_than_once(value)


def prepared_number(unit: Unit, value: mlir.Value) -> int | None:
    """The number of ``value`` among the prepared values; None for others."""
    if unit.prepared is None or mlir.defining(value) is not None:
        return None
    if mlir.name_of(mlir.block_owner(value)) != "func.func":
        return None
    number = mlir.argument_number(value) - len(unit.inputs)
    return number if 0 <= number < len(unit.constants) else None


def recognize(
    unit: Unit,
    generic: mlir.Op,
    shapes: Shapes,
    packs: Callable[[Unit, mlir.Value], bool] = packable,
) -> Contraction | None:
    """``generic`` as a contraction, or None if other code is at least as fast.

    ``packs``: whether B may be prepacked.
    """
    choices = parse_choices(unit.options.schedule)
    if choices.contraction == "loops" or not is_contraction(generic):
        return None
    products = read_products(generic)
    nest, numbers = read_nest(generic, shapes)
    if products is None or numbers != [0, 1, 2] or nest.fixed:
        return None
    kinds = [str(mlir.element_of(operand.type)) for operand in generic.operands]
    groups = partition(nest)
    exact = unit.options.numerics == "strict"
    narrow = kinds[2] != products.wide
    if (
        groups is None
        or not all(kind != "f16" or converts_half(unit.target) for kind in kinds)
        or (narrow and (exact or products.wide != "f32"))
    ):
        return None
    order = (0, 1, 2)
    if not groups.n or groups.n[-1].c != 1:
        groups, order = groups.swapped, (1, 0, 2)
    arranged = arrange(groups)
    if arranged is None:
        return None
    tuning = tuning_for(unit.target.name, unit.options.tuning)
    used = (kinds[order[0]], kinds[order[1]], kinds[2])
    form = form_for(unit.target, tuning, used, products.wide, exact, choices.blocks)
    offsets = tuple(nest.accesses[number].offset for number in order)
    if choices.contraction != "packed":
        right = generic.operands[order[1]]
        packed = packs(unit, right) and panel_elements(arranged, form, offsets[1], right) is not None
        if not _worthwhile(arranged, form, packed, exact):
            return None
    return Contraction(
        form, order, (offsets[0], offsets[1], offsets[2]), arranged, grid(nest, arranged, form)
    )


def converts_half(target: Target) -> bool:
    """Whether the target has conversion instructions for f16."""
    return target.converts_f16


def partition(nest: Nest) -> Groups | None:
    """The axes by kind, without axes of static size 1, in program order."""
    a, b, c = (access.strides for access in nest.accesses)
    groups: dict[str, list[GemmAxis]] = {"batch": [], "m": [], "n": [], "k": []}
    for position, axis in enumerate(nest.axes):
        source = ((position, axis.size),)
        strides = GemmAxis(axis.size, a[position], b[position], c[position], source)
        if axis.size == 1:
            continue
        if not axis.parallel:
            groups["k"].append(strides)
        elif strides.c == 0:
            return None
        elif (strides.a == 0) == (strides.b == 0):
            groups["batch"].append(strides)
        else:
            groups["m" if strides.b == 0 else "n"].append(strides)
    for name in ("m", "n"):
        groups[name].sort(key=_outermost_first)
    return Groups(*(tuple(groups[name]) for name in ("batch", "m", "n", "k")))


def _outermost_first(axis: GemmAxis) -> tuple[bool, int]:
    """A sort key for larger strides in C first; symbolic strides keep the program order."""
    return (axis.c == 1, -axis.c if isinstance(axis.c, int) else 0)


def arrange(groups: Groups) -> Groups | None:
    """``groups`` with single strides of M and N in C, 1 for N; the other axes move to the batch."""
    if not groups.n or groups.n[-1].c != 1:
        return None
    n_out, n = _linear(groups.n)
    m_out, m = _linear(groups.m)
    batch = (*groups.batch, *m_out, *n_out)
    return Groups(_merged(batch), _merged(m), _merged(n), _merged(groups.k))


def _linear(axes: tuple[GemmAxis, ...]) -> tuple[tuple[GemmAxis, ...], tuple[GemmAxis, ...]]:
    """Split axes into outer ones and inner ones that traverse C by a single stride."""
    start = len(axes)
    while start > 1:
        inner, outer = axes[start - 1], axes[start - 2]
        if not proves(outer.c, mul(inner.size, inner.c), equal=True):
            break
        start -= 1
    start = max(start - 1, 0)
    return axes[:start], axes[start:]


def _merged(axes: tuple[GemmAxis, ...]) -> tuple[GemmAxis, ...]:
    result: list[GemmAxis] = []
    for axis in axes:
        if result and _continues(result[-1], axis):
            outer = result.pop()
            axis = replace(axis, size=mul(outer.size, axis.size), sources=outer.sources + axis.sources)
        result.append(axis)
    return tuple(result)


def _continues(outer: GemmAxis, inner: GemmAxis) -> bool:
    pairs = ((outer.a, inner.a), (outer.b, inner.b), (outer.c, inner.c))
    return all(
        proves(outer_stride, mul(inner.size, inner_stride), equal=True)
        for outer_stride, inner_stride in pairs
    )


def is_contiguous(groups: Groups) -> bool:
    """Whether the rows of B are contiguous: products of few rows can read B unpacked."""
    return len(groups.n) == len(groups.k) == 1 and groups.n[0].b == 1


def panel_elements(groups: Groups, form: Form, offset: Formula, operand: mlir.Value) -> int | None:
    """Elements of the panels of B, which begins at ``offset`` of ``operand``; None if B cannot be prepacked,
    or padding would be most of its panels.
    """
    sizes = [groups.sizes(name) for name in ("batch", "n", "k")]
    if not all(isinstance(size, int) and size > 0 for size in sizes) or offset != 0:
        return None
    batch = [axis for axis in groups.batch if axis.b != 0]
    if batch and len(batch) < len(groups.batch):
        return None
    _, n, k = (int(str(size)) for size in sizes)
    count = int(str(product([axis.size for axis in batch])))
    panels = -(-n // form.columns) * form.columns * -(-k // form.group) * count
    elements = math.prod(size or 0 for size in mlir.sizes_of(operand.type))
    return None if panels * form.group > max(SMALL, MOST_PADDING * elements) else panels


def _worthwhile(groups: Groups, form: Form, packed: bool, exact: bool) -> bool:
    """Whether the work outweighs the setup, and packed data is reused or B needs no packing.

    ``packed``: B is packed once. ``exact``: loops add one product after another, which is not vectorized.
    """
    m, steps = groups.sizes("m"), product([groups.sizes(name) for name in ("m", "n", "k")])
    if _is_narrow(groups, form):
        return False
    least = FEW_STEPS
    if isinstance(m, int) and m <= FEW_ROWS:
        lies = form.direct and is_contiguous(groups)
        slow = exact and form.direct and packed
        if not (lies or slow or (packed and m > 1 and _gains_from_panels(groups, form))):
            return False
        least = FEW_STEPS if slow and not lies else MANY_STEPS
    return not (isinstance(steps, int) and steps < least)


def _gains_from_panels(groups: Groups, form: Form) -> bool:
    """Whether few rows, but not one, times panels of B take less time than vectorized loops.

    Measured with AVX2 and AVX-512.
    """
    if form.pairs:
        return not form.matrix
    n = groups.sizes("n")
    wide = isinstance(n, int) and n >= FEW_COLUMNS
    return form.direct and form.bits > 128 and wide and not groups.batch


def _is_narrow(groups: Groups, form: Form) -> bool:
    """Whether few rows are multiplied by less than a vector of columns, in many steps."""
    m, n, k = (groups.sizes(name) for name in ("m", "n", "k"))
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)):
        return False
    narrow = m <= NARROW_ROWS and n < form.lanes and k > NARROW_STEPS
    return narrow and {form.a, form.b, form.c} == {form.wide}


def grid(nest: Nest, groups: Groups, form: Form, cell: int = 0) -> GemmNest:
    """The grid of a contraction of these axes: as ``Driver`` counts blocks of columns. ``cell``: rows of a
    cell; 0 for those of ``form``.
    """
    m, n = groups.sizes("m"), groups.sizes("n")
    rows, blocks = apply("ceildiv", m, cell or form.cell), apply("ceildiv", n, form.width)
    if not form.prepacked:
        blocks = apply("max", blocks, apply("min", 2, apply("ceildiv", n, LONE_COLUMNS)))
    few = FEW_CELLS * form.cell if form.in_place else form.rows + 1 if form.direct else 0
    if few:
        short = apply("ceildiv", few, apply("max", m, 1))
        blocks = apply("max", blocks, apply("min", apply("min", 2, short), apply("ceildiv", n, FEW_COLUMNS)))
    cells = product([groups.sizes("batch"), rows, blocks])
    work = product([form.cell, apply("min", n, form.width), groups.sizes("k")])
    accesses: tuple[Access, ...] = nest.accesses
    return GemmNest(nest.axes, accesses, nest.fixed, nest.checks, cells, work)
