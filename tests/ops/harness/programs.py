"""Programs that exercise each op in each dtype, with inputs, for differential tests.

One program covers one op and dtype over several shapes, as several results, so that a suite of a
thousand cases stays a matter of minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from tests.ops.harness.values import (
    ALL,
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    generator,
    random_bytes,
    tensor,
)

#: Odd, one-element, empty and scalar shapes.
SHAPES: tuple[tuple[int, ...], ...] = ((37,), (3, 5), (1, 1), (0, 4), ())
#: Units in the last place against the interpreter, which uses the host's libm.
TRANSCENDENTAL = 3.0


@dataclass
class OpProgram:
    """A module whose ``main`` runs on ``inputs`` (raw bytes); results are compared within ``ulps``."""

    op: str
    dtype: str
    text: str
    inputs: list[bytes]
    result_dtypes: list[str]
    ulps: float = 0.0
    absolute: float = 0.0
    variant: str = ""
    #: Where the interpreter is known to be wrong: results by other means.
    expected: list[bytes] | None = None
    #: What the interpreter runs instead of ``text``, which it does not know.
    oracle: str = ""

    @property
    def id(self) -> str:
        """Name of the case."""
        return "-".join(part for part in (self.op, self.variant, self.dtype) if part)


@dataclass
class _Builder:
    """Collects arguments, lines and results of a ``main``."""

    seed: tuple[object, ...]
    arguments: list[str] = field(default_factory=list)
    inputs: list[bytes] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    result_dtypes: list[str] = field(default_factory=list)

    def argument(self, dtype: str, shape: tuple[int, ...], kind: str = "any") -> str:
        name = f"%a{len(self.arguments)}"
        rng = generator(*self.seed, len(self.arguments))
        self.arguments.append(f"{name}: {tensor(dtype, shape)}")
        self.inputs.append(random_bytes(rng, dtype, math.prod(shape), kind))
        return name

    def value(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def result(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self.results.append((name, tensor(dtype, shape)))
        self.result_dtypes.append(dtype)

    def program(
        self, op: str, dtype: str, ulps: float = 0.0, variant: str = "", absolute: float = 0.0
    ) -> OpProgram:
        types = ", ".join(type for _, type in self.results)
        names = ", ".join(name for name, _ in self.results)
        body = "\n  ".join([*self.lines, f"return {names} : {types}"])
        text = f"func.func @main({', '.join(self.arguments)}) -> ({types}) {{\n  {body}\n}}\n"
        return OpProgram(op, dtype, text, self.inputs, self.result_dtypes, ulps, absolute, variant)


@cache
def all_programs() -> tuple[OpProgram, ...]:
    """Every case, in a stable order. Callers share the programs: none changes them."""
    families: list[Callable[[], Iterator[OpProgram]]] = [
        unary,
        binary,
        comparisons,
        conversions,
        selections,
        shape_ops,
        indexing,
        reductions,
        windows,
        contractions,
        control_flow,
        complex_ops,
        special_functions,
        many_results,
        reductions_of_views,
    ]
    return tuple(program for family in families for program in family())


_EXACT_UNARY: dict[str, tuple[str, ...]] = {
    "abs": SIGNED + FLOATS,
    "negate": INTEGERS + FLOATS + COMPLEX,
    "sign": SIGNED + FLOATS,
    "floor": FLOATS,
    "ceil": FLOATS,
    "round_nearest_afz": FLOATS,
    "round_nearest_even": FLOATS,
    "sqrt": FLOATS,
    "not": ("i1", *INTEGERS),
    "popcnt": INTEGERS,
    "count_leading_zeros": INTEGERS,
}
_MATH_UNARY = (
    "exponential",
    "exponential_minus_one",
    "log",
    "log_plus_one",
    "logistic",
    "tanh",
    "tan",
    "sine",
)
_MATH_UNARY += ("cosine", "rsqrt", "cbrt")


def unary() -> Iterator[OpProgram]:
    for op, dtypes in _EXACT_UNARY.items():
        for dtype in dtypes:
            yield _elementwise(op, dtype, 1, 0.0)
    for op in _MATH_UNARY:
        for dtype in FLOATS:
            yield _elementwise(op, dtype, 1, TRANSCENDENTAL)
    for dtype in FLOATS:
        b = _Builder(("is_finite", dtype))
        for shape in SHAPES:
            name = b.argument(dtype, shape)
            signature = f"({tensor(dtype, shape)}) -> {tensor('i1', shape)}"
            b.result(b.value(f"stablehlo.is_finite {name} : {signature}"), "i1", shape)
        yield b.program("is_finite", dtype)


_BINARY: dict[str, tuple[str, ...]] = {
    "add": ALL,
    "subtract": NUMBERS,
    "multiply": ALL,
    "divide": INTEGERS + FLOATS,
    "maximum": ("i1", *INTEGERS, *FLOATS),
    "minimum": ("i1", *INTEGERS, *FLOATS),
    "and": ("i1", *INTEGERS),
    "or": ("i1", *INTEGERS),
    "xor": ("i1", *INTEGERS),
    "shift_left": INTEGERS,
    "shift_right_arithmetic": INTEGERS,
    "shift_right_logical": INTEGERS,
    "remainder": INTEGERS + FLOATS,
}


def binary() -> Iterator[OpProgram]:
    for op, dtypes in _BINARY.items():
        for dtype in dtypes:
            yield _elementwise(op, dtype, 2, 0.0)
    for dtype in FLOATS:
        yield _elementwise("power", dtype, 2, 4.0)
        yield _elementwise("atan2", dtype, 2, TRANSCENDENTAL)
    for dtype in INTEGERS:
        yield _elementwise("power", dtype, 2, 0.0, kind="small")


def _elementwise(op: str, dtype: str, arity: int, ulps: float, kind: str = "any") -> OpProgram:
    b = _Builder((op, dtype))
    kinds = [kind] * arity
    if op in ("divide", "remainder") and dtype in INTEGERS:
        kinds[1] = "divisor"
    for shape in SHAPES:
        names = ", ".join(b.argument(dtype, shape, kind) for kind in kinds)
        b.result(b.value(f"stablehlo.{op} {names} : {tensor(dtype, shape)}"), dtype, shape)
    return b.program(op, dtype, ulps)


def comparisons() -> Iterator[OpProgram]:
    for dtype in ("i1", *INTEGERS, *FLOATS, *COMPLEX):
        b = _Builder(("compare", dtype))
        x, y = b.argument(dtype, (61,)), b.argument(dtype, (61,))
        signature = f"({tensor(dtype, (61,))}, {tensor(dtype, (61,))}) -> {tensor('i1', (61,))}"
        directions = ("EQ", "NE") if dtype in COMPLEX else ("EQ", "NE", "LT", "LE", "GT", "GE")
        for direction in directions:
            b.result(b.value(f"stablehlo.compare {direction}, {x}, {y} : {signature}"), "i1", (61,))
        yield b.program("compare", dtype)
    for dtype in FLOATS:
        b = _Builder(("compare_total", dtype))
        x, y = b.argument(dtype, (61,)), b.argument(dtype, (61,))
        signature = f"({tensor(dtype, (61,))}, {tensor(dtype, (61,))}) -> {tensor('i1', (61,))}"
        b.result(b.value(f"stablehlo.compare LT, {x}, {y}, TOTALORDER : {signature}"), "i1", (61,))
        program = b.program("compare", dtype, variant="totalorder")
        program.expected = [total_order(dtype, *program.inputs)]
        yield program


def total_order(dtype: str, left: bytes, right: bytes) -> bytes:
    """IEEE 754 totalOrder, less than; the interpreter puts f64 NaN below negative numbers."""
    return (total_ranks(dtype, left) < total_ranks(dtype, right)).astype(np.uint8).tobytes()


def total_ranks(dtype: str, data: bytes) -> npt.NDArray[np.uint64]:
    """Numbers in the order of IEEE 754's totalOrder."""
    bits = np.frombuffer(data, DTYPES[dtype][1])
    sign = bits.dtype.type(1 << (8 * bits.dtype.itemsize - 1))
    return np.where(bits & sign != 0, ~bits, bits | sign).astype(np.uint64)


