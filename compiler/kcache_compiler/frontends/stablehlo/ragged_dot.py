"""``chlo.ragged_dot`` as products of all groups, of which each row takes its own.

The toolchain's own legalization multiplies what is of other groups by 0, which keeps NaN and infinities, and
ends the process over complex numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: Sizes below 0 are open: ``-1`` is the first of ``_Lines.open``, ``-2`` the second.
Shape = tuple[int, ...]


def define_ragged(module: Native, operations: list[Native]) -> None:
    """Make each of the operations a call of a function that says what it is."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for number, operation in enumerate(operations):
            name = f"kcache.ragged.{number}"
            text = _definition(operation, name)
            made = native.Module.parse(text)
            function = next(iter(made.body.operations)).operation.clone()
            module.body.append(function)
            results = [one.type for one in operation.results]
            callee = {"callee": native.FlatSymbolRefAttr.get(name)}
            with native.InsertionPoint(operation):
                call = native.Operation.create("func.call", results, list(operation.operands), callee)
            operation.results[0].replace_all_uses_with(call.results[0])
            operation.erase()


@dataclass
class _Lines:
    """Text of a function. ``open`` are scalars of i64, by size."""

    lines: list[str] = field(default_factory=list[str])
    open: list[str] = field(default_factory=list[str])

    def line(self, text: str) -> str:
        """A new value."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def shape(self, name: str, kind: Native) -> Shape:
        """The sizes of an argument, those that are open from now on among ``open``."""
        return tuple(
            size if size >= 0 else self._size(name, str(kind), axis) for axis, size in enumerate(kind.shape)
        )

    def _size(self, name: str, kind: str, axis: int) -> int:
        size = self.line(f"stablehlo.get_dimension_size {name}, dim = {axis} : ({kind}) -> tensor<i32>")
        self.open.append(self.line(f"stablehlo.convert {size} : (tensor<i32>) -> tensor<i64>"))
        return -len(self.open)

    def sizes(self, shape: Shape) -> str:
        """A shape as a value."""
        parts = [
            self.line(f"stablehlo.constant dense<{size}> : tensor<1xi64>")
            if size >= 0
            else self.line(f"stablehlo.reshape {self.open[-1 - size]} : (tensor<i64>) -> tensor<1xi64>")
            for size in shape
        ]
        kinds = ", ".join(["tensor<1xi64>"] * len(parts))
        made = f"({kinds}) -> tensor<{len(parts)}xi64>"
        return self.line(f"stablehlo.concatenate {', '.join(parts)}, dim = 0 : {made}")

    def broadcast(self, value: str, given: str, element: str, shape: Shape, dims: Sequence[int]) -> str:
        """A value of type ``given`` whose axes are ``dims`` of the result."""
        made = _type(element, shape)
        if min(shape, default=0) >= 0:
            text = f"stablehlo.broadcast_in_dim {value}, dims = {list(dims)} : ({given}) -> {made}"
            return self.line(text)
        sizes = self.sizes(shape)
        kinds = f"({given}, tensor<{len(shape)}xi64>) -> {made}"
        return self.line(
            f"stablehlo.dynamic_broadcast_in_dim {value}, {sizes}, dims = {list(dims)} : {kinds}"
        )

    def iota(self, axis: int, shape: Shape) -> str:
        """Places along an axis, in i64."""
        made = _type("i64", shape)
        if min(shape, default=0) >= 0:
            return self.line(f"stablehlo.iota dim = {axis} : {made}")
        kinds = f"(tensor<{len(shape)}xi64>) -> {made}"
        return self.line(f"stablehlo.dynamic_iota {self.sizes(shape)}, dim = {axis} : {kinds}")


def _type(element: str, shape: Shape) -> str:
    return f"tensor<{''.join(f'{size}x' if size >= 0 else '?x' for size in shape)}{element}>"


def _definition(operation: Native, name: str) -> str:
    values = [*operation.operands, operation.results[0]]
    types = [str(value.type) for value in values]
    elements = [str(value.type.element_type) for value in values]
    stated = str(operation.attributes["ragged_dot_dimension_numbers"])
    found = {key: [int(one) for one in re.findall(r"\d+", text)] for key, text in _NUMBERS.findall(stated)}
    batch = found.get("lhs_batching_dimensions", []), found.get("rhs_batching_dimensions", [])
    summed = found.get("lhs_contracting_dimensions", []), found.get("rhs_contracting_dimensions", [])
    (ragged,), group = found["lhs_ragged_dimensions"], found.get("rhs_group_dimensions", [])
    lines, precision = _Lines(), _precision(operation)
    left, right, sizes = (
        lines.shape(name, value.type)
        for name, value in zip(("%a", "%b", "%s"), operation.operands, strict=True)
    )
    known = [size for size in (sizes[-1], *(right[axis] for axis in group)) if size >= 0]
    groups = known[0] if known else sizes[-1]
    sizes = (*sizes[:-1], groups)
    if ragged in batch[0]:
        value = lines.line(_dot("%a", "%b", batch, summed, types[0], types[1], types[3], precision))
        return _function(name, types, lines, value)
    if len(sizes) > 1 and not _agree(sizes[:-1], [left[axis] for axis in batch[0]]):
        where = mlir.describe_location(operation.location)
        raise UnsupportedOp("chlo.ragged_dot", f"groups of {types[2]}", where)
    mask = _inside(lines, types[2], sizes, left[ragged])
    outer = len(sizes) - 1
    shifted = [axis + 1 for axis in batch[0]]
    whole = (groups, *left)
    spread = lines.broadcast("%a", types[0], elements[0], whole, range(1, len(whole)))
    if group:
        numbers = [0, *shifted], [*group, *batch[1]]
        sums = [axis + 1 for axis in summed[0]], summed[1]
        free = [axis for axis in range(len(left)) if axis not in (*batch[0], *summed[0])]
        others = [axis for axis in range(len(right)) if axis not in (*batch[1], *summed[1], *group)]
        made = (groups, *(left[axis] for axis in (*batch[0], *free)), *(right[axis] for axis in others))
        kinds = _type(elements[0], whole), types[1], _type(elements[3], made)
        product = lines.line(_dot(spread, "%b", numbers, sums, *kinds, precision))
        at = [0, *range(1, outer + 1), 1 + len(batch[0]) + free.index(ragged)]
        kept = _kept(lines, mask, (groups, *sizes[:-1], left[ragged]), at, product, elements[3], made)
        zero = lines.line(f"stablehlo.constant {_zero(elements[3])} : {_type(elements[3], ())}")
        scalar = _type(elements[3], ())
        value = lines.line(
            f"stablehlo.reduce({kept} init: {zero}) applies stablehlo.add across dimensions = [0] : "
            f"({kinds[2]}, {scalar}) -> {types[3]}"
        )
        return _function(name, types, lines, value)
    other = summed[1][summed[0].index(ragged)]
    wide = (groups, *right)
    spreads = lines.broadcast("%b", types[1], elements[1], wide, range(1, len(wide)))
    given = (groups, *sizes[:-1], left[ragged])
    firsts = _kept(lines, mask, given, [0, *shifted[:outer], ragged + 1], spread, elements[0], whole)
    places = [0, *[axis + 1 for axis in batch[1]][:outer], other + 1]
    seconds = _kept(lines, mask, given, places, spreads, elements[1], wide)
    numbers = [0, *shifted], [0, *(axis + 1 for axis in batch[1])]
    sums = [axis + 1 for axis in summed[0]], [axis + 1 for axis in summed[1]]
    kinds = _type(elements[0], whole), _type(elements[1], wide), types[3]
    value = lines.line(_dot(firsts, seconds, numbers, sums, *kinds, precision))
    return _function(name, types, lines, value)


_NUMBERS = re.compile(r"(\w+) = (\[[^\]]*\])")


def _precision(operation: Native) -> str:
    if "precision_config" not in operation.attributes:
        return ""
    return f", precision_config = {operation.attributes['precision_config']}".replace("#chlo<", "#stablehlo<")


def _function(name: str, types: Sequence[str], lines: _Lines, value: str) -> str:
    body = "\n".join(lines.lines)
    return (
        f'func.func private @"{name}"(%a: {types[0]}, %b: {types[1]}, %s: {types[2]}) -> {types[3]} {{\n'
        f"{body}\nreturn {value} : {types[3]}\n}}\n"
    )


def _zero(element: str) -> str:
    if element.startswith("complex"):
        return "dense<(0.0, 0.0)>"
    return "dense<0>" if element.startswith(("i", "ui")) else "dense<0.0>"


def _agree(some: Sequence[int], others: Sequence[int]) -> bool:
    """Whether sizes are as many, and those that are known the same."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(a == b or min(a, b) < 0 for a, b in pairs)


