"""One random program on its way: arguments, operations, results; and random choices of shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tests.ops.generated import wish
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import COMPLEX, FLOATS, INTEGERS, random_bytes, tensor

Shape = tuple[int, ...]
T = TypeVar("T")
_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
_WEIGHTS = (1, 5, 6, 6, 4, 4, 3, 2, 2, 2, 2, 1)
#: Elements of an argument, at most.
_LIMIT = 400
#: Distance of 1 to the next number.
EPSILON = {
    "f16": 2.0**-10,
    "bf16": 2.0**-7,
    "f32": 2.0**-23,
    "f64": 2.0**-52,
    "c64": 2.0**-23,
    "c128": 2.0**-52,
}


@dataclass(frozen=True)
class Value:
    """A value of the program."""

    name: str
    dtype: str
    shape: Shape

    @property
    def type(self) -> str:
        """Its type as MLIR writes it."""
        return tensor(self.dtype, self.shape)


@dataclass
class Draft:
    """A program of ``op`` in ``dtype``; all that is random comes from ``rng``."""

    op: str
    dtype: str
    rng: np.random.Generator
    arguments: list[Value] = field(default_factory=list[Value])
    inputs: list[bytes] = field(default_factory=list[bytes])
    lines: list[str] = field(default_factory=list[str])
    #: What stands outside of ``main``.
    functions: str = ""
    #: Values so far, which names count.
    count: int = 0
    #: Whether it is drawn at the edges: all ranks, empty shapes, special values, rare attributes.
    edge: bool = False
    #: The class that it is drawn for, as ``classes.py`` names it, or nothing.
    wish: str = ""

    # -- choices

    def wished(self, name: str) -> str:
        """What is wished of the attribute, or nothing."""
        start = f"{name} "
        return self.wish.removeprefix(start) if name and self.wish.startswith(start) else ""

    def chance(self, probability: float, name: str = "") -> bool:
        """True that often, or as is wished of an attribute."""
        wished = self.wished(name)
        return bool(self.rng.random() < probability) if not wished else wished == "true"

    def pick(self, among: Sequence[T], name: str = "") -> T:
        """One of them: of an attribute the wished one."""
        chosen = among[int(self.rng.integers(len(among)))]
        wished = self.wished(name)
        return next((choice for choice in among if str(choice) == wished), chosen) if wished else chosen

    def number(self, low: int, high: int, name: str = "") -> int:
        """A number from ``low`` to ``high``, both included, of the class that is wished of an attribute."""
        if wished := self.wished(name):
            low, high = wish.number(wished, low, high)
        if self.wish == "one element" and low <= 1 <= high and self.chance(0.8):
            return 1  # sizes and counts, most often
        return int(self.rng.integers(low, high + 1))

    def axes(self, rank: int, low: int = 0, name: str = "") -> list[int]:
        """Some axes of ``rank``, at least ``low``, in any order, or as is wished of an attribute."""
        wished = self.wished(name)
        least = {"in order": 1, "out of order": 2}.get(wished, 0)
        count = self.number(min(max(low, least), rank), rank) if wished != "none" else low
        chosen = [int(axis) for axis in self.rng.permutation(rank)[:count]]
        if wished == "in order":
            return sorted(chosen)
        return chosen[::-1] if wished == "out of order" and chosen == sorted(chosen) else chosen

    def rank(self, low: int, high: int) -> int:
        """How many dimensions: from ``low`` to ``high``, or as is wished."""
        drawn = self.number(low, high)
        return min(wish.rank(self.wish, drawn, low), wish.MOST) if self.wish else drawn

    def size(self) -> int:
        """A dimension: small, odd, sometimes one or nothing."""
        if self.wish in ("empty", "one element") and self.chance(0.5):
            return int(self.wish == "one element")
        weights = np.array(_WEIGHTS) / sum(_WEIGHTS)
        return int(self.rng.choice(np.array(_SIZES), p=weights))

    def scalar_or(self, low: int) -> int:
        """``low``, or none where a scalar is wished, of operations that are seldom of scalars."""
        return 0 if self.wish == "rank 0" else low

    def shape(self, low: int = 0, high: int = 4, limit: int = _LIMIT) -> Shape:
        """A shape of ``low`` to ``high`` dimensions; of up to 6 now and then, where nothing is said of it."""
        often = 0.4 if self.edge else 0.08
        rank = (
            self.number(5, 6) if high == 4 and not self.wish and self.chance(often) else self.rank(low, high)
        )
        sizes = [self.size() for _ in range(rank)]
        if self.edge and rank and not self.wish and self.chance(0.3):
            sizes = [1] * rank
            sizes[self.number(0, rank - 1)] = self.number(0, 1)
        while math.prod(max(size, 1) for size in sizes) > limit:
            largest = sizes.index(max(sizes))
            sizes[largest] = (sizes[largest] + 1) // 2
        return tuple(wish.sizes(self.wish, sizes, self.rng))

    # -- the program

    def argument(self, shape: Shape, kind: str = "any", dtype: str = "", may: str = "") -> Value:
        """A new argument of random values, one of which may be at the edge as in values of the kind ``may``,
        where that is wished.
        """
        dtype = dtype or self.dtype
        value = Value(f"%a{len(self.arguments)}", dtype, shape)
        self.arguments.append(value)
        content = random_bytes(self.rng, dtype, math.prod(shape), kind)
        if dtype == self.dtype and self.wish.startswith("values "):
            content = wish.planted(self.wish, dtype, may or kind, content, self.rng)
        self.inputs.append(content)
        return value

    def given(self, shape: Shape, content: bytes, dtype: str) -> Value:
        """A new argument of given content."""
        value = Value(f"%a{len(self.arguments)}", dtype, shape)
        self.arguments.append(value)
        self.inputs.append(content)
        return value

    def numbers(self, numbers: Sequence[int], dtype: str = "i64") -> Value:
        """A constant vector of integers."""
        type = tensor(dtype, (len(numbers),))
        inner = f"[{', '.join(map(str, numbers))}]" if numbers else ""
        return self.line(f"stablehlo.constant dense<{inner}> : {type}", dtype, (len(numbers),))

    def line(self, text: str, dtype: str, shape: Shape) -> Value:
        """A value by any text."""
        self.count += 1
        value = Value(f"%v{self.count}", dtype, shape)
        self.lines.append(f"{value.name} = {text}")
        return value

    def call(
        self,
        operands: Sequence[Value],
        results: Sequence[tuple[str, Shape]],
        attributes: str = "",
        regions: Sequence[str] = (),
        op: str = "",
    ) -> list[Value]:
        """The results of the operation (of ``op``) in its generic form."""
        name = op or self.op
        name = name if "." in name else f"stablehlo.{name}"
        self.count += 1
        names = ", ".join(operand.name for operand in operands)
        operand_types = ", ".join(operand.type for operand in operands)
        types = ", ".join(tensor(*result) for result in results)
        inherent = f" <{{{attributes}}}>" if attributes else ""
        inside = f" ({', '.join(regions)})" if regions else ""
        many = f":{len(results)}" if len(results) != 1 else ""
        self.lines.append(
            f'%v{self.count}{many} = "{name}"({names}){inherent}{inside} : ({operand_types}) -> ({types})'
        )
        if len(results) == 1:
            return [Value(f"%v{self.count}", *results[0])]
        return [Value(f"%v{self.count}#{number}", *result) for number, result in enumerate(results)]

    def program(
        self,
        results: Sequence[Value],
        ulps: float = 0.0,
        absolute: float = 0.0,
        expected: list[bytes] | None = None,
    ) -> OpProgram:
        """The finished program."""
        names, types = ", ".join(r.name for r in results), ", ".join(r.type for r in results)
        arguments = ", ".join(f"{a.name}: {a.type}" for a in self.arguments)
        body = "\n  ".join([*self.lines, f"return {names} : {types}"])
        text = f"func.func @main({arguments}) -> ({types}) {{\n  {body}\n}}\n{self.functions}"
        dtypes = [result.dtype for result in results]
        return OpProgram(self.op, self.dtype, text, self.inputs, dtypes, ulps, absolute, expected=expected)

    def instead(
        self,
        program: OpProgram,
        operands: Sequence[Value],
        result: tuple[str, Shape],
        attributes: str,
        op: str,
    ) -> OpProgram:
        """``program`` with another last operation for the interpreter, which does not know the first."""
        known = self.lines[-1]
        self.call(operands, [result], attributes, op=op)
        line = self.lines.pop().partition(" = ")[2]
        program.oracle = program.text.replace(known, f"{known.partition(' = ')[0]} = {line}")
        return program


Maker = Callable[[Draft], OpProgram]


@dataclass(frozen=True)
class Family:
    """How programs of an operation are made, and in which dtypes the specification has it."""

    dtypes: tuple[str, ...]
    make: Maker


def integers(numbers: Sequence[int]) -> str:
    """An array attribute."""
    return f"array<i64: {', '.join(map(str, numbers))}>" if len(numbers) else "array<i64>"


def pairs(numbers: Sequence[tuple[int, int]]) -> str:
    """An attribute of rows of two."""
    inner = ", ".join(f"[{low}, {high}]" for low, high in numbers)
    return f"dense<{f'[{inner}]' if numbers else ''}> : tensor<{len(numbers)}x2xi64>"


def combiner(op: str, dtype: str) -> str:
    """A region that combines two scalars."""
    scalar = tensor(dtype, ())
    return (
        f"{{\n  ^bb0(%p: {scalar}, %q: {scalar}):\n    %s = stablehlo.{op} %p, %q : {scalar}\n"
        f"    stablehlo.return %s : {scalar}\n  }}"
    )


def greater(dtype: str, direction: str = "GE") -> str:
    """A region that compares two scalars."""
    scalar = tensor(dtype, ())
    return (
        f"{{\n  ^bb0(%p: {scalar}, %q: {scalar}):\n"
        f"    %s = stablehlo.compare {direction}, %p, %q : ({scalar}, {scalar}) -> tensor<i1>\n"
        "    stablehlo.return %s : tensor<i1>\n  }"
    )


def sums(draft: Draft, terms: int) -> tuple[str, float]:
    """The kind of values to add, and how far another order of ``terms`` sums may be off."""
    if draft.dtype in INTEGERS or draft.dtype == "i1":
        return "any", 0.0
    if draft.wish.startswith("values "):
        kind = "finite" if draft.dtype in COMPLEX else "special"
        return kind, EPSILON[draft.dtype] * max(terms, 1) * 60
    if draft.edge and draft.dtype in FLOATS and draft.chance(0.6):
        return "special", EPSILON[draft.dtype] * max(terms, 1) * 60
    if draft.dtype in ("f32", "f64", *COMPLEX) and draft.chance(0.6):
        return "small", 0.0
    return "tame", EPSILON[draft.dtype] * max(terms, 1) * 60


def inexact(dtype: str) -> bool:
    """Whether sums of the dtype round."""
    return dtype in FLOATS + COMPLEX
