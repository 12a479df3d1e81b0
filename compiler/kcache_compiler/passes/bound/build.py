"""Builders of StableHLO operations on tensors of static sizes, at the current insertion point."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bufferization.signature import dtype_of
from kcache_compiler.spec.graph.operations import COMBINERS
from kcache_compiler.types import DTYPE_BYTES


def tensor_type(sizes: Sequence[int], element: mlir.Type) -> mlir.Type:
    """The type of a tensor of ``sizes``."""
    return mlir.type_of(f"tensor<{''.join(f'{size}x' for size in sizes)}{element}>")


def static_sizes(value: mlir.Value) -> list[int]:
    """The sizes of a tensor all of whose sizes are static."""
    sizes = [size for size in mlir.sizes_of(value.type) if size is not None]
    assert len(sizes) == mlir.rank_of(value.type)
    return sizes


def is_static(op: mlir.Op) -> bool:
    """Whether all operands and results of ``op`` are tensors of static sizes."""
    kinds = [value.type for value in (*op.operands, *op.results)]
    return all(mlir.is_tensor(kind) and None not in mlir.sizes_of(kind) for kind in kinds)


def int_array(numbers: Sequence[int]) -> mlir.Attribute:
    """A dense array of i64."""
    return mlir.attribute(f"array<i64{': ' if numbers else ''}{', '.join(map(str, numbers))}>")


def reshape(value: mlir.Value, sizes: Sequence[int]) -> mlir.Value:
    """``value`` with other sizes; itself if they are its own. A reshape of a reshape is one."""
    owner = mlir.defining(value)
    if owner is not None and mlir.name_of(owner) == "stablehlo.reshape":
        value = owner.operands[0]
    if static_sizes(value) == list(sizes):
        return value
    return mlir.value("stablehlo.reshape", [value], tensor_type(sizes, mlir.element_type(value.type)))


def transpose(value: mlir.Value, permutation: Sequence[int]) -> mlir.Value:
    """``value`` with axis ``permutation[i]`` as axis ``i``; itself if no axis changes its position."""
    if list(permutation) == sorted(permutation):
        return value
    sizes = static_sizes(value)
    kind = tensor_type([sizes[axis] for axis in permutation], mlir.element_type(value.type))
    return mlir.value("stablehlo.transpose", [value], kind, permutation=int_array(permutation))


def broadcast(value: mlir.Value, sizes: Sequence[int], dims: Sequence[int]) -> mlir.Value:
    """``value``, whose axis ``i`` becomes axis ``dims[i]``, repeated along the others."""
    if static_sizes(value) == list(sizes) and list(dims) == list(range(len(sizes))):
        return value
    kind = tensor_type(sizes, mlir.element_type(value.type))
    return mlir.value("stablehlo.broadcast_in_dim", [value], kind, broadcast_dimensions=int_array(dims))


def leading(value: mlir.Value, axis: int, count: int) -> mlir.Value:
    """The first ``count`` elements of ``value`` along ``axis``."""
    sizes = static_sizes(value)
    if sizes[axis] == count:
        return value
    limits = [count if each == axis else size for each, size in enumerate(sizes)]
    zeros, ones = [0] * len(sizes), [1] * len(sizes)
    return mlir.value(
        "stablehlo.slice",
        [value],
        tensor_type(limits, mlir.element_type(value.type)),
        start_indices=int_array(zeros),
        limit_indices=int_array(limits),
        strides=int_array(ones),
    )


def binary(name: str, left: mlir.Value, right: mlir.Value) -> mlir.Value:
    """``stablehlo.NAME`` of two tensors of one type."""
    return mlir.value(f"stablehlo.{name}", [left, right], left.type)


def blocks_of(source: Sequence[int], result: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The axes of several elements of ``source`` and of ``result``, in the smallest groups that a reshape
    leaves apart: it splits and merges axes only within a group. No size is 0.
    """
    left, right = (iter([axis for axis, size in enumerate(sizes) if size != 1]) for sizes in (source, result))
    blocks: list[tuple[list[int], list[int]]] = []
    for axis in left:
        other = next(right)
        block, before, after = ([axis], [other]), source[axis], result[other]
        while before != after:
            if before < after:
                block[0].append(next(left))
                before *= source[block[0][-1]]
            else:
                block[1].append(next(right))
                after *= result[block[1][-1]]
        blocks.append(block)
    return blocks


def has_free_order(op: mlir.Op) -> bool:
    """Whether a reduction of one operand may apply its combiner in any order."""
    body = mlir.operations(mlir.block_of(op))
    return len(body) == 2 and mlir.name_of(body[0]).removeprefix("stablehlo.") in COMBINERS


def negate(value: mlir.Value) -> mlir.Value:
    """``-value``."""
    return mlir.value("stablehlo.negate", [value], value.type)


def splat(number: float, kind: mlir.Type) -> mlir.Value:
    """A constant all of whose elements are the float ``number``."""
    return mlir.value(
        "stablehlo.constant", (), kind, value=mlir.attribute(f"dense<{float(number)}> : {kind}")
    )


def bytes_of(value: mlir.Value) -> int:
    """The bytes of a tensor."""
    return DTYPE_BYTES[dtype_of(mlir.element_type(value.type))] * math.prod(static_sizes(value))
