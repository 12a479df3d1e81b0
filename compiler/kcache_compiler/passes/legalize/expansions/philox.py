"""Random bits of a counter: Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random
numbers: as easy as 1, 2, 3", SC 2011), counted and laid out as XLA does, whose bits they are.

The state is the key, then the counter of 128 bits, whose upper half is a third word, or the key again.
Threefry is the toolchain's, in unsigned integers; its Philox loses the carry between the halves.
"""

from __future__ import annotations

import math

from kcache_compiler.passes.legalize.expansions.function_text import Lines, Shape, Tensor

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
