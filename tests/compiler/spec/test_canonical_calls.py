"""Inlined calls and sizes that only a type states."""

from __future__ import annotations

import pytest

from kcache_compiler import canonicalize


def _regions(count: int, call: str) -> bytes:
    """``count`` reductions, each with a body of its own length around ``call``."""
    results = ", ".join(["tensor<f32>"] * count)
    lines = [
        "func.func private @f(%x: tensor<f32>) -> tensor<f32> {",
        "%r = stablehlo.tanh %x : tensor<f32> return %r : tensor<f32> }",
        f"func.func public @main(%x: tensor<4xf32>) -> ({results}) {{",
        "%z = stablehlo.constant dense<0.0> : tensor<f32>",
    ]
    for number in range(count):
        lines.append(f'%a{number} = "stablehlo.reduce"(%x, %z) ({{ ^bb0(%u: tensor<f32>, %v0: tensor<f32>):')
        length = 1 + number * 7 % 5
        for step in range(length):
            if step == number % length:
                lines.append(f"%t = {call}")
            op = ("sine", "sqrt", "floor")[(number + step) % 3]
            lines.append(f"%v{step + 1} = stablehlo.{op} %v{step} : tensor<f32>")
        lines.append(f"%w = stablehlo.multiply %t, %v{length} : tensor<f32>")
        lines.append("stablehlo.return %w : tensor<f32> }) {dimensions = array<i64: 0>}")
        lines.append(": (tensor<4xf32>, tensor<f32>) -> tensor<f32>")
    lines.append(f"return {', '.join(f'%a{number}' for number in range(count))} : {results} }}")
    return "\n".join(lines).encode()


@pytest.mark.parametrize("count", [3, 12, 48])
def test_many_regions_that_call_one_function_are_the_same_program_inlined(count: int) -> None:
    called = canonicalize(_regions(count, "func.call @f(%u) : (tensor<f32>) -> tensor<f32>"), "stablehlo")
    inlined = canonicalize(_regions(count, "stablehlo.tanh %u : tensor<f32>"), "stablehlo")
    assert called.spec_text == inlined.spec_text


def test_a_size_that_only_the_result_states_is_the_size_of_the_arguments() -> None:
    form = canonicalize(
        b"func.func @main(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<4xf32> {"
        b"%r = stablehlo.add %a, %b : (tensor<?xf32>, tensor<?xf32>) -> tensor<4xf32>"
        b"return %r : tensor<4xf32> }",
        "stablehlo",
    )
    assert str(form.arg_spec) == "f32[4];f32[4]"
    assert [str(t) for t in form.symbolic_args] == ["f32[s0]", "f32[s0]"]


@pytest.mark.parametrize("size", ["?", "5"])
def test_a_clamp_by_scalars_has_one_key_whether_its_size_is_open(size: str) -> None:
    tensor = f"tensor<{size}xf32>"
    form = canonicalize(
        f"func.func @main(%low: tensor<f32>, %a: {tensor}) -> {tensor} {{"
        "%high = stablehlo.constant dense<1.0> : tensor<f32>"
        f"%r = stablehlo.clamp %low, %a, %high : (tensor<f32>, {tensor}, tensor<f32>) -> {tensor}"
        f"return %r : {tensor} }}".encode(),
        "stablehlo",
    )
    assert [str(t) for t in form.symbolic_args] == ["f32[]", "f32[s0]"]
    assert form.symbol_values == ((-1,) if size == "?" else (5,))
    operations = [line.split()[2] for line in form.spec_text.splitlines() if line.startswith("%")]
    assert sorted(operations) == ["constant", "maximum", "minimum"]
