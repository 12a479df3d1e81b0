"""Lowers ``chlo.ragged_dot`` to the products of all groups, from which each row selects its own.

The toolchain's own legalization multiplies the elements of other groups by 0, which keeps NaN and infinities,
and crashes on complex numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.stablehlo.function_text import replace_by_call
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import RankedTensorType

    from kcache_compiler.mlir.types import Module, Op

#: Negative sizes are dynamic: ``-1`` is the first of ``_DotText.dynamic_sizes``, ``-2`` the second.
Shape = tuple[int, ...]


def lower_ragged_dots(module: Module, operations: list[Op]) -> None:
    """Replace each operation by a call of a function that defines it."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for index, operation in enumerate(operations):
            name = f"kcache.ragged.{index}"
            replace_by_call(module, operation, name, _define(operation, name))


@dataclass
class _DotText:
    """The text of a function. ``dynamic_sizes`` are the names of i64 scalars."""

    lines: list[str] = field(default_factory=list[str])
    dynamic_sizes: list[str] = field(default_factory=list[str])

    def emit(self, text: str) -> str:
        """Add an operation; return the name of its result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def shape(self, name: str, type: RankedTensorType) -> Shape:
        """Return the sizes of an argument; its dynamic sizes are added to ``dynamic_sizes``."""
        return tuple(
            size if size >= 0 else self._size(name, str(type), axis) for axis, size in enumerate(type.shape)
        )

    def _size(self, name: str, type: str, axis: int) -> int:
        size = self.emit(f"stablehlo.get_dimension_size {name}, dim = {axis} : ({type}) -> tensor<i32>")
        self.dynamic_sizes.append(self.emit(f"stablehlo.convert {size} : (tensor<i32>) -> tensor<i64>"))
        return -len(self.dynamic_sizes)

    def sizes(self, shape: Shape) -> str:
        """Emit a shape as a vector."""
        vectors = [
            self.emit(f"stablehlo.constant dense<{size}> : tensor<1xi64>")
            if size >= 0
            else self.emit(
                f"stablehlo.reshape {self.dynamic_sizes[-1 - size]} : (tensor<i64>) -> tensor<1xi64>"
            )
            for size in shape
        ]
        types = ", ".join(["tensor<1xi64>"] * len(vectors))
        signature = f"({types}) -> tensor<{len(vectors)}xi64>"
        return self.emit(f"stablehlo.concatenate {', '.join(vectors)}, dim = 0 : {signature}")

    def broadcast(self, value: str, type: str, element: str, shape: Shape, dims: Sequence[int]) -> str:
        """Emit a value of type ``type`` broadcast to ``shape``; its axes are ``dims`` of the result."""
        result = _type(element, shape)
        if min(shape, default=0) >= 0:
            text = f"stablehlo.broadcast_in_dim {value}, dims = {list(dims)} : ({type}) -> {result}"
            return self.emit(text)
        sizes = self.sizes(shape)
        signature = f"({type}, tensor<{len(shape)}xi64>) -> {result}"
        return self.emit(
            f"stablehlo.dynamic_broadcast_in_dim {value}, {sizes}, dims = {list(dims)} : {signature}"
        )

    def iota(self, axis: int, shape: Shape) -> str:
        """Emit the indices along an axis, in i64."""
        type = _type("i64", shape)
        if min(shape, default=0) >= 0:
            return self.emit(f"stablehlo.iota dim = {axis} : {type}")
        signature = f"(tensor<{len(shape)}xi64>) -> {type}"
        return self.emit(f"stablehlo.dynamic_iota {self.sizes(shape)}, dim = {axis} : {signature}")


def _type(element: str, shape: Shape) -> str:
    return f"tensor<{''.join(f'{size}x' if size >= 0 else '?x' for size in shape)}{element}>"


_DIMENSION_NUMBERS = re.compile(r"(\w+) = (\[[^\]]*\])")


@dataclass(frozen=True)
class _Operands:
    """Operands of a ragged dot: ``types`` and ``elements`` are of lhs, rhs, group sizes and result.

    ``left``, ``right`` and ``sizes`` are the shapes of the operands; the last of ``sizes`` is the number of
    groups. ``batch`` and ``contracting`` are the dimensions of (lhs, rhs).
    """

    types: list[str]
    elements: list[str]
    left: Shape
    right: Shape
    sizes: Shape
    batch: tuple[list[int], list[int]]
    contracting: tuple[list[int], list[int]]
    ragged: int
    group: list[int]
    precision: str

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.sizes[-1]

    @property
    def mask_shape(self) -> Shape:
        """The shape of the mask: (group, batch..., index along the ragged dimension)."""
        return (self.groups, *self.sizes[:-1], self.left[self.ragged])

    @property
    def shifted_batch(self) -> list[int]:
        """The batch dimensions of lhs after a dimension of groups in front."""
        return [axis + 1 for axis in self.batch[0]]


def _define(operation: Op, name: str) -> str:
    """Return the text of the function ``name`` that computes a ragged dot."""
    lines = _DotText()
    operands = _read_operands(operation, lines)
    types, batch, contracting = operands.types, operands.batch, operands.contracting
    if operands.ragged in batch[0]:
        value = lines.emit(
            _dot("%a", "%b", batch, contracting, types[0], types[1], types[3], operands.precision)
        )
        return _function(name, types, lines, value)
    batch_sizes = operands.sizes[:-1]
    if batch_sizes and not _compatible(batch_sizes, [operands.left[axis] for axis in batch[0]]):
        location = mlir.describe_location(operation.location)
        raise UnsupportedOp("chlo.ragged_dot", f"group sizes of the type {types[2]}", location)
    mask = _group_mask(lines, types[2], operands.sizes, operands.left[operands.ragged])
    whole = (operands.groups, *operands.left)
    left = lines.broadcast("%a", types[0], operands.elements[0], whole, range(1, len(whole)))
    define = _ragged_rows if operands.group else _ragged_contraction
    return _function(name, types, lines, define(lines, operands, mask, left))


def _read_operands(operation: Op, lines: _DotText) -> _Operands:
    """Return the description of an operation; its dynamic sizes are emitted."""
    values = [*operation.operands, operation.results[0]]
    text = str(operation.attributes["ragged_dot_dimension_numbers"])
    numbers = {
        key: [int(axis) for axis in re.findall(r"\d+", axes)]
        for key, axes in _DIMENSION_NUMBERS.findall(text)
    }
    left, right, sizes = (
        lines.shape(name, lazy.tensor_of(value))
        for name, value in zip(("%a", "%b", "%s"), operation.operands, strict=True)
    )
    (ragged,), group = numbers["lhs_ragged_dimensions"], numbers.get("rhs_group_dimensions", [])
    static = [size for size in (sizes[-1], *(right[axis] for axis in group)) if size >= 0]
    return _Operands(
        types=[str(value.type) for value in values],
        elements=[str(lazy.tensor_of(value).element_type) for value in values],
        left=left,
        right=right,
        sizes=(*sizes[:-1], static[0] if static else sizes[-1]),
        batch=(numbers.get("lhs_batching_dimensions", []), numbers.get("rhs_batching_dimensions", [])),
        contracting=(
            numbers.get("lhs_contracting_dimensions", []),
            numbers.get("rhs_contracting_dimensions", []),
        ),
        ragged=ragged,
        group=group,
        precision=_precision(operation),
    )


def _ragged_rows(lines: _DotText, operands: _Operands, mask: str, left: str) -> str:
    """Emit the product whose rows each use the rhs of their group: a masked sum over the groups."""
    types, elements, batch, summed = operands.types, operands.elements, operands.batch, operands.contracting
    whole = (operands.groups, *operands.left)
    batching = [0, *operands.shifted_batch], [*operands.group, *batch[1]]
    contracting = [axis + 1 for axis in summed[0]], summed[1]
    free = [axis for axis in range(len(operands.left)) if axis not in (*batch[0], *summed[0])]
    right_free = [
        axis for axis in range(len(operands.right)) if axis not in (*batch[1], *summed[1], *operands.group)
    ]
    shape = (
        operands.groups,
        *(operands.left[axis] for axis in (*batch[0], *free)),
        *(operands.right[axis] for axis in right_free),
    )
    dot_types = _type(elements[0], whole), types[1], _type(elements[3], shape)
    product = lines.emit(_dot(left, "%b", batching, contracting, *dot_types, operands.precision))
    mask_dims = [0, *range(1, len(operands.sizes)), 1 + len(batch[0]) + free.index(operands.ragged)]
    masked = _masked(lines, mask, operands.mask_shape, mask_dims, product, elements[3], shape)
    scalar = _type(elements[3], ())
    zero = lines.emit(f"stablehlo.constant {_zero(elements[3])} : {scalar}")
    return lines.emit(
        f"stablehlo.reduce({masked} init: {zero}) applies stablehlo.add across dimensions = [0] : "
        f"({dot_types[2]}, {scalar}) -> {types[3]}"
    )


def _ragged_contraction(lines: _DotText, operands: _Operands, mask: str, left: str) -> str:
    """Emit one product for each group, which contracts the group's part of the ragged dimension."""
    types, elements, batch, summed = operands.types, operands.elements, operands.batch, operands.contracting
    whole, right_whole = (operands.groups, *operands.left), (operands.groups, *operands.right)
    right = lines.broadcast("%b", types[1], elements[1], right_whole, range(1, len(right_whole)))
    outer = len(operands.sizes) - 1
    right_ragged = summed[1][summed[0].index(operands.ragged)]
    right_batch = [axis + 1 for axis in batch[1]]
    left_dims = [0, *operands.shifted_batch[:outer], operands.ragged + 1]
    masked_left = _masked(lines, mask, operands.mask_shape, left_dims, left, elements[0], whole)
    right_dims = [0, *right_batch[:outer], right_ragged + 1]
    masked_right = _masked(lines, mask, operands.mask_shape, right_dims, right, elements[1], right_whole)
    batching = [0, *operands.shifted_batch], [0, *right_batch]
    contracting = [axis + 1 for axis in summed[0]], [axis + 1 for axis in summed[1]]
    dot_types = _type(elements[0], whole), _type(elements[1], right_whole), types[3]
    return lines.emit(_dot(masked_left, masked_right, batching, contracting, *dot_types, operands.precision))


