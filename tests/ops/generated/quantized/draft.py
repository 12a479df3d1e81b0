"""A program over quantized values on its way, and random choices for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tests.ops.generated.quantized.element import Element, Ints, Reals, rounded
from tests.ops.harness.values import encode

Shape = tuple[int, ...]
T = TypeVar("T")
#: Type of an element -> NumPy's type of a buffer, which has a byte for each of the narrower ones.
BUFFERS = {
    "i2": "u1",
    "i4": "u1",
    "u2": "u1",
    "u4": "u1",
    "i8": "i1",
    "i16": "<i2",
    "i32": "<i4",
    "u8": "u1",
    "u16": "<u2",
    "u32": "<u4",
    "f16": "<u2",
    "bf16": "<u2",
    "f32": "<u4",
    "f64": "<u8",
    "i1": "u1",
}
_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 17)


@dataclass(frozen=True)
class Value:
    """A value of the program: its integers are known, those of ``low`` to ``high`` allowed."""

    name: str
    element: Element
    integers: Ints

    @property
    def shape(self) -> Shape:
        """Its sizes."""
        return self.integers.shape

    @property
    def type(self) -> str:
        """Its type as MLIR writes it."""
        return self.element.tensor(self.shape)

    @property
    def real(self) -> Reals:
        """What its integers stand for."""
        return self.element.dequantized(self.integers)


@dataclass(frozen=True)
class Check:
    """A result of ``type``: integers or floats from ``low`` to ``high``."""

    type: str
    dtype: str
    low: Ints | Reals
    high: Ints | Reals


@dataclass
class Draft:
    """A program of ``op``; ``storage`` and ``expressed`` are those of its elements, ``per_axis`` of some."""

    op: str
    dtype: str
    rng: np.random.Generator
    arguments: list[str] = field(default_factory=list[str])
    inputs: list[bytes] = field(default_factory=list[bytes])
    lines: list[str] = field(default_factory=list[str])
    functions: str = ""
    returned: list[str] = field(default_factory=list[str])
    checks: list[Check] = field(default_factory=list[Check])

    @property
    def storage(self) -> str:
        """The storage type."""
        return self.dtype.split(":")[0]

    @property
    def expressed(self) -> str:
        """The expressed type."""
        return self.dtype.split(":")[1]

    # -- choices

    def chance(self, probability: float) -> bool:
        """True that often."""
        return bool(self.rng.random() < probability)

    def pick(self, among: Sequence[T]) -> T:
        """One of them."""
        return among[int(self.rng.integers(len(among)))]

    def number(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))

    def shape(self, low: int = 0, high: int = 3, limit: int = 200) -> Shape:
        """Sizes of ``low`` to ``high`` dimensions."""
        sizes = [self.pick(_SIZES) for _ in range(self.number(low, high))]
        while math.prod(max(size, 1) for size in sizes) > limit:
            sizes[sizes.index(max(sizes))] //= 2
        return tuple(sizes)

    def scale(self) -> float:
        """A power of two, a decimal, or any number of the expressed type."""
        kind = self.number(0, 2)
        if kind == 0:
            number = 2.0 ** self.number(-7, 1)
        elif kind == 1:
            number = self.pick([0.1, 0.05, 1.0 / 255, 0.3, 3.0, 0.007])
        else:
            number = math.exp(float(self.rng.uniform(-5, 1)))
        return float(rounded(self.expressed, np.array(number)))

    def element(
        self, shape: Shape = (), axis: int | None = None, storage: str = "", plain: bool = False
    ) -> Element:
        """An element type; along an axis of ``shape`` if one is given. ``plain``: its zero points are 0."""
        storage = storage or self.storage
        width = int(storage[1:])
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if storage[0] == "i" else (0, (1 << width) - 1)
        if self.chance(0.25):
            low, high = low + self.number(0, 1), high - self.number(0, 1)
        count = 1 if axis is None else shape[axis]
        zeros = [self._zero(low, high, plain) for _ in range(count)]
        return Element(
            storage, low, high, self.expressed, tuple(self.scale() for _ in zeros), tuple(zeros), axis
        )

    def _zero(self, low: int, high: int, plain: bool) -> int:
        if (plain or self.chance(0.4)) and low <= 0:
            return 0
        if self.chance(0.2):
            return self.pick([low, high])
        return self.number(max(low, -128), min(high, 127))

    def like(self, element: Element) -> Element:
        """Other scales and zero points."""
        if self.chance(0.4):
            return element
        count = len(element.scales)
        zeros = tuple(self._zero(element.low, element.high, False) for _ in range(count))
        scales = tuple(self.scale() for _ in range(count))
        return Element(
            element.storage, element.low, element.high, element.expressed, scales, zeros, element.axis
        )

    def integers(self, element: Element, shape: Shape, near: int | None = None) -> Ints:
        """Random integers: any, or within ``near`` of the zero point; often the bounds."""
        zero = element.spread(element.zeros, shape).astype(np.int64)
        if near is None and self.chance(0.3) and element.width > 8:
            near = 200
        if near is not None:
            values = zero + self.rng.integers(-near, near + 1, shape)
        else:
            values = self.rng.integers(element.low, element.high, shape, endpoint=True)
            ends = self.rng.choice(np.array([element.low, element.high]), shape)
            values = np.where(self.rng.random(shape) < 0.15, ends, values)
        return np.clip(values, element.low, element.high).astype(np.int64)

    # -- the program

    def line(self, text: str) -> str:
        """A value by any text; its name."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def argument(self, type: str, content: bytes) -> str:
        """A new argument; its name."""
        self.arguments.append(type)
        self.inputs.append(content)
        return f"%a{len(self.arguments) - 1}"

    def value(self, element: Element, shape: Shape, near: int | None = None) -> Value:
        """A quantized value of random integers: an argument, a constant, or floats that are quantized."""
        return self.given(element, self.integers(element, shape, near), 0.7)

    def given(self, element: Element, integers: Ints, noise: float = 0.0) -> Value:
        """The same of these integers; floats are off by up to ``noise`` scales."""
        type = element.tensor(integers.shape)
        way = self.number(0, 3)
        if way == 2:
            element_type = f"i{element.width}"
            numbers = (integers + (1 << element.width - 1)) % (1 << element.width) - (1 << element.width - 1)
            inner = f"[{', '.join(map(str, numbers.ravel()))}]" if integers.size else ""
            flat = f"tensor<{integers.size}x{element_type}>"
            if element.axis is not None:
                name = self._shaped_constant(numbers, element_type, type)
            else:
                dense = f"dense<{inner}> : {flat}"
                flat_type = f"tensor<{integers.size}x{element.text}>"
                name = self.line(f'"stablehlo.constant"() <{{value = {dense}}}> : () -> {flat_type}')
                name = self.line(f"stablehlo.reshape {name} : ({flat_type}) -> {type}")
            return Value(name, element, integers)
        if way == 3 and element.width <= 8:
            return self._from_floats(element, integers, noise)
        content = (integers % (1 << element.width)).astype(f"<u{max(element.width, 8) // 8}").tobytes()
        return Value(self.argument(type, content), element, integers)

    def _shaped_constant(self, numbers: Ints, element_type: str, type: str) -> str:
        sizes = "".join(f"{size}x" for size in numbers.shape)
        inner = str(numbers.tolist()) if numbers.size else ""
        dense = f"dense<{inner}> : tensor<{sizes}{element_type}>"
        return self.line(f'"stablehlo.constant"() <{{value = {dense}}}> : () -> {type}')

    def _from_floats(self, element: Element, integers: Ints, noise: float) -> Value:
        floats = element.dequantized(integers)
        off = self.rng.uniform(-noise, noise, integers.shape) * element.spread(element.scales, integers.shape)
        floats = rounded(element.expressed, np.where(np.isfinite(floats), floats + off, 0.0))
        low, _ = element.quantized(floats)
        source = f"tensor<{''.join(f'{size}x' for size in integers.shape)}{element.expressed}>"
        name = self.argument(source, encode(element.expressed, floats).tobytes())
        type = element.tensor(integers.shape)
        return Value(self.line(f"stablehlo.uniform_quantize {name} : ({source}) -> {type}"), element, low)

    def give(self, name: str, element: Element, low: Ints, high: Ints | None = None) -> None:
        """Return a value, as it is or as floats, that must have these integers."""
        high = low if high is None else high
        type = element.tensor(low.shape)
        if not self.chance(0.2):
            self.give_as(name, type, element.storage, low, high)
            return
        floats = f"tensor<{''.join(f'{size}x' for size in low.shape)}{element.expressed}>"
        result = self.line(f"stablehlo.uniform_dequantize {name} : ({type}) -> {floats}")
        self.give_as(result, floats, element.expressed, element.dequantized(low), element.dequantized(high))

    def give_as(self, name: str, type: str, dtype: str, low: Ints | Reals, high: Ints | Reals) -> None:
        """Return a value of any type."""
        self.returned.append(name)
        self.checks.append(Check(type, dtype, low, high))
