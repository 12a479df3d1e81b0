"""Operations that say in other words what another operation says."""

from __future__ import annotations

import math

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir

_REPEATS = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.reshape"})


def state_padding(op: mlir.Op) -> None:
    """A ``dynamic_conv`` whose padding is a constant is a convolution."""
    numbers = _numbers(op, op.operands[2])
    rows = [f"[{low}, {high}]" for low, high in zip(numbers[::2], numbers[1::2], strict=True)]
    inner = f"[{', '.join(rows)}]" if rows else ""
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes["padding"] = mlir.attribute(f"dense<{inner}> : tensor<{len(rows)}x2xi64>")
    with mlir.before(op):
        result = mlir.create("stablehlo.convolution", list(op.operands)[:2], [op.results[0].type], attributes)
    op.results[0].replace_all_uses_with(result.results[0])
    op.erase()


def _numbers(op: mlir.Op, value: mlir.Value) -> list[int]:
    """The elements of a constant, which may be one number, repeated."""
    count = math.prod(size or 0 for size in mlir.sizes_of(value.type))
    owner = mlir.defining(value)
    while owner is not None and mlir.name_of(owner) in _REPEATS:
        owner = mlir.defining(owner.operands[0])
    if not count:
        return []
    numbers: list[int] = []
    if owner is not None and mlir.name_of(owner) == "stablehlo.constant":
        numbers = mlir.integers_of(owner)
    if len(numbers) not in (1, count):
        raise UnsupportedOp(mlir.name_of(op), "padding that is not a constant", mlir.location_of(op))
    return numbers if len(numbers) == count else numbers * count


def state_product(op: mlir.Op) -> None:
    """An ``einsum`` each of whose letters is shared, summed over both, or free, is a product of tensors."""
    config = mlir.string_of(op.attributes["einsum_config"]).replace(" ", "")
    operands, _, result = config.partition("->")
    left, _, right = operands.partition(",")
    letters = [*left, *right, *result]
    plain = all(letter.isascii() and letter.isalpha() for letter in letters)
    once = all(len(set(part)) == len(part) for part in (left, right, result))
    lost = set(left).symmetric_difference(right) - set(result)
    if not (plain and once) or lost or set(result) - set(left) - set(right):
        raise UnsupportedOp(mlir.name_of(op), f'the form "{config}"', mlir.location_of(op))
    batch = [letter for letter in left if letter in right and letter in result]
    summed = [letter for letter in left if letter in right and letter not in result]
    output = [*batch, *(letter for letter in left + right if letter not in batch and letter not in summed)]
    numbers = ", ".join(
        f"{side}_{role}_dimensions = [{', '.join(str(axes.index(letter)) for letter in chosen)}]"
        for role, chosen in (("batching", batch), ("contracting", summed))
        for side, axes in (("lhs", left), ("rhs", right))
    )
    attributes = {"dot_dimension_numbers": mlir.attribute(f"#stablehlo.dot<{numbers}>")}
    if "precision_config" in op.attributes:
        attributes["precision_config"] = op.attributes["precision_config"]
    kind = op.results[0].type
    sizes = mlir.sizes_of(kind)
    shape = "".join(f"{'?' if (size := sizes[result.index(letter)]) is None else size}x" for letter in output)
    product_type = mlir.type_of(f"tensor<{shape}{mlir.element_type(kind)}>")
    with mlir.before(op):
        value = mlir.create("stablehlo.dot_general", list(op.operands), [product_type], attributes).results[0]
        if output != list(result):
            order = ", ".join(str(output.index(letter)) for letter in result)
            permutation = mlir.attribute(f"array<i64: {order}>")
            value = mlir.value("stablehlo.transpose", [value], kind, permutation=permutation)
    op.results[0].replace_all_uses_with(value)
    op.erase()
