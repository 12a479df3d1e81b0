"""Products of few rows with an operand that the program repeats: its source is read instead.

Frameworks repeat the keys and values of each group of query heads: ``[heads, keys, size]`` is broadcast to
``[heads, group, keys, size]`` and reshaped to ``[heads * group, keys, size]``. For one token that copy takes
longer than its product: the queries of a group become rows of one product of each head instead. An attention
of more rows reads what is repeated in place (``lower/attention/grouped_heads.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.types import CompileOptions

#: Rows of a product without the group, at most: attention of more is one launch.
_ROWS = 4
_PRODUCT = "stablehlo.dot_general"


@dataclass(frozen=True)
class _Repeated:
    """``source`` with each part along ``axis`` repeated ``times`` times."""

    source: mlir.Value
    axis: int
    times: int


def group_query_products(module: mlir.Module, target: Target, options: CompileOptions) -> None:
    """Rewrite products of ``main`` with static sizes, for CPUs. Not under ``strict``."""
    if options.numerics == "strict" or isinstance(target, Device):
        return
    for op in mlir.operations(mlir.block_of(mlir.main_function(module))):
        if mlir.name_of(op) == _PRODUCT and build.is_static(op):
            for number, operand in enumerate(op.operands):
                repeated = _repeated(operand)
                if repeated is not None and _rewrite(op, number, repeated):
                    break


def _repeated(value: mlir.Value) -> _Repeated | None:
    """What ``value`` repeats: a reshape that merges an axis with the one that a broadcast adds behind it."""
    view = mlir.defining(value)
    copy = mlir.defining(view.operands[0]) if view is not None and len(view.operands) == 1 else None
    if view is None or copy is None or mlir.name_of(view) != "stablehlo.reshape":
        return None
    if mlir.name_of(copy) != "stablehlo.broadcast_in_dim" or not build.is_static(copy):
        return None
    sizes = build.static_sizes(copy.results[0])
    dims = mlir.integers(copy.attributes["broadcast_dimensions"])
    added = [axis for axis in range(len(sizes)) if axis not in dims]
    if len(added) != 1 or not added[0] or dims != sorted(dims):
        return None
    axis, source = added[0] - 1, copy.operands[0]
    merged = [*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2 :]]
    if build.static_sizes(value) != merged or build.static_sizes(source) != [sizes[dim] for dim in dims]:
        return None
    return _Repeated(source, axis, sizes[axis + 1])


def _rewrite(op: mlir.Op, number: int, repeated: _Repeated) -> bool:
    """Multiply the source of operand ``number`` by the other one, whose group is a separate axis."""
    numbers = mlir.product_dimensions(op)
    (batching, contracting), (batches, summed) = numbers[number], numbers[1 - number]
    if not batching or batching[-1] != repeated.axis:
        return False
    other, axis = op.operands[1 - number], batches[-1]
    sizes = build.static_sizes(other)
    free = [each for each in range(len(sizes)) if each not in (*batches, *summed)]
    if math.prod(sizes[each] for each in free) > _ROWS or any(each < axis for each in free):
        return False
    if number == 0 and free:  # the result has them behind the axes of the source
        return False
    heads = sizes[axis] // repeated.times
    with mlir.before(op), mlir.at_location(op):
        split = build.reshape(other, [*sizes[:axis], heads, repeated.times, *sizes[axis + 1 :]])
        sides = ([_behind(batches, axis), _behind(summed, axis)], [batching, contracting])
        fields = [
            f"{side}_{kind}_dimensions = {axes[position]}"
            for position, kind in enumerate(("batching", "contracting"))
            for side, axes in zip(("lhs", "rhs"), sides, strict=True)
        ]
        result = build.static_sizes(op.results[0])
        place = len(batching) - 1
        shape = [*result[:place], heads, repeated.times, *result[place + 1 :]]
        attributes = mlir.exchanged_operands(op) if number == 0 else mlir.attributes_of(op)
        attributes["dot_dimension_numbers"] = mlir.attribute(f"#stablehlo.dot<{', '.join(fields)}>")
        kind = build.tensor_type(shape, mlir.element_type(op.results[0].type))
        product = mlir.create(_PRODUCT, [split, repeated.source], [kind], attributes).results[0]
        op.results[0].replace_all_uses_with(build.reshape(product, result))
    op.erase()
    return True


def _behind(axes: list[int], axis: int) -> list[int]:
    """``axes`` of a tensor after ``axis`` became two."""
    return [each + (each > axis) for each in axes]