def _precision(operation: Op) -> str:
    if "precision_config" not in operation.attributes:
        return ""
    return f", precision_config = {operation.attributes['precision_config']}".replace("#chlo<", "#stablehlo<")


def _function(name: str, types: Sequence[str], lines: _DotText, value: str) -> str:
    body = "\n".join(lines.lines)
    return (
        f'func.func private @"{name}"(%a: {types[0]}, %b: {types[1]}, %s: {types[2]}) -> {types[3]} {{\n'
        f"{body}\nreturn {value} : {types[3]}\n}}\n"
    )


def _zero(element: str) -> str:
    if element.startswith("complex"):
        return "dense<(0.0, 0.0)>"
    return "dense<0>" if element.startswith(("i", "ui")) else "dense<0.0>"


def _compatible(left: Sequence[int], right: Sequence[int]) -> bool:
    """Return whether two lists of sizes have one length and equal static sizes."""
    pairs = zip(left, right, strict=False)
    return len(left) == len(right) and all(a == b or min(a, b) < 0 for a, b in pairs)


def _dot(
    left: str,
    right: str,
    batch: tuple[list[int], list[int]],
    contracting: tuple[list[int], list[int]],
    left_type: str,
    right_type: str,
    result_type: str,
    precision: str,
) -> str:
    return (
        f'"stablehlo.dot_general"({left}, {right}) <{{dot_dimension_numbers = #stablehlo.dot<'
        f"lhs_batching_dimensions = {batch[0]}, rhs_batching_dimensions = {batch[1]}, "
        f"lhs_contracting_dimensions = {contracting[0]}, rhs_contracting_dimensions = {contracting[1]}>"
        f"{precision}}}> : ({left_type}, {right_type}) -> {result_type}"
    )


