"""Random StableHLO programs over integers, whose values are exact in any order of evaluation.

They are made of what canonicalization turns around: views, reductions over views, contractions of a value
with itself, symmetric values, dims of size 1 and 0, functions called from regions, regions in regions, captures.
"""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import math
import random
import re
from collections import Counter
from dataclasses import dataclass, field

BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor"]
LOGIC = ["and", "or", "xor", "maximum", "minimum"]
COMPARISONS = ["EQ", "NE", "LT", "LE", "GT", "GE"]
ELEMENTS = ["i32", "i32", "i32", "i8", "ui8", "i1"]
MOST_ELEMENTS = 400


@dataclass(frozen=True)
class Value:
    name: str
    element: str
    dims: tuple[int, ...]

    @property
    def type(self) -> str:
        return tensor(self.element, self.dims)


def tensor(element: str, dims: tuple[int, ...]) -> str:
    return f"tensor<{''.join(f'{d}x' for d in dims)}{element}>"


def ints(values: tuple[int, ...] | list[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


@dataclass
class Program:
    """The text, and the types of the arguments as (element, dims)."""

    text: str
    arguments: list[tuple[str, tuple[int, ...]]]


@dataclass
class Body:
    """The values of a function or region, those of the regions around it first."""

    values: list[Value]
    depth: int
    lines: list[str] = field(default_factory=list)


class Writer:
    def __init__(self, seed: int, promoted: bool) -> None:
        #: Reductions widen their elements themselves, which the interpreter cannot, or conversions do.
        self.promoted = promoted
        self.rng = random.Random(seed)
        self.count = 0
        #: private functions of (i32 scalar, i32 scalar) -> i32 scalar
        self.functions: list[str] = []
        self.written: list[str] = []

    # -- pieces

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def emit(
        self, body: Body, op: str, operands: list[Value], element: str, dims: tuple[int, ...], more: str = ""
    ) -> Value:
        value = Value(self.fresh(), element, dims)
        names, types = ", ".join(v.name for v in operands), ", ".join(v.type for v in operands)
        body.lines.append(f'{value.name} = "{op}"({names}) {more} : ({types}) -> {value.type}')
        body.values.append(value)
        return value

    def constant(self, body: Body, element: str, dims: tuple[int, ...], content: int | None = None) -> Value:
        low, high = (0, 1) if element == "i1" else (0, 255) if element == "ui8" else (-3, 4)
        numbers = [
            self.rng.choice([low, high, 1, self.rng.randint(low, high)]) for _ in range(math.prod(dims))
        ]
        splat = content is not None or self.rng.random() < 0.6
        words = ["false", "true"] if element == "i1" else None
        show = (lambda n: words[n]) if words else str
        if splat:
            text = show(content if content is not None else (numbers or [1])[0])
        else:
            text = self._nested([show(n) for n in numbers], dims)
        more = f"{{value = dense<{text}> : {tensor(element, dims)}}}"
        return self.emit(body, "stablehlo.constant", [], element, dims, more)

    def _nested(self, words: list[str], dims: tuple[int, ...]) -> str:
        if not math.prod(dims):
            return ""
        if not dims:
            return words[0]
        step = len(words) // dims[0]
        return (
            f"[{', '.join(self._nested(words[i * step : (i + 1) * step], dims[1:]) for i in range(dims[0]))}]"
        )

    def pick(self, body: Body) -> Value:
        near = body.values[-6:] if self.rng.random() < 0.6 else body.values
        return self.rng.choice(near)

    def like(self, body: Body, value: Value) -> Value:
        """Another value of this type: found, or made of what there is."""
        rng = self.rng
        same = [v for v in body.values if v.element == value.element and v.dims == value.dims]
        way = rng.randrange(5)
        if way == 0 and len(value.dims) > 1 and len(set(value.dims)) < len(value.dims):
            return self.swapped(body, value)
        if way == 1:
            return self.constant(body, value.element, value.dims)
        if way == 2 and value.dims:
            kept = tuple(sorted(rng.sample(range(len(value.dims)), rng.randrange(len(value.dims)))))
            dims = tuple(rng.choice([value.dims[d], value.dims[d], 1]) for d in kept)
            small = [v for v in body.values if v.element == value.element and v.dims == dims]
            source = rng.choice(small) if small else self.constant(body, value.element, dims)
            return self.broadcast(body, source, kept, value.dims)
        return rng.choice(same)

    def swapped(self, body: Body, value: Value) -> Value:
        """Transpose two axes of one size."""
        pairs = [(a, b) for b in range(len(value.dims)) for a in range(b) if value.dims[a] == value.dims[b]]
        a, b = self.rng.choice(pairs)
        order = list(range(len(value.dims)))
        order[a], order[b] = b, a
        return self.emit(
            body,
            "stablehlo.transpose",
            [value],
            value.element,
            value.dims,
            f"{{permutation = {ints(order)}}}",
        )

    def broadcast(self, body: Body, value: Value, where: tuple[int, ...], dims: tuple[int, ...]) -> Value:
        more = f"{{broadcast_dimensions = {ints(where)}}}"
        return self.emit(body, "stablehlo.broadcast_in_dim", [value], value.element, dims, more)

    def scalar(self, body: Body, element: str = "i32") -> Value:
        scalars = [v for v in body.values if v.element == element and not v.dims]
        return (
            self.rng.choice(scalars)
            if scalars and self.rng.random() < 0.7
            else self.constant(body, element, ())
        )

    # -- steps

    def step(self, body: Body) -> None:
        ways = [self.binary] * 4 + [self.unary, self.select, self.view, self.view, self.reshape, self.reduce]
        ways += [self.reduce, self.contract, self.symmetric, self.iota, self.convert, self.part]
        if body.depth < 3:
            ways += [self.fold, self.fold, self.loop, self.branch, self.sort]
        self.rng.choice(ways)(body)

    def binary(self, body: Body) -> None:
        left = self.pick(body)
        right = self.like(body, left)
        if self.rng.random() < 0.2:
            more = (
                f"{{comparison_direction = #stablehlo<comparison_direction {self.rng.choice(COMPARISONS)}>}}"
            )
            self.emit(body, "stablehlo.compare", [left, right], "i1", left.dims, more)
            return
        pair = [left, right] if self.rng.random() < 0.5 else [right, left]
        op = self.rng.choice(LOGIC if left.element == "i1" else BINARY)
        self.emit(body, f"stablehlo.{op}", pair, left.element, left.dims)

    def unary(self, body: Body) -> None:
        value = self.pick(body)
        ops = ["not"] if value.element == "i1" else ["negate", "not", "popcnt"]
        ops += ["abs", "sign"] if value.element in ("i8", "i32") else []
        self.emit(body, f"stablehlo.{self.rng.choice(ops)}", [value], value.element, value.dims)

    def select(self, body: Body) -> None:
        first = self.pick(body)
        other = self.like(body, first)
        direction = (
            f"{{comparison_direction = #stablehlo<comparison_direction {self.rng.choice(COMPARISONS)}>}}"
        )
        pair = [first, other] if self.rng.random() < 0.5 else [other, first]
        test = self.emit(body, "stablehlo.compare", pair, "i1", first.dims, direction)
        self.emit(body, "stablehlo.select", [test, first, other], first.element, first.dims)

    def view(self, body: Body) -> None:
        value = self.pick(body)
        rank = len(value.dims)
        if rank > 1 and self.rng.random() < 0.5:
            order = self.rng.sample(range(rank), rank)
            dims = tuple(value.dims[d] for d in order)
            more = f"{{permutation = {ints(order)}}}"
            self.emit(body, "stablehlo.transpose", [value], value.element, dims, more)
            return
        new = rank + self.rng.randrange(2)
        where = tuple(self.rng.sample(range(new), rank))
        dims = [self.rng.choice([1, 2, 3]) for _ in range(new)]
        for dim, size in zip(where, value.dims, strict=True):
            dims[dim] = size if size != 1 else self.rng.choice([1, 1, 3])
        if math.prod(dims) <= MOST_ELEMENTS:
            self.broadcast(body, value, where, tuple(dims))

    def reshape(self, body: Body) -> None:
        value = self.pick(body)
        dims = list(value.dims)
        if dims and self.rng.random() < 0.5:
            at = self.rng.randrange(len(dims))
            dims[at : at + 2] = [math.prod(dims[at : at + 2])]
        else:
            dims.insert(self.rng.randint(0, len(dims)), 1)
        self.emit(body, "stablehlo.reshape", [value], value.element, tuple(dims))

    def convert(self, body: Body) -> None:
        value = self.pick(body)
        self.emit(body, "stablehlo.convert", [value], self.rng.choice(ELEMENTS), value.dims)

    def iota(self, body: Body) -> None:
        dims = self.pick(body).dims or (3,)
        more = f"{{iota_dimension = {self.rng.randrange(len(dims))} : i64}}"
        self.emit(body, "stablehlo.iota", [], self.rng.choice(["i32", "ui8"]), dims, more)

    def part(self, body: Body) -> None:
        value = self.pick(body)
        if not value.dims:
            return
        at = self.rng.randrange(len(value.dims))
        if self.rng.random() < 0.5:
            more = f"{{dimensions = {ints([at])}}}"
            self.emit(body, "stablehlo.reverse", [value], value.element, value.dims, more)
            return
        low = self.rng.randint(0, value.dims[at])
        high = self.rng.randint(low, value.dims[at])
        starts, limits = [0] * len(value.dims), list(value.dims)
        starts[at], limits[at] = low, high
        dims = (*value.dims[:at], high - low, *value.dims[at + 1 :])
        more = f"{{start_indices = {ints(starts)}, limit_indices = {ints(limits)}, strides = {ints([1] * len(dims))}}}"
        self.emit(body, "stablehlo.slice", [value], value.element, dims, more)

    def symmetric(self, body: Body) -> None:
        """Combine a value with its own transpose."""
        square = [v for v in body.values if len(set(v.dims)) < len(v.dims)]
        if square:
            value = self.rng.choice(square)
            pair = [value, self.swapped(body, value)]
            op = self.rng.choice(LOGIC if value.element == "i1" else [*BINARY, "add", "multiply"])
            self.emit(body, f"stablehlo.{op}", pair, value.element, value.dims)

    def reduce(self, body: Body) -> None:
        value = self.pick(body)
        if not value.dims:
            return
        op = self.rng.choice(LOGIC if value.element == "i1" else ["add", "maximum", "multiply", "xor"])
        zero = self.scalar(body, value.element)
        dims = sorted(self.rng.sample(range(len(value.dims)), self.rng.randint(1, len(value.dims))))
        kept = tuple(size for d, size in enumerate(value.dims) if d not in dims)
        wide = "i32" if value.element == "i8" and self.rng.random() < 0.5 else value.element
        if wide != value.element and not self.promoted:
            value, zero = self.converted(body, value, wide), self.converted(body, zero, wide)
        scalar = tensor(wide, ())
        a, b, r = self.fresh(), self.fresh(), self.fresh()
        region = (
            f'({{^bb0({a}: {scalar}, {b}: {scalar}): {r} = "stablehlo.{op}"({a}, {b}) : ({scalar}, {scalar}) -> {scalar} '
            f'"stablehlo.return"({r}) : ({scalar}) -> ()}}) {{dimensions = {ints(dims)}}}'
        )
        self.emit(body, "stablehlo.reduce", [value, zero], wide, kept, region)

    def converted(self, body: Body, value: Value, element: str) -> Value:
        """Convert for one use only."""
        result = self.emit(body, "stablehlo.convert", [value], element, value.dims)
        body.values.remove(result)
        return result

    def contract(self, body: Body) -> None:
        left = self.pick(body)
        right = left if self.rng.random() < 0.4 else self.pick(body)
        if left.element != right.element or left.element == "i1":
            return
        free = list(range(len(right.dims)))
        lists: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
        for dim, size in enumerate(left.dims):
            match = [d for d in free if right.dims[d] == size]
            kind = self.rng.randrange(3)
            # The interpreter cannot contract over nothing.
            if match and kind < (2 if size else 1):
                other = self.rng.choice(match)
                free.remove(other)
                lists[2 * kind].append(dim)
                lists[2 * kind + 1].append(other)
        dims = [left.dims[d] for d in lists[0]]
        dims += [s for d, s in enumerate(left.dims) if d not in lists[0] and d not in lists[2]]
        dims += [right.dims[d] for d in free]
        if math.prod(dims) > MOST_ELEMENTS or len(dims) > 5:
            return
        names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
        numbers = ", ".join(f"{n}_dimensions = {d}" for n, d in zip(names, lists, strict=True) if d)
        more = f"{{dot_dimension_numbers = #stablehlo.dot<{numbers}>}}"
        self.emit(body, "stablehlo.dot_general", [left, right], left.element, tuple(dims), more)

    # -- functions and regions

    def called(self, body: Body, first: Value, other: Value) -> Value:
        if self.functions and self.rng.random() < 0.7:
            value = Value(self.fresh(), "i32", ())
            name = self.rng.choice(self.functions)
            body.lines.append(
                f"{value.name} = func.call @{name}({first.name}, {other.name}) : (tensor<i32>, tensor<i32>) -> tensor<i32>"
            )
            body.values.append(value)
            return value
        return self.emit(body, f"stablehlo.{self.rng.choice(BINARY)}", [first, other], "i32", ())

    def function(self) -> None:
        arguments = [Value(self.fresh(), "i32", ()), Value(self.fresh(), "i32", ())]
        body = Body(list(arguments), 2)
        value = self.called(body, *self.rng.sample(arguments, 2))
        for _ in range(self.rng.randint(0, 3)):
            value = self.called(body, value, self.scalar(body))
        name = f"f{len(self.functions)}"
        head = ", ".join(f"{a.name}: {a.type}" for a in arguments)
        self.written.append(
            f"func.func private @{name}({head}) -> tensor<i32> {{\n"
            + "\n".join(body.lines)
            + f"\nreturn {value.name} : tensor<i32> }}"
        )
        self.functions.append(name)

    def inner(self, body: Body, arguments: list[Value]) -> Body:
        return Body([*body.values, *arguments], body.depth + 1)

    def region(self, arguments: list[Value], body: Body, results: list[Value]) -> str:
        head = ", ".join(f"{a.name}: {a.type}" for a in arguments)
        names, types = ", ".join(r.name for r in results), ", ".join(r.type for r in results)
        header = f"^bb0({head}):\n" if arguments else ""
        return "{" + header + "\n".join(body.lines) + f'\n"stablehlo.return"({names}) : ({types}) -> ()}}'

    def fold(self, body: Body) -> None:
        """Reduce by a region of its own: calls, captures, steps that do not commute."""
        value = self.rng.choice(
            [v for v in body.values if v.element == "i32"] or [self.constant(body, "i32", (2, 3))]
        )
        if not value.dims:
            return
        dims = sorted(self.rng.sample(range(len(value.dims)), self.rng.randint(1, len(value.dims))))
        kept = tuple(size for d, size in enumerate(value.dims) if d not in dims)
        zero = self.scalar(body)
        first, other = Value(self.fresh(), "i32", ()), Value(self.fresh(), "i32", ())
        inner = self.inner(body, [first, other])
        result = self.called(inner, first, other)
        for _ in range(self.rng.randint(0, 2)):
            result = self.called(inner, result, self.scalar(inner))
        if self.rng.random() < 0.3:
            self.step(inner)
        region = f"({self.region([first, other], inner, [result])}) {{dimensions = {ints(dims)}}}"
        self.emit(body, "stablehlo.reduce", [value, zero], "i32", kept, region)

    def loop(self, body: Body) -> None:
        carried = self.pick(body)
        start = self.constant(body, "i32", (), 0)
        types = [("i32", ()), (carried.element, carried.dims)]
        first, second = ([Value(self.fresh(), e, d) for e, d in types] for _ in range(2))
        test, turn = self.inner(body, first), self.inner(body, second)
        end = self.constant(test, "i32", (), self.rng.randint(0, 3))
        less = "{comparison_direction = #stablehlo<comparison_direction LT>}"
        go = self.emit(test, "stablehlo.compare", [first[0], end], "i1", (), less)
        unit = self.constant(turn, "i32", (), 1)
        count = self.emit(turn, "stablehlo.add", [second[0], unit], "i32", ())
        for _ in range(self.rng.randint(1, 3)):
            self.step(turn)
        results = [count, self.like(turn, second[1])]
        outputs = [Value("", *t) for t in types]
        name = self.fresh()
        out = ", ".join(v.type for v in outputs)
        body.lines.append(
            f'{name}:2 = "stablehlo.while"({start.name}, {carried.name}) ({self.region(first, test, [go])}, '
            f"{self.region(second, turn, results)}) : ({out}) -> ({out})"
        )
        body.values += [Value(f"{name}#{i}", v.element, v.dims) for i, v in enumerate(outputs)]

    def branch(self, body: Body) -> None:
        value = self.pick(body)
        predicate = self.scalar(body, "i1")
        texts: list[str] = []
        for _ in range(2):
            inner = self.inner(body, [])
            for _ in range(self.rng.randint(0, 2)):
                self.step(inner)
            texts.append(self.region([], inner, [self.like(inner, value)]))
        self.emit(body, "stablehlo.if", [predicate], value.element, value.dims, f"({', '.join(texts)})")

    def sort(self, body: Body) -> None:
        values = [v for v in body.values if v.dims and v.element == "i32"]
        if not values:
            return
        value = self.rng.choice(values)
        first, other = Value(self.fresh(), "i32", ()), Value(self.fresh(), "i32", ())
        inner = self.inner(body, [first, other])
        less = "{comparison_direction = #stablehlo<comparison_direction LT>}"
        test = self.emit(inner, "stablehlo.compare", self.rng.sample([first, other], 2), "i1", (), less)
        more = f"({self.region([first, other], inner, [test])}) {{dimension = {self.rng.randrange(len(value.dims))} : i64, is_stable = true}}"
        self.emit(body, "stablehlo.sort", [value], value.element, value.dims, more)

    # -- the whole

    def unread(self, body: Body) -> list[Value]:
        """Return the values that no line reads, so that no line is dead."""
        seen = Counter(re.findall(r"%v\d+(?:#\d)?", "\n".join(body.lines)))
        own = {v.name for v in body.values if "#" not in v.name}
        return [v for v in body.values if seen[v.name] <= (v.name in own)][-16:]

    def program(self, steps: int) -> Program:
        rng = self.rng
        for _ in range(rng.randint(0, 3)):
            self.function()
        sizes = rng.choice([[1, 2, 3], [2, 2, 3], [3, 3, 3], [1, 1, 2], [0, 2, 3]])
        arguments: list[Value] = []
        for _ in range(rng.randint(1, 3)):
            dims = tuple(rng.choice(sizes) for _ in range(rng.randint(0, 3)))
            arguments.append(Value(self.fresh(), rng.choice(ELEMENTS), dims))
        body = Body(list(arguments), 0)
        for _ in range(steps):
            self.step(body)
        results = self.unread(body) or arguments[:1]
        head = ", ".join(f"{a.name}: {a.type}" for a in arguments)
        out = ", ".join(r.type for r in results)
        text = f"func.func public @main({head}) -> ({out}) {{\n" + "\n".join(body.lines)
        text += f"\nreturn {', '.join(r.name for r in results)} : {out} }}\n" + "\n".join(self.written)
        return Program(text, [(a.element, a.dims) for a in arguments])


def random_program(seed: int, steps: int = 14, promoted: bool = False) -> Program:
    """The program of a seed, the same one on every machine; ``promoted``: one that means the same."""
    return Writer(seed, promoted).program(steps)