def conversions() -> Iterator[OpProgram]:
    for source in ALL:
        b = _Builder(("convert", source))
        name = b.argument(source, (41,))
        for target in ALL:
            signature = f"({tensor(source, (41,))}) -> {tensor(target, (41,))}"
            b.result(b.value(f"stablehlo.convert {name} : {signature}"), target, (41,))
        yield b.program("convert", source)
    for source, target in (("f32", "i32"), ("i32", "f32"), ("f64", "ui64"), ("f16", "i16"), ("ui16", "bf16")):
        b = _Builder(("bitcast", source))
        name = b.argument(source, (3, 7))
        signature = f"({tensor(source, (3, 7))}) -> {tensor(target, (3, 7))}"
        b.result(b.value(f"stablehlo.bitcast_convert {name} : {signature}"), target, (3, 7))
        yield b.program("bitcast_convert", source)
    for source, split in (("i32", "i8"), ("f64", "i16")):
        ratio = int(source[1:]) // int(split[1:])
        b = _Builder(("bitcast_split", source))
        wide, narrow = tensor(source, (5,)), tensor(split, (5, ratio))
        name = b.argument(source, (5,))
        b.result(b.value(f"stablehlo.bitcast_convert {name} : ({wide}) -> {narrow}"), split, (5, ratio))
        other = b.argument(split, (5, ratio))
        b.result(b.value(f"stablehlo.bitcast_convert {other} : ({narrow}) -> {wide}"), source, (5,))
        yield b.program("bitcast_convert", source, variant="widths")
    for dtype in FLOATS:
        b = _Builder(("reduce_precision", dtype))
        name = b.argument(dtype, (61,))
        for exponent, mantissa in ((5, 2), (4, 3), (8, 7), (5, 0)):
            text = (
                f"stablehlo.reduce_precision {name}, format = e{exponent}m{mantissa} : {tensor(dtype, (61,))}"
            )
            b.result(b.value(text), dtype, (61,))
        yield b.program("reduce_precision", dtype)


