"""Functions of StableHLO as text, built value by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """A value of a function that is being written."""

    name: str
    element: str
    shape: Shape

    @property
    def type(self) -> str:
        """Its type as MLIR writes it."""
        return tensor(self.element, self.shape)


def tensor(element: str, shape: Shape) -> str:
    """A tensor type as MLIR writes it."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def real_of(element: str) -> str:
    """The element of the parts of a complex number."""
    return element.removeprefix("complex<").removesuffix(">")


@dataclass
class Lines:
    """Lines of a function; methods add one and give its value."""

    lines: list[str] = field(default_factory=list[str])
    count: int = 0
    #: A 0 that is not known before the function runs; without, sizes are those of every call.
    zero: Tensor | None = None

    def line(self, text: str, element: str, shape: Shape) -> Tensor:
        """A value by any text."""
        self.count += 1
        result = Tensor(f"%v{self.count}", element, shape)
        self.lines.append(f"{result.name} = {text}")
        return result

    def several(self, text: str, like: Sequence[Tensor]) -> list[Tensor]:
        """Values of the types of ``like`` by the text of one operation."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"{name}:{len(like)} = {text}")
        return [
            Tensor(f"{name}#{position}", template.element, template.shape)
            for position, template in enumerate(like)
        ]

    def each(self, op: str, *operands: Tensor) -> Tensor:
        """An operation element by element, which keeps the type."""
        first = operands[0]
        names = ", ".join(operand.name for operand in operands)
        return self.line(f"stablehlo.{op} {names} : {first.type}", first.element, first.shape)

    def number(self, value: str, element: str, shape: Shape = ()) -> Tensor:
        """A number, repeated."""
        return self.line(f"stablehlo.constant dense<{value}> : {tensor(element, shape)}", element, shape)

    def amount(self, number: int, element: str, shape: Shape) -> Tensor:
        """A number of elements as a float, repeated."""
        if self.zero is None:
            return self.number(f"{float(number):.17e}", element, shape)
        whole = self.each("add", self.number(str(number), "i64"), self.zero)
        return self.broadcast(self.convert(whole, element), shape, [])

    def convert(self, value: Tensor, element: str) -> Tensor:
        """``value`` in another element type."""
        if value.element == element:
            return value
        result = tensor(element, value.shape)
        return self.line(f"stablehlo.convert {value.name} : ({value.type}) -> {result}", element, value.shape)

    def zeros(self, element: str, shape: Shape) -> Tensor:
        """Nothing but 0, of complex numbers too."""
        if not element.startswith("complex"):
            return self.number("0.0" if "f" in element else "0", element, shape)
        part = self.number("0.0", real_of(element), shape)
        return self.pair(part, part)

    def pair(self, re: Tensor, im: Tensor) -> Tensor:
        """A complex number of its parts."""
        element = f"complex<{re.element}>"
        return self.line(
            f"stablehlo.complex {re.name}, {im.name} : {tensor(element, re.shape)}", element, re.shape
        )

    def part(self, value: Tensor, which: str) -> Tensor:
        """``real`` or ``imag`` of a complex number."""
        element = real_of(value.element)
        result = tensor(element, value.shape)
        return self.line(f"stablehlo.{which} {value.name} : ({value.type}) -> {result}", element, value.shape)

    def conjugate(self, value: Tensor) -> Tensor:
        """The complex conjugate; a real number is its own."""
        if not value.element.startswith("complex"):
            return value
        return self.pair(self.part(value, "real"), self.each("negate", self.part(value, "imag")))

    def broadcast(self, value: Tensor, shape: Shape, dims: Sequence[int]) -> Tensor:
        """``value``, whose axes are ``dims`` of the result."""
        result = tensor(value.element, shape)
        where = f"[{', '.join(map(str, dims))}]"
        text = f"stablehlo.broadcast_in_dim {value.name}, dims = {where} : ({value.type}) -> {result}"
        return self.line(text, value.element, shape)

    def reshape(self, value: Tensor, shape: Shape) -> Tensor:
        """``value`` in another shape."""
        if value.shape == shape:
            return value
        text = f"stablehlo.reshape {value.name} : ({value.type}) -> {tensor(value.element, shape)}"
        return self.line(text, value.element, shape)

    def transpose(self, value: Tensor, order: Sequence[int]) -> Tensor:
        """``value`` with its axes in another order."""
        if list(order) == list(range(len(order))):
            return value
        shape = tuple(value.shape[axis] for axis in order)
        dims = f"[{', '.join(map(str, order))}]"
        result = tensor(value.element, shape)
        text = f"stablehlo.transpose {value.name}, dims = {dims} : ({value.type}) -> {result}"
        return self.line(text, value.element, shape)

    def iota(self, element: str, shape: Shape, axis: int) -> Tensor:
        """Places along an axis."""
        return self.line(f"stablehlo.iota dim = {axis} : {tensor(element, shape)}", element, shape)

    def cut(self, value: Tensor, axis: int, start: int, limit: int) -> Tensor:
        """A range of an axis."""
        ranges = [
            (start, limit) if position == axis else (0, size) for position, size in enumerate(value.shape)
        ]
        shape = tuple(stop - begin for begin, stop in ranges)
        text = ", ".join(f"{begin}:{stop}" for begin, stop in ranges)
        result = tensor(value.element, shape)
        return self.line(
            f"stablehlo.slice {value.name} [{text}] : ({value.type}) -> {result}", value.element, shape
        )

    def concatenate(self, values: Sequence[Tensor], axis: int) -> Tensor:
        """One after the other along an axis."""
        first = values[0]
        whole = sum(value.shape[axis] for value in values)
        shape = (*first.shape[:axis], whole, *first.shape[axis + 1 :])
        names = ", ".join(value.name for value in values)
        types = ", ".join(value.type for value in values)
        text = f"stablehlo.concatenate {names}, dim = {axis} : ({types}) -> {tensor(first.element, shape)}"
        return self.line(text, first.element, shape)

    def dot(self, left: Tensor, right: Tensor, batch: int, contract: tuple[int, int], shape: Shape) -> Tensor:
        """Products summed along one axis of each, the first ``batch`` axes being shared."""
        shared = f"[{', '.join(map(str, range(batch)))}]"
        numbers = f"batching_dims = {shared} x {shared}, contracting_dims = [{contract[0]}] x [{contract[1]}]"
        types = f"({left.type}, {right.type}) -> {tensor(left.element, shape)}"
        return self.line(
            f"stablehlo.dot_general {left.name}, {right.name}, {numbers} : {types}", left.element, shape
        )

    def total(self, value: Tensor, dims: Sequence[int]) -> Tensor:
        """The sum along ``dims``."""
        if not dims:
            return value
        zero = self.zeros(value.element, ())
        shape = tuple(size for axis, size in enumerate(value.shape) if axis not in dims)
        text = (
            f"stablehlo.reduce({value.name} init: {zero.name}) applies stablehlo.add across dimensions = "
            f"[{', '.join(map(str, dims))}] : ({value.type}, {zero.type}) -> {tensor(value.element, shape)}"
        )
        return self.line(text, value.element, shape)

    def compare(self, direction: str, left: Tensor, right: Tensor) -> Tensor:
        """Truth values."""
        result = tensor("i1", left.shape)
        types = f"({left.type}, {right.type}) -> {result}"
        text = f"stablehlo.compare {direction}, {left.name}, {right.name} : {types}"
        return self.line(text, "i1", left.shape)

    def choose(self, where: Tensor, yes: Tensor, no: Tensor) -> Tensor:
        """``yes`` where it is true."""
        text = f"stablehlo.select {where.name}, {yes.name}, {no.name} : {where.type}, {yes.type}"
        return self.line(text, yes.element, yes.shape)

    def row(self, value: Tensor, axis: int, at: Tensor) -> Tensor:
        """One place of an axis, which goes."""
        zero = self.number("0", "i32")
        sizes = tuple(1 if position == axis else size for position, size in enumerate(value.shape))
        starts = [at.name if position == axis else zero.name for position in range(len(sizes))]
        kinds = ", ".join([value.type, *["tensor<i32>"] * len(sizes)])
        result = tensor(value.element, sizes)
        text = (
            f"stablehlo.dynamic_slice {value.name}, {', '.join(starts)}, "
            f"sizes = [{', '.join(map(str, sizes))}] : ({kinds}) -> {result}"
        )
        slice_ = self.line(text, value.element, sizes)
        return self.reshape(slice_, (*value.shape[:axis], *value.shape[axis + 1 :]))

    def loop(self, turns: int, start: Tensor, body: Callable[[Lines, Tensor, Tensor], Tensor]) -> Tensor:
        """``body(lines, place, value)`` for every place from 0, each of what the one before gave."""
        return self.turns(turns, [start], lambda inner, position, values: [body(inner, position, *values)])[0]

    def turns(
        self,
        count: int,
        start: Sequence[Tensor],
        body: Callable[[Lines, Tensor, list[Tensor]], Sequence[Tensor]],
        while_last: bool = False,
    ) -> list[Tensor]:
        """``body(lines, place, values)`` for every place from 0, each of what the one before gave;
        ``while_last``: no more once the last value, a boolean, is false.
        """
        first = self.number("0", "i32")
        inner = Lines(count=self.count + 100)
        position = Tensor("%place", "i32", ())
        values = [Tensor(f"%carried{at}", operand.element, operand.shape) for at, operand in enumerate(start)]
        test = inner.compare("LT", position, inner.number(str(count), "i32"))
        if while_last:
            test = inner.each("and", test, values[-1])
        condition, inner.lines = inner.lines, []
        following = inner.each("add", position, inner.number("1", "i32"))
        result = body(inner, position, values)
        self.count = inner.count + 1
        name = f"%loop{self.count}"
        initial = ", ".join(f"{value.name} = {was.name}" for value, was in zip(values, start, strict=True))
        types = ", ".join(["tensor<i32>", *(operand.type for operand in start)])
        self.lines += [
            f"{name}:{len(values) + 1} = stablehlo.while(%place = {first.name}, {initial}) : {types}",
            "cond {",
            *condition,
            f"stablehlo.return {test.name} : tensor<i1>",
            "} do {",
            *inner.lines,
            f"stablehlo.return {', '.join([following.name, *(value.name for value in result)])} : {types}",
            "}",
        ]
        return [
            Tensor(f"{name}#{at + 1}", operand.element, operand.shape) for at, operand in enumerate(start)
        ]