def _dot(
    left: str,
    right: str,
    batch: tuple[list[int], list[int]],
    summed: tuple[list[int], list[int]],
    first: str,
    second: str,
    made: str,
    precision: str,
) -> str:
    return (
        f'"stablehlo.dot_general"({left}, {right}) <{{dot_dimension_numbers = #stablehlo.dot<'
        f"lhs_batching_dimensions = {batch[0]}, rhs_batching_dimensions = {batch[1]}, "
        f"lhs_contracting_dimensions = {summed[0]}, rhs_contracting_dimensions = {summed[1]}>{precision}}}> "
        f": ({first}, {second}) -> {made}"
    )


def _kept(
    lines: _Lines, mask: str, given: Shape, at: Sequence[int], value: str, element: str, shape: Shape
) -> str:
    """``value`` where the mask, whose axes are ``at``, is true, else 0."""
    flags, kind = _type("i1", shape), _type(element, shape)
    where = lines.broadcast(mask, _type("i1", given), "i1", shape, at)
    scalar = lines.line(f"stablehlo.constant {_zero(element)} : {_type(element, ())}")
    zero = lines.broadcast(scalar, _type(element, ()), element, shape, [])
    return lines.line(f"stablehlo.select {where}, {value}, {zero} : {flags}, {kind}")


