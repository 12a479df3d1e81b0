"""One key for one computation, however it is written; another for any other computation."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import gc
import os
import subprocess
import sys
from functools import cache

import pytest

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render
from kcache_compiler.types import Canonical
from tests.compiler.variants import NAMES, VARIANTS, mutants, text_of


def key(text: str) -> str:
    return canonicalize(text.encode(), "stablehlo").spec_text


@cache
def original(name: str) -> Canonical:
    return canonicalize(text_of(name).encode(), "stablehlo")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_writing_it_differently_keeps_the_key(name: str, variant: str, seed: int) -> None:
    assert key(VARIANTS[variant](text_of(name), seed)) == original(name).spec_text


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_all_at_once_keeps_the_key(name: str, seed: int) -> None:
    text = text_of(name)
    for variant in ("commuted", "duplicated", "shuffled", "outlined", "renamed", "relocated"):
        text = VARIANTS[variant](text, seed)
    assert key(text) == original(name).spec_text


@pytest.mark.parametrize("name", NAMES)
def test_rendering_and_reading_back_is_the_same_graph(name: str) -> None:
    """At the program's sizes: there, one over an extent is a number like any other."""
    again = render(original(name).spec_text, original(name).arg_spec)
    static = canonicalize(text_of(name).encode(), "stablehlo", erasing=False)
    assert canonicalize(again.encode(), "stablehlo", erasing=False).spec_text == static.spec_text


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name == "transformer" else name for name in NAMES]
)
def test_no_mutant_has_the_key_of_its_program(name: str) -> None:
    changed = list(mutants(text_of(name)))
    assert len(changed) >= 10
    same = [label for label, text in changed if key(text) == original(name).spec_text]
    assert same == []


def test_programs_have_different_keys() -> None:
    assert len({original(name).spec_digest for name in NAMES}) == len(NAMES)


@pytest.mark.long
def test_the_key_does_not_depend_on_the_process() -> None:
    script = (
        "import sys, hashlib; from kcache_compiler.spec import canonicalize\n"
        "print([canonicalize(open(p,'rb').read(), 'stablehlo').spec_digest.hex() for p in sys.argv[1:]])"
    )
    from tests.compiler.variants import PROGRAMS

    paths = [str(PROGRAMS / f"{name}.mlir") for name in NAMES]
    answers = {
        subprocess.run(
            [sys.executable, "-c", script, *paths],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        ).stdout
        for seed in ("1", "4242")
    }
    assert answers == {f"{[original(name).spec_digest.hex() for name in NAMES]}\n"}


def pair(first: str, second: str, arguments: str, results: str) -> tuple[str, str]:
    head = f"func.func @main({arguments}) -> {results} {{\n"
    return key(head + first + "\n}"), key(head + second + "\n}")


SQUARE = "%x: tensor<4x4xf32>, %z: tensor<4x4xf32>"
TRANSPOSED = "%t = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>\n"


def test_symmetric_values_meet_whichever_side_is_transposed() -> None:
    end = "%p = stablehlo.multiply %s, %z : tensor<4x4xf32>\nreturn %p : tensor<4x4xf32>"
    first, second = pair(
        f"{TRANSPOSED}%s = stablehlo.add %x, %t : tensor<4x4xf32>\n{end}",
        f"{TRANSPOSED}%s = stablehlo.add %t, %x : tensor<4x4xf32>\n{end}",
        SQUARE,
        "tensor<4x4xf32>",
    )
    assert first == second


