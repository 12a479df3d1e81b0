"""Random numbers: ``rng``, and the random bits of a counter.

``rng`` draws numbers between two bounds, or around a mean, of the random bits that Philox gives. Each draw of
a program has its own bits: its key is its number. A program gives the same ones each time.

Philox 4x32 has 10 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
2011), counted and laid out as XLA does, whose bits they are. The state is the key, then the counter of 128
bits, whose upper half is a third word, or the key again. Threefry is the toolchain's, in unsigned integers;
its Philox loses the carry between the halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.expansions.function_text import Lines, Shape, Tensor, tensor

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
    """As 64 bits, of which only differences count."""
    if value.element.startswith("ui") or value.element == "i1":
        return lines.convert(value, "ui64")
    return _recast(lines, lines.convert(value, "i64"), "ui64")


def _recast(lines: Lines, value: Tensor, element: str) -> Tensor:
    result = tensor(element, value.shape)
    text = f"stablehlo.bitcast_convert {value.name} : ({value.type}) -> {result}"
    return lines.line(text, element, value.shape)


_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def random_bits(lines: Lines, state: Tensor, algorithm: str, result: Tensor) -> list[Tensor]:
    """The state after it, and bits of the type of ``result``."""
    width = _WIDTH.get(result.element) or int(result.element.lstrip("ui"))
    if algorithm == "THREE_FRY":
        after, bits = _threefry(lines, state, f"ui{width}", result.shape)
    else:
        drawn, words = _philox(lines, state, width == 64, result.shape)
        after, bits = _advanced(lines, state, drawn), lines.convert(words, f"ui{width}")
    if result.element != bits.element:
        text = f"stablehlo.bitcast_convert {bits.name} : ({bits.type}) -> {result.type}"
        bits = lines.line(text, result.element, result.shape)
    return [after, bits]


def _threefry(lines: Lines, state: Tensor, element: str, shape: Shape) -> list[Tensor]:
    result = Tensor("", element, shape)
    text = (
        f"stablehlo.rng_bit_generator {state.name}, algorithm = THREE_FRY : "
        f"({state.type}) -> ({state.type}, {result.type})"
    )
    return lines.several(text, [state, result])


def _counter(lines: Lines, state: Tensor, number: int) -> Tensor:
    return lines.reshape(lines.cut(state, 0, number, number + 1), ())


def _advanced(lines: Lines, state: Tensor, drawn: int) -> Tensor:
    """The state with its counter ``drawn`` further, a third word taking what the second carries."""
    key, low = (lines.cut(state, 0, number, number + 1) for number in (0, 1))
    after = lines.each("add", low, lines.number(str(drawn), "ui64", (1,)))
    parts = [key, after]
    if state.shape == (3,):
        carry = lines.convert(lines.compare("LT", after, low), "ui64")
        parts.append(lines.each("add", lines.cut(state, 0, 2, 3), carry))
    return lines.concatenate(parts, 0)


def _words(lines: Lines, value: Tensor) -> list[Tensor]:
    """The lower and the upper half of 64 bits."""
    upper = lines.each("shift_right_logical", value, lines.number("32", "ui64", value.shape))
    return [lines.convert(value, "ui32"), lines.convert(upper, "ui32")]


def _joined(lines: Lines, lower: Tensor, upper: Tensor) -> Tensor:
    shifted = lines.each("shift_left", lines.convert(upper, "ui64"), lines.number("32", "ui64", upper.shape))
    return lines.each("or", lines.convert(lower, "ui64"), shifted)


def _philox(lines: Lines, state: Tensor, wide: bool, shape: Shape) -> tuple[int, Tensor]:
    """Four words a counter, one after the other."""
    expected = math.prod(shape) * (2 if wide else 1)
    count = -(-expected // 4)
    low = lines.broadcast(_counter(lines, state, 1), (count,), [])
    counter = lines.each("add", low, lines.iota("ui64", (count,), 0))
    carry = lines.convert(lines.compare("LT", counter, low), "ui64")
    start = lines.broadcast(_counter(lines, state, 2 if state.shape == (3,) else 0), (count,), [])
    high = lines.each("add", start, carry)
    keys = [lines.broadcast(word, (count,), []) for word in _words(lines, _counter(lines, state, 0))]
    words = [*_words(lines, counter), *_words(lines, high)]
    for turn in range(10):
        if turn:
            weyl = (lines.number(str(number), "ui32", (count,)) for number in _WEYL)
            keys = [lines.each("add", key, step) for key, step in zip(keys, weyl, strict=True)]
        words = _philox_round(lines, words, keys)
    columns = [lines.reshape(word, (count, 1)) for word in words]
    flat = lines.cut(lines.reshape(lines.concatenate(columns, 1), (4 * count,)), 0, 0, expected)
    if wide:
        pairs = lines.reshape(flat, (expected // 2, 2))
        lower, upper = (
            lines.reshape(lines.cut(pairs, 1, position, position + 1), (expected // 2,))
            for position in (0, 1)
        )
        flat = _joined(lines, lower, upper)
    return count, lines.reshape(flat, shape)


def _philox_round(lines: Lines, words: list[Tensor], keys: list[Tensor]) -> list[Tensor]:
    halves: list[Tensor] = []
    for word, number in zip(words[::2], _MULTIPLIERS, strict=True):
        factor = lines.number(str(number), "ui64", word.shape)
        halves += _words(lines, lines.each("multiply", lines.convert(word, "ui64"), factor))
    low, high, below, above = halves
    first = lines.each("xor", lines.each("xor", above, words[1]), keys[0])
    return [first, below, lines.each("xor", lines.each("xor", high, words[3]), keys[1]), low]