def selections() -> Iterator[OpProgram]:
    for dtype in ALL:
        b = _Builder(("select", dtype))
        for shape in SHAPES:
            p, x, y = b.argument("i1", shape), b.argument(dtype, shape), b.argument(dtype, shape)
            types = f"{tensor('i1', shape)}, {tensor(dtype, shape)}"
            b.result(b.value(f"stablehlo.select {p}, {x}, {y} : {types}"), dtype, shape)
        scalar, x, y = b.argument("i1", ()), b.argument(dtype, (5,)), b.argument(dtype, (5,))
        types = f"{tensor('i1', ())}, {tensor(dtype, (5,))}"
        b.result(b.value(f"stablehlo.select {scalar}, {x}, {y} : {types}"), dtype, (5,))
        yield b.program("select", dtype)
    for dtype in (*INTEGERS, *FLOATS):
        b = _Builder(("clamp", dtype))
        low, x, high = (b.argument(dtype, (37,)) for _ in range(3))
        b.result(b.value(f"stablehlo.clamp {low}, {x}, {high} : {tensor(dtype, (37,))}"), dtype, (37,))
        yield b.program("clamp", dtype)


def shape_ops() -> Iterator[OpProgram]:
    for dtype in ALL:
        yield _shape_program(dtype)
    for dtype in NUMBERS:
        b = _Builder(("iota", dtype))
        for dim in (0, 1):
            b.result(b.value(f"stablehlo.iota dim = {dim} : {tensor(dtype, (3, 5))}"), dtype, (3, 5))
        b.result(b.value(f"stablehlo.iota dim = 0 : {tensor(dtype, (0,))}"), dtype, (0,))
        b.argument(dtype, ())
        yield b.program("iota", dtype)


def _shape_program(dtype: str) -> OpProgram:
    b = _Builder(("shape", dtype))
    t = tensor
    x, row, scalar = b.argument(dtype, (3, 5)), b.argument(dtype, (1, 5)), b.argument(dtype, ())

    def add(text: str, shape: tuple[int, ...]) -> None:
        b.result(b.value(f"stablehlo.{text} -> {t(dtype, shape)}"), dtype, shape)

    xt, rt, st = t(dtype, (3, 5)), t(dtype, (1, 5)), t(dtype, ())
    add(f"broadcast_in_dim {x}, dims = [2, 0] : ({xt})", (5, 2, 3))
    add(f"broadcast_in_dim {row}, dims = [0, 1] : ({rt})", (4, 5))
    add(f"broadcast_in_dim {scalar}, dims = [] : ({st})", (2, 0))
    add(f"transpose {x}, dims = [1, 0] : ({xt})", (5, 3))
    add(f"reshape {x} : ({xt})", (15, 1))
    add(f"reshape {row} : ({rt})", (5,))
    add(f"slice {x} [0:3:2, 1:5:3] : ({xt})", (2, 2))
    add(f"slice {x} [1:1, 0:5] : ({xt})", (0, 5))
    add(f"pad {x}, {scalar}, low = [1, -1], high = [0, 2], interior = [2, 0] : ({xt}, {st})", (8, 6))
    add(f"concatenate {x}, {row}, {x}, dim = 0 : ({xt}, {rt}, {xt})", (7, 5))
    b.result(b.value(f"stablehlo.reverse {x}, dims = [0, 1] : {xt}"), dtype, (3, 5))
    return b.program("shape_ops", dtype)


