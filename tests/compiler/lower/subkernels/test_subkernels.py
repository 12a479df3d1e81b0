"""Operations that repeat and take long to compile: one kernel inside of the kernel for all equal ones."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.chains.programs import chain
from kcache_compiler.compile import lower_module
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.subkernels.outline import MIN_EQUAL, MIN_EQUAL_FUSED
from kcache_compiler.types import CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel, threaded_host

HALF = MIN_EQUAL // 2
KINDS = ("case", "chlo.zeta", "cholesky", "fft", "rng_bit_generator", "triangular_solve", "while")
_V = "tensor<8x8xf32>"


def _compiled(text: str, inputs: int) -> CompiledKernel:
    options = CompileOptions(numerics="strict")
    return lower_module(text, inputs, host_target().isa, options, lambda _: None)


def _calls(kernel: CompiledKernel) -> int:
    """How often a kernel inside of it is entered."""
    text = kernel.artifacts["llvm"].decode()
    return sum("call void @kcache_part_" in line for line in text.splitlines())


def _chain(kind: str, count: int) -> str:
    if kind != "chlo.zeta":
        return chain(kind, count).replace("type = FFT", "type = IFFT")  # stays finite
    steps = [
        f'%z{n} = "chlo.zeta"(%v{n}, %w) : ({_V}, {_V}) -> {_V}\n%v{n + 1} = stablehlo.add %z{n}, %w : {_V}'
        for n in range(count)
    ]
    return f"func.func @main(%v0: {_V}, %w: {_V}) -> {_V} {{\n" + "\n".join(
        [*steps, f"return %v{count} : {_V}\n}}"]
    )


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_of_parts_has_the_bits_of_shorter_ones_without(kind: str) -> None:
    random = np.random.default_rng(5)
    zeta = kind == "chlo.zeta"
    low, high, diagonal = (2.0, 2.1, 0) if zeta else (0.001, 0.002, 2)
    x, w = ((random.uniform(low, high, (8, 8)) + diagonal * np.eye(8)).astype(np.float32) for _ in range(2))
    others = [np.zeros((3, 8, 8), np.float32), np.arange(8, dtype=np.int32), np.int32(0), np.int32(1)]
    others = [w, *([] if zeta else others)]
    short, long = (Kernel(_compiled(_chain(kind, count), 1 + len(others))) for count in (HALF, 2 * HALF))
    assert _calls(short.compiled) == 0
    assert _calls(long.compiled) == 2 * HALF
    expected = short(short(x, *others)[0], *others)[0]
    result = long(x, *others)[0]
    assert np.isfinite(result).all()
    assert result.tobytes() == expected.tobytes()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["batch_norm_training", "select_and_scatter"])
def test_what_fuses_is_a_part_where_there_are_very_many(kind: str) -> None:
    random = np.random.default_rng(6)
    x, w = (random.uniform(-1, 1, (8, 8)).astype(np.float32) for _ in range(2))
    others = [w, np.zeros((3, 8, 8), np.float32), np.arange(8, dtype=np.int32), np.int32(0), np.int32(1)]
    others += [random.uniform(-1, 1, (4, 4)).astype(np.float32)] * (kind == "select_and_scatter")
    short, long = (
        Kernel(_compiled(chain(kind, count), 1 + len(others)))
        for count in (MIN_EQUAL_FUSED // 2, MIN_EQUAL_FUSED)
    )
    assert [_calls(kernel.compiled) for kernel in (short, long)] == [0, MIN_EQUAL_FUSED]
    expected = short(short(x, *others)[0], *others)[0]
    result = long(x, *others)[0]
    assert np.isfinite(result).all()
    assert result.tobytes() == expected.tobytes()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["cholesky", "while"])
def test_one_more_takes_a_call(kind: str) -> None:
    few, many = (_compiled(chain(kind, count), 6) for count in (MIN_EQUAL, 2 * MIN_EQUAL))
    assert len(many.interface.launches) - len(few.interface.launches) == MIN_EQUAL
    grown = len(many.artifacts["so"]) - len(few.artifacts["so"])
    assert grown <= MIN_EQUAL * 128 + 4096  # a page


def _draws(numbers: range, element: str, distribution: str) -> str:
    """Draws of these numbers between bounds, one constant and one given, each a result."""
    kind, result_type = f"tensor<{element}>", f"tensor<3x5x{element}>"
    low = "1" if element == "i32" else "1.0"
    draws = [
        f'%d{n} = "stablehlo.rng"(%low, %high, %sizes) <{{rng_distribution = #stablehlo<rng_distribution '
        f"{distribution}>}}> {{kcache.draw = {n} : i64}} : ({kind}, {kind}, tensor<2xi64>) -> {result_type}"
        for n in numbers
    ]
    results = ", ".join(f"%d{n}" for n in numbers)
    types = ", ".join([result_type] * len(numbers))
    lines = [
        f"%low = stablehlo.constant dense<{low}> : {kind}",
        "%sizes = stablehlo.constant dense<[3, 5]> : tensor<2xi64>",
    ]
    return f"func.func @main(%high: {kind}) -> ({types}) {{\n" + "\n".join(
        [*lines, *draws, f"return {results} : {types}\n}}"]
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("element", "distribution"),
    [
        ("i32", "UNIFORM"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (("f32", "UNIFORM"), ("f16", "NORMAL"), ("f64", "NORMAL"))
        ),
    ],
)
def test_draws_of_many_are_those_of_few(element: str, distribution: str) -> None:
    """Each has bits of its own, which its number says, whether it is a kernel inside of the kernel or not."""
    ranges = range(HALF), range(HALF, 2 * HALF), range(2 * HALF)
    kernels = [Kernel(_compiled(_draws(numbers, element, distribution), 1)) for numbers in ranges]
    assert [_calls(kernel.compiled) for kernel in kernels] == [0, 0, 2 * HALF]
    high = np.array(9, {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i32": np.int32}[element])
    first, second, whole = (kernel(high) for kernel in kernels)
    assert [array.tobytes() for array in whole] == [array.tobytes() for array in (*first, *second)]
    assert len({array.tobytes() for array in whole}) == 2 * HALF


def test_parts_of_slices_on_threads() -> None:
    """What parts are given may lie anywhere, and their launches are shared among threads like others."""
    count, rows, length = MIN_EQUAL, 96, 256
    whole = f"tensor<{rows}x{count + length}xcomplex<f32>>"
    kind, real_kind = f"tensor<{rows}x{length}xcomplex<f32>>", f"tensor<{rows}x{length}xf32>"
    lines = ["%s0 = stablehlo.constant dense<0.0> : " + real_kind]
    for n in range(count):
        lines += [
            f"%c{n} = stablehlo.slice %x [0:{rows}, {n}:{n + length}] : ({whole}) -> {kind}",
            f"%f{n} = stablehlo.fft %c{n}, type = FFT, length = [{length}] : ({kind}) -> {kind}",
            f"%r{n} = stablehlo.imag %f{n} : ({kind}) -> {real_kind}",
            f"%s{n + 1} = stablehlo.add %s{n}, %r{n} : {real_kind}",
        ]
    body = "\n".join(lines)
    kernel = Kernel(
        _compiled(
            f"func.func @main(%x: {whole}) -> {real_kind} {{\n{body}\nreturn %s{count} : {real_kind}\n}}", 1
        )
    )
    assert _calls(kernel.compiled) == count
    random = np.random.default_rng(3)
    x = (random.normal(size=(rows, count + length)) + 1j * random.normal(size=(rows, count + length))).astype(
        np.complex64
    )
    result = kernel(x)[0]
    expected = sum(np.fft.fft(x[:, n : n + length].astype(np.complex128)).imag for n in range(count))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-2)
    host = threaded_host(3)
    assert kernel(x, host=host)[0].tobytes() == result.tobytes()
    assert host.calls


def test_parts_inside_of_a_loop() -> None:
    steps = "\n".join(
        f'%f{n + 1} = "stablehlo.cholesky"(%f{n}) <{{lower = true}}> : ({_V}) -> {_V}'
        for n in range(MIN_EQUAL)
    )
    text = f"""func.func @main(%x: {_V}, %n: tensor<ui32>) -> ({_V}, tensor<ui32>) {{
  %zero = stablehlo.constant dense<0> : tensor<ui32>
  %one = stablehlo.constant dense<1> : tensor<ui32>
  %r:2 = stablehlo.while(%i = %zero, %f0 = %x) : tensor<ui32>, {_V}
  cond {{
    %c = stablehlo.compare LT, %i, %n : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    {steps}
    %j = stablehlo.add %i, %one : tensor<ui32>
    stablehlo.return %j, %f{MIN_EQUAL} : tensor<ui32>, {_V}
  }}
  return %r#1, %r#0 : {_V}, tensor<ui32>
}}"""
    kernel = Kernel(_compiled(text, 2))
    assert _calls(kernel.compiled) == MIN_EQUAL
    x = (np.random.default_rng(2).uniform(0.001, 0.002, (8, 8)) + 3 * np.eye(8)).astype(np.float32)
    result, turns = kernel(x, np.uint32(2))
    expected = np.tril(x.astype(np.float64))
    for _ in range(2 * MIN_EQUAL):
        expected = np.linalg.cholesky(expected + np.tril(expected, -1).T)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert turns == 2


def test_what_cannot_be_a_part_is_rejected_where_it_stands() -> None:
    kind = "tensor<1x8191xcomplex<f32>>"
    steps = "\n".join(
        f"%v{n + 1} = stablehlo.fft %v{n}, type = FFT, length = [8191] : ({kind}) -> {kind}"
        for n in range(MIN_EQUAL)
    )
    with pytest.raises(UnsupportedOp, match="prime factor") as rejected:
        _compiled(f"func.func @main(%v0: {kind}) -> {kind} {{\n{steps}\nreturn %v{MIN_EQUAL} : {kind}\n}}", 1)
    assert rejected.value.op == "stablehlo.fft"
