"""Products of groups of rows with a matrix each, operators of the client, as loops over blocks of rows.

``kcache.grouped_mm(rows, weights, offsets)``: rows ``[S, K]``, weights ``[G, K, N]``, result ``[S, N]``.
Group ``g`` is the rows from ``offsets[g - 1]`` (0 for the first one) to ``offsets[g]``, and its product is
with ``weights[g]``; rows after the last group are 0. ``kcache.grouped_outer(left, right, offsets)``:
``[S, K]`` and ``[S, N]``, result ``[G, K, N]``, for each group the transpose of its left rows times its right
rows.

The offsets, such as those of the tokens of experts, are data. A block begins at the first row of a group, or
where the one before ends, and has one of a few numbers of rows, whether the group has as many or not: what a
block computes of later groups, these replace. So a group without rows costs nothing, and one with all rows
costs what they do. A group whose offset is not above those before has no rows. The first block of a group
stores its outer product, later ones add theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kcache_compiler.frontends.torch.torch_op import FLOATS, TENSOR, TorchOp, float_text, integer_constants
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Value

#: (rows of a block, the first one, its group, the end of the group, what is carried) -> what is carried.
_Block: TypeAlias = "Callable[[int, Value, Value, Value, Value], Value]"

#: Rows of blocks, each for numbers of rows above the one before: a register tile has 12 or 6 rows, and each
#: block of more than two tiles packs its matrix. Then those of large blocks, which a group must have but for
#: this share.
_ROWS = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 84, 96, 108, 120)
_LARGE, _SHARE = (128, 256, 512), 16
#: Rows of blocks whose products are stored, and of those that are added to others.
_STORED, _ADDED = (4, 8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512), 128


class _Size(NamedTuple):
    """Blocks of ``rows`` rows, as long as a group has more than ``above`` left."""

    rows: int
    above: int


def _sizes(count: int, least: Sequence[int], large: Sequence[int] = ()) -> list[_Size]:
    """The sizes of blocks of ``count`` rows, which ascend: ``least``, then ``large`` ones."""
    bounds = [(rows, above) for above, rows in zip((0, *least), least, strict=False)]
    bounds += [(rows, max(rows - rows // _SHARE, least[-1])) for rows in large]
    return [_Size(min(rows, count), above) for rows, above in bounds if above < count]


_INDEX = "tensor<i64>"


class _Groups:
    """Operations on the operands of one operator: ``count`` rows in ``groups`` groups."""

    def __init__(self, op: TorchOp, count: int) -> None:
        self.op = op
        self.element = op.element
        self.count = count
        offsets = op.builtin_tensor(op.operation.operands[2])
        (self.groups,) = lazy.tensor_of(offsets).shape
        self.offsets = op.create("stablehlo.convert", [offsets], self.type([self.groups], "i64"))

    def type(self, sizes: Sequence[int], element: str = "") -> str:
        return f"tensor<{''.join(f'{size}x' for size in sizes)}{element or self.element}>"

    def shape(self, value: Value) -> list[int]:
        return list(lazy.tensor_of(value).shape)

    def index(self, number: int) -> Value:
        return self.op.create("stablehlo.constant", (), _INDEX, value=f"dense<{number}> : {_INDEX}")

    def zeros(self, sizes: Sequence[int], element: str = "") -> Value:
        kind = self.type(sizes, element)
        text = f"dense<{float_text(0.0, element or self.element)}> : {kind}"
        return self.op.create("stablehlo.constant", (), kind, value=text)

    def binary(self, name: str, left: Value, right: Value) -> Value:
        return self.op.create(f"stablehlo.{name}", [left, right], str(left.type))

    def compare(self, direction: str, left: Value, right: Value) -> Value:
        attribute = f"#stablehlo<comparison_direction {direction}>"
        kind = self.type(self.shape(left), "i1")
        return self.op.create("stablehlo.compare", [left, right], kind, comparison_direction=attribute)

    def select(self, mask: Value, left: Value, right: Value) -> Value:
        return self.op.create("stablehlo.select", [mask, left, right], str(left.type))

    def spread(self, value: Value, sizes: Sequence[int], axes: Sequence[int], element: str = "i64") -> Value:
        kind = self.type(sizes, element)
        return self.op.create("stablehlo.broadcast_in_dim", [value], kind, broadcast_dimensions=_array(axes))

    def slice(self, value: Value, starts: Sequence[Value], sizes: Sequence[int], element: str = "") -> Value:
        kind = self.type(sizes, element)
        return self.op.create("stablehlo.dynamic_slice", [value, *starts], kind, slice_sizes=_array(sizes))

    def updated(self, value: Value, part: Value, starts: Sequence[Value]) -> Value:
        return self.op.create("stablehlo.dynamic_update_slice", [value, part, *starts], str(value.type))

    def reshape(self, value: Value, sizes: Sequence[int], element: str = "") -> Value:
        return self.op.create("stablehlo.reshape", [value], self.type(sizes, element))

    def with_rows(self, value: Value, count: int) -> Value:
        """``value`` with ``count`` rows of zeros after its own."""
        if not count:
            return value
        rows, width = self.shape(value)
        attributes = {
            "edge_padding_low": _array([0, 0]),
            "edge_padding_high": _array([count, 0]),
            "interior_padding": _array([0, 0]),
        }
        kind = self.type([rows + count, width])
        return self.op.create("stablehlo.pad", [value, self.zeros([])], kind, **attributes)

    def before(self, end: Value, sizes: Sequence[int]) -> Value:
        """Which rows of a tensor of these sizes, whose first axis is that of rows, are before ``end``."""
        kind = self.type(sizes, "i64")
        rows = self.op.create("stablehlo.iota", (), kind, iota_dimension="0 : i64")
        return self.compare("LT", rows, self.spread(end, sizes, []))

    def product(
        self, left: Value, right: Value, axes: tuple[int, int], sizes: Sequence[int], element: str = ""
    ) -> Value:
        numbers = (
            f"#stablehlo.dot<lhs_contracting_dimensions = [{axes[0]}], "
            f"rhs_contracting_dimensions = [{axes[1]}]>"
        )
        kind = self.type(sizes, element)
        return self.op.create("stablehlo.dot_general", [left, right], kind, dot_dimension_numbers=numbers)

    def blocks(
        self, initial: Value, sizes: Sequence[_Size], block: _Block, once: bool
    ) -> tuple[Value, Value]:
        """Run ``block`` for each block of rows, in order: the end of the last group, and what is carried.

        ``once``: for the first one of each group, which computes what that has more.
        """

        def more(group: Value, *_: Value) -> Value:
            return self.compare("LT", group, self.index(self.groups))

        def of_group(group: Value, row: Value, value: Value) -> list[Value]:
            end = self.reshape(self.slice(self.offsets, [group], [1], "i64"), [], "i64")
            end = self.binary("minimum", end, self.index(self.count))
            start = row if once else None
            for size in reversed(sizes):
                row, value = self._blocks_of(size, row, group, end, value, block, start)
            return [self.binary("add", group, self.index(1)), row, value]

        _, end, value = self.loop([self.index(0), self.index(0), initial], more, of_group)
        return end, value

    def _blocks_of(
        self,
        size: _Size,
        row: Value,
        group: Value,
        end: Value,
        value: Value,
        block: _Block,
        start: Value | None,
    ) -> list[Value]:
        """The blocks of a group of one size; with ``start``, its first row, the only one of the group."""

        def more(row: Value, _: Value) -> Value:
            remains = self.remains(size.above, row, end)
            if start is None:
                return remains
            is_first = self.compare("EQ", row, start)
            return self.op.create("stablehlo.and", [remains, is_first], str(remains.type))

        def of_rows(row: Value, value: Value) -> list[Value]:
            following = self.after(size.rows, row, end) if start is None else end
            return [following, block(size.rows, row, group, end, value)]

        return self.loop([row, value], more, of_rows)

    def remains(self, count: int, row: Value, end: Value) -> Value:
        """Whether more than ``count`` rows are from ``row`` to ``end``."""
        return self.compare("LT", self.index(count), self.binary("subtract", end, row))

    def after(self, count: int, row: Value, end: Value) -> Value:
        """The row ``count`` rows after ``row``, at most ``end``."""
        return self.binary("minimum", self.binary("add", row, self.index(count)), end)

    def loop(
        self, initial: Sequence[Value], goes_on: Callable[..., Value], body: Callable[..., list[Value]]
    ) -> list[Value]:
        native = self.op.native
        types = [value.type for value in initial]
        loop = native.Operation.create("stablehlo.while", results=types, operands=list(initial), regions=2)
        unknown = [native.Location.unknown()] * len(types)
        first, second = (region.blocks.append(*types, arg_locs=unknown) for region in loop.regions)
        with native.InsertionPoint(first):
            native.Operation.create("stablehlo.return", operands=[goes_on(*first.arguments)])
        with native.InsertionPoint(second):
            native.Operation.create("stablehlo.return", operands=body(*second.arguments))
        return list(loop.results)


def _grouped_mm(op: TorchOp) -> Value | None:
    """Lower a grouped product of rows and one matrix per group to loops over blocks of rows of one group.

    None if a shape is dynamic.
    """
    if not _is_static(op):
        return None
    rows, weights = op.builtin_tensor(op.operation.operands[0]), op.operation.operands[1]
    transposed = _transposed(weights)
    matrices = op.builtin_tensor(weights if transposed is None else transposed)
    count, inner = lazy.tensor_of(rows).shape
    groups = _Groups(op, count)
    _, *sizes = groups.shape(matrices)
    axis = 0 if transposed is None else 1
    width = sizes[1 - axis]
    blocks = _sizes(count, _ROWS, _LARGE)
    behind = _behind(blocks)
    padded = groups.with_rows(rows, behind)
    zero = groups.index(0)

    def block(size: int, row: Value, group: Value, _: Value, result: Value) -> Value:
        left = groups.slice(padded, [row, zero], [size, inner])
        right = groups.reshape(groups.slice(matrices, [group, zero, zero], [1, *sizes]), sizes)
        product = groups.product(left, right, (1, axis), [size, width])
        return groups.updated(result, product, [row, zero])

    initial = groups.zeros([count + behind, width])
    end, result = groups.blocks(initial, blocks, block, once=False)
    if behind:
        result = op.create(
            "stablehlo.slice",
            [result],
            groups.type([count, width]),
            start_indices=_array([0, 0]),
            limit_indices=_array([count, width]),
            strides=_array([1, 1]),
        )
    # What the last block computes of the rows after it, no group replaces.
    inside = groups.before(end, [count, width])
    return op.to_torch(groups.select(inside, result, groups.zeros([count, width])))


def _grouped_outer(op: TorchOp) -> Value | None:
    """Lower the products of transposed rows and rows of each group to loops over blocks of rows.

    These are the gradients of the matrices of a grouped product. None if a shape is dynamic.
    """
    if not _is_static(op):
        return None
    left, right = (op.builtin_tensor(value) for value in list(op.operation.operands)[:2])
    count, height = lazy.tensor_of(left).shape
    groups = _Groups(op, count)
    width = groups.shape(right)[1]
    wide = "f32" if op.element in ("f16", "bf16") else op.element
    blocks = _sizes(count, _STORED)
    behind = max(_behind(blocks), _ADDED - 1 if count > blocks[-1].rows else 0)
    sides = [groups.with_rows(side, behind) for side in (left, right)]
    zero = groups.index(0)
    part = [height, width]

    def product(size: int, row: Value, end: Value) -> Value:
        remaining = groups.binary("subtract", end, row)

        def own_rows(side: Value) -> Value:
            sizes = [size, groups.shape(side)[1]]
            rows = groups.slice(side, [row, zero], sizes)
            if not behind:
                return rows
            # An element of the padding: a constant of all elements would be stored before the loop.
            nothing = groups.reshape(groups.slice(side, [groups.index(count), zero], [1, 1]), [])
            nothing = groups.spread(nothing, sizes, [], groups.element)
            return groups.select(groups.before(remaining, sizes), rows, nothing)

        return groups.product(own_rows(sides[0]), own_rows(sides[1]), (0, 0), part, wide)

    def total(size: int, row: Value, end: Value) -> Value:
        """The product of all rows of a group that begins with a block of ``size`` rows."""
        first = product(size, row, end)
        if size == count or size != blocks[-1].rows:
            return first

        def more(row: Value, _: Value) -> Value:
            return groups.remains(0, row, end)

        def of_rows(row: Value, value: Value) -> list[Value]:
            return [groups.after(_ADDED, row, end), groups.binary("add", value, product(_ADDED, row, end))]

        _, value = groups.loop([groups.after(size, row, end), first], more, of_rows)
        return value

    def stored(size: int, row: Value, group: Value, end: Value, result: Value) -> Value:
        start = groups.binary("multiply", group, groups.index(height))
        return groups.updated(result, total(size, row, end), [start, zero])

    # Without an axis of groups, a product is computed where it is in the result.
    initial = groups.zeros([groups.groups * height, width], wide)
    _, result = groups.blocks(initial, blocks, stored, once=True)
    result = groups.reshape(result, [groups.groups, height, width], wide)
    if wide != op.element:
        result = op.create("stablehlo.convert", [result], groups.type([groups.groups, height, width]))
    return op.to_torch(result)


def _behind(sizes: Sequence[_Size]) -> int:
    """The number of rows after the last one that blocks may reach."""
    return max(size.rows - size.above for size in sizes) - 1


def _transposed(value: Value) -> Value | None:
    """What ``value`` is the transpose of in its last two axes."""
    definition = lazy.definition(value)
    name = getattr(definition, "name", "")
    if name == "torch.aten.transpose.int":
        axes = [axis % 3 for each in list(definition.operands)[1:] for axis in integer_constants(each) or ()]
        return definition.operands[0] if sorted(axes) == [1, 2] else None
    if name == "torch.aten.permute":
        axes = [axis % 3 for axis in integer_constants(definition.operands[1]) or ()]
        return definition.operands[0] if axes == [0, 2, 1] else None
    return None


def _is_static(op: TorchOp) -> bool:
    """Whether all tensors have static sizes that are not 0, and the matrices one float type."""
    matches = [TENSOR.fullmatch(str(value.type)) for value in op.operation.operands]
    sizes = [size for match in matches if match for size in match[1].split(",")]
    return (
        op.element in FLOATS
        and all(match is not None and match[2] == op.element for match in matches[:2])
        and all(size.isdigit() and size != "0" for size in sizes)
    )


def _array(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>"


GROUPED_PRODUCTS: dict[str, Callable[[TorchOp], Value | list[Value] | None]] = {
    "torch.kcache.grouped_mm": _grouped_mm,
    "torch.kcache.grouped_outer": _grouped_outer,
}
