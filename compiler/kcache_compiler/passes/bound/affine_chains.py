"""Computes the scales and shifts of large values once for each channel.

``((x - a) * b) * c + d`` becomes ``(x - a) * (b * c) + d``, where ``a`` to ``d`` are broadcasts of small
values, such as the statistics, gain and offset of a group normalization. If they depend on bound arguments
and constants alone, as those of a batch norm before an activation, it becomes ``x * s + t``, and ``s`` and
``t`` are prepared. Rounding differs: not for numerics ``strict``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build

_AFFINE = frozenset(f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "divide"))
#: Elements of a value for each element of its factors, at least.
REPEATED = 8


def shorten_chains(body: mlir.Block, bound: set[mlir.Value]) -> None:
    """Rewrite ``body``; ``bound`` are its values that depend only on bound arguments and constants."""
    inner: set[mlir.Op] = set()
    for op in reversed(mlir.operations(body)):
        if op in inner or any(result in bound for result in op.results):
            continue
        steps = _chain(op, bound)
        inner.update(step.op for step in steps[:-1] if not mlir.used_more_than_once(step.op.results[0]))
        with mlir.before(op), mlir.at_location(op):
            _shorten(steps, bound)


@dataclass(frozen=True)
class _Step:
    """An operation on the value ``op.operands[position]`` and a factor, of which ``small`` is repeated along
    all axes but ``dims``.
    """

    op: mlir.Op
    position: int
    small: mlir.Value
    dims: list[int]

    @property
    def name(self) -> str:
        return mlir.name_of(self.op).removeprefix("stablehlo.")

    @property
    def value(self) -> mlir.Value:
        return self.op.operands[self.position]

    @property
    def is_constant(self) -> bool:
        owner = mlir.defining(self.small)
        return not self.dims and owner is not None and mlir.name_of(owner) == "stablehlo.constant"

    @property
    def is_scale(self) -> bool:
        """Whether the value is multiplied, by -1 where it is subtracted from a factor."""
        return self.name in ("multiply", "divide") or (self.name == "subtract" and self.position == 1)

    @property
    def is_shift(self) -> bool:
        """Whether something is added."""
        return self.name in ("add", "subtract")


def _chain(op: mlir.Op | None, bound: set[mlir.Value]) -> list[_Step]:
    """The steps of which ``op`` is the last one, the first of them first.

    A value with other readers is a step only if what it is computed from has other readers, too: then that
    is in memory anyway.
    """
    steps: list[_Step] = []
    while op is not None and (step := _step(op, bound)) is not None:
        read = steps and mlir.used_more_than_once(op.results[0])
        if read and not mlir.used_more_than_once(step.value):
            break
        steps.insert(0, step)
        op = mlir.defining(step.value)
    return steps


def _step(op: mlir.Op, bound: set[mlir.Value]) -> _Step | None:
    if mlir.name_of(op) not in _AFFINE or not build.is_static(op):
        return None
    if str(mlir.element_type(op.results[0].type)) not in ("f32", "f64"):
        return None
    repeated = [_repeated(operand) for operand in op.operands]
    for position in (0, 1):
        factor = repeated[1 - position]
        if factor is None or repeated[position] is not None or op.operands[position] in bound:
            continue
        if position == 0 or mlir.name_of(op) != "stablehlo.divide":
            return _Step(op, position, *factor)
    return None


def _repeated(value: mlir.Value) -> tuple[mlir.Value, list[int]] | None:
    """What is broadcast to ``value``, and to which of its axes; None if that is not small."""
    owner = mlir.defining(value)
    if owner is None:
        return None
    if mlir.name_of(owner) == "stablehlo.constant" and mlir.constant_extent(owner)[0]:
        return value, []
    if mlir.name_of(owner) != "stablehlo.broadcast_in_dim":
        return None
    source, dims = owner.operands[0], mlir.integers(owner.attributes["broadcast_dimensions"])
    sizes = build.static_sizes(source)
    small = REPEATED * math.prod(sizes) <= math.prod(build.static_sizes(value))
    if dims != sorted(dims) or not small:
        return None
    return source, [dim for dim, size in zip(dims, sizes, strict=True) if size > 1]


def _shorten(steps: Sequence[_Step], bound: set[mlir.Value]) -> None:
    """Replace the last step by at most three, if that are fewer."""
    if all(step.is_constant for step in steps):
        return
    last = steps[-1].op.results[0]
    sizes = build.static_sizes(last)
    dims = sorted({dim for step in steps for dim in step.dims})
    affine = _Affine(dims, [sizes[dim] for dim in dims])
    prepared = all(step.small in bound or step.is_constant for step in steps)
    if REPEATED * math.prod(affine.sizes) > math.prod(sizes) or _count(steps, prepared) >= len(steps):
        return
    for step in steps:
        affine.apply(step)
    if prepared:
        affine.move_back()
    value = steps[0].value
    terms = ((affine.sign, affine.before), ("multiply", affine.scale), ("add", affine.after))
    for name, factor in terms:
        if factor is not None:
            value = build.binary(name, value, build.broadcast(factor, sizes, dims))
    last.replace_all_uses_with(value)


def _count(steps: Sequence[_Step], prepared: bool) -> int:
    """The steps that are left of a chain."""
    scales = [number for number, step in enumerate(steps) if step.is_scale]
    if not scales:
        return 1
    before = any(not step.is_scale for step in steps[: scales[0]])
    after = any(step.is_shift for step in steps[scales[0] :])
    return 1 + (before or after) if prepared else 1 + before + after


@dataclass
class _Affine:
    """``(x + before) * scale + after``, of tensors over the axes ``dims`` of ``x``; None is 0, 1 and 0.

    ``sign`` is the name of an operation: ``before`` is subtracted instead if that is all that is done before.
    """

    dims: list[int]
    sizes: list[int]
    before: mlir.Value | None = None
    scale: mlir.Value | None = None
    after: mlir.Value | None = None
    sign: str = "add"

    def apply(self, step: _Step) -> None:
        """Continue with a step."""
        factor = self._factor(step)
        if step.name in ("multiply", "divide"):
            one = build.splat(1, factor.type)
            self.scale = build.binary(step.name, one if self.scale is None else self.scale, factor)
            self.after = self.after and build.binary(step.name, self.after, factor)
        elif step.is_scale:
            self.scale = build.splat(-1, factor.type) if self.scale is None else build.negate(self.scale)
            self.after = factor if self.after is None else build.binary("subtract", factor, self.after)
        elif self.scale is None and self.before is None:
            self.before, self.sign = factor, step.name
        elif self.scale is None:
            self.before, self.sign = _sum(self._added(), factor, step.name), "add"
        else:
            self.after = _sum(self.after, factor, step.name)

    def _factor(self, step: _Step) -> mlir.Value:
        """The factor of a step over all axes ``dims``."""
        if step.is_constant:
            return build.broadcast(mlir.splat_scalar(mlir.definition(step.small)), self.sizes, [])
        places = [self.dims.index(dim) for dim in step.dims]
        compact = build.reshape(step.small, [self.sizes[place] for place in places])
        return build.broadcast(compact, self.sizes, places)

    def _added(self) -> mlir.Value | None:
        """``before`` as it is added."""
        return self.before if self.sign == "add" or self.before is None else build.negate(self.before)

    def move_back(self) -> None:
        """Add ``before`` after the multiplication instead."""
        before = self._added()
        if before is not None and self.scale is not None:
            self.after = _sum(self.after, build.binary("multiply", before, self.scale), "add")
            self.before = None


def _sum(value: mlir.Value | None, term: mlir.Value, name: str) -> mlir.Value:
    """``value + term`` or ``value - term``; None is 0."""
    if value is None:
        return term if name == "add" else build.negate(term)
    return build.binary(name, value, term)
