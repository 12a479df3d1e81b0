"""Exchanges the operands of products whose left operand is prepared.

The result of ``dot_general`` has the free axes of its left operand first. If that is prepared and the right
one is not, rows of the result would run along activations, and the prepared value would be packed at each
call: only right operands are packed once (``lower/gemm/prepack.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kcache_compiler.mlir import operations as mlir


def move_weights_right(body: mlir.Block, prepared: Collection[mlir.Value]) -> None:
    """Exchange the operands of products in ``body`` that have a ``prepared`` one on the left, and transpose
    their results back; transpositions that follow are composed with that one.
    """
    # Selected before any is exchanged, which erases transpositions: an erased operation must not be read.
    for op in [op for op in mlir.operations(body) if mlir.name_of(op) == "stablehlo.dot_general"]:
        left, right = op.operands
        rows = _free(op, right=True)
        sizes = mlir.sizes_of(right.type)
        if "algorithm" in op.attributes or left not in prepared or right in prepared:
            continue
        if any(sizes[axis] != 1 for axis in rows):
            _exchange(op, len(_free(op, right=False)), len(rows))


def _free(op: mlir.Op, right: bool) -> list[int]:
    """The axes of an operand that are neither of the batch nor summed."""
    used = {pair[right] for pair in mlir.equal_axes(op)}
    return [axis for axis in range(len(mlir.sizes_of(op.operands[int(right)].type))) if axis not in used]


def _exchange(op: mlir.Op, columns: int, rows: int) -> None:
    left, right = op.operands
    result = op.results[0]
    batch = len(mlir.sizes_of(result.type)) - columns - rows
    order = [*range(batch), *(batch + rows + axis for axis in range(columns)), *range(batch, batch + rows)]
    attributes = mlir.exchanged_operands(op)
    sizes = mlir.sizes_of(result.type)
    kind = _tensor([sizes[order.index(axis)] for axis in range(len(order))], result.type)
    with mlir.before(op), mlir.at_location(op):
        product = mlir.create("stablehlo.dot_general", [right, left], [kind], attributes).results[0]
    _transpose(op, product, order)
    op.erase()


def _transpose(op: mlir.Op, product: mlir.Value, order: Sequence[int]) -> None:
    """Replace the result of ``op``, and transpositions of it, by transpositions of ``product``."""
    result = op.results[0]
    for user, _ in list(mlir.uses(result)):
        if mlir.name_of(user) == "stablehlo.transpose":
            permutation = mlir.integers(user.attributes["permutation"])
            composed = [order[axis] for axis in permutation]
            with mlir.before(user), mlir.at_location(user):
                user.results[0].replace_all_uses_with(_transposed(product, composed, user.results[0].type))
            user.erase()
    if list(result.uses):
        with mlir.before(op), mlir.at_location(op):
            result.replace_all_uses_with(_transposed(product, order, result.type))


def _transposed(value: mlir.Value, order: Sequence[int], kind: mlir.Type) -> mlir.Value:
    if list(order) == sorted(order):
        return value
    permutation = mlir.attribute(f"array<i64: {', '.join(map(str, order))}>")
    return mlir.value("stablehlo.transpose", [value], kind, permutation=permutation)


def _tensor(sizes: Sequence[int | None], like: mlir.Type) -> mlir.Type:
    shape = "".join(f"{'?' if size is None else size}x" for size in sizes)
    return mlir.type_of(f"tensor<{shape}{mlir.element_type(like)}>")
