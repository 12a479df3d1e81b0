"""Operations whose programs on small elements are not those of other dtypes: bits, constants, counting."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from kcache_compiler.types import SMALL, SMALL_FLOATS, SMALL_INTEGERS
from tests.ops.generated.draft import Draft, Shape
from tests.ops.harness.programs import OpProgram
from tests.ops.narrow_types.values import FINITE, POWERS, codes

_PLAIN = {"i8": 8, "ui8": 8, "i16": 16, "ui32": 32, "f16": 16, "f32": 32, "i64": 64}
WIDTHS = {dtype: int(dtype[1]) if dtype in SMALL_FLOATS else int(dtype.lstrip("ui")) for dtype in SMALL}


def type_of(dtype: str, shape: Shape) -> str:
    """MLIR's name of a tensor type."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


def program(op: str, dtype: str, rng: np.random.Generator) -> OpProgram:
    """One of ``OWN``."""
    return OWN[op](dtype, Draft(op, "i8", rng))


def _made(
    op: str,
    dtype: str,
    line: str,
    inputs: list[tuple[str, Shape, bytes]],
    result: tuple[str, Shape],
    expected: list[bytes] | None,
    ulps: float = 0.0,
) -> OpProgram:
    arguments = ", ".join(f"%a{i}: {type_of(name, shape)}" for i, (name, shape, _) in enumerate(inputs))
    kind = type_of(*result)
    text = f"func.func @main({arguments}) -> ({kind}) {{\n  %0 = {line}\n  return %0 : {kind}\n}}\n"
    return OpProgram(op, dtype, text, [data for _, _, data in inputs], [result[0]], ulps, expected=expected)


def _bitcast(dtype: str, draft: Draft) -> OpProgram:
    """To or from any type whose width fits: the first of several is the lowest bits."""
    width = WIDTHS[dtype]
    widths = {**WIDTHS, **_PLAIN}
    fits = [name for name, other in widths.items() if max(width, other) % min(width, other) == 0]
    source, target = dtype, draft.pick(fits)
    if draft.chance(0.5):
        source, target = target, source
    before, after = widths[source], widths[target]
    shape = draft.shape(0, 3, limit=60)
    bits_shape: Shape = (*shape, after // before) if after > before else shape
    result: Shape = (*shape, before // after) if before > after else shape
    bits = draft.rng.integers(0, 2, (math.prod(bits_shape), before)).astype(np.uint8)
    data, wanted = _stored(bits), _stored(bits.reshape(-1, after))
    line = f"stablehlo.bitcast_convert %a0 : ({type_of(source, bits_shape)}) -> {type_of(target, result)}"
    return _made("bitcast_convert", dtype, line, [(source, bits_shape, data)], (target, result), [wanted])


def _stored(bits: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> bytes:
    """Elements of so many bits a row as buffers hold them."""
    width = bits.shape[1]
    padded = np.pad(bits, ((0, 0), (0, -width % 8)))
    return np.packbits(padded, axis=1, bitorder="little").tobytes()


def _constant(dtype: str, draft: Draft) -> OpProgram:
    """Any codes; one everywhere, a few, or more than a spec says in words."""
    shape = draft.shape(1, 3) if draft.chance(0.8) else (draft.number(1025, 1300),)
    count = math.prod(shape)
    content = codes(draft.rng, dtype, 1 if draft.chance(0.3) else count, "any")
    text = f'"0x{content.tobytes().hex().upper()}"' if count else ""
    whole = np.resize(content, count).tobytes() if count else b""
    line = f"stablehlo.constant dense<{text}> : {type_of(dtype, shape)}"
    return _made("constant", dtype, line, [("i8", (), bytes(1))], (dtype, shape), [whole])


def _iota(dtype: str, draft: Draft) -> OpProgram:
    shape = draft.shape(1, 3)
    axis = draft.number(0, len(shape) - 1)
    line = f"stablehlo.iota dim = {axis} : {type_of(dtype, shape)}"
    return _made("iota", dtype, line, [("i8", (), bytes(1))], (dtype, shape), None)


def _precision(dtype: str, draft: Draft) -> OpProgram:
    shape = draft.shape()
    kind = type_of(dtype, shape)
    line = f"stablehlo.reduce_precision %a0, format = e{draft.number(5, 8)}m{draft.number(4, 9)} : {kind}"
    content = codes(draft.rng, dtype, math.prod(shape), "some").tobytes()
    return _made("reduce_precision", dtype, line, [(dtype, shape, content)], (dtype, shape), None)


def _power(dtype: str, draft: Draft) -> OpProgram:
    shape = draft.shape()
    kind = type_of(dtype, shape)
    contents = [codes(draft.rng, dtype, math.prod(shape), "positive").tobytes() for _ in range(2)]
    line = f"stablehlo.power %a0, %a1 : {kind}"
    return _made(
        "power", dtype, line, [(dtype, shape, content) for content in contents], (dtype, shape), None, 1.0
    )


OWN: dict[str, Callable[[str, Draft], OpProgram]] = {
    "bitcast_convert": _bitcast,
    "constant": _constant,
    "iota": _iota,
    "reduce_precision": _precision,
    "power": _power,
}


def pairs() -> list[tuple[str, str]]:
    """Every operation of this file with its dtypes."""
    among = {
        "iota": tuple(dtype for dtype in SMALL if dtype != POWERS),
        "reduce_precision": tuple(dtype for dtype in SMALL_FLOATS if dtype not in (*FINITE, POWERS)),
        "power": tuple(dtype for dtype in SMALL_FLOATS if dtype != POWERS),
    }
    return [(op, dtype) for op in OWN for dtype in among.get(op, (*SMALL_INTEGERS, *SMALL_FLOATS))]
