"""Kernels keep the C ABI and compute what their programs say."""

# ruff: noqa: E501 (programs as text)

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

from kcache_compiler.errors import CompileFailed, InvalidProgram, UnsupportedOp
from tests.compiler.codegen_harness import NUMPY, Kernel, compile_text, kernel_of, threaded_host

ROWS = """
func.func @main(%x: tensor<300x700xf32>, %w: tensor<700x90xf32>) -> (tensor<300x90xf32>, tensor<300xf32>, tensor<700xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<300x700xf32>, tensor<700x90xf32>) -> tensor<300x90xf32>
  %sq = stablehlo.multiply %x, %x : tensor<300x700xf32>
  %rows = stablehlo.reduce(%sq init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<300x700xf32>, tensor<f32>) -> tensor<300xf32>
  %columns = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<300x700xf32>, tensor<f32>) -> tensor<700xf32>
  return %y, %rows, %columns : tensor<300x90xf32>, tensor<300xf32>, tensor<700xf32>
}
"""
DYNAMIC = """
func.func @main(%a: tensor<?x4xf32>, %b: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.add %a, %b : tensor<?x4xf32>
  %rows = stablehlo.reduce(%sum init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x4xf32>, tensor<f32>) -> tensor<?xf32>
  return %sum, %rows : tensor<?x4xf32>, tensor<?xf32>
}
"""
LOOP = """
func.func @main(%n: tensor<i32>, %x: tensor<3xf32>, %y: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, tensor<3xf32>, tensor<3xf32>
    cond { %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1> }
    do { %j = stablehlo.add %i, %one : tensor<i32>
      %c = stablehlo.add %a, %b : tensor<3xf32>
      stablehlo.return %j, %b, %c : tensor<i32>, tensor<3xf32>, tensor<3xf32> }
  return %r#1, %r#2 : tensor<3xf32>, tensor<3xf32>
}
"""


@pytest.fixture(scope="module")
def rows() -> Kernel:
    return kernel_of(ROWS)


@pytest.fixture(scope="module")
def operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((300, 700)).astype("f4"), rng.standard_normal((700, 90)).astype("f4")


def test_matmul_and_reductions_agree_with_numpy(rows: Kernel, operands: tuple[np.ndarray, ...]) -> None:
    x, w = operands
    y, squares, columns = rows(x, w)
    np.testing.assert_allclose(y, x.astype("f8") @ w.astype("f8"), rtol=0, atol=2e-4)
    np.testing.assert_allclose(squares, (x.astype("f8") ** 2).sum(1), rtol=1e-5)
    np.testing.assert_array_equal(columns, x.max(0))


@pytest.mark.parametrize(
    "order",
    [lambda s: s, lambda s: s[::-1], lambda s: s[1::2] + s[::2]],
    ids=["forward", "backward", "odd first"],
)
def test_slices_run_in_threads_in_any_order(
    rows: Kernel, operands: tuple[np.ndarray, ...], order: object
) -> None:
    host = threaded_host(workers=3, order=order)  # type: ignore[arg-type]
    for serial, sliced in zip(rows(*operands), rows(*operands, host=host), strict=True):
        np.testing.assert_array_equal(serial, sliced)
    assert host.calls, "no launch was worth a thread"


def test_an_error_code_of_the_host_is_returned(rows: Kernel, operands: tuple[np.ndarray, ...]) -> None:
    with pytest.raises(RuntimeError, match="7"):
        rows(*operands, host=threaded_host(code=7))


def test_a_host_with_one_worker_is_not_asked(rows: Kernel, operands: tuple[np.ndarray, ...]) -> None:
    host = threaded_host(workers=1)
    rows(*operands, host=host)
    assert not host.calls