def indexing() -> Iterator[OpProgram]:
    for dtype in ("i1", "i8", "ui32", "i64", "bf16", "f32", "f64", "c64"):
        yield _indexing_program(dtype)
    for dtype in ("i32", "f32", "f64"):
        yield _gather_program(dtype)
        yield _scatter_program(dtype)
        yield _sort_program(dtype)


def _indexing_program(dtype: str) -> OpProgram:
    b = _Builder(("dynamic", dtype))
    x, small = b.argument(dtype, (4, 6)), b.argument(dtype, (2, 3))
    i, j = b.argument("i32", ()), b.argument("i32", (), "small")
    t = tensor(dtype, (4, 6))
    out = tensor(dtype, (2, 3))
    text = f"stablehlo.dynamic_slice {x}, {i}, {j}, sizes = [2, 3] : ({t}, tensor<i32>, tensor<i32>) -> {out}"
    b.result(b.value(text), dtype, (2, 3))
    types = f"({t}, {out}, tensor<i32>, tensor<i32>) -> {t}"
    b.result(b.value(f"stablehlo.dynamic_update_slice {x}, {small}, {j}, {i} : {types}"), dtype, (4, 6))
    return b.program("dynamic_slice", dtype)


def _gather_program(dtype: str) -> OpProgram:
    b = _Builder(("gather", dtype))
    x, index = b.argument(dtype, (5, 7)), b.argument("i32", (6, 1))
    numbers = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 7>"
    )
    types = f"({tensor(dtype, (5, 7))}, tensor<6x1xi32>) -> {tensor(dtype, (6, 7))}"
    b.result(b.value(f'"stablehlo.gather"({x}, {index}) <{{{numbers}}}> : {types}'), dtype, (6, 7))
    pair = b.argument("i64", (2, 3), "small")
    numbers = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [], "
        "start_index_map = [1, 0], index_vector_dim = 0>, slice_sizes = array<i64: 2, 3>"
    )
    types = f"({tensor(dtype, (5, 7))}, tensor<2x3xi64>) -> {tensor(dtype, (2, 3, 3))}"
    b.result(b.value(f'"stablehlo.gather"({x}, {pair}) <{{{numbers}}}> : {types}'), dtype, (2, 3, 3))
    return b.program("gather", dtype)


def _scatter_program(dtype: str) -> OpProgram:
    b = _Builder(("scatter", dtype))
    x, index, update = (
        b.argument(dtype, (5, 3), "tame"),
        b.argument("i32", (4, 1)),
        b.argument(dtype, (4, 3), "tame"),
    )
    scalar = tensor(dtype, ())
    numbers = (
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], "
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    )
    region = (
        f"({{\n  ^bb0(%p: {scalar}, %q: {scalar}):\n    %s = stablehlo.add %p, %q : {scalar}\n"
        f"    stablehlo.return %s : {scalar}\n  }})"
    )
    types = f"({tensor(dtype, (5, 3))}, tensor<4x1xi32>, {tensor(dtype, (4, 3))}) -> {tensor(dtype, (5, 3))}"
    text = f'"stablehlo.scatter"({x}, {index}, {update}) <{{{numbers}}}> {region} : {types}'
    b.result(b.value(text), dtype, (5, 3))
    return b.program("scatter", dtype, ulps=2)


