"""Reductions: mixed types, dims of size 1, and regions that see the order of elements."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import pytest

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render
from tests.compiler.interpreter import evaluate

#: The first element that is not -1: associative, with -1 as its neutral element, and not commutative.
FIRST = """^bb0(%u: tensor<i32>, %v: tensor<i32>):
    %m = stablehlo.constant dense<-1> : tensor<i32>
    %p = stablehlo.compare EQ, %u, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %s = stablehlo.select %p, %v, %u : tensor<i1>, tensor<i32>
    stablehlo.return %s : tensor<i32>"""


def first(source: str, type: str, dims: str, result: str = "tensor<i32>", arguments: str = "") -> str:
    return f"""func.func @main(%x: tensor<2x3xi32>{arguments}) -> {result} {{
    %z = stablehlo.constant dense<-1> : tensor<i32>
    {source}
    %r = "stablehlo.reduce"(%o, %z) ({{{FIRST}}}) {{dimensions = array<i64: {dims}>}} : ({type}, tensor<i32>) -> {result}
    return %r : {result} }}"""


ROWS = "%o = stablehlo.optimization_barrier %x : tensor<2x3xi32>"
COLUMNS = "%o = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xi32>) -> tensor<3x2xi32>"


def both_ways(text: str, arguments: list[str]) -> list[str]:
    """What the interpreter says of a program, after it said the same of its spec."""
    form = canonicalize(text.encode(), "stablehlo")
    again = render(form.spec_text, form.arg_spec)
    assert canonicalize(again.encode(), "stablehlo").spec_text == form.spec_text
    before, after = evaluate([(text, arguments), (again, arguments)])
    assert before == after
    return before


def test_a_region_that_does_not_commute_sees_the_order_of_the_dims() -> None:
    rows, columns = first(ROWS, "tensor<2x3xi32>", "0, 1"), first(COLUMNS, "tensor<3x2xi32>", "0, 1")
    x = ["dense<[[-1, 5, 6], [7, 8, 9]]> : tensor<2x3xi32>"]
    assert both_ways(rows, x) != both_ways(columns, x)
    assert (
        canonicalize(rows.encode(), "stablehlo").spec_digest
        != canonicalize(columns.encode(), "stablehlo").spec_digest
    )


def test_a_broadcast_that_such_a_region_sees_keeps_its_place() -> None:
    make = "%o = stablehlo.broadcast_in_dim %x, dims = [{}] : (tensor<2x3xi32>) -> tensor<{}xi32>"
    x = ["dense<[[-1, 5, 6], [7, 8, 9]]> : tensor<2x3xi32>"]
    digests = set[bytes]()
    for where, type in (("0, 2", "2x4x3"), ("2, 1", "4x3x2"), ("1, 2", "4x2x3"), ("0, 1", "2x3x4")):
        text = first(make.format(where, type), f"tensor<{type}xi32>", "0, 1, 2")
        both_ways(text, x)
        digests.add(canonicalize(text.encode(), "stablehlo").spec_digest)
    assert len(digests) == 4


def test_symmetry_is_lost_where_such_a_region_mixes_the_axes() -> None:
    """y[i,j,k,l] = y[k,l,i,j]; the fold over (j, l) is not symmetric in (i, k)."""
    make = """%a = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<2x2xi32>) -> tensor<2x2x2x2xi32>
    %b = stablehlo.broadcast_in_dim %x, dims = [2, 3] : (tensor<2x2xi32>) -> tensor<2x2x2x2xi32>
    %o = stablehlo.{} %a, %b : tensor<2x2x2x2xi32>"""
    text = first(make.format("minimum"), "tensor<2x2x2x2xi32>", "1, 3", "tensor<2x2xi32>")
    text = text.replace("tensor<2x3xi32>", "tensor<2x2xi32>")
    head, _, tail = text.rpartition("return %r")
    turned = f"{head}%t = stablehlo.transpose %r, dims = [1, 0] : (tensor<2x2xi32>) -> tensor<2x2xi32>\n return %t{tail}"
    x = ["dense<[[4, -1], [-1, 3]]> : tensor<2x2xi32>"]
    both_ways(text, x)
    both_ways(turned, x)
    assert (
        canonicalize(text.encode(), "stablehlo").spec_digest
        != canonicalize(turned.encode(), "stablehlo").spec_digest
    )


@pytest.mark.sampled(9)
@pytest.mark.parametrize("op", ["add", "maximum", "multiply"])
@pytest.mark.parametrize("size", [1, 4])
def test_reductions_promote_before_they_combine(op: str, size: int) -> None:
    text = f"""func.func @main(%x: tensor<3x{size}xf16>, %i: tensor<f16>) -> tensor<3xf32> {{
    %r = "stablehlo.reduce"(%x, %i) ({{^bb0(%u: tensor<f32>, %v: tensor<f32>):
      %s = stablehlo.{op} %u, %v : tensor<f32>
      stablehlo.return %s : tensor<f32>}}) {{dimensions = array<i64: 1>}} : (tensor<3x{size}xf16>, tensor<f16>) -> tensor<3xf32>
    return %r : tensor<3xf32> }}"""
    converted = f"""func.func @main(%x: tensor<3x{size}xf16>, %i: tensor<f16>) -> tensor<3xf32> {{
    %y = stablehlo.convert %x : (tensor<3x{size}xf16>) -> tensor<3x{size}xf32>
    %j = stablehlo.convert %i : (tensor<f16>) -> tensor<f32>
    %r = stablehlo.reduce(%y init: %j) applies stablehlo.{op} across dimensions = [1] : (tensor<3x{size}xf32>, tensor<f32>) -> tensor<3xf32>
    return %r : tensor<3xf32> }}"""
    both_ways(converted, [f"dense<1.5> : tensor<3x{size}xf16>", "dense<0.333252> : tensor<f16>"])
    spec = canonicalize(text.encode(), "stablehlo").spec_text
    assert spec == canonicalize(converted.encode(), "stablehlo").spec_text


@pytest.mark.sampled(9)
@pytest.mark.parametrize("numerics", ["strict", "default"])
@pytest.mark.parametrize(
    ("op", "element", "start", "zero"),
    [
        ("add", "i32", "5", "0"),
        ("add", "f32", "5.0", "0.0"),
        ("xor", "i32", "5", "0"),
        ("xor", "i1", "true", "false"),
    ],
)
def test_each_row_of_a_reduction_of_reductions_has_a_start(
    op: str, element: str, start: str, zero: str, numerics: str
) -> None:
    def text(number: str) -> bytes:
        return f"""func.func @main(%x: tensor<3x4x{element}>) -> tensor<{element}> {{
    %c = stablehlo.constant dense<{number}> : tensor<{element}>
    %r = stablehlo.reduce(%x init: %c) applies stablehlo.{op} across dimensions = [1] : (tensor<3x4x{element}>, tensor<{element}>) -> tensor<3x{element}>
    %s = stablehlo.reduce(%r init: %c) applies stablehlo.{op} across dimensions = [0] : (tensor<3x{element}>, tensor<{element}>) -> tensor<{element}>
    return %s : tensor<{element}> }}""".encode()

    form = canonicalize(text(start), "stablehlo", numerics)
    again = render(form.spec_text, form.arg_spec)
    x = [f"dense<{zero}> : tensor<3x4x{element}>"]
    before, after = evaluate([(text(start).decode(), x), (again, x)])
    assert before == after
    merged = canonicalize(text(zero), "stablehlo", numerics).spec_text.count(" = reduce ") == 1
    assert merged == (op == "xor" or numerics == "default")


def divided(size: int, element: str, count: int) -> str:
    """A sum of ones, divided by an integer less than it seems, and whether that less one is above 0."""
    return f"""func.func @main(%x: tensor<{size}xf32>) -> (tensor<f32>, tensor<i1>) {{
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %n = stablehlo.constant dense<{count}> : tensor<{element}>
    %one = stablehlo.constant dense<1> : tensor<{element}>
    %none = stablehlo.constant dense<0> : tensor<{element}>
    %less = stablehlo.subtract %n, %one : tensor<{element}>
    %p = stablehlo.compare LT, %none, %less : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
    %d = stablehlo.convert %less : (tensor<{element}>) -> tensor<f32>
    %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<{size}xf32>, tensor<f32>) -> tensor<f32>
    %r = stablehlo.divide %s, %d : tensor<f32>
    return %r, %p : tensor<f32>, tensor<i1> }}"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("size", "element", "count", "known"),
    [(200, "i8", -56, False), (300, "ui8", 44, False), (65546, "i16", 10, False), (100, "i8", 100, True)],
)
def test_an_integer_that_wraps_is_not_the_number_of_elements(
    size: int, element: str, count: int, known: bool
) -> None:
    text = divided(size, element, count)
    form = canonicalize(text.encode(), "stablehlo")
    x = [f"dense<1.0> : tensor<{size}xf32>"]
    before, after = evaluate([(text, x), (render(form.spec_text, form.arg_spec), x)])
    assert before == after
    assert (" = extent" in form.spec_text) == known


