"""``rng``: random numbers between two bounds, or around a mean, of the random bits that Philox gives.

Each draw of a program has bits of its own: its key is its number. A program gives the same ones each time.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.expansions.function_text import Lines, Shape, Tensor, tensor
from kcache_compiler.passes.legalize.expansions.philox import random_bits

#: Bits that a float between 0 and 1 is made of, and those of the words they are drawn in.
_DIGITS = {"f32": (24, 32), "f64": (53, 64)}

STATE = Tensor("", "ui64", (2,))
State = Callable[[], Tensor]


def state_of(draw: int) -> str:
    """The state that the bits of a draw begin with, of type ``STATE``."""
    return f"dense<[{draw}, 0]> : {STATE.type}"


def distribution_of(op: mlir.Op) -> str:
    """``UNIFORM`` or ``NORMAL``."""
    return str(op.attributes["rng_distribution"]).rstrip(">").split()[-1]


def drawn(distribution: str, lines: Lines, low: Tensor, high: Tensor, shape: Shape, state: State) -> Tensor:
    """What ``rng`` of a distribution gives, of the bits that begin with ``state``, made where it is read."""
    draw = _normal if distribution == "NORMAL" else _uniform
    return draw(lines, low, high, shape, state)


def _uniform(lines: Lines, low: Tensor, high: Tensor, shape: Shape, state: State) -> Tensor:
    """At least ``low``, less than ``high``; ``low`` where nothing is between them."""
    if "f" in low.element:
        return _uniform_floats(lines, low, high, shape, state)
    bits = _bits(lines, 64, shape, state)
    first, last = _whole(lines, low), _whole(lines, high)
    span = lines.each("maximum", lines.each("subtract", last, first), lines.number("1", "ui64"))
    rest = lines.each("remainder", bits, lines.broadcast(span, shape, []))
    whole = lines.each("add", lines.broadcast(first, shape, []), rest)
    if not low.element.startswith("ui") and low.element != "i1":
        whole = _recast(lines, whole, "i64")
    return lines.convert(whole, low.element)


def _normal(lines: Lines, mean: Tensor, deviation: Tensor, shape: Shape, state: State) -> Tensor:
    """Around ``mean``, by the inverse of the distribution."""
    element = "f64" if mean.element == "f64" else "f32"
    digits, width = _DIGITS[element]
    half = lines.number("0.5", element, shape)
    parts = lines.each("add", _digits(lines, digits - 1, width, element, shape, state), half)
    scale = lines.number(f"{2.0 ** (2 - digits):.17e}", element, shape)
    between = lines.each(
        "subtract", lines.each("multiply", parts, scale), lines.number("1.0", element, shape)
    )
    kind = between.type
    inverse = lines.line(f"chlo.erf_inv {between.name} : {kind} -> {kind}", element, shape)
    root = lines.number(f"{2.0**0.5:.17e}", element, shape)
    wide = [lines.broadcast(lines.convert(parameter, element), shape, []) for parameter in (mean, deviation)]
    result = lines.each("multiply", lines.each("multiply", inverse, root), wide[1])
    return lines.convert(lines.each("add", result, wide[0]), mean.element)


def _uniform_floats(lines: Lines, low: Tensor, high: Tensor, shape: Shape, state: State) -> Tensor:
    element = "f64" if low.element == "f64" else "f32"
    digits, width = _DIGITS[element]
    scale = lines.number(f"{2.0**-digits:.17e}", element, shape)
    part = lines.each("multiply", _digits(lines, digits, width, element, shape, state), scale)
    rest = lines.each("subtract", lines.number("1.0", element, shape), part)
    first, last = (lines.broadcast(lines.convert(bound, element), shape, []) for bound in (low, high))
    result = lines.each("add", lines.each("multiply", first, rest), lines.each("multiply", last, part))
    result = lines.convert(result, low.element)
    first, last = (lines.broadcast(bound, shape, []) for bound in (low, high))
    # What is rounded may reach the upper bound, or fall below the lower one.
    result = lines.each("maximum", result, first)
    return lines.choose(lines.compare("GE", result, last), first, result)


def _digits(lines: Lines, digits: int, width: int, element: str, shape: Shape, state: State) -> Tensor:
    """Random whole numbers of this many bits, as floats."""
    bits = _bits(lines, width, shape, state)
    shift = lines.number(str(width - digits), bits.element, shape)
    return lines.convert(lines.each("shift_right_logical", bits, shift), element)


def _bits(lines: Lines, width: int, shape: Shape, state: State) -> Tensor:
    return random_bits(lines, state(), "DEFAULT", Tensor("", f"ui{width}", shape))[1]


def _whole(lines: Lines, value: Tensor) -> Tensor:
    """As 64 bits, of which differences count alone."""
    if value.element.startswith("ui") or value.element == "i1":
        return lines.convert(value, "ui64")
    return _recast(lines, lines.convert(value, "i64"), "ui64")


def _recast(lines: Lines, value: Tensor, element: str) -> Tensor:
    result = tensor(element, value.shape)
    text = f"stablehlo.bitcast_convert {value.name} : ({value.type}) -> {result}"
    return lines.line(text, element, value.shape)