def _sort_program(dtype: str) -> OpProgram:
    b = _Builder(("sort", dtype))
    x = b.argument(dtype, (3, 9), "tame")
    scalar, t = tensor(dtype, ()), tensor(dtype, (3, 9))
    region = (
        f"({{\n  ^bb0(%p: {scalar}, %q: {scalar}):\n    %s = stablehlo.compare LT, %p, %q : "
        f"({scalar}, {scalar}) -> tensor<i1>\n    stablehlo.return %s : tensor<i1>\n  }})"
    )
    text = f'"stablehlo.sort"({x}) <{{dimension = 1 : i64, is_stable = true}}> {region} : ({t}) -> {t}'
    b.result(b.value(text), dtype, (3, 9))
    return b.program("sort", dtype)


_COMBINERS: dict[str, tuple[str, ...]] = {
    "add": NUMBERS,
    "multiply": INTEGERS + FLOATS,
    "maximum": ("i1", *INTEGERS, *FLOATS),
    "minimum": ("i1", *INTEGERS, *FLOATS),
    "and": ("i1", *INTEGERS),
    "or": ("i1", *INTEGERS),
    "xor": ("i1", *INTEGERS),
}


def reductions() -> Iterator[OpProgram]:
    for op, dtypes in _COMBINERS.items():
        for dtype in dtypes:
            b = _Builder(("reduce", op, dtype))
            inexact = op in ("add", "multiply") and dtype not in INTEGERS
            kind = "tame" if inexact else "any"
            x, initial = b.argument(dtype, (4, 3, 5), kind), b.argument(dtype, (), "tame")
            for dims, shape in (([1], (4, 5)), ([0, 2], (3,)), ([0, 1, 2], ())):
                types = f"({tensor(dtype, (4, 3, 5))}, {tensor(dtype, ())}) -> {tensor(dtype, shape)}"
                text = (
                    f"stablehlo.reduce({x} init: {initial}) applies stablehlo.{op} across dimensions = {dims}"
                )
                b.result(b.value(f"{text} : {types}"), dtype, shape)
            empty = b.argument(dtype, (0, 3))
            types = f"({tensor(dtype, (0, 3))}, {tensor(dtype, ())}) -> {tensor(dtype, (3,))}"
            text = f"stablehlo.reduce({empty} init: {initial}) applies stablehlo.{op} across dimensions = [0]"
            b.result(b.value(f"{text} : {types}"), dtype, (3,))
            loose = _accumulation(dtype) if inexact else (0.0, 0.0)
            yield b.program("reduce", dtype, loose[0], op, loose[1])
    yield _argmax()


def _accumulation(dtype: str) -> tuple[float, float]:
    """Another order of a sum of a few dozen tame values: (ulps, absolute)."""
    return {"f16": (64.0, 0.3), "bf16": (64.0, 2.0), "f32": (64.0, 1e-4), "c64": (64.0, 1e-4)}.get(
        dtype, (64.0, 1e-12)
    )


def _argmax() -> OpProgram:
    """A reduction of two operands with a comparator, as frameworks write argmax."""
    b = _Builder(("argmax",))
    x = b.argument("f32", (4, 7), "tame")
    body = "stablehlo.iota dim = 1 : tensor<4x7xi32>"
    index = b.value(body)
    low, zero = (
        b.value("stablehlo.constant dense<0xFF800000> : tensor<f32>"),
        b.value("stablehlo.constant dense<0> : tensor<i32>"),
    )
    name = f"%v{len(b.lines)}"
    b.lines.append(
        f"""{name}:2 = stablehlo.reduce({x} init: {low}), ({index} init: {zero}) across dimensions = [1] :
      (tensor<4x7xf32>, tensor<4x7xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
      reducer(%p: tensor<f32>, %q: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {{
        %ge = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %m = stablehlo.select %ge, %p, %q : tensor<i1>, tensor<f32>
        %k = stablehlo.select %ge, %i, %j : tensor<i1>, tensor<i32>
        stablehlo.return %m, %k : tensor<f32>, tensor<i32>
      }}"""
    )
    b.result(f"{name}#0", "f32", (4,))
    b.result(f"{name}#1", "i32", (4,))
    return b.program("reduce", "f32", variant="argmax")


