"""Cases of forms for few rows: attention in parts of keys, products of few rows, rows in parts."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.gpu.kit.packing.programs import Argument, Array, Call, Expected, Program, Source, near
from benchmarks.gpu.kit.runtime.values import seeded, wide
from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from tests.gpu import test_few_rows
from tests.gpu.attention import test_decode
from tests.gpu.harness.programs import TOLERANCE
from tests.gpu.loops import test_long_rows

#: Sizes of decoding beside those of the tests: query heads, key heads, keys, depth.
_DECODING = (
    ("bf16", (1, 8, 2, 1, 2048, 128)),
    ("f16", (2, 4, 4, 16, 600, 64)),
    ("f32", (1, 8, 1, 1, 1536, 64)),
)


def few_rows() -> Iterator[Source]:
    """Decode attention, products of few rows or columns, and softmax and norms of few long rows."""
    yield from _decoding()
    yield from _products()
    yield from _rows()


def _seeded(dtype: str, shapes: list[tuple[int, ...]]) -> tuple[tuple[Argument, ...], list[Array]]:
    """Arguments that take no room in a pack, and their values in f64."""
    arguments = tuple(Argument(dtype, shape, None, seed) for seed, shape in enumerate(shapes, 1))
    return arguments, [wide(dtype, seeded(dtype, argument.shape, argument.seed)) for argument in arguments]


def _decoding() -> Iterator[Source]:
    for dtype, sizes in (*test_decode.CASES, *_DECODING):
        name = f"decode/{dtype}/{'x'.join(map(str, sizes))}"
        yield Source(name, "attention", dtype, partial(_decoded, dtype, sizes))


def _decoded(dtype: str, sizes: test_decode.Sizes) -> Program:
    typed = test_decode.arguments(sizes, dtype)
    arguments, arrays = _seeded(dtype, [array.shape for array in typed])
    wanted = test_decode.expected(test_decode.grouped, arrays)
    expected = near(dtype, wanted, 0.0, test_decode.BOUND[dtype] * max(1.0, float(np.abs(wanted).max())))
    compiled = partial(test_decode.compiled, test_decode.grouped, typed)
    return Program(compiled, (Call(arguments, (expected,)),))


def _products() -> Iterator[Source]:
    for dtype, sizes, transposed in test_few_rows.CASES:
        name = f"few_rows/{dtype}/{'x'.join(map(str, sizes))}{'/transposed' if transposed else ''}"
        yield Source(name, "templates", dtype, partial(_product, dtype, sizes, transposed))


def _product(dtype: str, sizes: test_few_rows.Sizes, transposed: bool) -> Program:
    arguments, arrays = _seeded(dtype, [*test_few_rows.shapes(sizes, transposed)])
    text = test_few_rows.text(dtype, sizes, transposed)
    scale = float(test_few_rows.expected([np.abs(array) for array in arrays], transposed).max())
    wanted = test_few_rows.expected(arrays, transposed)
    expected: Expected = near(dtype, wanted, 0.0, TOLERANCE[dtype] * scale)
    return Program(
        lambda target: lower_module(text, 3, target, CompileOptions(), lambda _: None),
        (Call(arguments, (expected,)),),
    )


def _rows() -> Iterator[Source]:
    for function, dtype, shapes, _ in test_long_rows.CASES:
        name = f"long_rows/{function.__name__}/{dtype}/{'x'.join(map(str, shapes[0]))}"
        yield Source(name, "reductions", dtype, partial(_long_row, function, dtype, shapes))


def _long_row(function: test_long_rows.Function, dtype: str, shapes: tuple[tuple[int, ...], ...]) -> Program:
    arguments, arrays = _seeded(dtype, [*shapes])
    wanted = test_long_rows.expected(function, arrays)
    expected = near(dtype, wanted, 0.0, test_long_rows.BOUND[dtype] * float(np.abs(wanted).max()))
    typed = test_long_rows.arguments(dtype, shapes)
    return Program(partial(test_long_rows.compiled, function, typed), (Call(arguments, (expected,)),))
