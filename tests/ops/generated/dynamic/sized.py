"""Drafts whose sizes are open: the same choices again at other sizes, and numbers that know their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tests.ops.generated.draft import Draft, Shape, Value
from tests.ops.harness.values import tensor

T = TypeVar("T")
#: A number, the place of a symbol as ``("size", place)``, or an operation on two.
Formula: TypeAlias = "int | tuple[str, Any] | tuple[str, Any, Any]"
_FIXED = (1, 2, 3, 4, 5)
_OPS = {"+": "add", "-": "subtract", "*": "multiply", "//": "divide"}
_LIMIT = 500


class Size(int):
    """An open size at one tuple of sizes. What is computed of it knows how."""

    formula: Formula

    @staticmethod
    def of(value: int, formula: Formula) -> Size:
        """A size with its formula."""
        size = Size(value)
        size.formula = formula
        return size

    def _with(self, op: str, other: int, value: int, turned: bool = False) -> Size:
        left, right = self.formula, formula_of(other)
        return Size.of(value, (op, right, left) if turned else (op, left, right))

    def __add__(self, other: int) -> Size:
        return self._with("+", other, int(self) + int(other)) if other != 0 else self

    def __radd__(self, other: int) -> Size:
        return self + other

    def __mul__(self, other: int) -> Size:
        if not isinstance(other, (int, np.integer)):
            return NotImplemented  # a list or a tuple, so many times
        return self._with("*", other, int(self) * int(other)) if not _is(other, 1) else self

    def __rmul__(self, other: int) -> Size:
        return self * other

    def __sub__(self, other: int) -> Size:
        return self._with("-", other, int(self) - int(other)) if not _is(other, 0) else self

    def __rsub__(self, other: int) -> Size:
        return self._with("-", other, int(other) - int(self), turned=True)

    def __floordiv__(self, other: int) -> Size:
        return self._with("//", other, int(self) // int(other)) if not _is(other, 1) else self

    def __neg__(self) -> Size:
        return self._with("-", 0, -int(self), turned=True)


def _is(number: int, literal: int) -> bool:
    return not isinstance(number, Size) and number == literal


def formula_of(number: int) -> Formula:
    """How a number follows from sizes."""
    return number.formula if isinstance(number, Size) else int(number)


class Choices:
    """What was chosen, in order: made once, and made again the same at other sizes."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self._made: list[Any] = []
        self._next: int | None = None

    def again(self) -> None:
        """Repeat from the first."""
        self._next = 0

    def take(self, kind: str, draw: Callable[[], T]) -> T:
        """A new choice, or the recorded one; ``ValueError`` where other choices are asked for."""
        if self._next is None:
            self._made.append((kind, draw()))
            return self._made[-1][1]
        self._next += 1
        recorded, value = self._made[self._next - 1]
        if recorded != kind:
            raise ValueError(f"{kind} where there was {recorded}")
        return value


class _Random:
    """Stands for a generator: orders are choices, values are not."""

    def __init__(self, choices: Choices, values: np.random.Generator) -> None:
        self._choices, self._values = choices, values

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        return self._choices.take("order", lambda: self._choices.rng.permutation(count))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._values, name)