def windows() -> Iterator[OpProgram]:
    for dtype in ("i32", "ui8", "f16", "f32", "f64"):
        for op in ("maximum", "add"):
            b = _Builder(("window", op, dtype))
            x, initial = b.argument(dtype, (2, 6, 7), "tame"), b.argument(dtype, (), "tame")
            scalar = tensor(dtype, ())
            attributes = (
                "window_dimensions = array<i64: 1, 3, 2>, window_strides = array<i64: 1, 2, 1>, "
                "padding = dense<[[0, 0], [1, 1], [0, 2]]> : tensor<3x2xi64>"
            )
            region = (
                f"({{\n  ^bb0(%p: {scalar}, %q: {scalar}):\n    %s = stablehlo.{op} %p, %q : {scalar}\n"
                f"    stablehlo.return %s : {scalar}\n  }})"
            )
            types = f"({tensor(dtype, (2, 6, 7))}, {scalar}) -> {tensor(dtype, (2, 3, 8))}"
            text = f'"stablehlo.reduce_window"({x}, {initial}) <{{{attributes}}}> {region} : {types}'
            b.result(b.value(text), dtype, (2, 3, 8))
            loose = _accumulation(dtype) if op == "add" and dtype in FLOATS else (0.0, 0.0)
            yield b.program("reduce_window", dtype, loose[0], op, loose[1])


def contractions() -> Iterator[OpProgram]:
    for dtype in (*INTEGERS, *FLOATS, *COMPLEX):
        b = _Builder(("dot", dtype))
        x, y = b.argument(dtype, (3, 4, 5), "tame"), b.argument(dtype, (5, 3, 6), "tame")
        numbers = "batching_dims = [0] x [1], contracting_dims = [2] x [0]"
        types = f"({tensor(dtype, (3, 4, 5))}, {tensor(dtype, (5, 3, 6))}) -> {tensor(dtype, (3, 4, 6))}"
        b.result(b.value(f"stablehlo.dot_general {x}, {y}, {numbers} : {types}"), dtype, (3, 4, 6))
        u, w = b.argument(dtype, (7, 9), "tame"), b.argument(dtype, (9, 1), "tame")
        types = f"({tensor(dtype, (7, 9))}, {tensor(dtype, (9, 1))}) -> {tensor(dtype, (7, 1))}"
        b.result(
            b.value(f"stablehlo.dot_general {u}, {w}, contracting_dims = [1] x [0] : {types}"), dtype, (7, 1)
        )
        loose = (0.0, 0.0) if dtype in INTEGERS else _accumulation(dtype)
        yield b.program("dot_general", dtype, loose[0], absolute=loose[1])
    for dtype in ("i32", "f16", "f32", "f64"):
        for variant, window, out in (
            ("same", "stride = [1, 1], pad = [[1, 1], [1, 1]]", (2, 6, 5, 4)),
            ("strided", "stride = [2, 1], pad = [[0, 0], [0, 1]], rhs_dilate = [1, 2]", (2, 2, 2, 4)),
            ("transposed", "stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [2, 2]", (2, 9, 7, 4)),
        ):
            b = _Builder(("conv", variant, dtype))
            x, k = b.argument(dtype, (2, 6, 5, 3), "tame"), b.argument(dtype, (3, 3, 3, 4), "tame")
            types = f"({tensor(dtype, (2, 6, 5, 3))}, {tensor(dtype, (3, 3, 3, 4))}) -> {tensor(dtype, out)}"
            text = (
                f"stablehlo.convolution({x}, {k}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
                f"window = {{{window}}} "
                f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : {types}"
            )
            b.result(b.value(text), dtype, out)
            loose = _accumulation(dtype) if dtype in FLOATS else (0.0, 0.0)
            yield b.program("convolution", dtype, loose[0], variant, loose[1])


def control_flow() -> Iterator[OpProgram]:
    b = _Builder(("while",))
    n, x = b.argument("i32", (), "small"), b.argument("f32", (5,), "tame")
    one, zero = (
        b.value("stablehlo.constant dense<1> : tensor<i32>"),
        b.value("stablehlo.constant dense<0> : tensor<i32>"),
    )
    name = f"%v{len(b.lines)}"
    b.lines.append(
        f"""{name}:2 = stablehlo.while(%i = {zero}, %acc = {x}) : tensor<i32>, tensor<5xf32>
      cond {{
        %c = stablehlo.compare LT, %i, {n} : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %next = stablehlo.add %i, {one} : tensor<i32>
        %sum = stablehlo.add %acc, %acc : tensor<5xf32>
        stablehlo.return %next, %sum : tensor<i32>, tensor<5xf32>
      }}"""
    )
    b.result(f"{name}#0", "i32", ())
    b.result(f"{name}#1", "f32", (5,))
    yield b.program("while", "f32")
    for op, selector in (("if", "i1"), ("case", "i32")):
        b = _Builder((op,))
        p, x = b.argument(selector, ()), b.argument("f32", (5,), "tame")
        branch = "({{ %r{0} = stablehlo.{1} {2} : tensor<5xf32>\n stablehlo.return %r{0} : tensor<5xf32> }}"
        first, second = branch.format(0, "negate", x), branch.format(1, "abs", x)
        text = f'"stablehlo.{op}"({p}) {first}, {second[1:]}) : (tensor<{selector}>) -> tensor<5xf32>'
        b.result(b.value(text), "f32", (5,))
        yield b.program(op, "f32")


