"""Reductions of many elements to few results, in two steps: partial results of parts, and their combination.

A reduction to one element would run in one block, a reduction of columns in one thread per column. Static
reductions are split if they may be reassociated: of integers, and of floats unless numerics are ``strict``.
The number of parts divides the size of a loop; without such a number the reduction stays whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kcache_compiler.lower.gemm.match import is_contraction
from kcache_compiler.lower.gpu.loops.thread_combiners import INTEGERS, Combiner
from kcache_compiler.lower.gpu.matmul.blocking import NARROW, few_rows_pay
from kcache_compiler.lower.sort_scatter.marker import is_marker
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import linalg, tensor
from kcache_compiler.passes.attention.mark import MARK
from kcache_compiler.passes.fast_math import COMBINERS
from kcache_compiler.passes.generic import build_generic, identity
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.groups import PHASE

#: If a block shares a row: most rows after the split, and fewest elements of a part.
ROWS, ROW_PART = 256, 4096
#: If a thread has a column: most threads after the split, and fewest elements of a part.
COLUMNS, COLUMN_PART = 65536, 64
#: Fewest parts for which a second launch pays.
PARTS = 4


@dataclass(frozen=True)
class _Split:
    """The loop that is split, and the number of parts, which divides its size."""

    loop: int
    parts: int


def split_reductions(unit: Unit) -> None:
    """Split the reductions of ``main`` that have few results for their elements."""
    for generic in mlir.operations(mlir.block_of(mlir.main_function(unit.module))):
        if mlir.name_of(generic) != "linalg.generic" or is_marker(generic):
            continue
        if MARK in generic.attributes or PHASE in generic.attributes:
            continue
        combiner = combiner_of(generic, unit.options.numerics == "strict")
        ranges = ranges_of(generic)
        if combiner is None or ranges is None or is_tiled(generic, ranges):
            continue
        split = _planned(generic, ranges)
        if split is not None:
            _split(generic, combiner, split)


def combiner_of(generic: mlir.Op, strict: bool) -> Combiner | None:
    """What combines the result with an element, if it may be reassociated and the body uses no index."""
    if len(generic.results) != 1:
        return None
    body = mlir.block_of(generic)
    (value,), output = list(mlir.last(body).operands), list(body.arguments)[-1]
    owner = mlir.defining(value)
    if owner is None or mlir.named(generic, "linalg.index"):
        return None
    if mlir.name_of(owner) not in (INTEGERS if strict else (*INTEGERS, *COMBINERS)):
        return None
    once = len(list(mlir.uses(value))) == 1 and [user for user, _ in mlir.uses(output)] == [owner]
    return Combiner(owner) if once and len(owner.operands) == 2 else None


def dims_of(index_map: mlir.AffineMap) -> list[int | None]:
    """The loop of each axis; None for other expressions."""
    return [mlir.plain_dim(expression) for expression in index_map.results]


def ranges_of(generic: mlir.Op) -> list[int] | None:
    """The sizes of the loops; None unless they are static and each axis of an operand is one loop."""
    by_dim = dict[int, int]()
    for operand, index_map in zip(generic.operands, mlir.indexing_maps(generic), strict=True):
        dims = dims_of(index_map)
        sizes = mlir.sizes_of(operand.type) if mlir.is_tensor(operand.type) else []
        if len(set(dims)) != len(dims):
            return None
        for dim, size in zip(dims, sizes, strict=True):
            if dim is None or size is None:
                return None
            by_dim[dim] = size
    loops = range(len(mlir.iterator_types(generic)))
    return [by_dim[loop] for loop in loops] if all(loop in by_dim for loop in loops) else None


def is_tiled(generic: mlir.Op, ranges: list[int]) -> bool:
    """Whether it is a product for tiles."""
    if not is_contraction(generic):
        return False
    walked = [dims_of(index_map) for index_map in mlir.indexing_maps(generic)]
    a, b, kept = map(set, walked)
    own = [prod(ranges[dim] for dim in dims & kept if dim is not None) for dims in (a - b, b - a)]
    few, large = (own[0], walked[1]) if own[0] <= own[1] else (own[1], walked[0])
    if few >= NARROW:
        return True
    reduced = [loop for loop, kind in enumerate(mlir.iterator_types(generic)) if "reduction" in kind]
    k = prod(ranges[loop] for loop in reduced)
    return few_rows_pay(few, max(own), k, along_k=bool(large) and large[-1] in reduced)


def _planned(generic: mlir.Op, ranges: list[int]) -> _Split | None:
    """The split with most parts within the limits; None if there are too few."""
    kinds = mlir.iterator_types(generic)
    reduced = [loop for loop, kind in enumerate(kinds) if "reduction" in kind]
    elements = prod(ranges[loop] for loop in reduced)
    results = prod(ranges) // elements if elements else 0
    if not reduced or not results:
        return None
    in_rows = any(dims and dims[-1] in reduced for dims in map(dims_of, mlir.indexing_maps(generic)[:-1]))
    most, part = (ROWS, ROW_PART) if in_rows else (COLUMNS, COLUMN_PART)
    limit = min(most // results, elements // part)
    splits = [_Split(loop, divisor(ranges[loop], limit)) for loop in reduced]
    best = max(splits, key=lambda split: split.parts)
    return best if best.parts >= PARTS else None


def divisor(size: int, limit: int) -> int:
    """The largest divisor of ``size`` up to ``limit``, or 0."""
    return next((number for number in range(min(size, limit), 0, -1) if size % number == 0), 0)


def _split(generic: mlir.Op, combiner: Combiner, split: _Split) -> None:
    """Replace the reduction by one of parts, whose loop is outside of the loop that is split, and another."""
    kinds, maps = mlir.iterator_types(generic), mlir.indexing_maps(generic)
    *inputs, init = list(generic.operands)
    kept, rank = dims_of(maps[-1]), len(kinds)
    sizes = mlir.sizes_of(init.type)
    element = combiner.kind
    partial = mlir.type_of(f"tensor<{''.join(f'{size}x' for size in [split.parts, *sizes])}{element}>")
    with mlir.before(generic):
        starts = build_generic(
            [],
            [mlir.empty_tensor(partial)],
            [identity(1 + len(sizes))],
            ["parallel"] * (1 + len(sizes)),
            lambda _: [combiner.neutral()],
        ).results[0]
        expanded = [
            _expanded(value, dims_of(index_map), split)
            for value, index_map in zip(inputs, maps[:-1], strict=True)
        ]
        texts = [_map_text(rank, dims_of(index_map), split) for index_map in maps[:-1]]
        outer = ", ".join(f"d{_moved(dim, split)}" for dim in kept if dim is not None)
        texts.append(f"{_domain(rank + 1)} -> (d{split.loop}{', ' if outer else ''}{outer})")
        new_kinds = [_kind(kind) for kind in kinds]
        new_kinds.insert(split.loop, "parallel")
        iterators = ", ".join(f"#linalg.iterator_type<{kind}>" for kind in new_kinds)
        parts = linalg.GenericOp(
            [partial],
            expanded,
            [starts],
            mlir.attribute("[" + ", ".join(f"affine_map<{text}>" for text in texts) + "]"),
            mlir.attribute(f"[{iterators}]"),
        ).operation
    with mlir.after(parts):
        whole = _combined(parts.results[0], init, combiner)
    mlir.move_block(generic, parts, 0)
    generic.results[0].replace_all_uses_with(whole)
    generic.erase()


def _combined(parts: mlir.Value, init: mlir.Value, combiner: Combiner) -> mlir.Value:
    """The combination of all parts with the initial value."""
    rank = len(mlir.sizes_of(init.type))
    kept = ", ".join(f"d{axis + 1}" for axis in range(rank))
    return build_generic(
        [parts],
        [init],
        [identity(rank + 1), f"{_domain(rank + 1)} -> ({kept})"],
        ["reduction", *["parallel"] * rank],
        lambda arguments: [combiner.apply(arguments[1], arguments[0])],
    ).results[0]


def _expanded(value: mlir.Value, dims: list[int | None], split: _Split) -> mlir.Value:
    """An operand with an axis for the parts, where it has the loop that is split."""
    if split.loop not in dims:
        return value
    axis, shape, groups = dims.index(split.loop), list[int](), list[list[int]]()
    for number, size in enumerate(mlir.sizes_of(value.type)):
        assert size is not None
        own = [split.parts, size // split.parts] if number == axis else [size]
        groups.append([*range(len(shape), len(shape) + len(own))])
        shape += own
    element = mlir.element_type(value.type)
    kind = mlir.type_of(f"tensor<{''.join(f'{size}x' for size in shape)}{element}>")
    return tensor.expand_shape(kind, value, mlir.attribute(str(groups)), [], shape)


def _moved(dim: int, split: _Split) -> int:
    """The number of a loop once there is one for the parts."""
    return dim + (dim >= split.loop)


def _map_text(rank: int, dims: list[int | None], split: _Split) -> str:
    axes = list[str]()
    for dim in dims:
        assert dim is not None
        axes += [f"d{dim}", f"d{dim + 1}"] if dim == split.loop else [f"d{_moved(dim, split)}"]
    return f"{_domain(rank + 1)} -> ({', '.join(axes)})"


def _domain(rank: int) -> str:
    return f"({', '.join(f'd{loop}' for loop in range(rank))})"


def _kind(text: str) -> str:
    return "reduction" if "reduction" in text else "parallel"