def test_kernels_are_reentrant(rows: Kernel, operands: tuple[np.ndarray, ...]) -> None:
    expected = rows(*operands)
    results: list[tuple[np.ndarray, ...]] = []
    threads = [threading.Thread(target=lambda: results.append(rows(*operands))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        for left, right in zip(result, expected, strict=True):
            np.testing.assert_array_equal(left, right)


def test_arguments_constants_and_repeated_results_are_copied() -> None:
    kernel = kernel_of("""
      func.func @main(%a: tensor<2xi8>, %b: tensor<2xi8>) -> (tensor<2xi8>, tensor<2xi8>, tensor<2xi8>, tensor<2xi8>, tensor<3xf64>) {
        %s = stablehlo.add %a, %b : tensor<2xi8>
        %c = stablehlo.constant dense<[0.1, -0.0, 0x7FF0000000000000]> : tensor<3xf64>
        return %a, %s, %s, %a, %c : tensor<2xi8>, tensor<2xi8>, tensor<2xi8>, tensor<2xi8>, tensor<3xf64>
      }""")
    a, b = np.array([1, 127], "i1"), np.array([2, 1], "i1")
    results = kernel(a, b)
    for result, expected in zip(results, ([1, 127], [3, -128], [3, -128], [1, 127]), strict=False):
        np.testing.assert_array_equal(result, expected)
    assert results[4].tobytes() == np.array([0.1, -0.0, np.inf]).tobytes()


def test_equal_inputs_may_be_one_buffer() -> None:
    kernel = kernel_of("""
      func.func @main(%a: tensor<40xi32>, %b: tensor<40xi32>) -> tensor<40xi32> {
        %s = stablehlo.multiply %a, %b : tensor<40xi32>
        return %s : tensor<40xi32>
      }""")
    a = np.arange(40, dtype="i4")
    np.testing.assert_array_equal(kernel(a, a)[0], a * a)


def test_booleans_are_bytes_and_any_other_byte_is_true() -> None:
    kernel = kernel_of("""
      func.func @main(%a: tensor<4xi1>, %b: tensor<4xi1>) -> (tensor<4xi1>, tensor<4xi1>) {
        %s = stablehlo.add %a, %b : tensor<4xi1>
        %n = stablehlo.not %a : tensor<4xi1>
        return %s, %n : tensor<4xi1>, tensor<4xi1>
      }""")
    a = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    b = np.array([0, 1, 0, 0], np.uint8).view(np.bool_)
    either, inverse = kernel(a, b)
    assert either.view(np.uint8).tolist() == [0, 1, 1, 1]
    assert inverse.view(np.uint8).tolist() == [1, 0, 0, 0]


def test_zero_sized_buffers_may_be_null() -> None:
    kernel = kernel_of("""
      func.func @main(%a: tensor<0x3xf32>) -> (tensor<0x3xf32>, tensor<3xf32>) {
        %zero = stablehlo.constant dense<-1.0> : tensor<f32>
        %e = stablehlo.negate %a : tensor<0x3xf32>
        %r = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<0x3xf32>, tensor<f32>) -> tensor<3xf32>
        return %e, %r : tensor<0x3xf32>, tensor<3xf32>
      }""")
    empty, total = kernel(np.zeros((0, 3), "f4"))
    assert empty.shape == (0, 3)
    assert total.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("rows", [0, 1, 5, 64])
def test_dynamic_sizes(rows: int) -> None:
    kernel = _dynamic()
    rng = np.random.default_rng(rows)
    a, b = rng.standard_normal((2, rows, 4)).astype("f4")
    total, sums = kernel(a, b)
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_allclose(sums, (a + b).sum(1), rtol=1e-5, atol=1e-6)


def _dynamic(cache: list[Kernel] = []) -> Kernel:  # noqa: B006
    if not cache:
        cache.append(kernel_of(DYNAMIC))
    return cache[0]


def test_sizes_that_disagree_are_an_error_code_and_nothing_is_read_out_of_bounds() -> None:
    with pytest.raises(RuntimeError, match="do not fit"):
        _dynamic()(np.zeros((5, 4), "f4"), np.zeros((4, 4), "f4"))


def test_output_dims_and_workspace_are_formulas() -> None:
    interface = kernel_of("""
      func.func @main(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
        %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
        %q = stablehlo.dot_general %p, %p, contracting_dims = [1] x [1] : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
        return %q : tensor<?x?xf32>
      }""").interface
    assert [str(output) for output in interface.outputs] == ["f32[s0,s0]"]
    assert interface.workspace == "workers * 524288 + roundup(s0 * s3 * 4,64)"
    assert [(symbol.arg, symbol.axis) for symbol in interface.symbols] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_shape_that_depends_on_data_is_rejected() -> None:
    with pytest.raises(UnsupportedOp, match="depends on data") as rejection:
        compile_text("""
          func.func @main(%m: tensor<1x1xi32>) -> tensor<?xf32> {
            %n = stablehlo.reshape %m : (tensor<1x1xi32>) -> tensor<1xi32>
            %i = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
            return %i : tensor<?xf32>
          }""")
    assert rejection.value.op == "stablehlo.dynamic_iota"


def test_loops_swap_what_they_carry() -> None:
    kernel = kernel_of(LOOP)
    x, y = np.array([1, 2, 3], "f4"), np.array([5, 7, 9], "f4")
    for count in (0, 1, 2, 7):
        a, b = x, y
        for _ in range(count):
            a, b = b, a + b
        got = kernel(np.int32(count), x, y)
        np.testing.assert_array_equal(got[0], a)
        np.testing.assert_array_equal(got[1], b)


def test_a_workspace_is_used_again() -> None:
    lines = ["func.func @main(%x0: tensor<64x64xf32>) -> tensor<64x64xf32> {"]
    kind = "tensor<64x64xf32>"
    lines += [
        f"%x{i + 1} = stablehlo.dot_general %x{i}, %x{i}, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}"
        for i in range(10)
    ]
    interface = compile_text("\n".join([*lines, f"return %x10 : {kind}", "}"])).interface
    assert interface.workspace == f"workers * 524288 + {2 * 64 * 64 * 4}"


def test_an_op_without_lowering_is_named_with_its_location() -> None:
    with pytest.raises(UnsupportedOp) as rejection:
        compile_text("""
          func.func @main(%a: tensor<2x4xcomplex<f32>>) -> tensor<2x4xcomplex<f32>> {
            %f = stablehlo.custom_call @anything(%a) : (tensor<2x4xcomplex<f32>>) -> tensor<2x4xcomplex<f32>> loc("here":3:4)
            return %f : tensor<2x4xcomplex<f32>>
          }""")
    assert rejection.value.op == "stablehlo.custom_call"
    assert "here" in rejection.value.location


@pytest.mark.parametrize("kind", ["f80", "i3"])
def test_an_element_type_without_buffers_is_rejected(kind: str) -> None:
    with pytest.raises(UnsupportedOp, match=kind):
        compile_text(
            f"func.func @main(%a: tensor<2x{kind}>) -> tensor<2x{kind}> {{ return %a : tensor<2x{kind}> }}"
        )


def test_text_that_is_no_module_is_an_invalid_program() -> None:
    with pytest.raises(InvalidProgram):
        compile_text("func.func @main(")


def test_an_unknown_target_is_rejected() -> None:
    with pytest.raises(CompileFailed, match="x86-64-v9"):
        compile_text(LOOP, "x86-64-v9")


def test_no_function_takes_more_than_the_promised_stack(rows: Kernel) -> None:
    assembly = rows.compiled.artifacts["asm"].decode()
    frames = [int(size) for size in re.findall(r"subq\s+\$(\d+), %rsp", assembly)]
    assert max(frames, default=0) < 32 * 1024


def test_stages_are_told_in_order_and_timed() -> None:
    from kcache_compiler.compile import lower_module
    from kcache_compiler.pipelines import cpu
    from kcache_compiler.types import CompileOptions

    heard: list[str] = []
    compiled = lower_module(LOOP, 3, "x86-64-v2", CompileOptions(), heard.append)
    assert heard == [stage.name for stage in cpu()]
    assert list(compiled.stage_seconds) == heard
    assert len(set(heard)) == len(heard), "stage names are unique"


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("func.func @main(%a: tensor<*xf32>) -> tensor<*xf32> { return %a : tensor<*xf32> }", "func.func"),
        ("func.func @main(%a: memref<4xf32>) { return }", "func.func"),
        (
            "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
            "%r = func.call @main(%a) : (tensor<4xf32>) -> tensor<4xf32>\n return %r : tensor<4xf32> }",
            "func.call",
        ),
        (
            "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
            "%r = stablehlo.custom_call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>\n return %r : tensor<4xf32> }",
            "stablehlo.custom_call",
        ),
    ],
    ids=["unranked", "memref", "recursion", "custom call"],
)
def test_programs_outside_the_language_are_rejected(text: str, op: str) -> None:
    with pytest.raises(UnsupportedOp) as rejection:
        compile_text(text)
    assert rejection.value.op == op


