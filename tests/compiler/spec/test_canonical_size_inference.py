"""Keys that do not depend on what was written twice, nor on what a rewrite simplifies away."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import pytest

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render

SCATTER = """%{name} = "stablehlo.scatter"(%z, %i, %u) ({{
^bb0(%p: tensor<f32>, %q: tensor<f32>):
%t = stablehlo.add %p, %q : tensor<f32>
stablehlo.return %t : tensor<f32>
}}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], index_vector_dim = 0>}} : (tensor<2x5xf32>, tensor<1xi32>, tensor<2xf32>) -> tensor<2x5xf32>
"""


def spec(body: str, arguments: str, results: str) -> str:
    text = f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"
    form = canonicalize(text.encode(), "stablehlo")
    again = render(form.spec_text, form.arg_spec)
    assert canonicalize(again.encode(), "stablehlo").spec_text == form.spec_text
    return form.spec_text


@pytest.mark.parametrize("second", ["a", "b"])
def test_an_operation_written_twice_is_one(second: str) -> None:
    """The second scatter, of zeros, is beside nothing that says how long its last dim is."""
    twice = SCATTER.format(name="a") + (SCATTER.format(name="b") if second == "b" else "")
    body = f"""%z = stablehlo.constant dense<0.0> : tensor<2x5xf32>
%zero = stablehlo.constant dense<0.0> : tensor<f32>
{twice}%s = stablehlo.add %a, %x : tensor<2x5xf32>
%n = stablehlo.negate %{second} : tensor<2x5xf32>
%r = stablehlo.reduce(%n init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<2x5xf32>, tensor<f32>) -> tensor<2xf32>
return %s, %r : tensor<2x5xf32>, tensor<2xf32>"""
    arguments = "%x: tensor<2x5xf32>, %i: tensor<1xi32>, %u: tensor<2xf32>"
    text = spec(body, arguments, "tensor<2x5xf32>, tensor<2xf32>")
    assert text.count("scatter ") == 1
    assert "arg a0 f32[s0,s1]" in text


def test_what_a_rewrite_leaves_out_ties_nothing() -> None:
    compared = """%p = stablehlo.compare LT, %x, %y : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
%r = stablehlo.select %p, %x, %x : tensor<3xi1>, tensor<3xf32>
return %r : tensor<3xf32>"""
    arguments = "%x: tensor<3xf32>, %y: tensor<3xf32>"
    assert spec(compared, arguments, "tensor<3xf32>") == spec(
        "return %x : tensor<3xf32>", arguments, "tensor<3xf32>"
    )


def test_two_masks_that_agree_at_this_size_stay_two() -> None:
    body = """%i = stablehlo.iota dim = 0 : tensor<4xf32>
%j = stablehlo.iota dim = 0 : tensor<4xf32>
%a = stablehlo.multiply %x, %i : tensor<4xf32>
%b = stablehlo.multiply %y, %j : tensor<4xf32>
return %a, %b : tensor<4xf32>, tensor<4xf32>"""
    text = spec(body, "%x: tensor<4xf32>, %y: tensor<4xf32>", "tensor<4xf32>, tensor<4xf32>")
    assert "arg a0 f32[s0]\narg a1 f32[s1]\n" in text


def test_what_a_branch_reads_is_the_same_iota_inside_of_it() -> None:
    """The sum with zero keeps the iota out of the branch until it is dropped."""
    kept = """%z = stablehlo.constant dense<0> : tensor<3xi32>
%i = stablehlo.iota dim = 0 : tensor<3xi32>
%j = stablehlo.add %i, %z : tensor<3xi32>
%c = stablehlo.convert %j : (tensor<3xi32>) -> tensor<3xui8>"""
    inside = {
        "outside": (kept, ""),
        "inside": ("", kept),
        "half": (kept.rpartition("\n")[0], kept.rpartition("\n")[2]),
    }
    specs = {
        name: spec(
            f"""{before}
%r = "stablehlo.if"(%p) ({{
{within}
"stablehlo.return"(%c) : (tensor<3xui8>) -> ()
}}, {{
"stablehlo.return"(%x) : (tensor<3xui8>) -> ()
}}) : (tensor<i1>) -> tensor<3xui8>
return %r : tensor<3xui8>""",
            "%p: tensor<i1>, %x: tensor<3xui8>",
            "tensor<3xui8>",
        )
        for name, (before, within) in inside.items()
    }
    assert len(set(specs.values())) == 1


def test_what_reads_an_iota_is_not_tied_by_another_that_does() -> None:
    """The comparison tied the iota to the argument where both were read, and is gone."""
    body = """%i = stablehlo.iota dim = 0 : tensor<3xi32>
%p = stablehlo.compare LT, %i, %i : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
%s = stablehlo.select %p, %i, %i : tensor<3xi1>, tensor<3xi32>
%n = stablehlo.negate %s : tensor<3xi32>
%a = stablehlo.and %p, %x : tensor<3xi1>
return %a, %n : tensor<3xi1>, tensor<3xi32>"""
    text = spec(body, "%x: tensor<3xi1>", "tensor<3xi1>, tensor<3xi32>")
    assert "negate %3[0] : i32[3]" in text
