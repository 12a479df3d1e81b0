"""CHLO: native nodes for what code generation computes itself, views for implicit broadcasts, StableHLO for the rest."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import pytest

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.stablehlo.legalize_chlo import NATIVE_CHLO, chlo_definition
from kcache_compiler.mlir.context import native_ir, new_context
from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render
from tests.compiler.interpreter import evaluate, special

T = "tensor<2x7xf32>"


def spec(body: str, arguments: str = f"%x: {T}", result: str = T, more: str = "") -> str:
    return canonicalize(program(body, arguments, result, more).encode(), "stablehlo").spec_text


def program(body: str, arguments: str, result: str, more: str = "") -> str:
    return f"func.func @main({arguments}) -> {result} {{\n  {body}\n  return %r : {result}\n}}\n{more}"


def definition(op: str) -> str:
    """What an exporter writes beside a composite: the op as this toolchain legalizes it, as ``@impl``."""
    context = new_context()
    type = native_ir().Type.parse(T, context)
    module = chlo_definition(f"chlo.{op}", [type], type)
    return (
        str(module).replace("module {", "").rstrip().removesuffix("}").replace("@definition", "private @impl")
    )


@pytest.mark.parametrize("op", ["erf", "lgamma", "asin", "cosh", "bessel_i1e", "erf_inv"])
def test_a_composite_a_custom_call_and_the_op_are_one(op: str) -> None:
    assert op in NATIVE_CHLO
    forms = {
        spec(f"%r = chlo.{op} %x : {T} -> {T}"),
        spec(
            f"%r = stablehlo.custom_call @mhlo.{op}(%x) {{mhlo.attributes = {{}}, mhlo.version = 1 : i64}} : ({T}) -> {T}"
        ),
        spec(
            f'%r = stablehlo.composite "chlo.{op}" %x {{decomposition = @impl, version = 1 : i32}} : ({T}) -> {T}',
            more=definition(op),
        ),
    }
    assert len(forms) == 1
    assert f"chlo.{op}" in forms.pop()


COMPOSITE = (
    f'%r = stablehlo.composite "chlo.erf" %x {{decomposition = @impl, version = 1 : i32}} : ({T}) -> {T}'
)


def test_a_composite_is_its_decomposition_whatever_its_name() -> None:
    negation = f"func.func private @impl(%x: {T}) -> {T} {{ %r = stablehlo.negate %x : {T} return %r : {T} }}"
    assert spec(COMPOSITE, more=negation) == spec(f"%r = stablehlo.negate %x : {T}")
    nearly = definition("erf").replace("dense<-4.0", "dense<-4.5")
    assert nearly != definition("erf")
    assert "chlo" not in spec(COMPOSITE, more=nearly)


@pytest.mark.parametrize("depth", [30, pytest.param(200, marks=pytest.mark.long)])
def test_composites_inside_decompositions_are_inlined_when_they_are_proven(depth: int) -> None:
    chain = [
        f"func.func private @f{i}(%x: {T}) -> {T} {{ {COMPOSITE.replace('@impl', f'@f{i + 1}')} return %r : {T} }}"
        for i in range(depth)
    ]
    last = f"func.func private @f{depth}(%x: {T}) -> {T} {{ %r = stablehlo.negate %x : {T} return %r : {T} }}"
    text = spec(COMPOSITE.replace("@impl", "@f0"), more="\n".join([*chain, last]))
    assert text == spec(f"%r = stablehlo.negate %x : {T}")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (f"@mhlo.erf() : () -> {T}", "does not have these operands"),
        (f"@mhlo.erf(%x, %x) : ({T}, {T}) -> {T}", "does not have these operands"),
        (f"@chlo.zeta(%x) : ({T}) -> {T}", "does not have these operands"),
        (f"@chlo.is_inf(%x) : ({T}) -> {T}", "does not have these operands"),
        (f"@mhlo.erf(%x) : ({T}) -> tensor<2x8xf32>", "does not have these operands"),
        (f"@SPMDFullToShardShape(%x) : ({T}) -> tensor<1x7xf32>", "one device"),
        (f"@Sharding(%x, %x) : ({T}, {T}) -> {T}", "one device"),
        (
            f"@shape_assertion(%x) {{has_side_effect = true}} : ({T}) -> {T}",
            "side effects",
        ),
    ],
)
def test_calls_that_do_not_fit_their_name_are_rejected(call: str, reason: str) -> None:
    result = call.rpartition(" -> ")[2]
    with pytest.raises(UnsupportedOp, match=reason):
        spec(f"%r = stablehlo.custom_call {call}", result=result)


def test_tangents_of_both_dialects_are_one() -> None:
    assert spec(f"%r = chlo.tan %x : {T} -> {T}") == spec(f"%r = stablehlo.tan %x : {T}")


def test_top_k_is_legalized_and_native_ops_beside_it_stay() -> None:
    results = "(tensor<2x3xf32>, tensor<2x3xi32>)"
    body = f"""%e = chlo.erf %x : {T} -> {T}
      %p = chlo.broadcast_add %e, %e : ({T}, {T}) -> {T}
      %v, %r = chlo.top_k(%p, k = 3) : {T} -> {results}"""
    text = spec(body, result="tensor<2x3xi32>")
    assert "chlo.erf" in text
    assert "top_k" not in text
    assert " sort " in text
    call = body.replace(
        "chlo.top_k(%p, k = 3) :",
        "stablehlo.custom_call @mhlo.topk(%p) {mhlo.attributes = {k = 3 : i64, largest = true}} :",
    )
    call = call.replace("%v, %r = ", "%v:2 = ").replace(f"{T} -> {results}", f"({T}) -> {results}")
    call += "\n  %r = stablehlo.optimization_barrier %v#1 : tensor<2x3xi32>"
    assert spec(call, result="tensor<2x3xi32>") == text


@pytest.mark.parametrize(
    ("broadcasting", "plain"),
    [
        (
            f"%r = chlo.broadcast_subtract %x, %v : ({T}, tensor<7xf32>) -> {T}",
            f"%b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<7xf32>) -> {T}\n%r = stablehlo.subtract %x, %b : {T}",
        ),
        (
            f'%r = "chlo.broadcast_multiply"(%c, %x) {{broadcast_dimensions = array<i64: 0>}} : (tensor<2xf32>, {T}) -> {T}',
            f"%b = stablehlo.broadcast_in_dim %c, dims = [0] : (tensor<2xf32>) -> {T}\n%r = stablehlo.multiply %b, %x : {T}",
        ),
        (
            f"%r = chlo.broadcast_zeta %x, %v : ({T}, tensor<7xf32>) -> {T}",
            f"%b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<7xf32>) -> {T}\n%r = chlo.zeta %x, %b : {T}, {T} -> {T}",
        ),
        (
            '%k = "chlo.constant_like"(%x) {value = 2.5 : f32} : ('
            + T
            + ") -> "
            + T
            + f"\n%r = stablehlo.add %x, %k : {T}",
            f"%k = stablehlo.constant dense<2.5> : {T}\n%r = stablehlo.add %x, %k : {T}",
        ),
    ],
)
def test_implicit_broadcasts_are_views(broadcasting: str, plain: str) -> None:
    arguments = f"%x: {T}, %v: tensor<7xf32>, %c: tensor<2xf32>"
    assert spec(broadcasting, arguments) == spec(plain, arguments)


def test_comparisons_broadcast_too() -> None:
    arguments = f"%x: {T}, %v: tensor<7xf32>"
    result = "tensor<2x7xi1>"
    short = f'%r = "chlo.broadcast_compare"(%x, %v) {{comparison_direction = #chlo<comparison_direction GT>}} : ({T}, tensor<7xf32>) -> {result}'
    two = f"%b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<7xf32>) -> {T}\n%r = stablehlo.compare LT, %b, %x : ({T}, {T}) -> {result}"
    assert spec(short, arguments, result) == spec(two, arguments, result)


def test_legalized_programs_compute_the_same() -> None:
    text = program(
        f"%v, %r = chlo.top_k(%x, k = 3) : {T} -> (tensor<2x3xf32>, tensor<2x3xi32>)",
        f"%x: {T}",
        "tensor<2x3xi32>",
    )
    form = canonicalize(text.encode(), "stablehlo")
    arguments = [special(form.arg_spec.args[0], 5)]
    first, second = evaluate([(text, arguments), (render(form.spec_text, form.arg_spec), arguments)])
    assert first == second
