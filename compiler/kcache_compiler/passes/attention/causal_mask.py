"""The causal mask of an attention: which keys a row can reach, read off a comparison of indices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.fusion.elementwise import GenericOp, read_generic

#: A whole number over axes of the scores: coefficients by axis, and a constant.
Affine = tuple[dict[int, int], int]
#: Loops of an operation to axes of the scores.
Axes = dict[int, int]

#: Whether a value of a body is an element of the scores, not made larger.
IsScore = Callable[[GenericOp, mlir.Value], bool]

_CASTS = ("arith.index_cast", "arith.extsi", "arith.trunci")
#: Types in which indices and their differences do not wrap, with constants of this size at most.
_WIDE, _MOST = ("index", "i32", "i64"), 1 << 29
#: Predicates of ``cmpi``, with d the difference of its operands: a, b for ``a * d + b <= 0``.
_PREDICATES: dict[int, tuple[int, int]] = {
    arith.CmpIPredicate.slt: (1, 1),
    arith.CmpIPredicate.sle: (1, 0),
    arith.CmpIPredicate.sgt: (-1, 1),
    arith.CmpIPredicate.sge: (-1, 0),
}


@dataclass(frozen=True)
class Reach:
    """A row whose index on axis ``row`` is i reaches keys below i + ``shift``; the others score ``limit``.

    ``added``: the number is added to their score, which has to be finite for that to hold.
    """

    row: int
    shift: int
    limit: float
    added: bool


@dataclass(frozen=True)
class Reader:
    """Reads bodies: ``key`` is the axis of the keys; ``constant`` returns the values of constants;
    ``is_dynamic_size`` tells which of these stand for dynamic sizes.
    """

    key: int
    constant: Callable[[GenericOp, mlir.Value], float | None]
    is_dynamic_size: Callable[[int], bool]

    def reach(self, generic: GenericOp, axes: Axes, value: mlir.Value, is_score: IsScore) -> Reach | None:
        """The reach of the scores that ``value`` is."""
        owner = mlir.defining(value)
        if owner is None:
            inner = self._inside(generic, axes, value)
            return None if inner is None else self.reach(inner[0], inner[1], _yielded(inner[0]), is_score)
        if mlir.name_of(owner) == "arith.select":
            return self._chosen(generic, axes, owner, added=False)
        if mlir.name_of(owner) == "arith.addf":
            for term, other in (list(owner.operands), list(reversed(owner.operands))):
                result = self._added(generic, axes, term)
                if result is not None and is_score(generic, other):
                    return result
        return None

    def _added(self, generic: GenericOp, axes: Axes, value: mlir.Value) -> Reach | None:
        owner = mlir.defining(value)
        if owner is None:
            inner = self._inside(generic, axes, value)
            return None if inner is None else self._added(inner[0], inner[1], _yielded(inner[0]))
        if mlir.name_of(owner) != "arith.select":
            return None
        numbers = {self.constant(generic, operand) for operand in list(owner.operands)[1:]}
        return self._chosen(generic, axes, owner, added=True) if numbers == {0.0, float("-inf")} else None

    def _chosen(self, generic: GenericOp, axes: Axes, select: mlir.Op, added: bool) -> Reach | None:
        condition, first, second = select.operands
        low, high = self.constant(generic, first), self.constant(generic, second)
        if added:
            low, high = (low, None) if high == 0 else (None, high)
        if (low is None) == (high is None):
            return None
        compared = self._condition(generic, axes, condition, inverted=high is None)
        limit = low if high is None else high
        if compared is None or limit is None or not limit < -1e30:
            return None
        row, shift = compared
        return Reach(row, shift, limit, added)

    def _condition(
        self, generic: GenericOp, axes: Axes, value: mlir.Value, inverted: bool
    ) -> tuple[int, int] | None:
        """Axis and shift of ``key < row + shift``, which holds where ``value`` does, or where it does not."""
        owner = mlir.defining(value)
        if owner is None:
            inner = self._inside(generic, axes, value)
            return (
                None if inner is None else self._condition(inner[0], inner[1], _yielded(inner[0]), inverted)
            )
        if mlir.name_of(owner) == "arith.select":
            numbers = [self.constant(generic, operand) for operand in list(owner.operands)[1:]]
            if numbers not in ([1.0, 0.0], [0.0, 1.0]):
                return None
            return self._condition(generic, axes, owner.operands[0], inverted != (numbers == [0.0, 1.0]))
        if mlir.name_of(owner) != "arith.cmpi":
            return None
        known = _PREDICATES.get(mlir.int_of(owner.attributes["predicate"]))
        terms = [self._affine(generic, axes, operand) for operand in owner.operands]
        if known is None or terms[0] is None or terms[1] is None:
            return None
        return self._normal(_minus(terms[0], terms[1]), known, inverted)

    def _normal(self, difference: Affine, known: tuple[int, int], inverted: bool) -> tuple[int, int] | None:
        """``sign * d + strict <= 0`` as ``key < row + shift``."""
        sign, strict = known
        if inverted:  # not (x <= 0) is -x + 1 <= 0
            sign, strict = -sign, 1 - strict
        results = {axis: sign * number for axis, number in difference[0].items() if number}
        shift = 1 - sign * difference[1] - strict
        rows = [axis for axis in results if axis != self.key]
        if results.get(self.key) != 1 or len(rows) != 1 or results[rows[0]] != -1 or abs(shift) > 1 << 30:
            return None
        return rows[0], shift

    def _affine(self, generic: GenericOp, axes: Axes, value: mlir.Value) -> Affine | None:
        number = self.constant(generic, value)
        if number is not None:
            whole = int(number)
            return None if self.is_dynamic_size(abs(whole)) or abs(whole) > _MOST else ({}, whole)
        if str(value.type) not in _WIDE:
            return None
        owner = mlir.defining(value)
        if owner is None:
            inner = self._inside(generic, axes, value)
            return None if inner is None else self._affine(inner[0], inner[1], _yielded(inner[0]))
        name = mlir.name_of(owner)
        if name == "linalg.index":
            axis = axes.get(mlir.int_of(owner.attributes["dim"]))
            return None if axis is None else ({axis: 1}, 0)
        if name in _CASTS:
            return self._affine(generic, axes, owner.operands[0])
        if name not in ("arith.addi", "arith.subi"):
            return None
        left, right = (self._affine(generic, axes, operand) for operand in owner.operands)
        if left is None or right is None:
            return None
        result = _minus(left, right) if name == "arith.subi" else _minus(left, _minus(({}, 0), right))
        return result if abs(result[1]) <= _MOST else None

    def _inside(self, generic: GenericOp, axes: Axes, argument: mlir.Value) -> tuple[GenericOp, Axes] | None:
        """The elementwise operation that makes an argument, and which axes its loops walk."""
        arguments = list(generic.body.arguments)[: len(generic.inputs)]
        number = next((k for k, candidate in enumerate(arguments) if candidate == argument), None)
        owner = None if number is None else mlir.defining(generic.inputs[number])
        if (
            number is None
            or owner is None
            or mlir.name_of(owner) != "linalg.generic"
            or len(owner.results) != 1
        ):
            return None
        output = read_generic(owner)
        if not output.parallel or not mlir.is_identity(output.maps[-1]):
            return None
        walked = [mlir.plain_dim(result) for result in generic.maps[number].results]
        if any(dim is None or dim not in axes for dim in walked):
            return None
        return output, {position: axes[dim] for position, dim in enumerate(walked) if dim is not None}


def _minus(a: Affine, b: Affine) -> Affine:
    axes = {axis: a[0].get(axis, 0) - b[0].get(axis, 0) for axis in {*a[0], *b[0]}}
    return axes, a[1] - b[1]


def _yielded(generic: GenericOp) -> mlir.Value:
    return mlir.last(generic.body).operands[0]