def test_a_constant_that_repeats_takes_no_memory() -> None:
    kind = "tensor<1000000000xf32>"
    compiled = compile_text(f"""
      func.func @main(%a: {kind}) -> {kind} {{
        %c = stablehlo.constant dense<1.5> : {kind}
        %r = stablehlo.add %a, %c : {kind}
        return %r : {kind}
      }}""")
    assert len(compiled.artifacts["so"]) < 64 * 1024
    assert compiled.interface.workspace == "0"


@pytest.mark.parametrize("kind", ["i8", "i64", "ui8", "ui32", "ui64"])
def test_start_indices_are_clamped_by_value(kind: str) -> None:
    kernel = kernel_of(f"""
      func.func @main(%x: tensor<9xf32>, %i: tensor<{kind}>) -> tensor<2xf32> {{
        %s = stablehlo.dynamic_slice %x, %i, sizes = [2] : (tensor<9xf32>, tensor<{kind}>) -> tensor<2xf32>
        return %s : tensor<2xf32>
      }}""")
    x = np.arange(9, dtype="f4")
    width = int(kind.lstrip("ui"))
    largest = 2 ** (width - (0 if kind.startswith("u") else 1)) - 1
    smallest = 0 if kind.startswith("u") else -(2 ** (width - 1))
    for index, start in ((smallest, 0), (0, 0), (3, 3), (7, 7), (8, 7), (largest, 7)):
        assert kernel(x, np.array(index, NUMPY[kind]))[0].tolist() == [start, start + 1]
