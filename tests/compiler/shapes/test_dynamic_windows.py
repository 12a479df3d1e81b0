"""Windows that leave less than nothing of an open axis: what is rejected touches no memory."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel

_KIND = "tensor<?x8xf64>"


def _window(name: str, source: str, rows: int, columns: int, op: str) -> str:
    """Of three rows, or of three columns beside which there is nothing."""
    return (
        f'%{name} = "stablehlo.reduce_window"(%{source}, %z) <{{'
        f"window_dimensions = array<i64: {rows}, {columns}>, "
        f"padding = dense<[[0, 0], [{columns // 2}, {columns // 2}]]> : tensor<2x2xi64>}}> ({{\n"
        f"^bb0(%p: tensor<f64>, %q: tensor<f64>):\n%s = stablehlo.{op} %p, %q : tensor<f64>\n"
        f"stablehlo.return %s : tensor<f64>\n}}) : ({_KIND}, tensor<f64>) -> {_KIND}"
    )


def _program() -> str:
    """Several results of two rows fewer, which live until after a loop whose condition ``main`` reads."""
    before = "\n".join(
        _window(f"r{n}", "x", 3, 1, op) + "\n" + _window(f"t{n}", f"r{n}", 1, 3, "add")
        for n, op in enumerate(("add", "maximum", "minimum"))
    )
    return f"""func.func @main(%x: {_KIND}, %n: tensor<ui32>) -> ({_KIND}, tensor<ui32>) {{
  %z = stablehlo.constant dense<0.0> : tensor<f64>
  %zero = stablehlo.constant dense<0> : tensor<ui32>
  %one = stablehlo.constant dense<1> : tensor<ui32>
  {before}
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<ui32>, {_KIND}
  cond {{
    %c = stablehlo.compare LT, %i, %n : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %w = stablehlo.add %v, %v : {_KIND}
    %j = stablehlo.add %i, %one : tensor<ui32>
    stablehlo.return %j, %w : tensor<ui32>, {_KIND}
  }}
  {_window("u0", "t0", 1, 3, "add")}
  %v1 = stablehlo.add %u0, %t1 : {_KIND}
  {_window("u1", "v1", 1, 3, "add")}
  %v2 = stablehlo.add %u1, %t2 : {_KIND}
  %f = stablehlo.pad %v2, %z, low = [1, 0], high = [1, 0], interior = [0, 0]
    : ({_KIND}, tensor<f64>) -> {_KIND}
  %g = stablehlo.add %f, %r#1 : {_KIND}
  return %g, %r#0 : {_KIND}, tensor<ui32>
}}"""


def test_a_workspace_has_room_for_what_is_read_at_sizes_that_are_rejected() -> None:
    canonical = canonicalize(_program().encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    compiled = compile_spec(
        canonical.spec_text, canonical.arg_spec, host_target().isa, options, lambda _: None
    )
    symbol = compiled.interface.symbols[0].name
    sizes = [
        evaluate_text(compiled.interface.workspace, {symbol: size, "workers": 1}) for size in (0, 1, 2, 3)
    ]
    assert 0 < sizes[0] <= sizes[1] <= sizes[2] <= sizes[3]
    kernel = Kernel(compiled)
    for size in (3, 2):
        assert kernel(np.ones((size, 8)), np.uint32(3))[1] == 3
    for size in (1, 0):
        with pytest.raises(RuntimeError, match="do not fit"):
            kernel(np.ones((size, 8)), np.uint32(3))
