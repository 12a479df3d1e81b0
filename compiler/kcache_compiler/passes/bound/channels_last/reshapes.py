"""Reshapes of values that are computed in another layout."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.channels_last.forms import Form, ordered
from kcache_compiler.passes.bound.channels_last.state import Laid, Layouts


def rewrite_reshape(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """A reshape of the tensor instead, as that of channels to groups of channels.

    Where axes are merged that are not side by side in the tensor, it is converted so that they are, and the
    axis that was last still is.
    """
    source, result = build.static_sizes(op.operands[0]), build.static_sizes(op.results[0])
    if 0 in source:
        return False
    form = _renamed(first.form, source, result)
    if form is not None:
        layouts.set(op.results[0], first.tensor, form, first.region)
        return True
    blocks = build.blocks_of(source, result)
    order = first.form.order(source)
    blocks.sort(key=lambda block: max(order.index(axis) for axis in block[0]))
    before = _with_units(source, [axis for axes, _ in blocks for axis in axes])
    after = _with_units(result, [axis for _, axes in blocks for axis in axes])
    tensor = layouts.tensor(op.operands[0], before, first.region)
    layouts.set(op.results[0], build.reshape(tensor, after.sizes(result)), after, first.region)
    return True


def _with_units(sizes: Sequence[int], order: Sequence[int]) -> Form:
    """The layout with axes of one element before the others, which have this ``order``."""
    return ordered([*(axis for axis, size in enumerate(sizes) if size == 1), *order])


def _renamed(form: Form, source: Sequence[int], result: Sequence[int]) -> Form | None:
    """The form of a reshaped value in the same tensor, if only axes of one element come and go."""
    wide = [axis for axis, size in enumerate(source) if size != 1]
    if [source[axis] for axis in wide] != [size for size in result if size != 1]:
        return None
    taken = [form.places[axis] for axis in wide]
    free = [place for place in range(form.rank) if place not in taken]
    if len(free) < len(result) - len(wide):
        return None
    places, spare = iter(taken), iter(free)
    return Form(tuple(next(spare if size == 1 else places) for size in result), form.rank)