def complex_ops() -> Iterator[OpProgram]:
    for dtype, part in (("c64", "f32"), ("c128", "f64")):
        b = _Builder(("complex", dtype))
        z = b.argument(dtype, (13,), "tame")
        t, h = tensor(dtype, (13,)), tensor(part, (13,))
        re, im = (b.value(f"stablehlo.{op} {z} : ({t}) -> {h}") for op in ("real", "imag"))
        b.result(re, part, (13,))
        b.result(im, part, (13,))
        b.result(b.value(f"stablehlo.complex {im}, {re} : {t}"), dtype, (13,))
        yield b.program("complex", dtype)
        b = _Builder(("complex_math", dtype))
        x, y = b.argument(dtype, (13,), "tame"), b.argument(dtype, (13,), "tame")
        b.result(b.value(f"stablehlo.divide {x}, {y} : {t}"), dtype, (13,))
        b.result(b.value(f"stablehlo.abs {x} : ({t}) -> {h}"), part, (13,))
        for op in ("exponential", "log", "sqrt", "tanh", "sine", "cosine"):
            b.result(b.value(f"stablehlo.{op} {x} : {t}"), dtype, (13,))
        yield b.program("complex_math", dtype, ulps=16, absolute=1e-5 if part == "f32" else 1e-13)


_CHLO_UNARY = (
    "erf",
    "erfc",
    "erf_inv",
    "lgamma",
    "digamma",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
)
_CHLO_UNARY += ("sinh", "cosh", "tan", "bessel_i1e", "square")
_CHLO_BINARY = ("zeta", "polygamma", "next_after")


def special_functions() -> Iterator[OpProgram]:
    """CHLO; the oracle's expansions into StableHLO are less exact than ours: accuracy is tested elsewhere."""
    for dtype in FLOATS:
        loose = {"f16": 4e-3, "bf16": 6e-2, "f32": 2e-5, "f64": 1e-10}[dtype]
        for op in _CHLO_UNARY:
            b = _Builder(("chlo", op, dtype))
            x = b.argument(dtype, (41,), "unit")
            t = tensor(dtype, (41,))
            b.result(b.value(f"chlo.{op} {x} : {t} -> {t}"), dtype, (41,))
            yield b.program(f"chlo.{op}", dtype, ulps=32, absolute=loose)
        for op in _CHLO_BINARY:
            b = _Builder(("chlo", op, dtype))
            x, y = b.argument(dtype, (41,), "small"), b.argument(dtype, (41,), "unit")
            t = tensor(dtype, (41,))
            b.result(b.value(f"chlo.{op} {x}, {y} : {t}, {t} -> {t}"), dtype, (41,))
            yield b.program(
                f"chlo.{op}",
                dtype,
                ulps=0 if op == "next_after" else 64,
                absolute=0 if op == "next_after" else loose,
            )
        b = _Builder(("chlo", "tests", dtype))
        x = b.argument(dtype, (61,))
        for op in ("is_inf", "is_pos_inf", "is_neg_inf"):
            b.result(b.value(f"chlo.{op} {x} : {tensor(dtype, (61,))} -> {tensor('i1', (61,))}"), "i1", (61,))
        yield b.program("chlo.is_inf", dtype)


def many_results() -> Iterator[OpProgram]:
    """Results that share beginnings, feed one another, repeat, or are arguments and constants."""
    for dtype in ("i32", "ui8", "bf16", "f32", "f64"):
        for op in ("add", "maximum"):
            yield _reductions_of_one_argument(op, dtype)
        yield _products_of_one_argument(dtype)
        yield _results_without_work(dtype)