def _inside(lines: _Lines, kind: str, sizes: Shape, length: int) -> str:
    """Of each group, and batch, whether a place of the ragged axis is in it: (group, batch..., place)."""
    groups, rank = sizes[-1], len(sizes)
    wide = _type("i64", sizes)
    given = lines.line(f"stablehlo.convert %s : ({kind}) -> {wide}")
    square, truth = _type("i64", (groups, groups)), _type("i1", (groups, groups))
    earlier = [lines.iota(axis, (groups, groups)) for axis in (0, 1)]
    below = lines.line(f"stablehlo.compare LE, {earlier[0]}, {earlier[1]} : ({square}, {square}) -> {truth}")
    ones = lines.line(f"stablehlo.convert {below} : ({truth}) -> {square}")
    numbers = f"contracting_dims = [{rank - 1}] x [0]"
    ends = lines.line(f"stablehlo.dot_general {given}, {ones}, {numbers} : ({wide}, {square}) -> {wide}")
    starts = lines.line(f"stablehlo.subtract {ends}, {given} : {wide}")
    shape = (groups, *sizes[:-1], length)
    whole, flags = _type("i64", shape), _type("i1", shape)
    place = lines.iota(rank, shape)
    at = [*range(1, rank), 0]
    begin, end = (lines.broadcast(one, wide, "i64", shape, at) for one in (starts, ends))
    after = lines.line(f"stablehlo.compare GE, {place}, {begin} : ({whole}, {whole}) -> {flags}")
    before = lines.line(f"stablehlo.compare LT, {place}, {end} : ({whole}, {whole}) -> {flags}")
    return lines.line(f"stablehlo.and {after}, {before} : {flags}")