def _masked(
    lines: _DotText, mask: str, mask_shape: Shape, dims: Sequence[int], value: str, element: str, shape: Shape
) -> str:
    """Emit ``value`` where the mask, whose axes are ``dims`` of ``shape``, is true, otherwise 0."""
    booleans, type = _type("i1", shape), _type(element, shape)
    condition = lines.broadcast(mask, _type("i1", mask_shape), "i1", shape, dims)
    scalar = lines.emit(f"stablehlo.constant {_zero(element)} : {_type(element, ())}")
    zero = lines.broadcast(scalar, _type(element, ()), element, shape, [])
    return lines.emit(f"stablehlo.select {condition}, {value}, {zero} : {booleans}, {type}")


def _group_mask(lines: _DotText, type: str, sizes: Shape, length: int) -> str:
    """Emit which indices of the ragged dimension are in each group: (group, batch..., index)."""
    groups, rank = sizes[-1], len(sizes)
    sizes_type = _type("i64", sizes)
    lengths = lines.emit(f"stablehlo.convert %s : ({type}) -> {sizes_type}")
    square, square_booleans = _type("i64", (groups, groups)), _type("i1", (groups, groups))
    indices = [lines.iota(axis, (groups, groups)) for axis in (0, 1)]
    not_after = lines.emit(
        f"stablehlo.compare LE, {indices[0]}, {indices[1]} : ({square}, {square}) -> {square_booleans}"
    )
    ones = lines.emit(f"stablehlo.convert {not_after} : ({square_booleans}) -> {square}")
    dimensions = f"contracting_dims = [{rank - 1}] x [0]"
    ends = lines.emit(
        f"stablehlo.dot_general {lengths}, {ones}, {dimensions} : ({sizes_type}, {square}) -> {sizes_type}"
    )
    starts = lines.emit(f"stablehlo.subtract {ends}, {lengths} : {sizes_type}")
    shape = (groups, *sizes[:-1], length)
    index_type, booleans = _type("i64", shape), _type("i1", shape)
    index = lines.iota(rank, shape)
    dims = [*range(1, rank), 0]
    start, end = (lines.broadcast(bound, sizes_type, "i64", shape, dims) for bound in (starts, ends))
    from_start = lines.emit(
        f"stablehlo.compare GE, {index}, {start} : ({index_type}, {index_type}) -> {booleans}"
    )
    before_end = lines.emit(
        f"stablehlo.compare LT, {index}, {end} : ({index_type}, {index_type}) -> {booleans}"
    )
    return lines.emit(f"stablehlo.and {from_start}, {before_end} : {booleans}")