def test_a_symmetric_value_is_its_transpose_but_a_difference_is_not() -> None:
    tail = """%u = stablehlo.transpose %s, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %p = stablehlo.multiply %{0}, %z : tensor<4x4xf32>
      return %p : tensor<4x4xf32>"""
    for op, meet in (("add", True), ("subtract", False)):
        make = f"{TRANSPOSED}%s = stablehlo.{op} %x, %t : tensor<4x4xf32>\n"
        first, second = pair(
            make + tail.replace("{0}", "s"), make + tail.replace("{0}", "u"), SQUARE, "tensor<4x4xf32>"
        )
        assert (first == second) is meet


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            """%b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>
            %s = stablehlo.add %x, %b : tensor<3x4xf32>
            %e = stablehlo.exponential %b : tensor<3x4xf32>
            %r = stablehlo.multiply %s, %e : tensor<3x4xf32>""",
            """%u = stablehlo.reshape %v : (tensor<4xf32>) -> tensor<1x4xf32>
            %w = stablehlo.exponential %u : tensor<1x4xf32>
            %b = stablehlo.broadcast_in_dim %u, dims = [0, 1] : (tensor<1x4xf32>) -> tensor<3x4xf32>
            %e = stablehlo.broadcast_in_dim %w, dims = [0, 1] : (tensor<1x4xf32>) -> tensor<3x4xf32>
            %s = stablehlo.add %b, %x : tensor<3x4xf32>
            %r = stablehlo.multiply %e, %s : tensor<3x4xf32>""",
            id="broadcast late",
        ),
        pytest.param(
            """%b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>
            %r = stablehlo.subtract %x, %b : tensor<3x4xf32>""",
            """%b = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<4xf32>) -> tensor<4x3xf32>
            %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
            %s = stablehlo.subtract %t, %b : tensor<4x3xf32>
            %r = stablehlo.transpose %s, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>""",
            id="transposed throughout",
        ),
        pytest.param(
            """%d = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x3xf32>
            %r = stablehlo.dot_general %d, %x, contracting_dims = [1] x [0] : (tensor<3x3xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>""",
            """%t = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
            %d = stablehlo.dot %x, %t : (tensor<3x4xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
            %q = stablehlo.dot_general %t, %d, contracting_dims = [1] x [0] : (tensor<4x3xf32>, tensor<3x3xf32>) -> tensor<4x3xf32>
            %r = stablehlo.transpose %q, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>""",
            id="matrix products",
        ),
        pytest.param(
            """%a = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<3x4xf32>) -> tensor<3x4x3xf32>
            %b = stablehlo.broadcast_in_dim %x, dims = [2, 1] : (tensor<3x4xf32>) -> tensor<3x4x3xf32>
            %m = stablehlo.multiply %a, %b : tensor<3x4x3xf32>
            %z = stablehlo.constant dense<0.0> : tensor<f32>
            %d = stablehlo.reduce(%m init: %z) applies stablehlo.add across dimensions = [1] : (tensor<3x4x3xf32>, tensor<f32>) -> tensor<3x3xf32>
            %r = stablehlo.dot %d, %x : (tensor<3x3xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>""",
            """%d = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x3xf32>
            %r = stablehlo.dot %d, %x : (tensor<3x3xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>""",
            id="a contraction is a sum of products",
        ),
        pytest.param(
            """%s = stablehlo.reshape %x : (tensor<3x4xf32>) -> tensor<3x2x2xf32>
            %t = stablehlo.transpose %s, dims = [1, 2, 0] : (tensor<3x2x2xf32>) -> tensor<2x2x3xf32>
            %e = stablehlo.exponential %t : tensor<2x2x3xf32>
            %u = stablehlo.transpose %e, dims = [2, 0, 1] : (tensor<2x2x3xf32>) -> tensor<3x2x2xf32>
            %r = stablehlo.reshape %u : (tensor<3x2x2xf32>) -> tensor<3x4xf32>""",
            """%t = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
            %s = stablehlo.reshape %t : (tensor<4x3xf32>) -> tensor<2x2x3xf32>
            %e = stablehlo.exponential %s : tensor<2x2x3xf32>
            %q = stablehlo.reshape %e : (tensor<2x2x3xf32>) -> tensor<4x3xf32>
            %r = stablehlo.transpose %q, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>""",
            id="splitting an axis, whatever stands beside it",
        ),
        pytest.param(
            """%s = stablehlo.reshape %x : (tensor<3x4xf32>) -> tensor<12xf32>
            %r = stablehlo.reshape %s : (tensor<12xf32>) -> tensor<3x4xf32>""",
            "%r = stablehlo.optimization_barrier %x : tensor<3x4xf32>",
            id="reshape and back",
        ),
    ],
)
def test_views_written_differently_meet(first: str, second: str) -> None:
    end = "\nreturn %r : tensor<3x4xf32>"
    plain, other = pair(
        first + end, second + end, "%x: tensor<3x4xf32>, %v: tensor<4xf32>", "tensor<3x4xf32>"
    )
    assert plain == other


def test_broadcasting_along_another_axis_is_another_program() -> None:
    end = "\n%r = stablehlo.add %x, %b : tensor<4x4xf32>\nreturn %r : tensor<4x4xf32>"
    make = "%b = stablehlo.broadcast_in_dim %v, dims = [{}] : (tensor<4xf32>) -> tensor<4x4xf32>"
    arguments = "%x: tensor<4x4xf32>, %v: tensor<4xf32>"
    first, other = pair(make.format(0) + end, make.format(1) + end, arguments, "tensor<4x4xf32>")
    assert first != other


def test_annotations_are_not_part_of_the_key() -> None:
    plain = "%r = stablehlo.tanh %x : tensor<4xf32>\nreturn %r : tensor<4xf32>"
    annotated = """%s = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (tensor<4xf32>) -> tensor<4xf32>
      %r = stablehlo.tanh %s {mhlo.frontend_attributes = {a = "b"}} : tensor<4xf32>
      return %r : tensor<4xf32>"""
    first, other = pair(plain, annotated, "%x: tensor<4xf32>", "tensor<4xf32>")
    assert first == other


def test_random_draws_stay_two() -> None:
    body = """%l = stablehlo.constant dense<0.0> : tensor<f32>
      %h = stablehlo.constant dense<1.0> : tensor<f32>
      %n = stablehlo.constant dense<[4]> : tensor<1xi64>
      %a = stablehlo.rng %l, %h, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
      %b = stablehlo.rng %l, %h, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
      """
    two = body + "%r = stablehlo.subtract %a, %b : tensor<4xf32>\nreturn %r : tensor<4xf32>"
    shared = body + "%r = stablehlo.subtract %a, %a : tensor<4xf32>\nreturn %r : tensor<4xf32>"
    first, second = pair(shared, two, "", "tensor<4xf32>")
    assert first != second


@pytest.mark.parametrize("running", [True, False])
def test_the_collector_is_left_as_it_was(running: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if running else gc.disable)()
        original.__wrapped__(NAMES[0])
        assert gc.isenabled() == running
        with pytest.raises(InvalidProgram):
            canonicalize(b"func.func", "stablehlo")
        assert gc.isenabled() == running
    finally:
        (gc.enable if was else gc.disable)()
