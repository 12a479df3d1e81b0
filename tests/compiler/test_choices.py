"""A schedule choice changes code and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.errors import CompileFailed
from kcache_compiler.schedule.choices import CHOICES, Choices, parse_choices
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel, threaded_host

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
ALL = [f"{name}:{value}" for name, values in CHOICES.items() for value in values[1:]]


def _kernel(text: str, schedule: str, numerics: str = "default", target: str = "x86-64-v3") -> Kernel:
    options = CompileOptions(numerics=numerics, schedule=schedule)
    return Kernel(lower_module(text, 2, target, options, lambda _: None))


def _inputs(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = [tuple(dim for dim in kind.dims if isinstance(dim, int)) for kind in kernel.interface.inputs]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("text", [PRODUCT, SUM], ids=["product", "sum"])
def test_strict_results_are_the_same_bits_under_every_choice(text: str) -> None:
    plain = _kernel(text, "", "strict")
    inputs = _inputs(plain)
    (expected,) = plain(*inputs)
    for schedule in ALL:
        (result,) = _kernel(text, schedule, "strict")(*inputs, host=threaded_host())
        assert result.tobytes() == expected.tobytes(), schedule


def test_every_tile_assembles_for_the_registers_that_it_is_for() -> None:
    codes = {
        schedule: lower_module(
            PRODUCT, 2, "x86-64-v4", CompileOptions(schedule=schedule), lambda _: None
        ).artifacts["so"]
        for schedule in ("", *(f"tile:{value}" for value in CHOICES["tile"][1:]))
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
def test_what_is_no_choice_is_refused(text: str) -> None:
    with pytest.raises(CompileFailed, match="no schedule choice"):
        parse_choices(text)
