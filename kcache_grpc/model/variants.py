"""Which kernels of a spec take which sizes, and which of them is the most specific.

A *shape* is what tells the kernels of one spec, target, options and toolchain apart: arg spec and guard.
Server and client work it out with the same functions, from a binding and the requirements of a request.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kcache_grpc._proto.kcache.v1 import manifest_pb2
from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.manifest import Binding, SymbolSpec, TensorSpec
from kcache_grpc.model.sizes.expression import evaluate, symbols_of
from kcache_grpc.model.sizes.guard import ANY, Guard, Sizes, guard_of, parse_guard, sizes
from kcache_grpc.model.sizes.modes import Axis, Dim
from kcache_grpc.model.wire import dtype_from_proto

K = TypeVar("K")

_TENSOR = re.compile(r"(\w+)\[([^\[\]]*)\]", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Shape:
    """The sizes that a kernel takes: the texts of its arg spec and its guard."""

    arg_spec: str
    guard: str = ""


@dataclass(frozen=True)
class SpecSizes:
    """The sizes of a spec's inputs, as formulas over its symbols, and the values of those in one program."""

    symbols: tuple[SymbolSpec, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    #: Name -> size, without dynamic ones.
    known: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)

    def source(self, symbol: str) -> Axis:
        """Where a symbol is read from."""
        declared = next(entry for entry in self.symbols if entry.name == symbol)
        return Axis(declared.arg, declared.axis)


def spec_sizes(binding: Binding) -> SpecSizes:
    """What a binding says of sizes. Raises ``IntegrityError`` when it contradicts itself."""
    values = binding.symbol_values or (-1,) * len(binding.symbols)
    if len(values) != len(binding.symbols):
        raise IntegrityError(f"a binding gives {len(values)} values to {len(binding.symbols)} symbols")
    pairs = zip(binding.symbols, values, strict=True)
    known = {symbol.name: value for symbol, value in pairs if value >= 0}
    return SpecSizes(binding.symbols, binding.symbolic_inputs or binding.inputs, known)


def exact_shape(spec: SpecSizes) -> Shape:
    """Return the shape of the kernel for exactly the program's sizes; dynamic axes stay dynamic."""
    return Shape(_text(spec.inputs, spec.known))


def exact_arg_spec(binding: manifest_pb2.Binding) -> str:
    """The text of ``exact_shape``, without taking a binding apart whose sizes are all known."""
    known = len(binding.symbol_values) == len(binding.symbols) and all(
        value >= 0 for value in binding.symbol_values
    )
    if not known:
        return exact_shape(spec_sizes(Binding.from_bytes(binding.SerializeToString()))).arg_spec
    return ";".join(f"{dtype_from_proto(tensor.dtype)}[{','.join(tensor.dims)}]" for tensor in binding.inputs)


def requested_shape(
    spec: SpecSizes, axes: Iterable[tuple[Axis, Dim]], within: frozenset[str] | None = None
) -> Shape:
    """Of the kernel whose symbols are those of ``axes``, or all that may be when there are none.

    An axis that is not named is fixed at the program's size, unless it is dynamic in the program; so are
    symbols that are not ``within``, where that is given.
    Raises ``ArgumentError`` naming the axis: one that is none, is fixed by the program, or whose bounds
    contradict those of another axis or the program's own size.
    """
    free = _free_symbols(spec, tuple(axes))
    for name, allowed in free.items():
        size = spec.known.get(name)
        if size is not None and size not in allowed:
            at = spec.source(name)
            rejected = " and ".join(allowed.atoms(name))
            raise ArgumentError(f"{at} ({name}) is {size} in the program, and symbols ask for {rejected}")
    if within is not None:
        free = {name: allowed for name, allowed in free.items() if name in within or name not in spec.known}
    fixed = {name: size for name, size in spec.known.items() if name not in free}
    fixed |= {name: allowed.low for name, allowed in free.items() if allowed.low == allowed.high}
    guard = guard_of({name: allowed for name, allowed in free.items() if name not in fixed})
    assert guard is not None
    return Shape(_text(spec.inputs, fixed), guard.text)


def _free_symbols(spec: SpecSizes, axes: tuple[tuple[Axis, Dim], ...]) -> dict[str, Sizes]:
    if not axes:
        return {symbol.name: ANY for symbol in spec.symbols}
    free = {symbol.name: ANY for symbol in spec.symbols if symbol.name not in spec.known}
    bounded_by: dict[str, Axis] = {}
    for at, dim in axes:
        for name, allowed in _named(spec, at, dim):
            common = free.get(name, ANY).within(allowed)
            if common is None:
                other = bounded_by.get(name, at)
                raise ArgumentError(f"{other} and {at} are one size ({name}), and no size meets both bounds")
            free[name] = common
            bounded_by[name] = at
    return free


