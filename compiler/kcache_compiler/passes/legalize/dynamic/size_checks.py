"""Requirements on sizes that are known only at run time: they are checked before the first launch.

In StableHLO a program is undefined if its slices exceed their operand or its operands do not fit each other.
Loops compare the sizes of the axes that they iterate over (``kcache_compiler.lower.loops.launch``); all other
requirements are recorded here, as pairs of sizes that ``main`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, func
from kcache_compiler.passes.legalize.float_functions import FUNCTIONS

#: Operations whose operands have the shape of their result, apart from scalars among them.
ELEMENTWISE = frozenset(FUNCTIONS) | {
    f"stablehlo.{name}"
    for name in [
        "abs",
        "add",
        "and",
        "ceil",
        "clamp",
        "compare",
        "convert",
        "divide",
        "floor",
        "is_finite",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "round_nearest_afz",
        "round_nearest_even",
        "select",
        "sign",
        "subtract",
        "xor",
    ]
}


class Requirements:
    """Pairs of sizes, as values of ``main``, that must be equal or in order."""

    def __init__(self, main: mlir.Op) -> None:
        self.main = main
        self.pairs: list[mlir.Value] = []
        #: For each pair whether its sizes must be equal, else the first is at most the second.
        self.relations: list[bool] = []
        #: For ``origin``.
        self.origins: dict[mlir.Value, object] = {}

    def equal(self, op: mlir.Op, left: mlir.Value, right: mlir.Value) -> None:
        self._require(op, left, right, equal=True)

    def at_most(self, op: mlir.Op, left: mlir.Value, right: mlir.Value) -> None:
        self._require(op, left, right, equal=False)

    def _require(self, op: mlir.Op, left: mlir.Value, right: mlir.Value, equal: bool) -> None:
        if not mlir.within(op, self.main):
            raise UnsupportedOp(mlir.name_of(op), "sizes to check inside control flow", mlir.location_of(op))
        self.pairs += [left, right]
        self.relations.append(equal)

    def finish(self) -> None:
        """Let ``main`` return the pairs, after its results."""
        if not self.pairs:
            return
        body = mlir.block_of(self.main)
        returned = mlir.last(body)
        operands = [*returned.operands, *self.pairs]
        with mlir.before(returned):
            func.return_(operands)
        returned.erase()
        kind = mlir.function_type([a.type for a in body.arguments], [value.type for value in operands])
        self.main.attributes["function_type"] = mlir.type_attr(kind)
        if "res_attrs" in self.main.attributes:
            del self.main.attributes["res_attrs"]


def require_sizes(op: mlir.Op, requirements: Requirements) -> None:
    """Record the requirements of ``op`` on sizes, with operations at the insertion point."""
    handler = _HANDLERS.get(mlir.name_of(op))
    if handler is not None:
        handler(op, requirements)


def _bounded(attribute: str) -> Callable[[mlir.Op, Requirements], None]:
    """The operand has at least as many elements along each axis as ``attribute`` says."""

    def handler(op: mlir.Op, requirements: Requirements) -> None:
        operand = op.operands[0]
        for axis, bound in enumerate(mlir.integers(op.attributes[attribute])):
            if mlir.sizes_of(operand.type)[axis] is None:
                requirements.at_most(op, mlir.constant(bound, "index"), mlir.tensor_size(operand, axis))

    return handler


def _concatenate(op: mlir.Op, requirements: Requirements) -> None:
    along = mlir.int_of(op.attributes["dimension"])
    first, *others = op.operands
    for other in others:
        _same(op, first, other, requirements, (a for a in range(mlir.rank_of(first.type)) if a != along))
    stated = mlir.sizes_of(op.results[0].type)[along]
    if stated is not None and any(mlir.sizes_of(operand.type)[along] is None for operand in op.operands):
        total = mlir.tensor_size(first, along)
        for other in others:
            total = arith.addi(total, mlir.tensor_size(other, along))
        requirements.equal(op, total, mlir.constant(stated, "index"))


def _same(
    op: mlir.Op, first: mlir.Value, other: mlir.Value, requirements: Requirements, axes: Iterable[int]
) -> None:
    sizes, expected = mlir.sizes_of(first.type), mlir.sizes_of(other.type)
    for axis in axes:
        if None in (sizes[axis], expected[axis]):
            requirements.equal(op, mlir.tensor_size(first, axis), mlir.tensor_size(other, axis))


def _update(op: mlir.Op, requirements: Requirements) -> None:
    """What is put into an operand is not larger."""
    whole, part = list(op.operands)[:2]
    for axis, (size, inner) in enumerate(
        zip(mlir.sizes_of(whole.type), mlir.sizes_of(part.type), strict=True)
    ):
        if None in (size, inner):
            requirements.at_most(op, mlir.tensor_size(part, axis), mlir.tensor_size(whole, axis))


_HANDLERS: dict[str, Callable[[mlir.Op, Requirements], None]] = {
    "stablehlo.concatenate": _concatenate,
    "stablehlo.dynamic_slice": _bounded("slice_sizes"),
    "stablehlo.dynamic_update_slice": _update,
    "stablehlo.gather": _bounded("slice_sizes"),
    "stablehlo.slice": _bounded("limit_indices"),
}


def origin(number: mlir.Value, known: dict[mlir.Value, object] | None = None) -> object:
    """What determines a size. Equal results mean equal sizes; sizes of different results may be equal, too.

    ``known`` has what was found of casts, which no rewrite erases, to be numbers and axes of arguments.
    """
    known = {} if known is None else known
    passed: list[mlir.Value] = []
    match: object = None
    while number not in known:  # a chain of casts and shapes may be as long as the program
        owner = mlir.defining(number)
        name = "" if owner is None else mlir.name_of(owner)
        if owner is not None and name in ("arith.index_cast", "arith.extsi", "arith.trunci"):
            passed.append(number)
            number = owner.operands[0]
            continue
        axis = mlir.constant_int(owner.operands[1]) if owner is not None and name == "tensor.dim" else None
        if owner is None or axis is None:
            literal = mlir.constant_int(number)
            match = number if literal is None else literal
            break
        tensor, axis = _axis(owner.operands[0], axis)
        result = _made_of(tensor, axis)
        if result is None:
            size = mlir.sizes_of(tensor.type)[axis]
            match = size if size is not None else (tensor, axis)
            break
        number = result
    else:
        match = known[number]
    if _is_given(match):
        known.update(dict.fromkeys(passed, match))
    return match


def _is_given(result: object) -> bool:
    """Whether it is a number or an axis of an argument."""
    match result:
        case int():
            return True
        case (mlir.Value() as tensor, int()):
            return mlir.defining(tensor) is None
        case _:
            return False


def axis_origin(tensor: mlir.Value, axis: int) -> object:
    """What decides the size of an axis of a tensor."""
    tensor, axis = _axis(tensor, axis)
    result = _made_of(tensor, axis)
    if result is not None:
        return origin(result)
    size = mlir.sizes_of(tensor.type)[axis]
    return size if size is not None else (tensor, axis)


def made_size(
    tensor: mlir.Value, axis: int, known: Mapping[mlir.Value, list[mlir.Value]]
) -> mlir.Value | None:
    """The size of an axis as an index value at the current point, of what is made with its sizes.

    ``known``: the elements of shapes.
    """
    tensor, axis = _axis(tensor, axis)
    owner = mlir.defining(tensor)
    if owner is None or mlir.name_of(owner) != "stablehlo.dynamic_iota":
        return _made_of(tensor, axis)
    shape = owner.operands[0]
    result = mlir.defining(shape)
    parts = known.get(shape) or (list(result.operands) if result is not None else [])
    return arith.index_cast(mlir.index_type(), parts[axis]) if axis < len(parts) else None


def _made_of(tensor: mlir.Value, axis: int) -> mlir.Value | None:
    """The dynamic size of an axis as a value, of what is made with its sizes."""
    owner = mlir.defining(tensor)
    sizes = mlir.sizes_of(tensor.type)
    if owner is None or mlir.name_of(owner) != "tensor.empty" or sizes[axis] is not None:
        return None
    return owner.operands[sizes[:axis].count(None)]


def _axis(tensor: mlir.Value, axis: int) -> tuple[mlir.Value, int]:
    """The axis of a value before that has the same size, as far back as operations keep sizes."""
    while mlir.sizes_of(tensor.type)[axis] is None:
        owner = mlir.defining(tensor)
        name = "" if owner is None else mlir.name_of(owner)
        if owner is None:
            break
        if name in ELEMENTWISE or name == "builtin.unrealized_conversion_cast":
            tensor = next(
                (
                    operand
                    for operand in owner.operands
                    if mlir.rank_of(operand.type) == mlir.rank_of(tensor.type)
                ),
                tensor,
            )
        elif name == "stablehlo.transpose":
            axis = mlir.integers(owner.attributes["permutation"])[axis]
            tensor = owner.operands[0]
        elif name == "stablehlo.reduce":
            gone = mlir.integers(owner.attributes["dimensions"])
            axis = [
                operand for operand in range(mlir.rank_of(owner.operands[0].type)) if operand not in gone
            ][axis]
            tensor = owner.operands[0]
        elif name == "linalg.generic":
            tensor = owner.operands[len(owner.operands) - 1]
        else:
            break
    return tensor, axis
