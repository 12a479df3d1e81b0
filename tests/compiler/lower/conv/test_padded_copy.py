"""Padding as one launch: values over types, layouts and axes without padding."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel, guarded, threaded_host

Pads = tuple[tuple[int, int], ...]


def lowered(text: str, inputs: int = 1, target: str = "x86-64-v2", schedule: str = "") -> Kernel:
    options = CompileOptions(numerics="strict", schedule=schedule)
    return Kernel(lower_module(text, inputs, target, options, lambda _: None))


def padding(shape: tuple[int, ...], pads: Pads, kind: str, value: str) -> str:
    low, high = ([pad[side] for pad in pads] for side in (0, 1))
    sizes = [size + sum(pad) for size, pad in zip(shape, pads, strict=True)]
    x, y = (f"tensor<{'x'.join(map(str, dims))}x{kind}>" for dims in (shape, sizes))
    return f"""
    func.func @main(%x: {x}) -> {y} {{
      %value = stablehlo.constant dense<{value}> : tensor<{kind}>
      %0 = stablehlo.pad %x, %value, low = {low}, high = {high}, interior = {[0] * len(shape)}
        : ({x}, tensor<{kind}>) -> {y}
      return %0 : {y}
    }}"""


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("shape", "pads"),
    [
        ((5,), ((2, 3),)),
        ((3, 7), ((0, 0), (1, 2))),
        ((3, 7), ((2, 1), (0, 0))),
        ((2, 3, 4, 5), ((0, 0), (0, 0), (1, 1), (2, 0))),
        ((2, 6, 5, 3), ((0, 0), (1, 0), (0, 2), (0, 0))),
        ((2, 3, 1, 33), ((1, 1), (0, 4), (3, 0), (1, 30))),
    ],
)
@pytest.mark.parametrize(
    ("kind", "value"), [("f32", "-1.5"), ("f64", "0.0"), ("bf16", "2.0"), ("i8", "-3"), ("i1", "true")]
)
def test_a_pad_is_one_launch(shape: tuple[int, ...], pads: Pads, kind: str, value: str) -> None:
    kernel = lowered(padding(shape, pads, kind, value))
    assert [launch.ops for launch in kernel.interface.launches] == [("pad",)]
    x = (np.random.default_rng(0).standard_normal(shape) * 4).astype(NUMPY[kind])
    fill = NUMPY[kind](value == "true" if kind == "i1" else float(value))
    wanted = np.pad(x, pads, constant_values=fill)
    for host in (None, threaded_host()):
        assert kernel(guarded(x), host=host)[0].tobytes() == wanted.tobytes()


def test_the_image_of_an_average_may_be_a_transpose() -> None:
    """Its rows are not contiguous: the fill and the copy are loops."""
    text = """
    func.func @main(%x: tensor<5x4xf32>) -> (tensor<6x8xf32>, tensor<4x5xf32>) {
      %value = stablehlo.constant dense<1.0> : tensor<f32>
      %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<5x4xf32>) -> tensor<4x5xf32>
      %1 = stablehlo.pad %0, %value, low = [1, 2], high = [1, 1], interior = [0, 0]
        : (tensor<4x5xf32>, tensor<f32>) -> tensor<6x8xf32>
      return %1, %0 : tensor<6x8xf32>, tensor<4x5xf32>
    }"""
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    padded, turned = lowered(text)(x)
    np.testing.assert_array_equal(padded, np.pad(x.T, ((1, 1), (2, 1)), constant_values=1.0))
    np.testing.assert_array_equal(turned, x.T)


def test_what_is_between_the_elements_of_an_image_is_filled() -> None:
    text = padding((3, 4), ((1, 1), (1, 1)), "f32", "7.0").replace("interior = [0, 0]", "interior = [0, 2]")
    text = text.replace("tensor<5x6xf32>", "tensor<5x12xf32>")
    x = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    wanted = np.full((5, 12), 7.0, np.float32)
    wanted[1:4, 1:11:3] = x
    np.testing.assert_array_equal(lowered(text)(x)[0], wanted)


def test_two_images_in_one_result() -> None:
    """The result of the first pad is written again: each copy has its own place."""
    text = """
    func.func @main(%x: tensor<4x4xf32>, %y: tensor<2x2xf32>) -> tensor<6x6xf32> {
      %value = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.pad %x, %value, low = [1, 1], high = [1, 1], interior = [0, 0]
        : (tensor<4x4xf32>, tensor<f32>) -> tensor<6x6xf32>
      %i = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.dynamic_update_slice %0, %y, %i, %i
        : (tensor<6x6xf32>, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<6x6xf32>
      return %1 : tensor<6x6xf32>
    }"""
    x, y = np.ones((4, 4), np.float32), np.full((2, 2), 5.0, np.float32)
    wanted = np.pad(x, 1)
    wanted[2:4, 2:4] = y
    np.testing.assert_array_equal(lowered(text, 2)(x, y)[0], wanted)


def test_images_of_dynamic_sizes() -> None:
    """Buffers have the sizes of a sample, which are formulas: the strides of the image alone are known."""
    text = """
    func.func @main(%x: tensor<?x5x7xf32>) -> (tensor<?x7x9xf32>, tensor<?x5x7xf32>) {
      %value = stablehlo.constant dense<1.5> : tensor<f32>
      %0 = stablehlo.abs %x : tensor<?x5x7xf32>
      %1 = stablehlo.pad %0, %value, low = [0, 1, 2], high = [0, 1, 0], interior = [0, 0, 0]
        : (tensor<?x5x7xf32>, tensor<f32>) -> tensor<?x7x9xf32>
      return %1, %0 : tensor<?x7x9xf32>, tensor<?x5x7xf32>
    }"""
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    arguments = ArgSpec(canonical.symbolic_args)
    options = CompileOptions(numerics="strict")
    kernel = Kernel(compile_spec(canonical.spec_text, arguments, "x86-64-v2", options, lambda _: None))
    for count in (1, 3, 11):
        x = np.random.default_rng(count).standard_normal((count, 5, 7)).astype(np.float32)
        wanted = np.pad(abs(x), ((0, 0), (1, 1), (2, 0)), constant_values=1.5)
        np.testing.assert_array_equal(kernel(x)[0], wanted)
