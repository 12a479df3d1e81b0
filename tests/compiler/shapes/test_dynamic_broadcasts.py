"""Implicit broadcasts of open sizes to stated ones: a kernel rejects sizes that differ when it is called."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import InvalidProgram
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


def _sum(left: str, right: str, result: str, places: str = "") -> bytes:
    attribute = f" {{broadcast_dimensions = array<i64: {places}>}}" if places else ""
    kinds = f"tensor<{left}xf32>", f"tensor<{right}xf32>", f"tensor<{result}xf32>"
    return f"""func.func @main(%a: {kinds[0]}, %b: {kinds[1]}) -> {kinds[2]} {{
  %r = "chlo.broadcast_add"(%a, %b){attribute} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
  return %r : {kinds[2]}
}}""".encode()


def _kernel(text: bytes) -> Kernel:
    form = canonicalize(text, "stablehlo")
    options = CompileOptions(opt_level=1)
    return Kernel(compile_spec(form.spec_text, form.arg_spec, "x86-64-v2", options, lambda _: None))


@pytest.mark.parametrize("right", ["2x3", "3", "?x3"])
def test_an_open_size_may_be_a_stated_one(right: str) -> None:
    kernel = _kernel(_sum("?x3", right, "2x3"))
    other = NUMBERS[0] if right == "3" else NUMBERS
    (got,) = kernel(NUMBERS, other)
    np.testing.assert_array_equal(got, NUMBERS + other)
    with pytest.raises(RuntimeError, match="do not fit"):
        kernel(np.zeros((4, 3), np.float32), other)


def test_places_may_name_an_axis_of_stated_size() -> None:
    (got,) = _kernel(_sum("2x3", "?", "2x3", "0"))(NUMBERS, NUMBERS[:, 0])
    np.testing.assert_array_equal(got, NUMBERS + NUMBERS[:, :1])


@pytest.mark.parametrize("places", ["5", "0, 1", "-1"])
def test_places_that_are_no_axes_are_rejected(places: str) -> None:
    with pytest.raises(InvalidProgram, match="broadcast_dimensions"):
        canonicalize(_sum("2x3", "3", "2x3", places), "stablehlo")