def of_halves(size: int, divisor: str) -> str:
    """A sum in f16, divided by a number of f16, or by one that is rounded to f16."""
    return f"""func.func @main(%x: tensor<{size}xf16>) -> tensor<f16> {{
    %z = stablehlo.constant dense<0.0> : tensor<f16>
    {divisor}
    %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<{size}xf16>, tensor<f16>) -> tensor<f16>
    %r = stablehlo.divide %s, %n : tensor<f16>
    return %r : tensor<f16> }}"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("size", "divisor", "known"),
    [
        (65519, "%n = stablehlo.constant dense<65504.0> : tensor<f16>", True),
        (65520, "%n = stablehlo.constant dense<2.0> : tensor<f16>", False),
        (65520, "%n = stablehlo.constant dense<0x7C00> : tensor<f16>", False),
        (70000, "%m = stablehlo.constant dense<70000> : tensor<i32>", True),
    ],
)
def test_more_elements_than_f16_counts(size: int, divisor: str, known: bool) -> None:
    if divisor.startswith("%m"):
        divisor += "\n    %n = stablehlo.convert %m : (tensor<i32>) -> tensor<f16>"
    text = of_halves(size, divisor)
    form = canonicalize(text.encode(), "stablehlo")
    x = [f"dense<1.0> : tensor<{size}xf16>"]
    before, after = evaluate([(text, x), (render(form.spec_text, form.arg_spec), x)])
    assert before == after
    assert (" = extent" in form.spec_text) == known


def test_where_a_reduction_starts_is_not_what_it_repeats() -> None:
    text = """func.func @main(%x: tensor<5x4xi8>, %s: tensor<i8>) -> tensor<5x4xi8> {
    %n = stablehlo.constant dense<2> : tensor<i8>
    %t = stablehlo.multiply %s, %n : tensor<i8>
    %m = stablehlo.reduce(%x init: %t) applies stablehlo.maximum across dimensions = [1] : (tensor<5x4xi8>, tensor<i8>) -> tensor<5xi8>
    %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<5xi8>) -> tensor<5x4xi8>
    %r = stablehlo.subtract %x, %b : tensor<5x4xi8>
    return %r : tensor<5x4xi8> }"""
    form = canonicalize(text.encode(), "stablehlo")
    arguments = ["dense<3> : tensor<5x4xi8>", "dense<7> : tensor<i8>"]
    before, after = evaluate([(text, arguments), (render(form.spec_text, form.arg_spec), arguments)])
    assert before == after