@dataclass
class SizedDraft(Draft):
    """A draft at one tuple of sizes of the symbols."""

    choices: Choices = field(default_factory=lambda: Choices(np.random.default_rng(0)))
    sizes: tuple[int, ...] = ()
    #: How often a drawn number is taken for a size.
    openness: float = 0.0
    #: Whether sizes that others are computed of are arguments, not read from axes.
    told: bool = False

    @staticmethod
    def begin(
        op: str,
        dtype: str,
        choices: Choices,
        sizes: tuple[int, ...],
        openness: float,
        values: int,
        told: bool,
    ) -> SizedDraft:
        """An empty draft; ``values`` is the seed of its values."""
        rng: Any = _Random(choices, np.random.default_rng(values))
        return SizedDraft(op, dtype, rng, choices=choices, sizes=sizes, openness=openness, told=told)

    # -- choices

    def chance(self, probability: float, name: str = "") -> bool:
        return self.choices.take("chance", lambda: bool(self.choices.rng.random() < probability))

    def pick(self, among: Sequence[T], name: str = "") -> T:
        place = self.choices.take("pick", lambda: int(self.choices.rng.integers(len(among))))
        return among[min(place, len(among) - 1)]

    def number(self, low: int, high: int, name: str = "") -> int:
        rng = self.choices.rng
        drawn, symbol = self.choices.take(
            "number",
            lambda: (
                int(rng.integers(int(low), int(high) + 1)),
                int(rng.integers(len(self.sizes))) if rng.random() < self.openness else -1,
            ),
        )
        if symbol < 0:
            return drawn
        size = self.symbol(symbol)
        return size if low <= size <= high else min(max(int(size), int(low)), int(high))

    def axes(self, rank: int, low: int = 0, name: str = "") -> list[int]:
        count = self.choices.take("axes", lambda: int(self.choices.rng.integers(min(low, rank), rank + 1)))
        return [int(axis) for axis in self.rng.permutation(rank)[:count]]

    def symbol(self, place: int) -> Size:
        """The size that a symbol has here."""
        return Size.of(self.sizes[place], ("size", place))

    def size(self) -> int:
        rng = self.choices.rng
        symbol, fixed = self.choices.take(
            "size",
            lambda: (
                int(rng.integers(len(self.sizes))) if rng.random() < 0.6 else -1,
                int(rng.choice(np.array(_FIXED))),
            ),
        )
        return fixed if symbol < 0 else self.symbol(symbol)

    def shape(self, low: int = 0, high: int = 4, limit: int = _LIMIT) -> Shape:
        rank = self.choices.take("rank", lambda: int(self.choices.rng.integers(low, high + 1)))
        return tuple(self.size() for _ in range(rank))

    # -- the program

    def numbers(self, numbers: Sequence[int], dtype: str = "i64") -> Value:
        """A vector of integers; of sizes, where they are made of sizes, as exporters compute it."""
        if not any(isinstance(number, Size) for number in numbers):
            return super().numbers(numbers, dtype)
        parts: list[Value] = []
        for number in numbers:
            scalar = self._computed(formula_of(number), dtype)
            text = f"stablehlo.reshape {scalar.name} : ({scalar.type}) -> {tensor(dtype, (1,))}"
            parts.append(self.line(text, dtype, (1,)))
        if len(parts) == 1:
            return parts[0]
        names, types = ", ".join(p.name for p in parts), ", ".join(p.type for p in parts)
        whole = tensor(dtype, (len(parts),))
        return self.line(
            f"stablehlo.concatenate {names}, dim = 0 : ({types}) -> {whole}", dtype, (len(parts),)
        )

    def scalar(self, number: int, dtype: str) -> Value:
        """A size as a scalar."""
        return self._computed(formula_of(number), dtype)

    def _computed(self, formula: Formula, dtype: str) -> Value:
        scalar = tensor(dtype, ())
        if isinstance(formula, int):
            return self.line(f"stablehlo.constant dense<{formula}> : {scalar}", dtype, ())
        if formula[0] == "size":
            return self._size_of(int(formula[1]), dtype)
        left, right = (self._computed(part, dtype) for part in formula[1:])
        text = f"stablehlo.{_OPS[formula[0]]} {left.name}, {right.name} : {scalar}"
        return self.line(text, dtype, ())

    def _size_of(self, symbol: int, dtype: str) -> Value:
        if self.told:
            kind = np.int32 if dtype == "i32" else np.int64
            return self.given((), np.array(self.sizes[symbol], kind).tobytes(), dtype)
        value, axis = next(
            (
                (argument, axis)
                for argument in self.arguments
                for axis, size in enumerate(argument.shape)
                if formula_of(size) == ("size", symbol)
            ),
            (None, 0),
        )
        if value is None:
            value = self.argument((self.symbol(symbol),), dtype="i1")
        text = f"stablehlo.get_dimension_size {value.name}, dim = {axis} : ({value.type}) -> tensor<i32>"
        scalar = self.line(text, "i32", ())
        if dtype == "i32":
            return scalar
        return self.line(f"stablehlo.convert {scalar.name} : (tensor<i32>) -> {tensor(dtype, ())}", dtype, ())
