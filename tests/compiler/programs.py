"""Programs with inputs for tests that compare two ways to run a kernel, bit for bit.

The list is a suite: a test takes ``PROGRAMS`` and more entries are more coverage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.compiler.codegen_harness import NUMPY

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")


@dataclass(frozen=True)
class Program:
    """A module and the types of its arguments."""

    name: str
    text: str
    arguments: tuple[tuple[str, tuple[int, ...]], ...]

    def inputs(self) -> list[np.ndarray]:
        """Seeded arguments with special values among them."""
        rng = np.random.default_rng(len(self.text))
        return [_values(rng, dtype, shape) for dtype, shape in self.arguments]


def _values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(NUMPY[dtype])
    if dtype == "i1":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype in INTEGERS:
        return np.frombuffer(rng.bytes(int(np.prod(shape)) * kind.itemsize), kind).reshape(shape)
    values = (rng.standard_normal(shape) * 3).astype(kind)
    flat = values.reshape(-1)
    specials = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0]).astype(kind)
    flat[: min(len(specials), len(flat) // 3)] = specials[: min(len(specials), len(flat) // 3)]
    return values


def _elementwise(dtype: str) -> Program:
    kind = f"tensor<67x{dtype}>"
    lines = [f"func.func @main(%a: {kind}, %b: {kind}) -> ({', '.join([kind] * 6)}) {{"]
    names = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    lines += [f"%{name} = stablehlo.{name} %a, %b : {kind}" for name in names]
    lines.append(f"return {', '.join('%' + name for name in names)} : {', '.join([kind] * 6)} }}")
    return Program(f"arithmetic-{dtype}", "\n".join(lines), ((dtype, (67,)),) * 2)


def _functions(dtype: str) -> Program:
    kind = f"tensor<67x{dtype}>"
    names = ("exponential", "log", "rsqrt", "round_nearest_afz")
    lines = [f"func.func @main(%a: {kind}) -> ({', '.join([kind] * len(names))}) {{"]
    lines += [f"%{name} = stablehlo.{name} %a : {kind}" for name in names]
    lines.append(f"return {', '.join('%' + name for name in names)} : {', '.join([kind] * len(names))} }}")
    return Program(f"functions-{dtype}", "\n".join(lines), ((dtype, (67,)),))


def _contraction(dtype: str) -> Program:
    a, b, c = f"tensor<5x9x{dtype}>", f"tensor<9x7x{dtype}>", f"tensor<5x7x{dtype}>"
    text = f"""func.func @main(%a: {a}, %b: {b}) -> ({c}, tensor<5x{dtype}>) {{
      %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}
      %z = stablehlo.constant dense<0> : tensor<{dtype}>
      %r = stablehlo.reduce(%d init: %z) applies stablehlo.maximum across dimensions = [1]
        : ({c}, tensor<{dtype}>) -> tensor<5x{dtype}>
      return %d, %r : {c}, tensor<5x{dtype}> }}"""
    if dtype in FLOATS:
        text = text.replace("dense<0>", "dense<0.1>")
    return Program(f"contraction-{dtype}", text, ((dtype, (5, 9)), (dtype, (9, 7))))


def _conversions() -> Program:
    kinds = ("i1", "i8", "ui8", "i64", "ui64", "f16", "bf16", "f32", "f64")
    results = ", ".join(f"tensor<67x{kind}>" for kind in kinds for _ in range(2))
    lines = [f"func.func @main(%a: tensor<67xf64>, %b: tensor<67xi64>) -> ({results}) {{"]
    names: list[str] = []
    for kind in kinds:
        for source, dtype in (("a", "f64"), ("b", "i64")):
            names.append(f"%{source}{kind}")
            lines.append(
                f"{names[-1]} = stablehlo.convert %{source} : (tensor<67x{dtype}>) -> tensor<67x{kind}>"
            )
    lines.append(f"return {', '.join(names)} : {results} }}")
    return Program("conversions", "\n".join(lines), (("f64", (67,)), ("i64", (67,))))


PROGRAMS: tuple[Program, ...] = (
    *(_elementwise(dtype) for dtype in (*FLOATS, *INTEGERS)),
    *(_functions(dtype) for dtype in FLOATS),
    *(_contraction(dtype) for dtype in (*FLOATS, "i32", "ui8")),
    _conversions(),
)
