"""What the operations around a call of the library say: an argument's sign, and what they make together."""

from __future__ import annotations

import math

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.attention.mark import MARK
from kcache_compiler.passes.inline_math_functions import PREFIX

_EXP, _ERFC = f"@{PREFIX}exp_f32", f"@{PREFIX}erfc_f32"
_ROOT_HALF = math.sqrt(0.5)
#: Operations deep that equal values are looked into.
_DEPTH = 8


def compose(module: mlir.Module, strict: bool, flush: bool, shorter: bool = False) -> None:
    """Call ``exp_below`` for what is never above 0; unless ``strict``, GELU of f32 in the place of its parts.
    Where ``flush``, weights of attentions are 0 in the place of tiny; where ``shorter``, ``exp_distance`` is
    called in the place of ``exp_below``.

    ``exp_below`` changes no bits.
    """
    name = "exp_distance" if shorter else "exp_below"
    for generic in mlir.named(module, "linalg.generic"):
        if flush and MARK in generic.attributes:
            _weights(generic)
        else:
            _below(generic, name)
    if not strict:
        for call in mlir.named(module, "func.call"):
            if str(call.attributes["callee"]) == _ERFC:
                _gelu(call)


def _below(generic: mlir.Op, name: str) -> None:
    """Call ``name`` for exponentials of the distance from a maximum over what the element is of."""
    block = mlir.block_of(generic)
    arguments = list(block.arguments)
    for exp in mlir.operations(block):
        if mlir.name_of(exp) != "func.call" or str(exp.attributes["callee"]) != _EXP:
            continue
        difference = mlir.defining(exp.operands[0])
        if difference is None or mlir.name_of(difference) != "arith.subf":
            continue
        element, most = difference.operands
        if most in arguments and _is_maximum(generic, arguments.index(most), element):
            exp.attributes["callee"] = mlir.attribute(f"@{PREFIX}{name}_f32")


def _weights(generic: mlir.Op) -> None:
    """Exponentials of the distance from the maximum of a row of scores."""
    if not mlir.string_of(generic.attributes[MARK]).endswith(" weights"):
        return
    for exp in mlir.operations(mlir.block_of(generic)):
        if mlir.name_of(exp) == "func.call" and str(exp.attributes["callee"]) == _EXP:
            difference = mlir.defining(exp.operands[0])
            if difference is not None and mlir.name_of(difference) == "arith.subf":
                exp.attributes["callee"] = mlir.attribute(f"@{PREFIX}exp_weight_f32")


def _is_maximum(generic: mlir.Op, most: int, element: mlir.Value) -> bool:
    """Operand ``most`` is the maximum of what ``element`` is, over some of the axes."""
    maps = mlir.indexing_maps(generic)
    source = mlir.defining(generic.operands[most])
    if source is None or mlir.name_of(source) != "linalg.generic" or len(source.results) != 1:
        return False
    theirs = mlir.indexing_maps(source)
    body = mlir.block_of(source)
    [yielded] = mlir.last(body).operands
    combiner = mlir.defining(yielded)
    if combiner is None or mlir.name_of(combiner) != "arith.maximumf":
        return False
    accumulator = list(body.arguments)[-1]
    values = [value for value in combiner.operands if value != accumulator]
    same = _Same(generic, source)
    return len(values) == 1 and same(element, values[0]) and same.plain and theirs[-1] == maps[most]


class _Same:
    """Whether values in the bodies of two operations are the same at the same place of both."""

    def __init__(self, first: mlir.Op, other: mlir.Op) -> None:
        self.operations = (first, other)
        self.arguments = [list(mlir.block_of(op).arguments) for op in self.operations]
        self.maps = [mlir.indexing_maps(op) for op in self.operations]
        #: They read the same elements of something: the axes of the operations are the same.
        self.plain = False
        self.known: dict[tuple[mlir.Value, mlir.Value], bool] = {}

    def __call__(self, a: mlir.Value, b: mlir.Value) -> bool:
        if (a, b) not in self.known:
            self.known[a, b] = self._are(a, b)
        return self.known[a, b]

    def _are(self, a: mlir.Value, b: mlir.Value) -> bool:
        positions = [
            mine.index(value) if value in mine else None
            for mine, value in zip(self.arguments, (a, b), strict=True)
        ]
        if None not in positions:
            return self._read(positions[0] or 0, positions[1] or 0)
        if a == b:
            return True
        result = [mlir.defining(value) for value in (a, b)]
        if positions != [None, None] or result[0] is None or result[1] is None:
            return False
        return self._computed(result[0], result[1])

    def _read(self, first: int, other: int) -> bool:
        """The arguments are elements of the same operand, at the same place."""
        self.plain |= mlir.is_identity(self.maps[0][first])
        alike = self.operations[0].operands[first] == self.operations[1].operands[other]
        return alike and self.maps[0][first] == self.maps[1][other]

    def _computed(self, first: mlir.Op, other: mlir.Op) -> bool:
        if mlir.name_of(first) != mlir.name_of(other) or mlir.has_regions(first):
            return False
        if mlir.name_of(first) in ("arith.mulf", "math.fma") and not self._is_exact(first):
            return False  # with what it is added to it may be rounded once, in one of the two
        pairs = zip(first.operands, other.operands, strict=True)
        return mlir.attributes_text(first) == mlir.attributes_text(other) and all(
            self(a, b) for a, b in pairs
        )

    def _is_exact(self, multiplication: mlir.Op) -> bool:
        """A factor is a power of two."""
        for factor in multiplication.operands:
            factored = factor
            if factor in self.arguments[0]:
                factored = self.operations[0].operands[self.arguments[0].index(factor)]
            if mlir.defining(factored) is not None and (number := mlir.constant_float(factored)):
                return mlir.name_of(multiplication) == "arith.mulf" and abs(math.frexp(number)[0]) == 0.5
        return False


