"""Random bits, whose oracle is NumPy: the interpreter has none of them. XLA gives the same."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tests.ops.generated.draft import Draft, Family, Shape, Value
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import DTYPES, FLOATS, INTEGERS, encode, tensor

_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
Words = npt.NDArray[np.uint64]


def families() -> dict[str, Family]:
    """Every operation of this file."""
    return {
        "rng": Family((*INTEGERS, *FLOATS), _numbers),
        "rng_bit_generator": Family((*INTEGERS, *FLOATS), _bits),
    }


def _numbers(draft: Draft) -> OpProgram:
    """Which numbers come is left open: the results are whether each is between the bounds, and whether as
    many as should be, within six deviations, are in the lower half (uniform), or near the mean and below it.
    """
    wished = draft.wished("rng_distribution")
    normal = draft.dtype in FLOATS and (wished == "NORMAL" if wished else draft.chance(0.5))
    shape = draft.pick(((2048,), (16, 128), (4, 8, 64), draft.shape()))
    if draft.wish and not wished:
        shape, normal = draft.shape(), False
    low, middle, high = _bounds(draft)
    middle = draft.number(-2, 2) if normal else middle
    bounds = [_scalar(draft, number) for number in ((middle, 1) if normal else (low, high))]
    sizes = draft.numbers(shape)
    name = "NORMAL" if normal else "UNIFORM"
    attributes = f"rng_distribution = #stablehlo<rng_distribution {name}>"
    drawn = draft.call([*bounds, sizes], [(draft.dtype, shape)], attributes)[0]
    count = math.prod(shape)
    if not normal:
        inside = _both(draft, _is(draft, drawn, "GE", low), _is(draft, drawn, "LT", high))
        halves = _counted(draft, _is(draft, drawn, "LT", middle), count, 0.5)
        return draft.program([inside, halves], expected=[bytes([1]) * count, bytes([1])])
    near = _both(draft, _is(draft, drawn, "GT", middle - 1), _is(draft, drawn, "LT", middle + 1))
    below = _is(draft, drawn, "LT", middle)
    checks = [_counted(draft, near, count, 0.6827), _counted(draft, below, count, 0.5)]
    return draft.program(checks, expected=[bytes([1]), bytes([1])])


def _bounds(draft: Draft) -> tuple[int, int, int]:
    """A lower bound, a higher one, and the number in their middle."""
    if draft.dtype in INTEGERS and draft.chance(0.3):
        limits = np.iinfo(DTYPES[draft.dtype][1])
        half = (int(limits.max) - int(limits.min)) // 2
        return int(limits.min), int(limits.min) + half, int(limits.min) + 2 * half
    half = draft.number(8 if draft.dtype in FLOATS else 1, 20)
    low = draft.number(0, 20) if draft.dtype.startswith("u") else draft.number(-20, 20)
    return low, low + half, low + 2 * half


def _scalar(draft: Draft, number: int) -> Value:
    storage = DTYPES[draft.dtype][1]
    if draft.dtype in FLOATS:
        return draft.given((), encode(draft.dtype, np.array(float(number))).tobytes(), draft.dtype)
    return draft.given((), np.array(number, storage).tobytes(), draft.dtype)


def _is(draft: Draft, value: Value, way: str, number: int) -> Value:
    text = f"{number}.0" if draft.dtype in FLOATS else str(number)
    constant = f"stablehlo.constant dense<{text}> : {value.type}"
    bound = draft.line(constant, value.dtype, value.shape)
    flags = tensor("i1", value.shape)
    known = f"stablehlo.compare {way}, {value.name}, {bound.name} : ({value.type}, {value.type}) -> {flags}"
    return draft.line(known, "i1", value.shape)


def _both(draft: Draft, first: Value, other: Value) -> Value:
    return draft.line(f"stablehlo.and {first.name}, {other.name} : {first.type}", "i1", first.shape)


def _counted(draft: Draft, flags: Value, count: int, share: float) -> Value:
    """Whether about so many are true; of few, any number."""
    slack = 6 * math.sqrt(count * share * (1 - share)) + 1
    least, most = max(0, math.floor(count * share - slack)), math.ceil(count * share + slack)
    number = tensor("i32", ())
    whole = tensor("i32", flags.shape)
    wide = draft.line(f"stablehlo.convert {flags.name} : ({flags.type}) -> {whole}", "i32", flags.shape)
    zero = draft.line(f"stablehlo.constant dense<0> : {number}", "i32", ())
    dims = ", ".join(map(str, range(len(flags.shape))))
    total = draft.line(
        f"stablehlo.reduce({wide.name} init: {zero.name}) applies stablehlo.add across dimensions = [{dims}] "
        f": ({whole}, {number}) -> {number}",
        "i32",
        (),
    )
    checks: list[Value] = []
    for way, bound in (("GE", least), ("LE", most)):
        limit = draft.line(f"stablehlo.constant dense<{bound}> : {number}", "i32", ())
        text = f"stablehlo.compare {way}, {total.name}, {limit.name} : ({number}, {number}) -> tensor<i1>"
        checks.append(draft.line(text, "i1", ()))
    return _both(draft, *checks)


def _bits(draft: Draft) -> OpProgram:
    algorithm = draft.pick(("THREE_FRY", "PHILOX", "DEFAULT"), "rng_algorithm")
    count = 2 if algorithm == "THREE_FRY" else draft.number(2, 3)
    state = [int(word) for word in draft.rng.integers(0, 2**64, count, dtype=np.uint64)]
    if draft.chance(0.5):  # the counter overflows
        state[1] = 2**64 - draft.number(1, 4)
    if draft.chance(0.2):
        state[-1] = 2**64 - draft.number(1, 4)
    shape = draft.shape()
    width = 8 * (_BYTES.get(draft.dtype) or int(draft.dtype.lstrip("ui")) // 8)
    draw = _threefry if algorithm == "THREE_FRY" else _philox
    after, words = draw(state, shape, width == 64) if math.prod(shape) else (state, np.zeros(0, np.uint64))
    value = draft.given((count,), np.array(state, "<u8").tobytes(), "ui64")
    attributes = f"rng_algorithm = #stablehlo<rng_algorithm {algorithm}>"
    results = draft.call([value], [("ui64", (count,)), (draft.dtype, shape)], attributes)
    expected = [np.array(after, "<u8").tobytes(), words.astype(f"<u{width // 8}").tobytes()]
    return draft.program(results, expected=expected)


def _advanced(state: list[int], drawn: int) -> list[int]:
    low = state[1] + drawn
    return [state[0], low % 2**64, *((word + low // 2**64) % 2**64 for word in state[2:])]


def _philox(state: list[int], shape: Shape, wide: bool) -> tuple[list[int], Words]:
    wanted = math.prod(shape) * (2 if wide else 1)
    count = -(-wanted // 4)
    flat: list[int] = []
    for place in range(count):
        counter = (state[1] + (state[-1 if len(state) == 3 else 0] << 64) + place) % 2**128
        words = [counter >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
        keys = [state[0] & 0xFFFFFFFF, state[0] >> 32]
        for _ in range(10):
            low, high = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
            words = [
                high >> 32 ^ words[1] ^ keys[0],
                high & 0xFFFFFFFF,
                low >> 32 ^ words[3] ^ keys[1],
                low & 0xFFFFFFFF,
            ]
            keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
        flat += words
    bits = np.array(flat[:wanted], np.uint64)
    return _advanced(state, count), bits[::2] | bits[1::2] << np.uint64(32) if wide else bits


def _threefry(state: list[int], shape: Shape, wide: bool) -> tuple[list[int], Words]:
    if wide:
        both = _threefry_words(state, math.prod(shape))
        return _advanced(state, math.prod(shape)), both[:, 0] | both[:, 1] << np.uint64(32)
    if not shape:
        return _advanced(state, 1), _threefry_words(state, 1)[:, 0]
    axis = next((axis for axis, size in enumerate(shape) if size % 2 == 0), shape.index(max(shape)))
    half = (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])
    both = _threefry_words(state, math.prod(half)).reshape(*half, 2)
    whole = np.moveaxis(both, -1, axis + 1).reshape(*half[:axis], 2 * half[axis], *half[axis + 1 :])
    return _advanced(state, math.prod(half)), np.take(whole, range(shape[axis]), axis)


def _threefry_words(state: list[int], count: int) -> Words:
    blocks: list[list[int]] = []
    keys = [state[0] & 0xFFFFFFFF, state[0] >> 32]
    keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
    for place in range(count):
        counter = (state[1] + place) % 2**64
        words = [(counter & 0xFFFFFFFF) + keys[0], (counter >> 32) + keys[1]]
        for turn in range(5):
            for bits in ((13, 15, 26, 6), (17, 29, 16, 24))[turn % 2]:
                words = [word & 0xFFFFFFFF for word in words]
                words[0] = (words[0] + words[1]) & 0xFFFFFFFF
                words[1] = words[0] ^ ((words[1] << bits | words[1] >> (32 - bits)) & 0xFFFFFFFF)
            words[0] += keys[(turn + 1) % 3]
            words[1] += keys[(turn + 2) % 3] + turn + 1
        blocks.append([word & 0xFFFFFFFF for word in words])
    return np.array(blocks, np.uint64)
