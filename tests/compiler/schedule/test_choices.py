"""A schedule choice changes code and nothing else."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.errors import CompileFailed
from kcache_compiler.schedule.choices import CHOICES, Choices, parse_choices
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel, threaded_host

PRODUCT = """func.func @main(%a: tensor<29x70xf32>, %b: tensor<70x51xf32>) -> tensor<29x51xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<29x70xf32>, tensor<70x51xf32>) -> tensor<29x51xf32>
  return %0 : tensor<29x51xf32> }"""
SUM = """func.func @main(%a: tensor<64x8xf32>, %b: tensor<64x8xf32>) -> tensor<64xf32> {
  %0 = stablehlo.multiply %a, %b : tensor<64x8xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<64x8xf32>, tensor<f32>) -> tensor<64xf32>
  return %1 : tensor<64xf32> }"""
#: Those of kernels for GPUs are in tests/gpu/test_choices.py.
MINE = {name: values for name, values in CHOICES.items() if not name.startswith("gpu_")}
ALL = [f"{name}:{value}" for name, values in MINE.items() for value in values[1:]]
#: Every value of every choice in one of these, most choices made in each.
MIXED = [
    ",".join(f"{name}:{values[k % len(values)]}" for name, values in MINE.items() if k % len(values))
    for k in range(1, max(map(len, MINE.values())))
]


def softmax(kind: str, rows: int, columns: int) -> str:
    """Rows, sums of columns, and the product of two arguments, which several read."""
    whole, each = f"tensor<{rows}x{columns}x{kind}>", f"tensor<{rows}x{kind}>"
    return f"""func.func @main(%a: {whole}, %b: {whole}) -> ({whole}, tensor<{columns}x{kind}>) {{
  %low = stablehlo.constant dense<-1.0e+04> : tensor<{kind}>
  %zero = stablehlo.constant dense<0.0> : tensor<{kind}>
  %s = stablehlo.multiply %a, %b : {whole}
  %m = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [1]
    : ({whole}, tensor<{kind}>) -> {each}
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : ({each}) -> {whole}
  %d = stablehlo.subtract %s, %mb : {whole}
  %e = stablehlo.exponential %d : {whole}
  %q = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : ({whole}, tensor<{kind}>) -> {each}
  %qb = stablehlo.broadcast_in_dim %q, dims = [0] : ({each}) -> {whole}
  %o = stablehlo.divide %e, %qb : {whole}
  %c = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [0]
    : ({whole}, tensor<{kind}>) -> tensor<{columns}x{kind}>
  return %o, %c : {whole}, tensor<{columns}x{kind}> }}"""


def product(kind: str, m: int, k: int, n: int) -> str:
    """With what follows it."""
    result = f"tensor<{m}x{n}x{kind}>"
    return f"""func.func @main(%a: tensor<{m}x{k}x{kind}>, %b: tensor<{k}x{n}x{kind}>) -> {result} {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<{m}x{k}x{kind}>, tensor<{k}x{n}x{kind}>) -> {result}
  %1 = stablehlo.tanh %0 : {result}
  %2 = stablehlo.add %1, %0 : {result}
  return %2 : {result} }}"""


def convolution(kind: str) -> str:
    result = f"tensor<2x9x13x11x{kind}>"
    return f"""func.func @main(%a: tensor<2x5x13x11x{kind}>, %b: tensor<9x5x3x3x{kind}>) -> {result} {{
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
    window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<2x5x13x11x{kind}>, tensor<9x5x3x3x{kind}>) -> {result}
  return %0 : {result} }}"""


def attention(kind: str) -> str:
    q, k = f"tensor<2x37x24x{kind}>", f"tensor<2x301x24x{kind}>"
    s, r = f"tensor<2x37x301x{kind}>", f"tensor<2x37x{kind}>"
    least = "0xFF800000" if kind == "f32" else "0xFFF0000000000000"
    return f"""func.func @main(%q: {q}, %k: {k}) -> {q} {{
  %least = stablehlo.constant dense<{least}> : tensor<{kind}>
  %z = stablehlo.constant dense<0.0> : tensor<{kind}>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : ({q}, {k}) -> {s}
  %m = stablehlo.reduce(%s init: %least) applies stablehlo.maximum across dimensions = [2]
    : ({s}, tensor<{kind}>) -> {r}
  %mb = stablehlo.broadcast_in_dim %m, dims = [0, 1] : ({r}) -> {s}
  %d = stablehlo.subtract %s, %mb : {s}
  %e = stablehlo.exponential %d : {s}
  %t = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [2]
    : ({s}, tensor<{kind}>) -> {r}
  %tb = stablehlo.broadcast_in_dim %t, dims = [0, 1] : ({r}) -> {s}
  %p = stablehlo.divide %e, %tb : {s}
  %o = stablehlo.dot_general %p, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : ({s}, {k}) -> {q}
  return %o : {q} }}"""


PROGRAMS = {
    "product f32": product("f32", 29, 601, 51),
    "product f64": product("f64", 45, 300, 77),
    "product bf16": product("bf16", 29, 601, 51),
    "row f32": product("f32", 1, 300, 517),
    "softmax f32": softmax("f32", 37, 211),
    "softmax bf16": softmax("bf16", 9, 130),
    "convolution f32": convolution("f32"),
    "convolution f16": convolution("f16"),
    "attention f32": attention("f32"),
    "attention f64": attention("f64"),
}
#: How far results of two schedules may lie apart, of an element and of the root mean square.
APART = {"f32": 1e-4, "f64": 1e-10, "bf16": 6e-2, "f16": 1e-2}
#: Of every change these, and all with ``long``: libraries of contractions take their time to compile.
QUICK = [
    ("product bf16", ["group:apart", "contraction:loops"]),
    ("product f32", MIXED),
    ("softmax f32", MIXED),
    ("convolution f32", MIXED),
    ("attention f32", MIXED[1:3]),
]


def _kernel(text: str, schedule: str, numerics: str = "default", target: str = "x86-64-v3") -> Kernel:
    options = CompileOptions(numerics=numerics, schedule=schedule)
    return Kernel(lower_module(text, 2, target, options, lambda _: None))


def _has_avx512() -> bool:
    return bool(llvm.get_host_cpu_features().get("avx512vl", False))


def _inputs(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = [tuple(dim for dim in kind.dims if isinstance(dim, int)) for kind in kernel.interface.inputs]
    kinds = [NUMPY[kind.dtype] for kind in kernel.interface.inputs]
    drawn = zip(shapes, kinds, strict=True)
    return [(rng.standard_normal(shape) / 2).astype(kind) for shape, kind in drawn]


def _compare(program: str, schedules: list[str], target: str, numerics: str) -> None:
    plain = _kernel(PROGRAMS[program], "", numerics, target)
    inputs = _inputs(plain)
    expected = plain(*inputs)
    apart = APART[program.rpartition(" ")[2]]
    for schedule in schedules:
        kernel = _kernel(PROGRAMS[program], schedule, numerics, target)
        for host in (None, threaded_host()):
            for right, result in zip(expected, kernel(*inputs, host=host), strict=True):
                if numerics == "strict":
                    assert result.tobytes() == right.tobytes(), schedule
                    continue
                a, b = right.astype(np.float64), result.astype(np.float64)
                scale = apart * float(np.sqrt(np.mean(a**2)))
                np.testing.assert_allclose(b, a, rtol=apart, atol=scale, err_msg=schedule)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("program", "schedules"), QUICK, ids=[program for program, _ in QUICK])
def test_results_are_right_under_every_choice(program: str, schedules: list[str]) -> None:
    _compare(program, schedules, "x86-64-v3", "default")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("program", ["product f32", "softmax f32"])
def test_strict_results_are_the_same_bits_under_every_choice(program: str) -> None:
    _compare(program, MIXED, "x86-64-v3", "strict")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not _has_avx512(), reason="needs AVX-512")
@pytest.mark.parametrize("numerics", ["default", "strict"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_choice_alone_on_avx512(program: str, numerics: str) -> None:
    _compare(program, [*ALL, *MIXED], "x86-64-v4", numerics)


def test_every_value_is_in_a_mix() -> None:
    assert {part for mix in MIXED for part in mix.split(",")} == set(ALL)


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_every_tile_assembles_for_the_registers_that_it_is_for(share: int) -> None:
    codes = {
        schedule: lower_module(
            PRODUCT, 2, "x86-64-v4", CompileOptions(schedule=schedule), lambda _: None
        ).artifacts["so"]
        for schedule in ("", *(f"tile:{value}" for value in CHOICES["tile"][1::share]))
    }
    assert len(set(codes.values())) == len(codes)


def test_the_grain_is_what_a_launch_says() -> None:
    grains = {
        factor: int(_kernel(SUM, f"grain:{factor}" if factor != "1" else "").interface.launches[0].grain)
        for factor in CHOICES["grain"]
    }
    assert grains["4"] == 4 * grains["1"]
    assert grains["16"] == 16 * grains["1"]
    assert grains["1/4"] == -(-grains["1"] // 4)


def test_defaults_are_the_first_values() -> None:
    assert Choices(**{name: values[0] for name, values in CHOICES.items()}) == Choices() == parse_choices("")


@pytest.mark.parametrize("text", ["speed:9", "grain:7", "grain", "grain:4;unroll:on", "grain=4"])
def test_what_is_no_choice_is_rejected(text: str) -> None:
    with pytest.raises(CompileFailed, match="no schedule choice"):
        parse_choices(text)
