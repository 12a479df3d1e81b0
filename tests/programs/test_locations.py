"""Locations go, and nothing else does."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc.programs.locations import strip_locations

STRIPPED = {
    "behind an op": (
        b'%0 = stablehlo.add %a, %b : tensor<f32> loc("a.py":1:2)\n',
        b"%0 = stablehlo.add %a, %b : tensor<f32>\n",
    ),
    "behind a region and an argument": (
        b'func.func @f(%a: f32 loc("x"), %b: f32 loc(#loc1)) {\n  return loc(#loc)\n} loc(#loc2)\n'
        b'#loc = loc(unknown)\n#loc1 = loc("x"(#loc2))\n#loc2 = loc("f":1:1)\n',
        b"func.func @f(%a: f32, %b: f32) {\n  return\n}\n",
    ),
    "definitions before the module": (b'#loc = loc("a"("b"))\nmodule {\n} loc(#loc)\n', b"module {\n}\n"),
    "nested, with parentheses in strings": (
        b'%0 = op loc(callsite("a)\\")"("f(":1:2) at fused<"x">["y", "z"(#loc3)]))\n%1 = op\n',
        b"%0 = op\n%1 = op\n",
    ),
    "blank inside": (b'%0 = op loc ( "a" )\n', b"%0 = op\n"),
    "two on one line": (b'op loc("a") op loc("b")', b"op op"),
}

KEPT = {
    "in a string": b'%0 = op {s = "x loc(1) \\" loc(2)"} : f32\n',
    "in a comment": b'// loc("a) " \n%0 = op\n',
    "symbols and labels": b'call @loc(%loc) : () -> ()\n^loc(%a: f32):\n%my_loc(1)\nfoo.loc("x")\n#loc(1)\n',
    "an attribute": b'op {at = loc("a"), more = [loc("b"), loc(#loc1)], deep = {x = loc(unknown)}}\n',
    "a definition that an attribute needs": (
        b'#loc1 = loc("a"(#loc2))\n#loc2 = loc("b")\nop {at = [#loc1]}\n'
    ),
    "a definition that a kept location needs": b'#loc1 = loc("a")\nop {at = loc(#loc1)}\n',
    "an unclosed string": b'%0 = op "never closed loc("a")\n',
    "an unclosed location": b'%0 = op loc("a"\n%1 = op loc("b")',
    "other aliases": b"#map = affine_map<(d0) -> (d0)>\nop {m = #map}\n",
    "no location at all": b"module {}\n",
    "first of all": b'loc("a")\n',
}


@pytest.mark.parametrize(("text", "expected"), STRIPPED.values(), ids=STRIPPED.keys())
def test_goes(text: bytes, expected: bytes) -> None:
    assert strip_locations(text) == expected
    assert strip_locations(expected) == expected


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT.keys())
def test_stays(text: bytes) -> None:
    assert strip_locations(text) == text


def test_an_unneeded_definition_goes_beside_a_needed_one() -> None:
    text = b'#loc1 = loc("a")\n#loc2 = loc("b")\nop {at = #loc1} loc(#loc2)\n'
    assert strip_locations(text) == b'#loc1 = loc("a")\nop {at = #loc1}\n'


@given(st.text(alphabet='loc(#)"\\/= \n{}[],%@ax', max_size=60))
def test_is_stable_on_any_text(text: str) -> None:
    once = strip_locations(text.encode())
    assert len(once) <= len(text.encode())


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters='"\\\n'), max_size=20))
def test_any_file_name_goes(name: str) -> None:
    assert strip_locations(f'op loc("{name}":1:2)\n'.encode()) == b"op\n"


def test_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        text = b"module {\n" + b'  %0 = op : f32 loc("a/b.py":12:3)\n' * size + b"}\n"
        began = time.process_time()
        assert b"loc" not in strip_locations(text)
        return time.process_time() - began

    seconds(1000)
    small = min(seconds(2_000) for _ in range(3))
    assert min(seconds(20_000) for _ in range(3)) < 40 * small


@pytest.mark.parametrize("text", [b"loc(" * 50_000, b"#loc = loc(" * 20_000, b'"\\' * 50_000, b"/" * 100_000])
def test_hostile_text_is_quick(text: bytes) -> None:
    began = time.process_time()
    assert strip_locations(text) == text
    assert time.process_time() - began < 2


def test_what_jax_prints_with_locations_becomes_what_it_prints_without() -> None:
    jax = pytest.importorskip("jax")
    lowered = jax.jit(lambda x, loc: (jax.nn.softmax(x) @ loc).sum()).lower(
        jax.numpy.ones((4, 8)), jax.numpy.ones((8, 3))
    )
    text = lowered.as_text(debug_info=True).encode()
    assert b"loc(" in text
    assert b".py" in text
    assert strip_locations(text).split() == lowered.as_text().encode().split()
