"""Functions of two: every f16 and bf16 with edges on the other side; whole numbers of all widths."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.ops.generated.judge import execute
from tests.ops.harness.programs import OpProgram

HALF_PRECISION = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
#: operation -> what it is in f64, and units that the rounded result may be off.
OF_FLOATS: dict[str, tuple[Callable[..., np.ndarray], int]] = {
    "stablehlo.power": (np.power, 1),
    "stablehlo.atan2": (np.arctan2, 1),
    "stablehlo.remainder": (np.fmod, 0),
    "stablehlo.divide": (np.divide, 0),
    "stablehlo.maximum": (np.maximum, 0),
    "stablehlo.minimum": (np.minimum, 0),
}


def run(op: str, dtype: str, storage: np.dtype, arguments: list[np.ndarray]) -> np.ndarray:
    kind = f"tensor<{arguments[0].size}x{dtype}>"
    names = [f"%a{n}" for n in range(len(arguments))]
    head = ", ".join(f"{name}: {kind}" for name in names)
    types = ", ".join([kind] * len(names))
    call = f'"{op}"({", ".join(names)}) : ({types}) -> {kind}'
    text = f"func.func @main({head}) -> ({kind}) {{\n  %0 = {call}\n  return %0 : {kind}\n}}\n"
    program = OpProgram(op, dtype, text, [array.astype(storage).tobytes() for array in arguments], [dtype])
    [content] = execute(program, 2, "default")
    return np.frombuffer(content, storage)


def edges(dtype: str) -> np.ndarray:
    info = ml_dtypes.finfo(HALF_PRECISION[dtype])
    sizes = [0, 1, 2, 3, 0.5, 1.5, 10, 1 / 3, float(info.smallest_subnormal), float(info.max), np.inf]
    return np.array([*sizes, *(-size for size in sizes), np.nan], HALF_PRECISION[dtype])


@pytest.mark.sampled(18)
@pytest.mark.parametrize("dtype", list(HALF_PRECISION))
@pytest.mark.parametrize("op", list(OF_FLOATS))
def test_every_half_with_edges(op: str, dtype: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(HALF_PRECISION[dtype])
    a, b = (array.ravel() for array in np.meshgrid(every, edges(dtype)))
    first, second = np.concatenate([a, b]), np.concatenate([b, a])
    got = run(op, dtype, HALF_PRECISION[dtype], [first, second])
    function, units = OF_FLOATS[op]
    with np.errstate(all="ignore"):
        # The product with 1 makes signaling NaNs quiet, which some C libraries raise to the power 0 to NaN.
        wide = [array.astype(np.float64) * 1.0 for array in (first, second)]
        want = function(*wide).astype(HALF_PRECISION[dtype])
    nan = np.isnan(got) & np.isnan(want)
    distance = np.abs(_ordered(got) - _ordered(want))
    wrong = ~nan & ((distance > units) | (np.isnan(got) != np.isnan(want)))
    assert not wrong.any(), [(first[i], second[i], got[i], want[i]) for i in np.flatnonzero(wrong)[:5]]


def _ordered(values: np.ndarray) -> np.ndarray:
    """Integers in the order of the values, both zeros equal."""
    raw = values.view(np.int16).astype(np.int64)
    return np.where(raw < 0, -(1 << 15) - raw, raw)


WIDTHS = {"i2": 2, "i4": 4, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
STORAGE = {"i2": ml_dtypes.int2, "i4": ml_dtypes.int4, "ui2": ml_dtypes.uint2, "ui4": ml_dtypes.uint4}
OF_INTEGERS = ("shift_left", "shift_right_logical", "shift_right_arithmetic", "divide", "remainder", "power")


def _storage(dtype: str) -> np.dtype:
    return np.dtype(STORAGE.get(dtype) or f"{'u' if dtype.startswith('u') else ''}int{dtype.lstrip('ui')}")


def _ends(dtype: str) -> list[int]:
    width = WIDTHS[dtype.lstrip("u")]
    least, most = (0, 2**width - 1) if dtype.startswith("u") else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
    near = {least, least + 1, most, most - 1, most // 2, -1, 0, 1, 2, 3, 7, width - 1, width, width + 1}
    return sorted(number for number in near if least <= number <= most)


def _whole(op: str, dtype: str, a: int, b: int) -> int:
    """As XLA has it: n / 0 is -1 with the rest n, shifts by the width and more leave the sign or nothing."""
    width = WIDTHS[dtype.lstrip("u")]
    bits, by = a % 2**width, b % 2**width
    match op:
        case "shift_left":
            shifted = bits << by if by < width else 0
        case "shift_right_logical":
            shifted = bits >> by if by < width else 0
        case "shift_right_arithmetic":
            shifted = _wrapped(bits, width, True) >> min(by, width - 1)
        case "power":
            inverse = {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
            shifted = inverse if b < 0 else pow(a, b, 2**width)
        case _:
            quotient = -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            shifted = quotient if op == "divide" else a if b == 0 else a - b * quotient
    return _wrapped(shifted, width, not dtype.startswith("u"))


def _wrapped(value: int, width: int, signed: bool) -> int:
    value %= 2**width
    return value - 2**width if signed and value >= 2 ** (width - 1) else value


@pytest.mark.sampled(24)
@pytest.mark.parametrize("dtype", [f"{sign}{width}" for sign in ("", "u") for width in WIDTHS])
@pytest.mark.parametrize("op", OF_INTEGERS)
def test_integers_at_their_ends(op: str, dtype: str) -> None:
    pairs = [(a, b) for a in _ends(dtype) for b in _ends(dtype)]
    storage = _storage(dtype)
    arguments = [np.array(column, object).astype(storage) for column in zip(*pairs, strict=True)]
    got = [int(value) for value in run(f"stablehlo.{op}", dtype, storage, arguments)]
    assert got == [_whole(op, dtype, a, b) for a, b in pairs]
