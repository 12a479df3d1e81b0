"""Recognition of extents: constants that are sizes, such as the N of a mean, a variance or their gradients.

A constant is an extent because of the dataflow, not because its value equals some size:

- a divisor N of a sum over N elements, or of a value that is broadcast over N elements (the gradient of a
  sum), if the program has a sum over the same axes, or one over the broadcast gradient;
- a factor 1/N of a sum over N elements; or of another value, if N is an extent elsewhere in the program. A
  quotient of constants with such a divisor may scale a larger value, as in gradients of a batch's mean;
- N - 1, of unbiased variances, if the program has a mean over N.

Between the constant and the sum there may be conversions, views, and arithmetic with constants only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import TYPE_CHECKING

from kcache_compiler.shapes.monomial import (
    evaluate,
    factors,
    is_symbolic,
    monomial,
    product,
    read_size,
    size_text,
)
from kcache_compiler.spec.erasure import Shapes, Ties
from kcache_compiler.spec.graph.constants import Constant, read_constant
from kcache_compiler.spec.graph.element_types import is_float, is_integer, limits_of
from kcache_compiler.spec.graph.native import integers
from kcache_compiler.spec.graph.nodes import DYNAMIC
from kcache_compiler.spec.importers.broadcasts import Broadcasts, symbolic_product
from kcache_compiler.spec.importers.dot_general import dot_numbers
from kcache_compiler.spec.importers.flatten import CONSTANTS, Block, Entry, Tape

if TYPE_CHECKING:
    from torch_mlir import ir

#: Operations whose result is their operand up to rounding, sign and layout.
_TRANSPARENT = frozenset(
    {"convert", "negate", "reshape", "broadcast_in_dim", "transpose", "optimization_barrier"}
)
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide"})
_SIMPLE = _TRANSPARENT | _ARITHMETIC

#: Arithmetic of constants whose result is used as the constant at this position is.
_CONSTANT_ARITHMETIC = frozenset({("multiply", 0), ("multiply", 1), ("divide", 1), ("subtract", 0)})

#: Operations that write a value into a larger one: gradients of sums over what was read there.
_WRITES = frozenset({"scatter", "select", "dynamic_update_slice", "pad", "concatenate"})

#: Values from which on an element type that is too narrow for element counts rounds to infinity.
_OVERFLOW = {"f16": 65520}

#: Most operations between a constant and a sum, each way; arithmetic counts as several.
_MAX_STEPS = 64
_ARITHMETIC_STEPS = 8


def extent_value(text: str, sizes: dict[int, int]) -> float | int | None:
    """Return the number that an extent is, None while one of its sizes is dynamic."""
    inverse = text.startswith("1/")
    body = text.removeprefix("1/").removeprefix("(").removesuffix(")")
    size, minus, _ = body.partition("-")
    count = evaluate(read_size(size), sizes)
    if is_symbolic(count):
        return None
    count -= 1 if minus else 0
    if not inverse:
        return count
    return 1.0 / count if count else float("inf")


class _Reason(Enum):
    """Why a constant may be a size."""

    SUM = "it scales a sum over the size"
    GRADIENT = "it scales a gradient that is broadcast over the size"
    BROADCAST = "it scales a value that is broadcast over the size"


#: Distance (the nearest size is chosen), size, whether the constant is its inverse, and reason.
_Candidate = tuple[int, int, bool, _Reason]

#: Distances beyond those of sums: of broadcasts, whole tensors, and parts of them with and without a mean.
_BROADCAST, _WHOLE, _MEAN, _PART = range(_MAX_STEPS, _MAX_STEPS + 4)


@dataclass(frozen=True)
class Extent:
    """The attributes of an ``extent`` node, and whether the constant is its negative."""

    text: str
    negative: bool


def find_extents(
    tape: Tape, shapes: Shapes, constants: dict[ir.Operation, Constant]
) -> tuple[dict[int, Extent], Ties]:
    """Return the extents, by value, and ties that follow from them.

    A sum over a broadcast value that is divided by an extent has the extent's size, which no rule constrains.
    """
    if not shapes.symbols:
        return {}, {}
    search = _Search(tape, shapes, constants)
    extents = search.run()
    return extents, search.ties(extents)


class _Search:
    """Searches the tape for constants that are extents, by the dataflow from them to sums."""

    def __init__(self, tape: Tape, shapes: Shapes, constants: dict[ir.Operation, Constant]) -> None:
        self.stated = tape.types
        self.types = shapes.types
        self.sizes = {i: v for i, v in enumerate(shapes.values) if v != DYNAMIC}
        self.constants = constants
        self.producers: dict[int, Entry] = {}
        self.users: dict[int, list[tuple[Entry, int]]] = {}
        #: Sizes over which there is a mean.
        self.means: set[str] = set()
        #: Symbols of the sizes that sums and contractions reduce.
        self.summed: set[tuple[int, ...]] = set()
        #: Values that depend on constants only.
        self.constant: set[int] = set()
        self._index(tape.body)
        self.broadcasts = Broadcasts(self.users, self.stated, self._is_zero)

    def _index(self, block: Block) -> None:
        for entry in block.entries:
            if not entry.live:
                continue
            for region in entry.regions:
                self._index(region)
            for value in entry.results:
                self.producers[value] = entry
            for position, value in enumerate(entry.operands):
                self.users.setdefault(value, []).append((entry, position))
            if entry.name in CONSTANTS or (
                _kind(entry) in _SIMPLE and self.constant.issuperset(entry.operands)
            ):
                self.constant.update(entry.results)
            size = self._summed_size(entry)
            if size is not None:
                self.summed.add(factors(size)[1])

    def run(self) -> dict[int, Extent]:
        extents: dict[int, Extent] = {}
        constants = [value for value, entry in self.producers.items() if entry.name in CONSTANTS]
        for with_means in (False, True):
            for value in constants:
                extent = None if value in extents else self._extent(value, self.producers[value], with_means)
                if extent is not None:
                    extents[value] = extent
            self.means = {extent.text.removeprefix("1/").strip("()") for extent in extents.values()}
        return extents

    def _extent(self, value: int, entry: Entry, with_means: bool) -> Extent | None:
        """The extent that a constant is, if any; ``with_means``: it may be the inverse size of a mean
        elsewhere.
        """
        element = self.types[value].element
        if not (is_float(element) or (is_integer(element) and element != "i1")):
            return None
        if self.stated[value].dims is None:  # a scalar of a linalg program, not a tensor
            return None
        known = self._read(value, entry)
        if not known.splat or known.content.startswith("=") or not known.content.strip("0"):
            return None
        candidates: list[tuple[int, str, bool]] = []
        for distance, size, inverse, reason in self._candidates(value, 0, _MAX_STEPS):
            is_mean = with_means and size_text(size) in self.means
            if reason is not _Reason.SUM and inverse and not is_mean:
                continue
            if reason is _Reason.BROADCAST and not self._is_summed(size):
                continue
            if distance == _PART:
                if not with_means:
                    continue
                distance = _MEAN if is_mean else distance
            for form in ("{}", "{}-1") if reason is _Reason.SUM and is_mean else ("{}",):
                text = form.format(size_text(size))
                if inverse:
                    text = f"1/({text})"
                number = extent_value(text, self.sizes)
                if number is None or (inverse and number == 1) or not _can_hold(element, number):
                    continue
                candidates += [
                    (distance, text, sign < 0)
                    for sign in ((1, -1) if is_float(element) else (1,))
                    if Constant.number(sign * number, element).content == known.content
                ]
        # If several sizes agree, the choice must not depend on the order of the program.
        return Extent(*min(candidates)[1:]) if candidates else None

    def _read(self, value: int, constant: Entry) -> Constant:
        known = self.constants.get(constant.operation)
        if known is None:
            known = read_constant(constant.operation, self.stated[value])
            self.constants[constant.operation] = known
        return known

    def _source(self, value: int) -> tuple[int, Entry | None]:
        """The value before views and conversions, and its producer."""
        producer = self.producers.get(value)
        while producer is not None and _kind(producer) in _TRANSPARENT:
            value = producer.operands[0]
            producer = self.producers.get(value)
        return value, producer

    def _is_zero(self, value: int) -> bool:
        value, producer = self._source(value)
        if value not in self.constant or producer is None or producer.name not in CONSTANTS:
            return False
        known = self._read(value, producer)
        return known.splat and not known.content.strip("0")

    # -- sums over broadcast values

    def ties(self, extents: Mapping[int, Extent]) -> Ties:
        """Return the symbols of static dims that sums reduce, by entry."""
        ties: dict[int, list[tuple[int, int | None]]] = {}
        for value, entry in self.producers.items():
            if entry.name != "stablehlo.reduce" or not entry.uses or not _is_sum(entry):
                continue
            dims: list[int] = integers(entry.operation.attributes, "dimensions")
            fixed = [dim for dim in dims if entry.uses[0][dim] != 1]
            if len(fixed) != 1 or is_symbolic(entry.uses[0][fixed[0]]):
                continue
            size = entry.uses[0][fixed[0]]
            by_text = {size_text(monomial(1, [i]) or 0): i for i, n in self.sizes.items() if n == size}
            symbols = {
                by_text[text] for text in self._divisors(value, extents, _MAX_STEPS) if text in by_text
            }
            if len(symbols) == 1:
                ties[id(entry)] = [(fixed[0], symbols.pop())]
        return ties

    def _divisors(self, value: int, extents: Mapping[int, Extent], steps: int) -> Iterator[str]:
        """Yield the extents by which a sum is divided."""
        for entry, position in self.users.get(value, ()) if steps > 0 else ():
            if _kind(entry) in _TRANSPARENT:
                yield from self._divisors(entry.results[0], extents, steps - 1)
            elif _kind(entry) == "divide" and position == 0:
                divisor, _ = self._source(entry.operands[1])
                if divisor in extents:
                    yield extents[divisor].text

    # -- from a constant to the values that it scales

    def _candidates(self, value: int, divisors: int, steps: int) -> Iterator[_Candidate]:
        """Yield the sizes that a constant may be; ``divisors`` counts divisions by it."""
        if steps <= 0 or divisors > 1:
            return
        for entry, position in self.users.get(value, ()):
            kind = _kind(entry)
            if kind in _TRANSPARENT:
                yield from self._candidates(entry.results[0], divisors, steps - 1)
            elif kind in _ARITHMETIC:
                divides = divisors + (kind == "divide" and position == 1)
                if entry.results[0] in self.constant:
                    if (kind, position) in _CONSTANT_ARITHMETIC:
                        yield from self._candidates(entry.results[0], divides, steps - _ARITHMETIC_STEPS)
                elif kind in ("multiply", "divide"):
                    yield from self._candidates_at(entry, position, divides)
            elif kind in _WRITES and entry.uses:
                whole = symbolic_product(entry.uses[position])
                if whole is not None:
                    yield _WHOLE, whole, not divisors, _Reason.GRADIENT

    def _candidates_at(self, entry: Entry, position: int, divisors: int) -> Iterator[_Candidate]:
        if divisors > 1:
            return
        inverse = divisors == 0
        if inverse and _kind(entry) == "divide":
            return
        for distance, size in enumerate(self._sums(entry.operands[1 - position], _MAX_STEPS)):
            yield distance, size, inverse, _Reason.SUM
        for size, is_summed in self.broadcasts.sizes(entry.results[0], _MAX_STEPS):
            yield _BROADCAST, size, inverse, _Reason.GRADIENT if is_summed else _Reason.BROADCAST
        if _kind(entry) == "multiply":
            whole = symbolic_product(self.types[entry.results[0]].dims or ())
            if whole is not None:
                yield _WHOLE, whole, inverse, _Reason.GRADIENT
                if not inverse:
                    for part in _parts(whole):
                        yield _PART, part, inverse, _Reason.BROADCAST

    # -- sums that a value is made of

    def _sums(self, value: int, steps: int) -> Iterator[int]:
        """Yield the numbers of elements of the sums that a value is, the innermost last."""
        entry = self.producers.get(value)
        if entry is None or steps <= 0:
            return
        if entry.name == "stablehlo.reduce" and len(entry.results) == 1:
            own = self._reduced_size(entry)
            if own is None:
                return
            yield own
            for inner in self._sums(entry.operands[0], steps - _ARITHMETIC_STEPS):
                both = product((own, inner))
                if both is not None:
                    yield both
        elif _kind(entry) in _TRANSPARENT:
            yield from self._sums(entry.operands[0], steps - 1)
        elif _kind(entry) in _ARITHMETIC:
            varying = [v for v in entry.operands if v not in self.constant]
            if len(varying) == 1:
                yield from self._sums(varying[0], steps - _ARITHMETIC_STEPS)

    def _is_summed(self, size: int) -> bool:
        """Whether some sum reduces all symbols of a size, and perhaps more."""
        symbols = factors(size)[1]
        return any(all(symbols.count(s) <= reduced.count(s) for s in symbols) for reduced in self.summed)

    def _summed_size(self, entry: Entry) -> int | None:
        """The number of elements that a sum or a contraction adds; None of other operations."""
        if entry.name == "stablehlo.reduce" and len(entry.results) == 1:
            return self._reduced_size(entry)
        if entry.name == "stablehlo.dot_general" and entry.uses:
            _, _, dims, _ = dot_numbers(entry.operation.attributes["dot_dimension_numbers"])
            return symbolic_product([entry.uses[0][d] for d in dims])
        return None

    def _reduced_size(self, entry: Entry) -> int | None:
        if not _is_sum(entry):
            return None
        sizes = entry.uses[0] if entry.uses else self.types[entry.operands[0]].dims or ()
        return symbolic_product([sizes[int(d)] for d in integers(entry.operation.attributes, "dimensions")])


def _can_hold(element: str, number: float) -> bool:
    """Whether an element type can hold a number: integers must not wrap, and floats not round to infinity."""
    return number < _OVERFLOW.get(element, math.inf) if is_float(element) else number <= limits_of(element)[1]


def _parts(size: int) -> list[int]:
    """Return the products of proper subsets of the symbols of a size."""
    symbols = factors(size)[1]
    subsets = {part for count in range(1, len(symbols)) for part in combinations(symbols, count)}
    return sorted(product for part in subsets if (product := monomial(1, part)) is not None)


def _is_sum(reduce: Entry) -> bool:
    """Whether a reduction adds."""
    return [inner.name for inner in reduce.regions[0].entries if inner.live] == ["stablehlo.add"]


def _kind(entry: Entry) -> str:
    """The name of an operation without its dialect, and without CHLO's broadcasting prefix."""
    return entry.name.removeprefix("stablehlo.").removeprefix("chlo.broadcast_")
