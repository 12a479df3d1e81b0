"""Contractions: values over sizes, layouts and types; strict sums bit by bit; the micro-kernel."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.gemm.few_rows import direct_parts
from kcache_compiler.lower.gemm.micro_kernel import row_counts
from kcache_compiler.lower.gemm.objects import compiled_library
from kcache_compiler.schedule.gemm_tiles import form_for
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler import codegen_harness
from tests.compiler.codegen_harness import NUMPY, Kernel, aligned, guarded, runs_here, threaded_host

SHAPES = [
    (1, 1, 1),
    (3, 5, 7),
    (13, 1, 5),
    (12, 32, 256),
    (61, 67, 71),
    (1, 300, 70),
    (2, 140, 520),
    (23, 97, 300),
    (37, 515, 513),
    (30, 80, 530),
    (5, 33, 0),
    (0, 4, 4),
]
RANDOM = np.random.default_rng(20261122)


TARGETS_HERE = [
    pytest.param(name, marks=pytest.mark.skipif(not runs_here(name), reason=f"no {name} here"))
    for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4", "sapphirerapids", "aarch64")
]


def _kernel(text: str, inputs: int, target: str, numerics: str = "default") -> Kernel:
    return Kernel(lower_module(text, inputs, target, CompileOptions(numerics=numerics), lambda _: None))


def _tensor(shape: tuple[int, ...], kind: str) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, kind)))}>"


def _product(m: int, n: int, k: int, turned: tuple[bool, bool], kind: str) -> str:
    a, b = ((k, m) if turned[0] else (m, k)), ((n, k) if turned[1] else (k, n))
    left, right, result = _tensor(a, kind), _tensor(b, kind), _tensor((m, n), kind)
    return f"""
      func.func @main(%a: {left}, %b: {right}) -> {result} {{
        %0 = stablehlo.dot_general %a, %b, contracting_dims = [{0 if turned[0] else 1}] x [{int(turned[1])}]
          : ({left}, {right}) -> {result}
        return %0 : {result}
      }}"""


def _operands(m: int, n: int, k: int, turned: tuple[bool, bool], kind: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = RANDOM.standard_normal((m, k)), RANDOM.standard_normal((k, n))
    return tuple(
        np.ascontiguousarray((x.T if turn else x).astype(NUMPY[kind]))
        for x, turn in zip((a, b), turned, strict=True)
    )  # type: ignore[return-value]


def _plain(x: np.ndarray, turned: bool) -> np.ndarray:
    return x.T if turned else x


def _open_kernel(turned: tuple[bool, bool], kind: str, target: str) -> Kernel:
    """One kernel for all sizes."""
    canonical = canonicalize(_product(5, 7, 11, turned, kind).encode(), "stablehlo", "default")
    arguments = ArgSpec(canonical.symbolic_args)
    return Kernel(compile_spec(canonical.spec_text, arguments, target, CompileOptions(), lambda _: None))


def _agrees(kernel: Kernel, sizes: tuple[int, int, int], turned: tuple[bool, bool], kind: str) -> None:
    a, b = _operands(*sizes, turned, kind)
    left, right = (_plain(x, turn).astype("f8") for x, turn in zip((a, b), turned, strict=True))
    expected, size = left @ right, np.abs(left) @ np.abs(right)
    rounding = {"f32": 2**-23, "f64": 2**-52, "bf16": 2**-8, "f16": 2**-10}[kind]
    added = sizes[2] * (2**-53 if kind == "f64" else 2**-24) * size
    difference = np.abs(kernel(a, b)[0].astype("f8") - expected)
    assert (difference <= added + rounding * np.abs(expected)).all(), (sizes, turned)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("turned", list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("target", TARGETS_HERE)
def test_products_of_all_sizes(target: str, turned: tuple[bool, bool]) -> None:
    kernel = _open_kernel(turned, "f32", target)
    assert kernel.interface.launches[0].ops == ("contraction",)
    for sizes in SHAPES:
        _agrees(kernel, sizes, turned, "f32")


@pytest.mark.sampled(24)
@pytest.mark.parametrize("kind", ["f64", "bf16", "f16"])
@pytest.mark.parametrize("target", TARGETS_HERE)
def test_products_of_all_types(target: str, kind: str) -> None:
    for turned in ((False, True), (True, False)):
        kernel = _open_kernel(turned, kind, target)
        if kernel.interface.launches[0].ops != ("contraction",):
            assert (kind, target) == ("f16", "x86-64-v2")  # no conversions of its own: summed as written
            continue
        for sizes in SHAPES:
            _agrees(kernel, sizes, turned, kind)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("target", TARGETS_HERE)
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_nothing_is_read_beyond_the_operands(target: str, kind: str) -> None:
    for turned in ((False, False), (True, False), (False, True)):
        kernel = _open_kernel(turned, kind, target)
        for sizes in ((1, 131, 37), (5, 35, 19), (30, 45, 273), (30, 48, 273)):
            a, b = (guarded(operand) for operand in _operands(*sizes, turned, kind))
            expected = _plain(a, turned[0]).astype("f8") @ _plain(b, turned[1]).astype("f8")
            np.testing.assert_allclose(kernel(a, b)[0].astype("f8"), expected, rtol=1e-2, atol=1e-1)


@pytest.mark.sampled(18)
@pytest.mark.parametrize(("m", "n", "k"), [(40, 33, 70), (5, 129, 300), (65, 5, 17)])
def test_products_of_given_sizes(m: int, n: int, k: int) -> None:
    for turned in ((False, False), (True, True)):
        kernel = _kernel(_product(m, n, k, turned, "f32"), 2, "x86-64-v3")
        assert kernel.interface.launches[0].ops == ("contraction",)
        _agrees(kernel, (m, n, k), turned, "f32")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("target", TARGETS_HERE)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_strict_sums_go_in_the_order_of_the_program(target: str, kind: str) -> None:
    for m, n, k in ((5, 33, 70), (49, 35, 513), (30, 48, 300)):
        for sides in ((False, False), (True, True)):
            kernel = _kernel(_product(m, n, k, sides, kind), 2, target, "strict")
            a, b = _operands(m, n, k, sides, kind)
            left, right = _plain(a, sides[0]), _plain(b, sides[1])
            expected = np.zeros((m, n), NUMPY[kind])
            for step in range(k):
                expected = expected + left[:, step : step + 1] * right[step : step + 1]
            assert kernel(a, b)[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize("target", TARGETS_HERE)
def test_batches_and_several_contracted_axes(target: str) -> None:
    text = """
      func.func @main(%q: tensor<2x17x3x4x5xf32>, %k: tensor<2x19x4x3x5xf32>) -> tensor<2x3x17x19xf32> {
        %0 = stablehlo.dot_general %q, %k, batching_dims = [0, 2] x [0, 3], contracting_dims = [4, 3] x [4, 2]
          : (tensor<2x17x3x4x5xf32>, tensor<2x19x4x3x5xf32>) -> tensor<2x3x17x19xf32>
        return %0 : tensor<2x3x17x19xf32>
      }"""
    q = RANDOM.standard_normal((2, 17, 3, 4, 5)).astype("f4")
    k = RANDOM.standard_normal((2, 19, 4, 3, 5)).astype("f4")
    expected = np.einsum("bthcd,bschd->bhts", q.astype("f8"), k.astype("f8"))
    kernel = _kernel(text, 2, target)
    assert kernel.interface.launches[0].ops == ("contraction",)
    np.testing.assert_allclose(kernel(q, k)[0], expected, atol=1e-4)


def test_what_follows_element_by_element_is_in_the_same_launch() -> None:
    text = """
      func.func @main(%a: tensor<30x300xf32>, %b: tensor<300x70xf32>, %c: tensor<70xf32>,
          %d: tensor<30x70xf32>) -> tensor<30x70xf32> {
        %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<30x300xf32>, tensor<300x70xf32>) -> tensor<30x70xf32>
        %1 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<70xf32>) -> tensor<30x70xf32>
        %2 = stablehlo.add %0, %1 : tensor<30x70xf32>
        %3 = stablehlo.tanh %2 : tensor<30x70xf32>
        %4 = stablehlo.add %3, %d : tensor<30x70xf32>
        return %4 : tensor<30x70xf32>
      }"""
    shapes = ((30, 300), (300, 70), (70,), (30, 70))
    a, b, c, d = (RANDOM.standard_normal(shape).astype("f4") for shape in shapes)
    kernel = _kernel(text, 4, "x86-64-v3")
    assert len(kernel.interface.launches) == 1
    np.testing.assert_allclose(kernel(a, b, c, d)[0], np.tanh(a.astype("f8") @ b + c) + d, atol=1e-4)


def test_what_follows_what_follows_is_in_the_same_launch() -> None:
    text = """
      func.func @main(%a: tensor<2x30x300xf32>, %b: tensor<2x300x70xf32>, %c: tensor<70xf32>)
          -> (tensor<2x30x70xf32>, tensor<2x30x70xf32>) {
        %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
          : (tensor<2x30x300xf32>, tensor<2x300x70xf32>) -> tensor<2x30x70xf32>
        %1 = stablehlo.broadcast_in_dim %c, dims = [2] : (tensor<70xf32>) -> tensor<2x30x70xf32>
        %2 = stablehlo.add %0, %1 : tensor<2x30x70xf32>
        %3 = stablehlo.tanh %2 : tensor<2x30x70xf32>
        %4 = stablehlo.logistic %3 : tensor<2x30x70xf32>
        %5 = stablehlo.multiply %4, %2 : tensor<2x30x70xf32>
        return %2, %5 : tensor<2x30x70xf32>, tensor<2x30x70xf32>
      }"""
    a, b, c = (RANDOM.standard_normal(shape).astype("f4") for shape in ((2, 30, 300), (2, 300, 70), (70,)))
    kernel = _kernel(text, 3, "x86-64-v3")
    assert len(kernel.interface.launches) == 1
    total = a.astype("f8") @ b + c
    shared = kernel(a, b, c, host=threaded_host(2))
    for first, second in ((kernel(a, b, c)[0], total), (shared[1], total / (1 + np.exp(-np.tanh(total))))):
        np.testing.assert_allclose(first, second, atol=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", ["channels first", "channels last"])
@pytest.mark.parametrize(("stride", "dilation", "groups"), [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 3)])
def test_convolutions(layout: str, stride: int, dilation: int, groups: int) -> None:
    images, channels, size, features, window = 2, 9, 11, 15, 3
    out = (size + 2 - dilation * (window - 1) - 1) // stride + 1
    first = layout == "channels first"
    x = RANDOM.standard_normal((images, channels, size, size)).astype("f4")
    w = RANDOM.standard_normal((features, channels // groups, window, window)).astype("f4")
    shown = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]" if first else "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
    inputs = [x, w] if first else [x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)]
    result = (images, features, out, out) if first else (images, out, out, features)
    kinds = [_tensor(operand.shape, "f32") for operand in inputs]
    text = f"""
      func.func @main(%x: {kinds[0]}, %w: {kinds[1]}) -> {_tensor(result, "f32")} {{
        %0 = stablehlo.convolution(%x, %w) dim_numbers = {shown},
          window = {{stride = [{stride}, {stride}], pad = [[1, 1], [1, 1]],
          rhs_dilate = [{dilation}, {dilation}]}}
          {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}
          : ({kinds[0]}, {kinds[1]}) -> {_tensor(result, "f32")}
        return %0 : {_tensor(result, "f32")}
      }}"""
    kernel = _kernel(text, 2, "x86-64-v3")
    by_group = groups > 1 and not first  # computed as depthwise convolutions are
    assert any("contraction" in launch.ops for launch in kernel.interface.launches) != by_group
    got = kernel(*inputs)[0]
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.zeros((images, features, out, out))
    for group, row, column in itertools.product(range(groups), range(window), range(window)):
        rows, columns = (np.arange(out) * stride + start * dilation for start in (row, column))
        inner, outer = channels // groups, features // groups
        patch = padded[:, group * inner : (group + 1) * inner][:, :, rows][..., columns]
        taps = w[group * outer : (group + 1) * outer, :, row, column].astype("f8")
        expected[:, group * outer : (group + 1) * outer] += np.einsum("bchw,oc->bohw", patch, taps)
    np.testing.assert_allclose(got if first else got.transpose(0, 3, 1, 2), expected, atol=1e-3)


def test_threads_share_the_grid_and_change_no_bit() -> None:
    kernel = _kernel(_product(300, 600, 300, (False, True), "f32"), 2, "x86-64-v3")
    a, b = _operands(300, 600, 300, (False, True), "f32")
    host = threaded_host(3, lambda starts: list(reversed(starts)))
    alone, shared = kernel(a, b)[0], kernel(a, b, host=host)[0]
    assert host.calls
    assert alone.tobytes() == shared.tobytes()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "znver4"])
@pytest.mark.parametrize("wide", ["f32", "f64"])
def test_the_micro_kernel_keeps_its_sums_in_registers(target: str, wide: str) -> None:
    form = form_for(
        target_named(target), tuning_for(target, "generic"), (wide, wide, wide), wide, exact=False
    )
    assembly = compiled_library(form, target_named(target)).assembly
    tiles = [(rows, f"{form.name}_tile_{rows}") for rows in row_counts(form)]
    for rows, name in tiles:
        loops = _inner_loops(assembly, name)
        assert loops
        for body in loops:
            assert not re.search(r"rsp|\bsp\b", body), body
            assert len(re.findall(r"fmadd|fmla|\tv?mulp[sd]", body)) >= rows * form.vectors


def _inner_loops(assembly: str, function: str) -> list[str]:
    """Bodies of loops: from a label to the jump back to it."""
    start = assembly.index(f"\n{function}:")
    text = assembly[start : assembly.index(".Lfunc_end", start)]
    loops: list[str] = []
    for label in re.findall(r"^(\.LBB\w+):", text, re.MULTILINE):
        after = text[text.index(f"\n{label}:") :]
        back = re.search(rf"\t(?:j\w+|b\.\w+|cbn?z\s+\w+,)\s+{re.escape(label)}$", after, re.MULTILINE)
        if back:
            loops.append(after[: back.start()])
    return loops


def test_sums_lie_where_the_results_will_be() -> None:
    """No memory but the packed panels: what follows is written over the sums that it is made of."""
    text = """
      func.func @main(%a: tensor<30x300xf32>, %b: tensor<300x70xf32>, %c: tensor<70xf32>)
          -> tensor<30x70xf32> {
        %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<30x300xf32>, tensor<300x70xf32>) -> tensor<30x70xf32>
        %1 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<70xf32>) -> tensor<30x70xf32>
        %2 = stablehlo.add %0, %1 : tensor<30x70xf32>
        %3 = stablehlo.tanh %2 : tensor<30x70xf32>
        %4 = stablehlo.multiply %3, %2 : tensor<30x70xf32>
        return %4 : tensor<30x70xf32>
      }"""
    a, b, c = (RANDOM.standard_normal(shape).astype("f4") for shape in ((30, 300), (300, 70), (70,)))
    kernel = _kernel(text, 3, "x86-64-v3")
    assert len(kernel.interface.launches) == 1
    assert evaluate_text(kernel.interface.workspace, {"workers": 0}) == 0
    total = a.astype("f8") @ b + c
    np.testing.assert_allclose(kernel(a, b, c)[0], total * np.tanh(total), atol=1e-4)


def test_sums_that_others_read_stay() -> None:
    text = """
      func.func @main(%a: tensor<30x300xf32>, %b: tensor<300x30xf32>)
          -> (tensor<30x30xf32>, tensor<30x30xf32>, tensor<30x30xf32>) {
        %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<30x300xf32>, tensor<300x30xf32>) -> tensor<30x30xf32>
        %1 = stablehlo.negate %0 : tensor<30x30xf32>
        %2 = stablehlo.transpose %0, dims = [1, 0] : (tensor<30x30xf32>) -> tensor<30x30xf32>
        %3 = stablehlo.subtract %1, %2 : tensor<30x30xf32>
        %4 = stablehlo.dot_general %0, %3, contracting_dims = [1] x [0]
          : (tensor<30x30xf32>, tensor<30x30xf32>) -> tensor<30x30xf32>
        return %1, %3, %4 : tensor<30x30xf32>, tensor<30x30xf32>, tensor<30x30xf32>
      }"""
    a, b = (RANDOM.standard_normal(shape).astype("f4") for shape in ((30, 300), (300, 30)))
    product = a.astype("f8") @ b
    wanted = (-product, -product - product.T, product @ (-product - product.T))
    for result, each in zip(_kernel(text, 2, "x86-64-v3")(a, b), wanted, strict=True):
        np.testing.assert_allclose(result, each, rtol=1e-4, atol=1e-2)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("numerics", ["strict", "default"])
@pytest.mark.parametrize("target", TARGETS_HERE[1:3])
def test_slices_of_any_number_of_threads_are_the_same_bits(target: str, numerics: str) -> None:
    """Few rows are split along the columns, more along both."""
    few = ((1, 240), (1, 250), (1, 700), (3, 250), (3, 700), (13, 700), (24, 700))
    for rows, columns in (*few, (25, 704), (61, 704), (61, 700)):
        a, b = _operands(rows, columns, 300, (False, False), "f32")
        kernel = _kernel(_product(rows, columns, 300, (False, False), "f32"), 2, target, numerics)
        [alone] = kernel(a, b)
        np.testing.assert_allclose(alone, a.astype("f8") @ b, atol=1e-3)
        for workers in (2, 3, 16):
            host = threaded_host(workers, lambda starts: starts[::-1])
            [shared] = kernel(a, b, host=host)
            np.testing.assert_array_equal(shared, alone)
            assert host.calls, "asked for threads"
            assert all(n // grain <= 2 * workers for n, grain in host.calls)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("rows", "columns", "cells"), [(1, 240, 2), (12, 240, 2), (13, 240, 2), (1, 128, 1), (1, 600, 2)]
)
def test_two_workers_share_narrow_products_of_few_rows(rows: int, columns: int, cells: int) -> None:
    """Rows of one tile have two blocks of at least 128 columns; more have two cells anyway."""
    if not runs_here("x86-64-v4"):
        pytest.skip("needs AVX-512")
    kernel = _kernel(_product(rows, columns, 960, (False, False), "f32"), 2, "x86-64-v4")
    a, b = _operands(rows, columns, 960, (False, False), "f32")
    host = threaded_host(2)
    [shared] = kernel(a, b, host=host)
    np.testing.assert_allclose(shared, a.astype("f8") @ b, atol=1e-3)
    assert host.calls == ([(cells, 1)] if cells > 1 else [])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("rows", "columns", "depth", "packed"),
    [
        (4, 7, 12000, False),
        (7, 4, 3000, False),
        (16, 3, 513, False),
        (17, 3, 2000, True),
        (8, 16, 2000, True),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_less_than_a_vector_of_columns_of_few_rows_is_not_packed(
    rows: int, columns: int, depth: int, packed: bool, turned: bool
) -> None:
    both = (False, turned)
    kernel = _kernel(_product(rows, columns, depth, both, "f32"), 2, "x86-64-v3")
    assert (kernel.interface.launches[0].ops == ("contraction",)) == packed
    _agrees(kernel, (rows, columns, depth), both, "f32")


def test_columns_of_one_row_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """B is read where it lies up to the last whole vector, whatever the depth: a call writes few bytes to its
    workspace, those of the row of A.
    """
    if not runs_here("x86-64-v4"):
        pytest.skip("needs AVX-512")
    buffers: list[np.ndarray] = []

    def filled(shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
        buffers.append(aligned(shape, kind))
        buffers[-1].view(np.uint8)[...] = 0xA5
        return buffers[-1]

    monkeypatch.setattr(codegen_harness, "aligned", filled)
    for columns, depth in itertools.product((128, 240, 176, 16, 368), (8200, 4101)):
        kernel = _kernel(_product(1, columns, depth, (False, False), "f32"), 2, "x86-64-v4")
        a, b = _operands(1, columns, depth, (False, False), "f32")
        np.testing.assert_allclose(kernel(a, b)[0], a.astype("f8") @ b, atol=1e-3)
        assert (buffers[-1] != 0xA5).sum() < 8192, (columns, depth)


@pytest.mark.parametrize(("target", "prefetches"), [("x86-64-v3", False), ("x86-64-v4", True)])
def test_a_single_row_prefetches_rows_of_b_except_with_256_bit_registers(
    target: str, prefetches: bool
) -> None:
    form = form_for(
        target_named(target), tuning_for(target, "generic"), ("f32", "f32", "f32"), "f32", exact=False
    )
    [row] = [part for part in direct_parts(form) if f"@{form.name}_row(" in part.splitlines()[0]]
    assert ("llvm.intr.prefetch" in row) == prefetches
