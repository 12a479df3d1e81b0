"""A program that grows, and what NumPy says of each of its values. All numbers are whole and small: exact."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Binary = Callable[[Any, Any], Any]

DTYPES: dict[str, Any] = {
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
    "f32": np.float32,
    "f64": np.float64,
}
#: Operations of two elements, by the first letter of the type.
BINARY: dict[str, dict[str, Any]] = {
    "i": {
        "addi": np.add,
        "subi": np.subtract,
        "muli": np.multiply,
        "maxsi": np.maximum,
        "minsi": np.minimum,
        "andi": np.bitwise_and,
        "ori": np.bitwise_or,
        "xori": np.bitwise_xor,
    },
    "f": {"addf": np.add, "subf": np.subtract, "maximumf": np.maximum, "minimumf": np.minimum},
}
#: Of these reductions the order does not show.
FOLDS = {"i": ("addi", "muli", "xori", "andi", "maxsi", "minsi"), "f": ("addf", "maximumf", "minimumf")}
_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 128, 257)
#: Floats up to here and their sums are exact in f32.
_MOST = 2**20


def tensor(dtype: str, shape: Sequence[int]) -> str:
    """The type of a tensor."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


@dataclass(frozen=True)
class Value:
    """A value of the program and its content."""

    name: str
    dtype: str
    content: Array

    @property
    def shape(self) -> Shape:
        return self.content.shape

    @property
    def type(self) -> str:
        return tensor(self.dtype, self.shape)


class Inexact(Exception):
    """What a step would compute is too large to be exact."""


@dataclass
class Draft:
    """Lines of ``main`` so far, its arguments, and the values that steps may use."""

    rng: random.Random
    elements: int
    lines: list[str] = field(default_factory=list[str])
    arguments: list[Value] = field(default_factory=list[Value])
    values: list[Value] = field(default_factory=list[Value])
    sizes: list[int] = field(default_factory=list[int])
    names: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        most = max(2, 2 * int(self.elements**0.5))
        self.sizes = [self.rng.choice([size for size in _SIZES if size <= most]) for _ in range(3)]

    def name(self) -> str:
        return f"%v{next(self.names)}"

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def argument(self, dtype: str, shape: Sequence[int]) -> Value:
        """A new one, of whole numbers from -5 to 5."""
        numbers = [self.rng.randint(-5, 5) for _ in range(math.prod(shape))]
        content = np.array(numbers, DTYPES[dtype]).reshape(tuple(shape))
        value = Value(f"%a{len(self.arguments)}", dtype, content)
        self.arguments.append(value)
        self.values.append(value)
        return value

    def one(self) -> Value:
        """Most often one of the last that has axes."""
        fit = [value for value in self.values if value.shape]
        return fit[-1 - min(int(self.rng.expovariate(0.4)), len(fit) - 1)]

    def like(self, dtype: str, shape: Sequence[int]) -> Value:
        """A value of this type: an old one, an argument, or one number everywhere."""
        old = [value for value in self.values if (value.dtype, value.shape) == (dtype, tuple(shape))]
        if old and self.chance(0.7):
            return self.rng.choice(old)
        if len(self.arguments) < 10 and self.chance(0.6):
            return self.argument(dtype, shape)
        number, name = self.rng.randint(-3, 5), self.name()
        literal = f"{number}.0" if dtype.startswith("f") else str(number)
        self.lines.append(f"{name} = arith.constant dense<{literal}> : {tensor(dtype, shape)}")
        return Value(name, dtype, np.full(tuple(shape), number, DTYPES[dtype]))

    def fits(self, shape: Sequence[int]) -> bool:
        return math.prod(shape) <= 2 * self.elements

    def value(self, text: str, dtype: str, content: Any) -> Value:
        """The result of a line. Raises ``Inexact``."""
        return self.results(text, [(dtype, content)])[0]

    def results(self, text: str, typed: Sequence[tuple[str, Any]]) -> list[Value]:
        """The results of a line. Raises ``Inexact``."""
        contents = [exact(content, dtype) for dtype, content in typed]
        name, many = self.name(), len(typed) > 1
        self.lines.append(f"{name}{f':{len(typed)}' if many else ''} = {text}")
        values = [
            Value(f"{name}#{place}" if many else name, dtype, content)
            for place, ((dtype, _), content) in enumerate(zip(typed, contents, strict=True))
        ]
        self.values += values
        return values

    def text(self, results: Sequence[Value]) -> str:
        """The program."""
        parameters = ", ".join(f"{value.name}: {value.type}" for value in self.arguments)
        types = ", ".join(value.type for value in results)
        body = "\n  ".join([*self.lines, f"return {', '.join(value.name for value in results)} : {types}"])
        return f"func.func @main({parameters}) -> ({types}) {{\n  {body}\n}}\n"


def exact(content: Any, dtype: str) -> Array:
    """The content in its element; ``-0.0`` is told from ``0.0`` by no step. Raises ``Inexact``."""
    content = np.asarray(content)
    if dtype.startswith("f") and not np.all(np.abs(content.astype(np.float64)) <= _MOST):
        raise Inexact
    return np.ascontiguousarray(content.astype(DTYPES[dtype])).reshape(content.shape)