def _gelu(call: mlir.Op) -> None:
    """x / 2 erfc(-x sqrt(1/2)), which is what every framework's form becomes."""
    generic = mlir.parent_of(call)
    if mlir.name_of(generic) != "linalg.generic":
        return
    body = _Body(generic)
    x = body.scaled(call.operands[0])
    if x is None:
        return
    for product, position in list(mlir.uses(call.results[0])):
        if mlir.name_of(product) != "arith.mulf":
            continue
        half = mlir.defining(product.operands[1 - position])
        if half is None or mlir.name_of(half) != "arith.mulf" or body.times(half, x) != 0.5:
            continue
        with mlir.before(product), mlir.at_location(product):
            product.results[0].replace_all_uses_with(mlir.call(f"{PREFIX}gelu_f32", [x], x.type))
        product.erase()
        _drop(half)
    _drop(call)


class _Body:
    """The body of a generic, whose arguments are what its operands are."""

    def __init__(self, generic: mlir.Op) -> None:
        self.operands = list(generic.operands)
        self.maps = mlir.indexing_maps(generic)
        self.arguments = list(mlir.block_of(generic).arguments)

    def scaled(self, argument: mlir.Value) -> mlir.Value | None:
        """x where ``argument`` is -x sqrt(1/2)."""
        sign = -1.0
        owner = mlir.defining(argument)
        if owner is not None and mlir.name_of(owner) == "arith.negf":
            sign, owner = 1.0, mlir.defining(owner.operands[0])
        if owner is None or mlir.name_of(owner) != "arith.mulf":
            return None
        for x in owner.operands:
            factor = self.times(owner, x)
            if factor is not None and abs(factor * sign - _ROOT_HALF) < 1e-7:
                return x
        return None

    def times(self, product: mlir.Op, x: mlir.Value) -> float | None:
        """The constant by which ``product`` multiplies ``x``."""
        first, second = product.operands
        for factor, other in ((first, second), (second, first)):
            if self._same(factor, x):
                return self._constant(other)
        return None

    def _same(self, left: mlir.Value, other: mlir.Value, depth: int = _DEPTH) -> bool:
        """Equal operations of equal operands: fusion writes a cheap one again for each that reads it."""
        if left == other:
            return True
        if left in self.arguments and other in self.arguments:
            a, b = self.arguments.index(left), self.arguments.index(other)
            return self.operands[a] == self.operands[b] and self.maps[a] == self.maps[b]
        first, second = mlir.defining(left), mlir.defining(other)
        if first is None or second is None or not depth or not mlir.name_of(first).startswith("arith."):
            return False
        texts = [mlir.attributes_text(op) for op in (first, second)]
        alike = mlir.name_of(first) == mlir.name_of(second) and texts[0] == texts[1]
        pairs = list(zip(first.operands, second.operands, strict=False))
        return alike and left.type == other.type and all(self._same(a, b, depth - 1) for a, b in pairs)

    def _constant(self, value: mlir.Value) -> float | None:
        if value in self.arguments:
            value = self.operands[self.arguments.index(value)]
        return mlir.constant_float(value) if mlir.defining(value) is not None else None


def _drop(op: mlir.Op) -> None:
    """Erase what nobody reads any more, and what only that read."""
    if any(list(result.uses) for result in op.results):
        return
    owners = [mlir.defining(operand) for operand in op.operands]
    op.erase()
    for owner in owners:
        if owner is not None and mlir.name_of(owner) in ("arith.mulf", "arith.negf", "arith.addf"):
            _drop(owner)