def _named(spec: SpecSizes, at: Axis, dim: Dim) -> list[tuple[str, Sizes]]:
    """The symbols that an axis is made of, and their sizes."""
    formula = _formula(spec, at)
    names = symbols_of(formula)
    if not names:
        raise ArgumentError(f"{at} is fixed at {formula} by the program: it cannot be a symbol")
    if dim == Dim():
        return [(name, ANY) for name in names]
    coefficient = _coefficient(formula, names)
    if coefficient is None:
        sources = " and ".join(f"{spec.source(name)} ({name})" for name in names)
        raise ArgumentError(f"{at} is {formula}: give the bounds of {sources} instead")
    bounds = dim.allowed
    step = bounds.step // math.gcd(bounds.step, coefficient)
    scaled = sizes(-(-bounds.low // coefficient), bounds.high // coefficient, step)
    if scaled is None:
        raise ArgumentError(f"{at} is {formula}: no size of it meets {dim}")
    return [(names[0], scaled)]


def _formula(spec: SpecSizes, at: Axis) -> str:
    if not 0 <= at.arg < len(spec.inputs):
        raise ArgumentError(f"symbols name {at}; the program has {len(spec.inputs)} arguments")
    tensor = spec.inputs[at.arg]
    if not 0 <= at.axis < len(tensor.dims):
        raise ArgumentError(f"symbols name {at}, which has {len(tensor.dims)} axes: {tensor}")
    return tensor.dims[at.axis]


@dataclass(frozen=True)
class Variant:
    """A shape, taken apart with the symbols of its spec."""

    #: Symbols that are integers in it.
    fixed: Mapping[str, int] = field(hash=False)
    #: Those that are not.
    free: frozenset[str]
    guard: Guard

    @property
    def count(self) -> int:
        """How many tuples of sizes it takes: the fewer, the more special it is."""
        return self.guard.count(self.free)

    def takes(self, spec: SpecSizes) -> bool:
        """Whether it is a kernel for the sizes of a program; for all of them where one is dynamic."""
        return not any(self._rejects(spec, symbol.name) for symbol in spec.symbols) and not self._broken(spec)

    def _rejects(self, spec: SpecSizes, name: str) -> bool:
        if name in spec.known:
            return name not in self.free and self.fixed[name] != spec.known[name]
        return name not in self.free or name in self.guard.symbols

    def _broken(self, spec: SpecSizes) -> bool:
        return self.guard.symbols <= spec.known.keys() and not self.guard.holds(spec.known)


def variant(spec: SpecSizes, shape: Shape) -> Variant | None:
    """What a shape is to a spec; ``None`` when it is not of it."""
    try:
        inputs = parse_arg_spec(shape.arg_spec)
        guard = parse_guard(shape.guard)
        fixed: dict[str, int] = {}
        for symbol in spec.symbols:
            dim = inputs[symbol.arg].dims[symbol.axis]
            if dim.isdigit():
                fixed[symbol.name] = int(dim)
    except (IntegrityError, ArgumentError, IndexError):
        return None
    free = frozenset(symbol.name for symbol in spec.symbols) - fixed.keys()
    if _text(spec.inputs, fixed) != shape.arg_spec or not guard.symbols <= free:
        return None
    return Variant(fixed, free, guard)


def most_specific(spec: SpecSizes, stored: Iterable[tuple[int, Shape, K]]) -> K | None:
    """Of stored kernels, each with its age (smaller is older), the first in the order of variants.

    Of those that take the sizes of ``spec``, the one that takes the fewest tuples of sizes; among equals the
    oldest. Ages differ, so this is a total order, and it does not depend on the order of ``stored``.
    """
    ranked: list[tuple[int, int, K]] = []
    for age, shape, kernel in stored:
        candidate = variant(spec, shape)
        if candidate is not None and candidate.takes(spec):
            ranked.append((candidate.count, age, kernel))
    return min(ranked, key=lambda entry: entry[:2])[2] if ranked else None


def parse_arg_spec(text: str) -> tuple[TensorSpec, ...]:
    """The tensors of an arg spec's text. Raises ``IntegrityError``."""
    if not text:
        return ()
    tensors: list[TensorSpec] = []
    for part in text.split(";"):
        match = _TENSOR.fullmatch(part)
        if match is None:
            raise IntegrityError(f"bad arg spec {text[:200]!r}: {part[:100]!r} is no tensor")
        dtype, dims = match.groups()
        tensors.append(TensorSpec(dtype, tuple(dims.split(",")) if dims else ()))
    return tuple(tensors)


def symbols_in(dims: Iterable[str]) -> tuple[str, ...]:
    """The names in formulas of sizes, each once: ``s2`` before ``s10``. Raises ``ArgumentError``."""
    names = {name for dim in dims for name in symbols_of(dim)}
    return tuple(sorted(names, key=lambda name: (len(name), name)))


def substitute(formula: str, fixed: Mapping[str, int]) -> str:
    """A size with some of its symbols replaced: ``2*s0*s1`` with s1 = 8 is ``16*s0``."""
    names = symbols_of(formula)
    if not any(name in fixed for name in names):
        return formula
    if all(name in fixed for name in names):
        return str(evaluate(formula, fixed))
    factors = formula.split("*")
    if not all(factor.isdigit() or _NAME.fullmatch(factor) for factor in factors):
        return _NAME.sub(lambda match: str(fixed.get(match[0], match[0])), formula)
    numbers = [int(factor) if factor.isdigit() else fixed.get(factor, 1) for factor in factors]
    coefficient = math.prod(numbers)
    rest = [factor for factor in factors if not factor.isdigit() and factor not in fixed]
    return "*".join([str(coefficient), *rest] if coefficient != 1 else rest)


def _text(inputs: Iterable[TensorSpec], fixed: Mapping[str, int]) -> str:
    return ";".join(
        str(TensorSpec(tensor.dtype, tuple(substitute(dim, fixed) for dim in tensor.dims)))
        for tensor in inputs
    )


def _coefficient(formula: str, names: list[str]) -> int | None:
    """``c`` of ``c*s``; ``None`` for anything else."""
    numbers = formula.split("*")
    if len(names) != 1 or numbers.count(names[0]) != 1:
        return None
    numbers.remove(names[0])
    return math.prod(map(int, numbers)) if all(number.isdigit() for number in numbers) else None
