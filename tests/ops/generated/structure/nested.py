"""Branches and loops inside each other, which see values from outside."""

from __future__ import annotations

from dataclasses import dataclass

from tests.ops.generated.draft import Draft, Family, Value
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import FLOATS, INTEGERS, tensor

_REAL = ("i1", *INTEGERS, *FLOATS)


def families() -> dict[str, Family]:
    """Every operation of this file."""
    return {"func.nested": Family(_REAL, _nested), "func.many_results": Family(_REAL, _many)}


@dataclass
class _Writer:
    """Lines of regions over values of one type."""

    draft: Draft
    flags: list[Value]
    index: Value
    count: int = 0

    @property
    def type(self) -> str:
        """Of all values but flags and the index."""
        return self.draft.arguments[0].type

    def name(self) -> str:
        """One that no value has."""
        self.count += 1
        return f"%w{self.count}"

    def step(self, seen: list[str]) -> tuple[str, str]:
        """A line and the value it gives."""
        result, dtype = self.name(), self.draft.dtype
        first, other = self.draft.pick(seen), self.draft.pick(seen)
        if self.draft.chance(0.3):
            op = "not" if dtype == "i1" else "negate"
            return f"{result} = stablehlo.{op} {first} : {self.type}", result
        op = self.draft.pick(
            ("xor", "and", "or") if dtype == "i1" else ("add", "subtract", "maximum", "minimum")
        )
        return f"{result} = stablehlo.{op} {first}, {other} : {self.type}", result

    def block(self, depth: int, seen: list[str]) -> tuple[str, str]:
        """Some lines, and the last value."""
        lines, seen = list[str](), list(seen)
        for _ in range(self.draft.number(1, 2)):
            if depth and self.draft.chance(0.7):
                line, result = self.draft.pick((self.branch, self.choice, self.loop))(depth - 1, seen)
            else:
                line, result = self.step(seen)
            lines.append(line)
            seen.append(result)
        return "\n".join(lines), seen[-1]

    def region(self, depth: int, seen: list[str]) -> str:
        """A block that returns its last value, or one from outside."""
        if self.draft.chance(0.2):
            return f"{{\nstablehlo.return {self.draft.pick(seen)} : {self.type}\n}}"
        lines, result = self.block(depth, seen)
        return f"{{\n{lines}\nstablehlo.return {result} : {self.type}\n}}"

    def branch(self, depth: int, seen: list[str]) -> tuple[str, str]:
        """``if``."""
        result, flag = self.name(), self.draft.pick(self.flags)
        regions = ", ".join(self.region(depth, seen) for _ in range(2))
        return f'{result} = "stablehlo.if"({flag.name}) ({regions}) : (tensor<i1>) -> {self.type}', result

    def choice(self, depth: int, seen: list[str]) -> tuple[str, str]:
        """``case``."""
        result = self.name()
        regions = ", ".join(self.region(depth, seen) for _ in range(self.draft.number(1, 3)))
        return (
            f'{result} = "stablehlo.case"({self.index.name}) ({regions}) : (tensor<i32>) -> {self.type}',
            result,
        )

    def loop(self, depth: int, seen: list[str]) -> tuple[str, str]:
        """``while``, of a few turns."""
        result, i, x, zero, limit, flag, one, n = (self.name() for _ in range(8))
        lines, last = self.block(depth, [*seen, x])
        number, kind = "tensor<i32>", self.type
        return (
            f"{zero} = stablehlo.constant dense<0> : {number}\n"
            f'{result}:2 = "stablehlo.while"({zero}, {self.draft.pick(seen)}) ({{\n'
            f"^bb0({i}: {number}, {x}: {kind}):\n"
            f"{limit} = stablehlo.constant dense<{self.draft.number(0, 3)}> : {number}\n"
            f"{flag} = stablehlo.compare LT, {i}, {limit} : ({number}, {number}) -> tensor<i1>\n"
            f"stablehlo.return {flag} : tensor<i1>\n}}, {{\n^bb0({i}: {number}, {x}: {kind}):\n"
            f"{one} = stablehlo.constant dense<1> : {number}\n{n} = stablehlo.add {i}, {one} : {number}\n"
            f"{lines}\nstablehlo.return {n}, {last} : {number}, {kind}\n}}) : "
            f"({number}, {kind}) -> ({number}, {kind})",
            f"{result}#1",
        )


def _writer(draft: Draft) -> _Writer:
    shape = draft.shape(0, 3, 100)
    for _ in range(2):
        draft.argument(shape)
    flags = [draft.argument((), dtype="i1") for _ in range(2)]
    return _Writer(draft, flags, draft.argument((), "small", "i32"))


def _nested(draft: Draft) -> OpProgram:
    """One to three levels."""
    writer = _writer(draft)
    depth, seen = draft.number(0, 2), [argument.name for argument in draft.arguments[:2]]
    line, result = draft.pick((writer.branch, writer.choice, writer.loop))(depth, seen)
    draft.lines.append(line)
    return draft.program([Value(result, draft.dtype, draft.arguments[0].shape)])


def _many(draft: Draft) -> OpProgram:
    """Branches with two results of different types; a function with two; a loop that ends by its data."""
    writer = _writer(draft)
    x, y, shape = draft.arguments[0], draft.arguments[1], draft.arguments[0].shape
    flags = tensor("i1", shape)
    regions: list[str] = []
    for way in ("LT", "EQ"):
        line, result = writer.step([x.name, y.name])
        known = writer.name()
        regions.append(
            f"{{\n{line}\n{known} = stablehlo.compare {way}, {x.name}, {y.name} : "
            f"({x.type}, {x.type}) -> {flags}\nstablehlo.return {known}, {result} : {flags}, {x.type}\n}}"
        )
    results = [("i1", shape), (draft.dtype, shape)]
    first = draft.call([writer.flags[0]], results, regions=regions, op="if")
    draft.functions = (
        f"func.func private @inner(%x: {x.type}, %f: {flags}) -> ({x.type}, {flags}) {{\n"
        f"  %g = stablehlo.not %f : {flags}\n"
        f"  %s = stablehlo.select %g, %x, %x : {flags}, {x.type}\n  return %s, %g : {x.type}, {flags}\n}}\n"
    )
    draft.lines.append(
        f"%call:2 = func.call @inner({first[1].name}, {first[0].name}) : ({x.type}, {flags}) "
        f"-> ({x.type}, {flags})"
    )
    return draft.program([first[0], Value("%call#0", draft.dtype, shape), Value("%call#1", "i1", shape)])
