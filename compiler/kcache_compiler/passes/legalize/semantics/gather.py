"""Gathers on which the toolchain's lowering crashes: with batching axes, and without indices."""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, linalg, tensor
from kcache_compiler.passes.generic import build_generic, identity
from kcache_compiler.passes.legalize.elementwise import cast, empty_like, signless_tensor


def lower_unmoved(op: mlir.Op) -> bool:
    """A gather whose slices begin at 0 whatever the indices say is a broadcast of the first ones."""
    numbers = mlir.gather_dimensions(op)
    if numbers["start_index_map"]:
        return False
    operand, indices = op.operands
    sizes = mlir.integers(op.attributes["slice_sizes"])
    vector = numbers["index_vector_dim"]
    batching, collapsed = numbers["operand_batching_dims"], numbers["collapsed_slice_dims"]
    shape = mlir.sizes_of(operand.type)
    if None in shape or None in mlir.sizes_of(op.results[0].type):
        return False
    limits = [shape[axis] or 0 if axis in batching else size for axis, size in enumerate(sizes)]
    offsets: list[int] = numbers["offset_dims"]
    positions = [axis for axis in range(len(mlir.sizes_of(op.results[0].type))) if axis not in offsets]
    counted = [axis for axis in range(mlir.rank_of(indices.type)) if axis != vector]
    where: dict[int, int] = {
        axis: positions[counted.index(other)]
        for axis, other in zip(batching, numbers["start_indices_batching_dims"], strict=True)
    }
    kept = [axis for axis in range(len(sizes)) if axis not in collapsed and axis not in batching]
    where |= dict(zip(kept, offsets, strict=True))
    left = [axis for axis in range(len(sizes)) if axis not in collapsed]
    with mlir.before(op):
        cut = mlir.value(
            "stablehlo.slice",
            [operand],
            _tensor(limits, operand.type),
            start_indices=_array([0] * len(sizes)),
            limit_indices=_array(limits),
            strides=_array([1] * len(sizes)),
        )
        flat = mlir.value("stablehlo.reshape", [cut], _tensor([limits[axis] for axis in left], operand.type))
        dims = _array([where[axis] for axis in left])
        kind = op.results[0].type
        spread = mlir.value("stablehlo.broadcast_in_dim", [flat], kind, broadcast_dimensions=dims)
    op.results[0].replace_all_uses_with(spread)
    op.erase()
    return True


def lower_batched(op: mlir.Op) -> bool:
    """A gather with batching axes reads each element where its place and its indices say."""
    numbers = mlir.gather_dimensions(op)
    kind = op.results[0].type
    if not numbers["operand_batching_dims"] or None in mlir.sizes_of(kind):
        return False
    shape = mlir.sizes_of(op.operands[0].type)
    if None in shape or None in mlir.sizes_of(op.operands[1].type):
        return False
    plain = signless_tensor(kind)
    with mlir.before(op):
        operand, indices = (cast(value, signless_tensor(value.type)) for value in op.operands)
        slice_sizes = mlir.integers(op.attributes["slice_sizes"])
        limits = [(size or 0) - taken for size, taken in zip(shape, slice_sizes, strict=True)]
        rank = mlir.rank_of(plain)

        def read(_: list[mlir.Value]) -> list[mlir.Value]:
            positions = _read_places(numbers, indices, limits, rank)
            return [tensor.extract(operand, positions)]

        result = build_generic([], [empty_like(operand, plain)], [identity(rank)], ["parallel"] * rank, read)
        op.results[0].replace_all_uses_with(cast(result.results[0], kind))
    op.erase()
    return True


def _read_places(
    numbers: mlir.GatherDimensions, indices: mlir.Value, limits: list[int], rank: int
) -> list[mlir.Value]:
    """Where in the operand the element of the result at the current point is, axis by axis."""
    index = mlir.index_type()
    vector: int = numbers["index_vector_dim"]
    here = [linalg.index(axis) for axis in range(rank)]
    offsets = numbers["offset_dims"]
    batch = [here[axis] for axis in range(rank) if axis not in offsets]
    counted = [axis for axis in range(mlir.rank_of(indices.type)) if axis != vector]
    moved: list[int] = numbers["start_index_map"]
    batching: list[int] = numbers["operand_batching_dims"]
    zero = mlir.constant(0, "index")
    positions = [zero] * len(limits)
    for axis, other in zip(batching, numbers["start_indices_batching_dims"], strict=True):
        positions[axis] = batch[counted.index(other)]
    for number, axis in enumerate(moved):
        where = list(batch)
        if vector < mlir.rank_of(indices.type):
            where.insert(vector, mlir.constant(number, "index"))
        start = tensor.extract(indices, where)
        start = arith.index_cast(index, start)
        start = arith.maxsi(start, zero)
        positions[axis] = arith.minsi(start, mlir.constant(limits[axis], "index"))
    taken = [axis for axis in range(len(limits)) if axis not in (*batching, *numbers["collapsed_slice_dims"])]
    for axis, offset in zip(taken, offsets, strict=True):
        positions[axis] = arith.addi(positions[axis], here[offset])
    return positions


def _array(numbers: list[int]) -> mlir.Attribute:
    return mlir.attribute(f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>")


def _tensor(sizes: list[int], like: mlir.Type) -> mlir.Type:
    return mlir.type_of(f"tensor<{''.join(f'{size}x' for size in sizes)}{mlir.element_type(like)}>")
