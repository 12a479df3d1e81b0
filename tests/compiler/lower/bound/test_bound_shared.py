"""Weights that several operations read: packed once if all of these read equal panels, else not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.errors import CompileFailed
from kcache_compiler.lower.cpu import entry
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.prepared import ALIGNMENT
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions, TensorType
from tests.compiler.codegen_harness import Kernel
from tests.compiler.lower.bound.test_bound import Bound as StaticBound
from tests.compiler.lower.bound.test_bound_dynamic import Bound

Array = Any
SIZE, TARGET = 72, "x86-64-v3"
STATE, WEIGHT = f"tensor<?x{SIZE}xf32>", f"tensor<{SIZE}x{SIZE}xf32>"
TYPES = f"({STATE}, {WEIGHT}) -> {STATE}"


def _times(result: str, x: str, weight: str, axis: int = 1) -> str:
    """``x`` times a weight, of which ``axis`` is summed."""
    return f"%{result} = stablehlo.dot_general %{x}, %{weight}, contracting_dims = [1] x [{axis}] : {TYPES}\n"


def _elementwise(result: str, operation: str, *operands: str) -> str:
    named = ", ".join(f"%{operand}" for operand in operands)
    return f"%{result} = stablehlo.{operation} {named} : {STATE}\n"


def _step(h: str, number: int) -> str:
    """``h{number} = tanh(h w^T + x u^T)``."""
    lines = _times(f"a{number}", h, "w") + _times(f"b{number}", "x", "u")
    return (
        lines
        + _elementwise(f"s{number}", "add", f"a{number}", f"b{number}")
        + _elementwise(f"h{number}", "tanh", f"s{number}")
    )


UNROLLED = _step("x", 0) + _step("h0", 1) + _step("h1", 2) + f"return %h2 : {STATE}"
#: One reader of ``w`` is in a loop, another one before it.
LOOP = f"""
  {_times("a", "x", "w")}
  %start = stablehlo.constant dense<0> : tensor<i32>
  %h:2 = stablehlo.while(%i = %start, %state = %a) : tensor<i32>, {STATE}
  cond {{
    %steps = stablehlo.constant dense<2> : tensor<i32>
    %more = stablehlo.compare LT, %i, %steps : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    {_times("b", "state", "w")}
    {_elementwise("c", "add", "b", "x")}
    {_elementwise("d", "tanh", "c")}
    stablehlo.return %next, %d : tensor<i32>, {STATE}
  }}
  {_times("e", "h#1", "u")}
  return %e : {STATE}"""
#: Rows of ``w`` are summed by one product, columns by another.
BOTH_AXES = _times("a", "x", "w") + _times("b", "a", "w", 0) + _times("c", "b", "u") + f"return %c : {STATE}"
#: A weight is also the left operand of a product, whose result is added to that of the other one.
BOTH_SIDES = (
    _times("a", "x", "w")
    + f"%t = stablehlo.dot_general %w, %x, contracting_dims = [1] x [1] : ({WEIGHT}, {STATE}) -> "
    + f"tensor<{SIZE}x?xf32>\n"
    + f"%b = stablehlo.transpose %t, dims = [1, 0] : (tensor<{SIZE}x?xf32>) -> {STATE}\n"
    + _elementwise("c", "add", "a", "b")
    + _times("d", "c", "u")
    + f"return %d : {STATE}"
)
#: Rows of ``w``, as of an embedding, are read by a gather too.
GATHERED = f"""
  {_times("a", "x", "w")}
  %whole = stablehlo.convert %x : ({STATE}) -> tensor<?x{SIZE}xi32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %first = "stablehlo.reduce"(%whole, %zero) <{{dimensions = array<i64: 1>}}> ({{
  ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %most = stablehlo.maximum %p, %q : tensor<i32>
    stablehlo.return %most : tensor<i32>
  }}) : (tensor<?x{SIZE}xi32>, tensor<i32>) -> tensor<?xi32>
  %rows = "stablehlo.gather"(%w, %first) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, {SIZE}>}}> : ({WEIGHT}, tensor<?xi32>) -> {STATE}
  {_elementwise("b", "add", "a", "rows")}
  {_times("c", "b", "u")}
  return %c : {STATE}"""


def _unrolled(x: Array, w: Array, u: Array) -> Array:
    h = x
    for _ in range(3):
        h = np.tanh(h @ w.T + x @ u.T)
    return h


def _looped(x: Array, w: Array, u: Array) -> Array:
    h = x @ w.T
    for _ in range(2):
        h = np.tanh(h @ w.T + x)
    return h @ u.T


def _gathered(x: Array, w: Array, u: Array) -> Array:
    return (x @ w.T + w[np.maximum(x.astype("i4"), 0).max(axis=1)]) @ u.T


#: Programs, what they compute, and the number of weights that are packed.
PROGRAMS: dict[str, tuple[str, Callable[..., Array], int]] = {
    "unrolled": (UNROLLED, _unrolled, 2),
    "loop": (LOOP, _looped, 2),
    "both axes": (BOTH_AXES, lambda x, w, u: x @ w.T @ w @ u.T, 1),
    "both sides": (BOTH_SIDES, lambda x, w, u: 2 * (x @ w.T) @ u.T, 2),
    "gathered": (GATHERED, _gathered, 1),
}


def _text(body: str, rows: int | str = "?") -> str:
    text = f"func.func @main(%x: {STATE}, %w: {WEIGHT}, %u: {WEIGHT}) -> {STATE} {{\n{body}\n}}"
    return text.replace("?", str(rows))


def _compiled(body: str, numerics: str = "default") -> CompiledKernel:
    """The kernel of any number of rows, with bound weights."""
    canonical = canonicalize(_text(body).encode(), "stablehlo", numerics)
    shapes = ((canonical.symbolic_args[0].dims[0], SIZE), (SIZE, SIZE), (SIZE, SIZE))
    arguments = ArgSpec(tuple(TensorType("f32", dims) for dims in shapes))
    options = CompileOptions(numerics, 2, bound=(1, 2))
    return compile_spec(canonical.spec_text, arguments, TARGET, options, lambda _: None)


def _weights(seed: int) -> list[Array]:
    draw = np.random.default_rng(seed)
    return [(draw.standard_normal((SIZE, SIZE)) / 8).astype("f4") for _ in range(2)]


def _packed_weights(compiled: CompiledKernel) -> int:
    """How many weights are packed: panels of 16 columns have zeros after the last one."""
    described = compiled.interface.bound
    assert described is not None
    plain = SIZE * SIZE * 4
    panels = 80 * SIZE * 4 + ALIGNMENT
    count, rest = divmod(described.prepared_bytes - 2 * plain, panels - plain)
    assert not rest
    return count


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_static_sizes_for_all_weights(name: str):
    body, expected, packed = PROGRAMS[name]
    compiled = _compiled(body)
    assert _packed_weights(compiled) == packed
    for seed in range(2):
        weights = _weights(seed)
        kernel = Bound(compiled, [weights[0], *weights])
        for rows in (1, 2, 3, 4, 13, 32):
            x = np.random.default_rng(rows).standard_normal((rows, SIZE)).astype("f4")
            (result,) = kernel(x, *weights)
            exact = expected(*(each.astype("f8") for each in (x, *weights)))
            np.testing.assert_allclose(result, exact, 1e-4, 1e-5, err_msg=f"{name}, {rows} rows")
            if rows in (3, 32) and not seed:
                static = StaticBound(_text(body, rows), 3, [1, 2], "default", 2, TARGET)
                (same,) = static.run(static.prepare(*weights), x)
                np.testing.assert_allclose(result, same, 1e-4, 1e-5, err_msg=f"{name}, {rows} rows")


def test_bits_of_strict_kernels_are_those_without_bound_weights():
    body, _, packed = PROGRAMS["unrolled"]
    compiled = _compiled(body, "strict")
    described = compiled.interface.bound
    assert described is not None
    assert described.prepared_bytes > packed * SIZE * SIZE * 4
    weights = _weights(0)
    kernel = Bound(compiled, [weights[0], *weights])
    for rows in (1, 3, 17):
        x = np.random.default_rng(rows).standard_normal((rows, SIZE)).astype("f4")
        plain = Kernel(lower_module(_text(body, rows), 3, TARGET, CompileOptions("strict"), lambda _: None))
        assert kernel(x, *weights)[0].tobytes() == plain(x, *weights)[0].tobytes()


def test_readers_of_other_panels_are_an_error(monkeypatch: pytest.MonkeyPatch):
    """If the decision were wrong, a product would read panels as rows."""
    body, _, _ = PROGRAMS["both axes"]

    def shared(unit: Unit, *_: Any) -> None:
        if unit.prepared is not None:
            unit.prepared.shared.update(range(len(unit.constants)))

    monkeypatch.setattr(entry, "share_panels", shared)
    with pytest.raises(CompileFailed, match=r"read prepared value \d in several layouts"):
        StaticBound(_text(body, 40), 3, [1, 2], "default", 1, TARGET)
