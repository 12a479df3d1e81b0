"""Random small graphs over symbolic sizes, written out at any sizes: nearby ones, so that some are equal.

Values are small integers in f32, so that most results are exact in any order of evaluation.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

#: A size: the symbols that it is the product of.
Dim = tuple[str, ...]
Dims = tuple[Dim, ...]

SYMBOLS = ("b", "t", "c")
BINARY = ["add", "subtract", "multiply", "maximum", "minimum"]
UNARY = ["negate", "abs", "sign"]


@dataclass(frozen=True)
class Step:
    """One operation over earlier values, which are counted from the first argument on."""

    kind: str
    operands: tuple[int, ...]
    dims: Dims
    #: axes, numbers and names, by kind
    more: tuple[object, ...] = ()


@dataclass
class Template:
    """A graph whose sizes are symbols."""

    arguments: list[Dims]
    steps: list[Step] = field(default_factory=list[Step])
    results: list[int] = field(default_factory=list[int])

    def dims(self, value: int) -> Dims:
        count = len(self.arguments)
        return self.arguments[value] if value < count else self.steps[value - count].dims

    def values(self) -> range:
        return range(len(self.arguments) + len(self.steps))

    def add(self, kind: str, operands: tuple[int, ...], dims: Dims, *more: object) -> int:
        self.steps.append(Step(kind, operands, dims, more))
        return len(self.arguments) + len(self.steps) - 1


# -- making


def random_template(seed: int, steps: int = 6, numbers: bool | None = None) -> Template:
    """The template of a seed, the same on every machine.

    ``numbers``: with numbers that are no sizes and without sums, or the other way round. Where there are
    both, a number under a sum may be meant as the sum's size.
    """
    rng = random.Random(seed)
    shapes = [("b", "t"), ("t", "c"), ("b", "t", "c"), ("c",), ("b",), ("t", "b"), ("b", "b")]
    first = shapes[:5] if numbers else shapes[:3]
    chosen = [rng.choice(first), *(rng.choice(shapes) for _ in range(rng.choice([0, 0, 1, 2])))]
    template = Template([tuple((name,) for name in shape) for shape in chosen])
    while len(template.steps) < steps:
        way = rng.choice(_WAYS)
        if numbers is None or way not in ((_fold, _product) if numbers else (_fold, _number)):
            way(template, rng)
    read = {value for step in template.steps for value in step.operands}
    template.results = [v for v in template.values() if v not in read][-3:]
    return template


def _pick(template: Template, rng: random.Random) -> int:
    values = template.values()
    return rng.choice(values[-3:] if rng.random() < 0.6 else values)


def _binary(template: Template, rng: random.Random) -> None:
    left = _pick(template, rng)
    same = [v for v in template.values() if template.dims(v) == template.dims(left)]
    pair = (left, rng.choice(same)) if rng.random() < 0.8 else (rng.choice(same), left)
    template.add("binary", pair, template.dims(left), rng.choice(BINARY))


def _unary(template: Template, rng: random.Random) -> None:
    value = _pick(template, rng)
    template.add("unary", (value,), template.dims(value), rng.choice(UNARY))


def _turn(template: Template, rng: random.Random) -> None:
    value = _pick(template, rng)
    dims = template.dims(value)
    order = rng.sample(range(len(dims)), len(dims))
    template.add("transpose", (value,), tuple(dims[d] for d in order), tuple(order))


def _spread(template: Template, rng: random.Random) -> None:
    """Broadcast along one more axis, anywhere, and combine with something of these dims if there is any."""
    value = _pick(template, rng)
    dims = list(template.dims(value))
    if len(dims) > 2:
        return
    at = rng.randint(0, len(dims))
    dims.insert(at, (rng.choice([name for shape in template.arguments for (name,) in shape]),))
    kept = tuple(d for d in range(len(dims)) if d != at)
    broadcast = template.add("broadcast", (value,), tuple(dims), kept)
    same = [v for v in template.values() if template.dims(v) == tuple(dims) and v != broadcast]
    if same:
        template.add("binary", (broadcast, rng.choice(same)), tuple(dims), rng.choice(BINARY))


def _fold(template: Template, rng: random.Random) -> None:
    """Reduce some axes; a sum may be divided by how many there were, or by a number."""
    value = _pick(template, rng)
    dims = template.dims(value)
    if not dims:
        return
    axes = tuple(sorted(rng.sample(range(len(dims)), rng.randint(1, len(dims)))))
    kept = tuple(d for i, d in enumerate(dims) if i not in axes)
    reduced = template.add("reduce", (value,), kept, rng.choice(["add", "add", "maximum"]), axes)
    if rng.random() < 0.5:
        count: object = tuple(name for i in axes for name in dims[i])
        if rng.random() < 0.3:
            count = rng.choice([2, 3, 5, 6])
        template.add("over", (reduced,), kept, rng.choice(["divide", "multiply", "add"]), count)


def _number(template: Template, rng: random.Random) -> None:
    value = _pick(template, rng)
    template.add(
        "over", (value,), template.dims(value), rng.choice(["add", "multiply"]), rng.choice([2, 3, 5])
    )


def _product(template: Template, rng: random.Random) -> None:
    """Contract one axis of two values."""
    left_operand, other = _pick(template, rng), _pick(template, rng)
    left, right = template.dims(left_operand), template.dims(other)
    pairs = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b]
    if not pairs or len(left) + len(right) > 5:
        return
    i, j = rng.choice(pairs)
    dims = tuple(d for k, d in enumerate(left) if k != i) + tuple(d for k, d in enumerate(right) if k != j)
    template.add("dot", (left_operand, other), dims, i, j)


def _merge(template: Template, rng: random.Random) -> None:
    """Merge two axes, compute something, and split them again or not."""
    value = _pick(template, rng)
    dims = template.dims(value)
    if len(dims) < 2:
        return
    at = rng.randrange(len(dims) - 1)
    merged = (*dims[:at], dims[at] + dims[at + 1], *dims[at + 2 :])
    merged_value = template.add("reshape", (value,), merged)
    merged_value = template.add("unary", (merged_value,), merged, rng.choice(UNARY))
    if rng.random() < 0.7:
        template.add("reshape", (merged_value,), dims)


def _count(template: Template, rng: random.Random) -> None:
    """Add the index along one axis."""
    value = _pick(template, rng)
    dims = template.dims(value)
    if dims:
        iota = template.add("iota", (), dims, rng.randrange(len(dims)))
        template.add("binary", (value, iota), dims, rng.choice(BINARY))


def _choose(template: Template, rng: random.Random) -> None:
    """Select where one value is less than another."""
    value = _pick(template, rng)
    same = [v for v in template.values() if template.dims(v) == template.dims(value)]
    operands = (value, rng.choice(same), rng.choice(same))
    template.add("select", operands, template.dims(value), rng.choice(["LT", "LE", "GT", "EQ"]))


def _reverse(template: Template, rng: random.Random) -> None:
    value = _pick(template, rng)
    dims = template.dims(value)
    if dims:
        template.add("reverse", (value,), dims, rng.randrange(len(dims)))


_WAYS = [_binary, _binary, _unary, _turn, _spread, _spread, _fold, _fold, _number, _product, _merge]
_WAYS += [_count, _choose, _reverse]


def neighbor(template: Template, rng: random.Random) -> Template:
    """Change one step: its operation, axes, operands or number, where the sizes allow it."""
    result = Template(list(template.arguments), list(template.steps), list(template.results))
    for _ in range(20):
        index = rng.randrange(len(result.steps))
        step = result.steps[index]
        changed = _changed(template, step, index, rng)
        if changed is not None and changed != step:
            result.steps[index] = changed
            return result
    return result


def _changed(template: Template, step: Step, index: int, rng: random.Random) -> Step | None:
    if rng.random() < 0.4 and step.operands:
        at = rng.randrange(len(step.operands))
        before = range(len(template.arguments) + index)
        same = [v for v in before if template.dims(v) == template.dims(step.operands[at])]
        operands = (*step.operands[:at], rng.choice(same), *step.operands[at + 1 :])
        return Step(step.kind, operands, step.dims, step.more)
    match step.kind:
        case "binary":
            return Step(step.kind, step.operands, step.dims, (rng.choice(BINARY),))
        case "unary":
            return Step(step.kind, step.operands, step.dims, (rng.choice(UNARY),))
        case "over":
            return Step(step.kind, step.operands, step.dims, (step.more[0], rng.choice([2, 3, 5, 6, 4])))
        case "iota" | "reverse":
            return Step(step.kind, step.operands, step.dims, (rng.randrange(len(step.dims)),))
        case _:
            return None


# -- writing


def written(template: Template, sizes: Mapping[str, int]) -> str:
    """Return the program at these sizes."""
    return _Writer(template, sizes).text()


class _Writer:
    def __init__(self, template: Template, sizes: Mapping[str, int]) -> None:
        self.template = template
        self.sizes = sizes
        self.lines: list[str] = []

    def type(self, dims: Dims, element: str = "f32") -> str:
        return f"tensor<{''.join(f'{self.size(d)}x' for d in dims)}{element}>"

    def size(self, dim: Dim) -> int:
        return math.prod(self.sizes[name] for name in dim)

    def text(self) -> str:
        count = len(self.template.arguments)
        head = ", ".join(f"%v{i}: {self.type(dims)}" for i, dims in enumerate(self.template.arguments))
        for index, step in enumerate(self.template.steps):
            self.step(f"%v{count + index}", step)
        names = ", ".join(f"%v{value}" for value in self.template.results)
        types = ", ".join(self.type(self.template.dims(value)) for value in self.template.results)
        body = "\n".join(self.lines)
        return f"func.func public @main({head}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}\n"

    def operation(
        self, name: str, op: str, operands: list[str], types: str, result: str, more: str = ""
    ) -> None:
        self.lines.append(f'{name} = "stablehlo.{op}"({", ".join(operands)}) {more} : ({types}) -> {result}')

    def constant(self, name: str, number: float, type: str) -> None:
        self.lines.append(f"{name} = stablehlo.constant dense<{number:.9e}> : {type}")

    def step(self, name: str, step: Step) -> None:
        operands = [f"%v{value}" for value in step.operands]
        types = ", ".join(self.type(self.template.dims(value)) for value in step.operands)
        result = self.type(step.dims)
        match step.kind, step.more:
            case (("binary" | "unary"), (str(op),)):
                self.operation(name, op, operands, types, result)
            case "transpose", (order,):
                self.operation(
                    name, "transpose", operands, types, result, f"{{permutation = {_axes(order)}}}"
                )
            case "broadcast", (kept,):
                more = f"{{broadcast_dimensions = {_axes(kept)}}}"
                self.operation(name, "broadcast_in_dim", operands, types, result, more)
            case "reshape", ():
                self.operation(name, "reshape", operands, types, result)
            case "reverse", (int(axis),):
                self.operation(name, "reverse", operands, types, result, f"{{dimensions = {_axes((axis,))}}}")
            case "iota", (int(axis),):
                self.operation(name, "iota", [], "", result, f"{{iota_dimension = {axis} : i64}}")
            case "over", (str(op), number):
                value = self.size(number) if isinstance(number, tuple) else number
                self.constant(f"{name}c", float(str(value)), result)
                self.operation(name, op, [*operands, f"{name}c"], f"{types}, {result}", result)
            case "reduce", (str(op), axes):
                self.constant(f"{name}c", 0.0 if op == "add" else -1e9, "tensor<f32>")
                self.lines.append(
                    f"{name} = stablehlo.reduce({operands[0]} init: {name}c) applies stablehlo.{op} across "
                    f"dimensions = [{', '.join(map(str, _tuple(axes)))}] : ({types}, tensor<f32>) -> {result}"
                )
            case "dot", (int(i), int(j)):
                more = f"lhs_contracting_dimensions = [{i}], rhs_contracting_dimensions = [{j}]"
                more = f"{{dot_dimension_numbers = #stablehlo.dot<{more}>}}"
                self.operation(name, "dot_general", operands, types, result, more)
            case "select", (str(direction),):
                pred = self.type(step.dims, "i1")
                pair = ", ".join(types.split(", ")[:2])
                more = f"{{comparison_direction = #stablehlo<comparison_direction {direction}>}}"
                self.operation(f"{name}p", "compare", operands[:2], pair, pred, more)
                last = ", ".join(types.split(", ")[1:])
                self.operation(name, "select", [f"{name}p", *operands[1:]], f"{pred}, {last}", result)
            case kind, more:
                raise AssertionError(f"no way to write {kind} {more}")


def _tuple(axes: object) -> tuple[int, ...]:
    assert isinstance(axes, tuple)
    return tuple(int(str(axis)) for axis in axes)


def _axes(axes: object) -> str:
    return f"array<i64: {', '.join(map(str, _tuple(axes)))}>" if _tuple(axes) else "array<i64>"
