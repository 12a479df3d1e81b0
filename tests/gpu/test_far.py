"""Elements that 32 bits do not count: kernels at given and at all sizes read and write the right ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import ArgSpec, CompileOptions
from kcache_grpc.model.gpu.launch import GpuLaunchSpec, TooLarge, calls
from kcache_grpc.model.sizes.expression import FormulaOverflow
from tests.compiler.codegen_harness import NUMPY
from tests.gpu.harness.emulate import ORDERS
from tests.gpu.harness.far import Array, Window, run_last
from tests.gpu.harness.programs import TEMPLATES, TOLERANCE, narrow_attention

TEMPLATE = {template.name: template for template in TEMPLATES}
#: More than 2^32 elements, and no tile divides them.
M, N = 70003, 61357


@dataclass(frozen=True)
class Far:
    """A program, what is seen of its arguments and its result, and the last elements of the result."""

    text: str
    inputs: list[Window]
    output: Window
    expected: Array
    numerics: str = "default"
    tolerance: float = 0.0


def _end(dtype: str, shape: tuple[int, ...], count: int, seed: int = 1) -> Window:
    """The last ``count`` elements of an array, random numbers."""
    rng = np.random.default_rng(seed)
    whole = np.dtype(NUMPY[dtype]).kind in "iu"
    values = rng.integers(0, 100, count) if whole else rng.standard_normal(count)
    return Window(shape, int(np.prod(shape, dtype=np.int64)) - count, values.astype(NUMPY[dtype]))


def _unseen(window: Window) -> Window:
    """The same place, before anything is written there."""
    return Window(window.shape, window.first, np.zeros_like(window.content))


def stream() -> Far:
    kind = f"tensor<{M}x{N}xi8>"
    a, b = (_end("i8", (M, N), 4096, seed) for seed in (1, 2))
    text = f"""func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{
      %r = stablehlo.subtract %a, %b : {kind}
      return %r : {kind} }}"""
    return Far(text, [a, b], _unseen(a), (a.content - b.content)[-2000:])


def counted() -> Far:
    """Each element says which it is."""
    kind = f"tensor<{M * N}xi64>"
    text = f"""func.func @main(%a: tensor<{M * N}xi8>) -> {kind} {{
      %i = stablehlo.iota dim = 0 : {kind}
      %w = stablehlo.convert %a : (tensor<{M * N}xi8>) -> {kind}
      %r = stablehlo.add %i, %w : {kind}
      return %r : {kind} }}"""
    a, out = _end("i8", (M * N,), 4096), _end("i64", (M * N,), 512)
    return Far(text, [a], _unseen(out), np.arange(M * N - 256, M * N) + a.content[-256:])


def turned() -> Far:
    """The last tile, of 19 rows and 13 columns of the argument."""
    a = _end("i16", (M, N), 19 * N)
    out = _end("i16", (N, M), 13 * M)
    expected = np.zeros((13, M), np.int16)
    expected[:, -19:] = a.content.reshape(19, N)[:, -13:].T
    return Far(TEMPLATE["transpose"].text("i16", M, N), [a], _unseen(out), expected[-1, -19:])


def backwards() -> Far:
    kind = f"tensor<{M}x{N}xi8>"
    text = f"""func.func @main(%a: {kind}) -> {kind} {{
      %r = stablehlo.reverse %a, dims = [0, 1] : {kind}
      return %r : {kind} }}"""
    a = _end("i8", (M, N), 4096)
    return Far(text, [Window(a.shape, 0, a.content)], _unseen(a), a.content[:64][::-1])


def rows(numerics: str = "default") -> Far:
    shape = (M * 100, N // 100)
    a = _end("f32", shape, 16 * shape[1])
    expected = TEMPLATE["softmax"].expected(a.content.reshape(16, -1).astype("f8"))
    text = TEMPLATE["softmax"].text("f32", *shape)
    return Far(text, [a], _unseen(a), expected[-1], numerics, TOLERANCE["f32"])


def columns() -> Far:
    shape = (3, M * N // 3)
    a, out = _end("f16", shape, 4096), _end("f16", shape[1:], 4096)
    text = TEMPLATE["column sums"].text("f16", *shape)
    return Far(text, [a], _unseen(out), a.content[-64:].astype("f8"), tolerance=TOLERANCE["f16"])


def tall(dtype: str) -> Far:
    """A product whose first operand is long."""
    m, n, k = M * 60, 72, N // 60
    a, out = _end(dtype, (m, k), 160 * k), _end(dtype, (m, n), 160 * n)
    b, bias = (_end(dtype, shape, int(np.prod(shape)), 2) for shape in ((k, n), (n,)))
    template = TEMPLATE["matmul"]
    wide = [window.content.astype("f8") for window in (a, b, bias)]
    expected = template.expected(wide[0].reshape(160, k)[-2:], wide[1].reshape(k, n), wide[2])
    operands = [a, b, bias]
    return Far(
        template.text(dtype, m, n, k), operands, _unseen(out), expected, tolerance=TOLERANCE[dtype] * 80
    )


def wide(dtype: str) -> Far:
    """A product whose result is long."""
    a, b, bias = (_end(dtype, shape, int(np.prod(shape)), 2) for shape in ((M, 16), (16, N), (N,)))
    out = _end(dtype, (M, N), 128 * N)
    template = TEMPLATE["matmul"]
    values = [window.content.astype("f8") for window in (a, b, bias)]
    expected = template.expected(values[0].reshape(M, 16)[-1:], values[1].reshape(16, N), values[2])
    text = template.text(dtype, M, N, 16)
    return Far(text, [a, b, bias], _unseen(out), expected[0, -12:], tolerance=TOLERANCE[dtype] * 10)


def taken() -> Far:
    """Elements at places beyond 2^32."""
    kind, places = f"tensor<{M * N}xi8>", np.array([[5], [4090], [0], [4095]])
    text = f"""func.func @main(%a: {kind}, %p: tensor<4x1xi64>) -> tensor<4xi8> {{
      %r = "stablehlo.gather"(%a, %p) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}}>
        : ({kind}, tensor<4x1xi64>) -> tensor<4xi8>
      return %r : tensor<4xi8> }}"""
    a = _end("i8", (M * N,), 4096)
    positions = Window((4, 1), 0, places + a.first)
    return Far(text, [a, positions], Window((4,), 0, np.zeros(4, np.int8)), a.content[places[:, 0]])


def placed() -> Far:
    """Elements put at places beyond 2^32."""
    kind, places = f"tensor<{M * N}xi8>", np.array([[4091], [4090], [7], [4095]])
    text = f"""func.func @main(%a: {kind}, %p: tensor<4x1xi64>, %u: tensor<4xi8>) -> {kind} {{
      %r = "stablehlo.scatter"(%a, %p, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
        ^bb0(%x: tensor<i8>, %y: tensor<i8>):
          stablehlo.return %y : tensor<i8>
      }}) : ({kind}, tensor<4x1xi64>, tensor<4xi8>) -> {kind}
      return %r : {kind} }}"""
    a, new = _end("i8", (M * N,), 4096), np.array([1, 2, 3, 4], np.int8)
    expected = a.content.copy()
    expected[places[:, 0]] = new
    operands = [a, Window((4, 1), 0, places + a.first), Window((4,), 0, new)]
    return Far(text, operands, _unseen(a), expected[-64:])


def sliced() -> Far:
    """From a place beyond 2^32, which the program is told."""
    kind = f"tensor<{M * N}xi8>"
    text = f"""func.func @main(%a: {kind}, %p: tensor<i64>) -> tensor<64xi8> {{
      %r = stablehlo.dynamic_slice %a, %p, sizes = [64] : ({kind}, tensor<i64>) -> tensor<64xi8>
      return %r : tensor<64xi8> }}"""
    a = _end("i8", (M * N,), 4096)
    operands = [a, Window((), 0, np.array([a.first + 100]))]
    return Far(text, operands, Window((64,), 0, np.zeros(64, np.int8)), a.content[100:164])


def attention(element: str) -> Far:
    batch, keys, depth = M * N // 4096 + 1, 64, 64
    shape = (batch, 1, keys, depth)
    q, k, v = (_end(element, shape, keys * depth, seed) for seed in (1, 2, 3))
    text = narrow_attention(batch, 1, keys, keys, depth, element, causal=False)
    wide = [window.content.reshape(keys, depth).astype("f8") for window in (q, k, v)]
    expected = TEMPLATE["softmax"].expected(wide[0] @ wide[1].T * depth**-0.5) @ wide[2]
    return Far(text, [q, k, v], _unseen(q), expected, tolerance=2 * TOLERANCE[element])


CASES: dict[str, Callable[[], Far]] = {
    "stream": stream,
    "counted": counted,
    "transposition": turned,
    "backwards": backwards,
    "rows": rows,
    "rows, strict": lambda: rows("strict"),
    "columns": columns,
    "tall product": lambda: tall("f32"),
    "tall bf16 product": lambda: tall("bf16"),
    "wide product": lambda: wide("f32"),
    "wide f16 product": lambda: wide("f16"),
    "gather": taken,
    "scatter": placed,
    "slice": sliced,
    "attention": lambda: attention("f32"),
    "bf16 attention": lambda: attention("bf16"),
}


#: On every change; all of them in the long run.
QUICK = ("stream", "transposition", "rows", "tall bf16 product", "scatter", "attention")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("opened", [False, True], ids=["given sizes", "all sizes"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in QUICK)) for name in CASES]
)
def test_the_last_elements_are_right(name: str, opened: bool) -> None:
    far = CASES[name]()
    canonical = canonicalize(far.text.encode(), "stablehlo", far.numerics)
    args = ArgSpec(canonical.symbolic_args) if opened else canonical.arg_spec
    options = CompileOptions(numerics=far.numerics)
    kernel = compile_spec(canonical.spec_text, args, "sm_90", options, lambda _: None)
    (got,) = run_last(kernel, far.inputs, [far.output], 2, ORDERS[len(name) % 3])
    expected = far.expected.reshape(-1)
    end = got[got.size - expected.size :]
    if far.tolerance:
        np.testing.assert_allclose(end.astype("f8"), expected, rtol=0, atol=far.tolerance)
    else:
        np.testing.assert_array_equal(end, expected)


@pytest.mark.parametrize("name", ["pointwise", "softmax", "column sums", "transpose", "matmul"])
def test_more_blocks_than_a_gpu_has_are_rejected_before_a_launch(name: str) -> None:
    text = TEMPLATE[name].text("f32", *TEMPLATE[name].sizes[3])
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    args, options = ArgSpec(canonical.symbolic_args), CompileOptions()
    kernel = compile_spec(canonical.spec_text, args, "sm_90", options, lambda _: None)
    fields = ("name", "ops", "entry", "when", "grid", "block", "shared_bytes", "params")
    launches = tuple(
        GpuLaunchSpec(*(getattr(launch, field) for field in fields))
        for launch in kernel.interface.gpu_launches
    )
    symbols = [symbol.name for symbol in kernel.interface.symbols]
    powers = list[int]()
    for power in range(3, 63):
        try:
            launched = calls(launches, dict.fromkeys(symbols, 1 << power))
        except (TooLarge, FormulaOverflow):
            continue
        assert all(call.grid[0] < 1 << 31 and call.grid[1:] == (1, 1) for call in launched)
        powers.append(power)
    assert powers == list(range(3, powers[-1] + 1)), "once it is rejected it stays so"
    assert 15 < powers[-1] < 40
    with pytest.raises(TooLarge, match="blocks in x, and a GPU has 2147483647 at most"):
        calls(launches, dict.fromkeys(symbols, 1 << powers[-1] + 1))
