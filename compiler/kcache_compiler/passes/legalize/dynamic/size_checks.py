"""What a program takes for granted of sizes that are known only at run time: checked before it runs.

StableHLO leaves a program without meaning when its slices reach beyond their operand or its
operands do not fit each other. Loops compare what they walk (``kcache_compiler.lower.loops.launch``);
what they would not notice is written down here, as pairs of sizes that ``main`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.float_functions import FUNCTIONS
from kcache_compiler.passes.stage import Unit

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

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.main = mlir.main_function(unit.module)
        self.pairs: list[mlir.Value] = []
        #: For ``origin``.
        self.origins: dict[Any, object] = {}

    def equal(self, op: mlir.Op, left: mlir.Value, right: mlir.Value) -> None:
        self._require(op, left, right, equal=True)

    def at_most(self, op: mlir.Op, left: mlir.Value, right: mlir.Value) -> None:
        self._require(op, left, right, equal=False)

    def _require(self, op: mlir.Op, left: mlir.Value, right: mlir.Value, equal: bool) -> None:
        if not mlir.within(op, self.main):
            raise UnsupportedOp(mlir.name_of(op), "sizes to check inside control flow", mlir.location_of(op))
        self.pairs += [left, right]
        self.unit.size_checks.append(equal)

    def finish(self) -> None:
        """Let ``main`` return the pairs, after its results."""
        if not self.pairs:
            return
        body = mlir.block_of(self.main)
        returned = mlir.last(body)
        operands = [*returned.operands, *self.pairs]
        with mlir.before(returned):
            mlir.create("func.return", operands)
        returned.erase()
        kind = mlir.function_type([a.type for a in body.arguments], [value.type for value in operands])
        self.main.attributes["function_type"] = mlir.type_attr(kind)
        if "res_attrs" in self.main.attributes:
            del self.main.attributes["res_attrs"]


def size_of(tensor: mlir.Value, axis: int) -> mlir.Value:
    """The size of an axis as an index value at the current point."""
    return mlir.value("tensor.dim", [tensor, mlir.constant(axis, "index")], mlir.index_type())


def require_sizes(op: mlir.Op, requirements: Requirements) -> None:
    """Write down what ``op`` takes for granted, at the current point."""
    handler = _HANDLERS.get(mlir.name_of(op))
    if handler is not None:
        handler(op, requirements)


def _bounded(attribute: str) -> Callable[[mlir.Op, Requirements], None]:
    """The operand has at least as many elements along each axis as ``attribute`` says."""

    def handler(op: mlir.Op, requirements: Requirements) -> None:
        operand = op.operands[0]
        for axis, bound in enumerate(mlir.integers(op.attributes[attribute])):
            if mlir.sizes_of(operand.type)[axis] is None:
                requirements.at_most(op, mlir.constant(bound, "index"), size_of(operand, axis))

    return handler


def _concatenate(op: mlir.Op, requirements: Requirements) -> None:
    along = mlir.int_of(op.attributes["dimension"])
    first, *others = op.operands
    for other in others:
        _same(op, first, other, requirements, (a for a in range(mlir.rank_of(first.type)) if a != along))
    stated = mlir.sizes_of(op.results[0].type)[along]
    if stated is not None and any(mlir.sizes_of(one.type)[along] is None for one in op.operands):
        total = size_of(first, along)
        for other in others:
            total = mlir.value("arith.addi", [total, size_of(other, along)], mlir.index_type())
        requirements.equal(op, total, mlir.constant(stated, "index"))


def _same(
    op: mlir.Op, first: mlir.Value, other: mlir.Value, requirements: Requirements, axes: Iterable[int]
) -> None:
    sizes, wanted = mlir.sizes_of(first.type), mlir.sizes_of(other.type)
    for axis in axes:
        if None in (sizes[axis], wanted[axis]):
            requirements.equal(op, size_of(first, axis), size_of(other, axis))


def _update(op: mlir.Op, requirements: Requirements) -> None:
    """What is put into an operand is not larger."""
    whole, part = list(op.operands)[:2]
    for axis, (size, inner) in enumerate(
        zip(mlir.sizes_of(whole.type), mlir.sizes_of(part.type), strict=True)
    ):
        if None in (size, inner):
            requirements.at_most(op, size_of(part, axis), size_of(whole, axis))


_HANDLERS: dict[str, Callable[[mlir.Op, Requirements], None]] = {
    "stablehlo.concatenate": _concatenate,
    "stablehlo.dynamic_slice": _bounded("slice_sizes"),
    "stablehlo.dynamic_update_slice": _update,
    "stablehlo.gather": _bounded("slice_sizes"),
    "stablehlo.slice": _bounded("limit_indices"),
}


def origin(number: mlir.Value, known: dict[Any, object] | None = None) -> object:
    """What decides a size: equal results are equal sizes, different ones may be.

    ``known`` has what was found of casts, which no rewrite erases, to be numbers and axes of arguments.
    """
    known = {} if known is None else known
    passed: list[mlir.Value] = []
    found: object = None
    while number not in known:  # a size is that of a value before, as often as a program is long
        owner = mlir.defining(number)
        name = "" if owner is None else mlir.name_of(owner)
        if owner is not None and name in ("arith.index_cast", "arith.extsi", "arith.trunci"):
            passed.append(number)
            number = owner.operands[0]
            continue
        axis = mlir.constant_int(owner.operands[1]) if owner is not None and name == "tensor.dim" else None
        if owner is None or axis is None:
            literal = mlir.constant_int(number)
            found = number if literal is None else literal
            break
        tensor, axis = _axis(owner.operands[0], axis)
        made = _made_of(tensor, axis)
        if made is None:
            size = mlir.sizes_of(tensor.type)[axis]
            found = size if size is not None else (tensor, axis)
            break
        number = made
    else:
        found = known[number]
    if _is_given(found):
        known.update(dict.fromkeys(passed, found))
    return found


def _is_given(found: object) -> bool:
    """Whether it is a number or an axis of an argument."""
    match found:
        case int():
            return True
        case (mlir.Value() as tensor, int()):
            return mlir.defining(tensor) is None
        case _:
            return False


def axis_origin(tensor: mlir.Value, axis: int) -> object:
    """What decides the size of an axis of a tensor."""
    tensor, axis = _axis(tensor, axis)
    made = _made_of(tensor, axis)
    if made is not None:
        return origin(made)
    size = mlir.sizes_of(tensor.type)[axis]
    return size if size is not None else (tensor, axis)


def made_size(tensor: mlir.Value, axis: int, known: Mapping[Any, list[mlir.Value]]) -> mlir.Value | None:
    """The size of an axis as an index value at the current point, of what is made with its sizes.

    ``known``: the elements of shapes.
    """
    tensor, axis = _axis(tensor, axis)
    owner = mlir.defining(tensor)
    if owner is None or mlir.name_of(owner) != "stablehlo.dynamic_iota":
        return _made_of(tensor, axis)
    shape = owner.operands[0]
    made = mlir.defining(shape)
    parts = known.get(shape) or (list(made.operands) if made is not None else [])
    return mlir.value("arith.index_cast", [parts[axis]], mlir.index_type()) if axis < len(parts) else None


def _made_of(tensor: mlir.Value, axis: int) -> mlir.Value | None:
    """The open size of an axis as a value, of what is made with its sizes."""
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
                (one for one in owner.operands if mlir.rank_of(one.type) == mlir.rank_of(tensor.type)), tensor
            )
        elif name == "stablehlo.transpose":
            axis = mlir.integers(owner.attributes["permutation"])[axis]
            tensor = owner.operands[0]
        elif name == "stablehlo.reduce":
            gone = mlir.integers(owner.attributes["dimensions"])
            axis = [one for one in range(mlir.rank_of(owner.operands[0].type)) if one not in gone][axis]
            tensor = owner.operands[0]
        elif name == "linalg.generic":
            tensor = owner.operands[len(owner.operands) - 1]
        else:
            break
    return tensor, axis