def _reductions_of_one_argument(op: str, dtype: str) -> OpProgram:
    b = _Builder(("results", op, dtype))
    x, zero = b.argument(dtype, (5, 6), "small"), b.argument(dtype, (), "small")
    t, scalar, row = tensor(dtype, (5, 6)), tensor(dtype, ()), tensor(dtype, (5,))
    square = b.value(f"stablehlo.multiply {x}, {x} : {t}")
    for operand in (x, square, x):
        text = f"stablehlo.reduce({operand} init: {zero}) applies stablehlo.{op} across dimensions = [1]"
        b.result(b.value(f"{text} : ({t}, {scalar}) -> {row}"), dtype, (5,))
    first = b.results[0][0]
    b.result(b.value(f"stablehlo.add {first}, {b.results[1][0]} : {row}"), dtype, (5,))
    b.result(first, dtype, (5,))
    loose = _accumulation(dtype) if dtype in FLOATS else (0.0, 0.0)
    return b.program("results", dtype, loose[0], f"reduce-{op}", loose[1])


def _products_of_one_argument(dtype: str) -> OpProgram:
    b = _Builder(("results", "dot", dtype))
    x, w, v = (
        b.argument(dtype, (4, 6), "small"),
        b.argument(dtype, (6, 3), "small"),
        b.argument(dtype, (6, 3), "small"),
    )
    t, u, out = tensor(dtype, (4, 6)), tensor(dtype, (6, 3)), tensor(dtype, (4, 3))
    products = [
        b.value(f"stablehlo.dot_general {x}, {right}, contracting_dims = [1] x [0] : ({t}, {u}) -> {out}")
        for right in (w, v)
    ]
    total = b.value(f"stablehlo.subtract {products[0]}, {products[1]} : {out}")
    for name in (products[0], total, products[1]):
        b.result(name, dtype, (4, 3))
    loose = _accumulation(dtype) if dtype in FLOATS else (0.0, 0.0)
    return b.program("results", dtype, loose[0], "dot", loose[1])


def _results_without_work(dtype: str) -> OpProgram:
    b = _Builder(("results", "plain", dtype))
    x, y = b.argument(dtype, (2, 3)), b.argument(dtype, (2, 3))
    t = tensor(dtype, (2, 3))
    one = b.value(
        f"stablehlo.constant dense<1> : {t}" if dtype in INTEGERS else f"stablehlo.constant dense<1.0> : {t}"
    )
    larger = b.value(f"stablehlo.maximum {x}, {one} : {t}")
    for name in (y, x, one, larger, x, one):
        b.result(name, dtype, (2, 3))
    return b.program("results", dtype, variant="plain")


def reductions_of_views() -> Iterator[OpProgram]:
    """What a reduction reads varies along none of its loops, or runs backwards."""
    for dtype in ("i32", "f32", "f64"):
        b = _Builder(("views", dtype))
        x, zero = b.argument(dtype, (6,), "small"), b.argument(dtype, (), "small")
        row, wide, scalar = tensor(dtype, (6,)), tensor(dtype, (6, 4)), tensor(dtype, ())
        spread = b.value(f"stablehlo.broadcast_in_dim {x}, dims = [0] : ({row}) -> {wide}")
        ones = b.value(f"stablehlo.broadcast_in_dim {zero}, dims = [] : ({scalar}) -> {wide}")
        turned = b.value(f"stablehlo.reverse {spread}, dims = [1] : {wide}")
        flipped = b.value(f"stablehlo.reverse {x}, dims = [0] : {row}")
        for operand, kind, dim, shape in (
            (spread, wide, 1, (6,)),
            (ones, wide, 0, (4,)),
            (turned, wide, 1, (6,)),
            (flipped, row, 0, ()),
        ):
            out = tensor(dtype, shape)
            text = (
                f"stablehlo.reduce({operand} init: {zero}) applies stablehlo.add across dimensions = [{dim}]"
            )
            b.result(b.value(f"{text} : ({kind}, {scalar}) -> {out}"), dtype, shape)
        loose = _accumulation(dtype) if dtype in FLOATS else (0.0, 0.0)
        yield b.program("reduce", dtype, loose[0], "views", loose[1])


__all__ = ["ALL", "FLOATS", "INTEGERS", "UNSIGNED", "OpProgram", "all_programs"]
