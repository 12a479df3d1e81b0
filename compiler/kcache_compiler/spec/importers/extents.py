"""Constants that are sizes: the N of a mean, a variance or their gradients, which erasure must not keep.

A constant is an extent where the dataflow says so, not where a number happens to agree. As a divisor it is
the number of elements that a sum below it runs over, or that a broadcast above it repeats (the sum's
gradient) where the program shows that there is a sum: one over the same axes, or one that gathers the
gradient. As a factor it is one over the number that a sum below it runs over, or, beside no sum, one over a
number that is an extent elsewhere; a quotient of constants with such a divisor may be a factor of more than
the mean is of, as in gradients of a batch's mean. Between constant and sum there may be conversions, views
and arithmetic with other constants only. N - 1, of variances without bias, counts below sums, beside a mean
over N.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

from kcache_compiler.mlir.context import Native
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
from kcache_compiler.spec.graph.nodes import DYNAMIC
from kcache_compiler.spec.importers.dot_general import dot_numbers
from kcache_compiler.spec.importers.flatten import CONSTANTS, Block, Entry, Tape
from kcache_compiler.spec.rendering.repeats import Repeats, symbolic_product

#: Operations that hand on what a constant or a sum is, but for rounding and sign.
_PASSING = frozenset(
    {"convert", "negate", "reshape", "broadcast_in_dim", "transpose", "optimization_barrier"}
)
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide"})
_SIMPLE = _PASSING | _ARITHMETIC

#: Arithmetic of two constants that leaves one of them, by position, what it is to whoever uses the result.
_HANDING_ON = frozenset({("multiply", 0), ("multiply", 1), ("divide", 1), ("subtract", 0)})

#: Operations that write a value where others look it up: gradients of sums over what was read there.
_PLACING = frozenset({"scatter", "select", "dynamic_update_slice", "pad", "concatenate"})

#: What is no finite number of an element that is too narrow for some number of elements.
_INFINITE = {"f16": 65520}

#: How far is looked between a constant and a sum, each way, in conversions and views; arithmetic counts more.
_STEPS = 64
_STEP = 8


def extent_value(text: str, sizes: dict[int, int]) -> float | int | None:
    """Return the number that an extent is, None while one of its sizes is open."""
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

    SUM = "a sum over it is below"
    GRADIENT = "a gradient is shared out over it"
    REPEATED = "what it divides is repeated so often"


#: How near a size is, the size, whether a constant would be one over it, and why.
_Context = tuple[int, int, bool, _Reason]

#: How near what is repeated above counts, what a product is over, and a part of that over which there is a
#: mean or a sum: less than any sum below.
_REPEATED, _WHOLE, _MEAN, _PART = range(_STEPS, _STEPS + 4)


@dataclass(frozen=True)
class Extent:
    """What an ``extent`` node says, and whether the constant is less than zero: the negative of it."""

    text: str
    negative: bool


def find_extents(
    tape: Tape, shapes: Shapes, constants: dict[Native, Constant]
) -> tuple[dict[int, Extent], Ties]:
    """Return the extents that constants are, by number of the value; and sizes that follow from them.

    A sum over what is repeated, divided by an extent, repeats it as often as the extent says: nothing else
    says how often.
    """
    if not shapes.symbols:
        return {}, {}
    search = _Search(tape, shapes, constants)
    found = search.run()
    return found, search.ties(found)


class _Search:
    def __init__(self, tape: Tape, shapes: Shapes, constants: dict[Native, Constant]) -> None:
        self.stated = tape.types
        self.types = shapes.types
        self.sizes = {i: v for i, v in enumerate(shapes.values) if v != DYNAMIC}
        self.constants = constants
        self.made: dict[int, Entry] = {}
        self.users: dict[int, list[tuple[Entry, int]]] = {}
        #: the sizes over which there is a mean
        self.means: set[str] = set()
        #: the symbols that each sum or contraction runs over
        self.summed: set[tuple[int, ...]] = set()
        #: values that depend on constants only
        self.constant: set[int] = set()
        self._index(tape.body)
        self.repeats = Repeats(self.users, self.stated, self._is_zero)

    def _index(self, block: Block) -> None:
        for entry in block.entries:
            if not entry.live:
                continue
            for region in entry.regions:
                self._index(region)
            for value in entry.results:
                self.made[value] = entry
            for position, value in enumerate(entry.operands):
                self.users.setdefault(value, []).append((entry, position))
            if entry.name in CONSTANTS or (
                _kind(entry) in _SIMPLE and self.constant.issuperset(entry.operands)
            ):
                self.constant.update(entry.results)
            code = self._runs_over(entry)
            if code is not None:
                self.summed.add(factors(code)[1])

    def run(self) -> dict[int, Extent]:
        found: dict[int, Extent] = {}
        constants = [value for value, entry in self.made.items() if entry.name in CONSTANTS]
        for written in (False, True):
            for value in constants:
                extent = None if value in found else self._extent(value, self.made[value], written)
                if extent is not None:
                    found[value] = extent
            self.means = {extent.text.removeprefix("1/").strip("()") for extent in found.values()}
        return found

    def _extent(self, value: int, entry: Entry, written: bool) -> Extent | None:
        """Return what a constant is; if ``written``, it may be one over the size of a mean, beside no sum."""
        element = self.types[value].element
        if not (is_float(element) or (is_integer(element) and element != "i1")):
            return None
        if self.stated[value].dims is None:  # a scalar of a linalg program, not a tensor
            return None
        known = self._read(value, entry)
        if not known.splat or known.content.startswith("=") or not known.content.strip("0"):
            return None
        found: list[tuple[int, str, bool]] = []
        for near, code, inverse, reason in self._contexts(value, 0, _STEPS):
            mean = written and size_text(code) in self.means
            if reason is not _Reason.SUM and inverse and not mean:
                continue
            if reason is _Reason.REPEATED and not self._is_summed(code):
                continue
            if near == _PART:
                if not written:
                    continue
                near = _MEAN if mean else near
            for form in ("{}", "{}-1") if reason is _Reason.SUM and mean else ("{}",):
                text = form.format(size_text(code))
                if inverse:
                    text = f"1/({text})"
                number = extent_value(text, self.sizes)
                if number is None or (inverse and number == 1) or not _holds(element, number):
                    continue
                found += [
                    (near, text, sign < 0)
                    for sign in ((1, -1) if is_float(element) else (1,))
                    if Constant.number(sign * number, element).content == known.content
                ]
        # Where several sizes agree, the choice must not depend on the order of the program.
        return Extent(*min(found)[1:]) if found else None

    def _read(self, value: int, constant: Entry) -> Constant:
        known = self.constants.get(constant.operation)
        if known is None:
            known = read_constant(constant.operation, self.stated[value])
            self.constants[constant.operation] = known
        return known

    def _source(self, value: int) -> tuple[int, Entry | None]:
        """Return what a value is a view of, or a conversion, and what made that."""
        made = self.made.get(value)
        while made is not None and _kind(made) in _PASSING:
            value = made.operands[0]
            made = self.made.get(value)
        return value, made

    def _is_zero(self, value: int) -> bool:
        value, made = self._source(value)
        if value not in self.constant or made is None or made.name not in CONSTANTS:
            return False
        known = self._read(value, made)
        return known.splat and not known.content.strip("0")

    # -- sums over what is repeated

    def ties(self, found: Mapping[int, Extent]) -> Ties:
        """Return the symbols of dims that sums run over without any, by entry."""
        ties: dict[int, list[tuple[int, int | None]]] = {}
        for value, entry in self.made.items():
            if entry.name != "stablehlo.reduce" or not entry.uses or not _is_sum(entry):
                continue
            dims: list[int] = list(entry.operation.attributes["dimensions"])
            fixed = [dim for dim in dims if entry.uses[0][dim] != 1]
            if len(fixed) != 1 or is_symbolic(entry.uses[0][fixed[0]]):
                continue
            size = entry.uses[0][fixed[0]]
            named = {size_text(monomial(1, [i]) or 0): i for i, n in self.sizes.items() if n == size}
            symbols = {named[text] for text in self._divisors(value, found, _STEPS) if text in named}
            if len(symbols) == 1:
                ties[id(entry)] = [(fixed[0], symbols.pop())]
        return ties

    def _divisors(self, value: int, found: Mapping[int, Extent], steps: int) -> Iterator[str]:
        """Yield the extents by which a sum is divided."""
        for entry, position in self.users.get(value, ()) if steps > 0 else ():
            if _kind(entry) in _PASSING:
                yield from self._divisors(entry.results[0], found, steps - 1)
            elif _kind(entry) == "divide" and position == 0:
                divisor, _ = self._source(entry.operands[1])
                if divisor in found:
                    yield found[divisor].text

    # -- from the constant up to where it meets a value

    def _contexts(self, value: int, divisors: int, steps: int) -> Iterator[_Context]:
        """Yield the sizes that a constant may be."""
        if steps <= 0 or divisors > 1:
            return
        for entry, position in self.users.get(value, ()):
            kind = _kind(entry)
            if kind in _PASSING:
                yield from self._contexts(entry.results[0], divisors, steps - 1)
            elif kind in _ARITHMETIC:
                divides = divisors + (kind == "divide" and position == 1)
                if entry.results[0] in self.constant:
                    if (kind, position) in _HANDING_ON:
                        yield from self._contexts(entry.results[0], divides, steps - _STEP)
                elif kind in ("multiply", "divide"):
                    yield from self._sink(entry, position, divides)
            elif kind in _PLACING and entry.uses:
                whole = symbolic_product(entry.uses[position])
                if whole is not None:
                    yield _WHOLE, whole, not divisors, _Reason.GRADIENT

    def _sink(self, entry: Entry, position: int, divisors: int) -> Iterator[_Context]:
        if divisors > 1:
            return
        inverse = divisors == 0
        if inverse and _kind(entry) == "divide":
            return
        for near, code in enumerate(self._sums(entry.operands[1 - position], _STEPS)):
            yield near, code, inverse, _Reason.SUM
        for code, gathered in self.repeats.codes(entry.results[0], _STEPS):
            yield _REPEATED, code, inverse, _Reason.GRADIENT if gathered else _Reason.REPEATED
        if _kind(entry) == "multiply":
            whole = symbolic_product(self.types[entry.results[0]].dims or ())
            if whole is not None:
                yield _WHOLE, whole, inverse, _Reason.GRADIENT
                if not inverse:
                    for part in _parts(whole):
                        yield _PART, part, inverse, _Reason.REPEATED

    # -- what is summed below, what is repeated above

    def _sums(self, value: int, steps: int) -> Iterator[int]:
        """Yield the number of elements of the sums that a value is, the nearest alone first."""
        entry = self.made.get(value)
        if entry is None or steps <= 0:
            return
        if entry.name == "stablehlo.reduce" and len(entry.results) == 1:
            own = self._reduced(entry)
            if own is None:
                return
            yield own
            for inner in self._sums(entry.operands[0], steps - _STEP):
                both = product((own, inner))
                if both is not None:
                    yield both
        elif _kind(entry) in _PASSING:
            yield from self._sums(entry.operands[0], steps - 1)
        elif _kind(entry) in _ARITHMETIC:
            varying = [v for v in entry.operands if v not in self.constant]
            if len(varying) == 1:
                yield from self._sums(varying[0], steps - _STEP)

    def _is_summed(self, code: int) -> bool:
        """Whether some sum runs over the symbols of a size, and perhaps more."""
        wanted = factors(code)[1]
        return any(all(wanted.count(s) <= summed.count(s) for s in wanted) for summed in self.summed)

    def _runs_over(self, entry: Entry) -> int | None:
        """Return the number of elements that a sum or a contraction adds up."""
        if entry.name == "stablehlo.reduce" and len(entry.results) == 1:
            return self._reduced(entry)
        if entry.name == "stablehlo.dot_general" and entry.uses:
            _, _, dims, _ = dot_numbers(entry.operation.attributes["dot_dimension_numbers"])
            return symbolic_product([entry.uses[0][d] for d in dims])
        return None

    def _reduced(self, entry: Entry) -> int | None:
        if not _is_sum(entry):
            return None
        sizes = entry.uses[0] if entry.uses else self.types[entry.operands[0]].dims or ()
        return symbolic_product([sizes[int(d)] for d in entry.operation.attributes["dimensions"]])


def _holds(element: str, number: float) -> bool:
    """Whether an element can be the number: integers must not wrap; floats may round, but not to infinity."""
    return number < _INFINITE.get(element, math.inf) if is_float(element) else number <= limits_of(element)[1]


def _parts(size: int) -> list[int]:
    """Return the products of some of the symbols of a size."""
    symbols = factors(size)[1]
    chosen = {part for count in range(1, len(symbols)) for part in combinations(symbols, count)}
    return sorted(code for part in chosen if (code := monomial(1, part)) is not None)


def _is_sum(reduce: Entry) -> bool:
    """Whether a reduction of one value adds."""
    return [inner.name for inner in reduce.regions[0].entries if inner.live] == ["stablehlo.add"]


def _kind(entry: Entry) -> str:
    """Return the operation, whether it broadcasts its operands or not."""
    return entry.name.removeprefix("stablehlo.").removeprefix("chlo.broadcast_")
