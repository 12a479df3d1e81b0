"""Compiled image models with bound weights and channels last, beside kernels of the same program without."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel, runs_here
from tests.compiler.lower.bound.test_bound import Bound
from tests.compiler.passes.bound import test_split_axes as layers
from tests.compiler.passes.bound.convolutional import ProgramText, Value, ints
from tests.compiler.passes.bound.test_channels_last import dense_block, shifted
from tests.compiler.passes.bound.test_transposed_convolutions import transposed

TARGET = "x86-64-v4" if runs_here("x86-64-v4") else "x86-64-v3"


def _dense(program: ProgramText) -> list[Value]:
    value = program.relu(program.convolution(program.argument(1, 3, 7, 7), 8, 3, padding=1))
    first, _ = dense_block(program, value, 3)
    second, values = dense_block(program, program.convolution(first, 16), 2)
    return [program.convolution(program.relu(second), 4), values[1]]


def _diffusion(program: ProgramText) -> list[Value]:
    value = layers.convolved(program, program.argument(1, 3, 4, 6), 8)
    value = layers.residual(program, value, random.Random(1))
    value = layers.attention(program, value, 2)
    value = layers.convolved(program, layers.resized(program, value), 8)
    return [layers.residual(program, value, random.Random(2))]


def _attention_twice(program: ProgramText) -> list[Value]:
    """A gather lies between two attentions of the same sizes, which begin with the same fill."""
    value = layers.convolved(program, program.argument(1, 3, 6, 8), 16)
    value = layers.resized(program, layers.attention(program, value, 2))
    return [layers.attention(program, program.convolution(value, 16, stride=2), 2)]


def _upsampled(program: ProgramText) -> list[Value]:
    """Transposed convolutions between others: windows of two strides, of one, and of one and a half."""
    value = program.relu(program.convolution(program.argument(1, 8, 5, 6), 32, 3, padding=1))
    for taps, outputs, padding in ((4, 16, (2, 2)), (2, 32, (1, 1)), (3, 8, (1, 2))):
        value = transposed(program, value, outputs, (taps, taps), (2, 2), [padding, padding])
        value = program.relu(program.convolution(program.relu(value), 32, 3, padding=1))
    return [value]


def _branches(program: ProgramText) -> list[Value]:
    """Branches of several kinds of launches are concatenated, then parts of the result."""
    value = program.relu(program.convolution(program.argument(1, 3, 9, 9), 20, 3, padding=1))
    for width in (8, 17):
        inner = program.relu(program.convolution(value, 12))
        branches = [
            program.relu(program.convolution(value, width)),
            program.relu(shifted(program, program.convolution(inner, width, 3, padding=1))),
            program.convolution(inner, 12, 3, padding=1, groups=12),
            program.relu(program.convolution(inner, 24, 3, padding=1, groups=3)),
            _greatest(program, value),
        ]
        value = _joined(program, branches)
    half = value.sizes[1] // 2
    first, second = (_channels(program, value, place, half) for place in (0, half))
    third = program.binary("add", second, program.relu(program.convolution(second, half, 3, padding=1)))
    joined = _joined(program, [first, second, third])
    return [program.convolution(joined, 8), value, _channels(program, joined, half, half)]


def _greatest(program: ProgramText, value: Value) -> Value:
    """The greatest elements of windows of 3x3 pixels."""
    sizes = f"window_dimensions = {ints([1, 1, 3, 3])}"
    pads = "padding = dense<[[0, 0], [0, 0], [1, 1], [1, 1]]> : tensor<4x2xi64>"
    return program.window(
        "reduce_window", value, "0xFFF0000000000000", "maximum", f"{sizes}, {pads}", value.sizes
    )


def _joined(program: ProgramText, values: list[Value]) -> Value:
    batch, _, *space = values[0].sizes
    sizes = (batch, sum(each.sizes[1] for each in values), *space)
    return program.add("concatenate", values, sizes, "dimension = 1 : i64")


def _channels(program: ProgramText, value: Value, start: int, count: int) -> Value:
    batch, _, *space = value.sizes
    indices = {
        "start_indices": (0, start, 0, 0),
        "limit_indices": (batch, start + count, *space),
        "strides": (1,) * 4,
    }
    attributes = ", ".join(f"{name} = {ints(numbers)}" for name, numbers in indices.items())
    return program.add("slice", [value], (batch, count, *space), attributes)


CASES = [(_dense, 0), (_branches, 0), (_diffusion, 1), (_attention_twice, 2), (_upsampled, 0)]


@pytest.mark.sampled(18)
@pytest.mark.parametrize(("build", "attentions"), CASES)
@pytest.mark.parametrize("target", ["x86-64-v2", TARGET])
def test_values_are_those_without_bound_weights(
    build: Callable[[ProgramText], list[Value]], attentions: int, target: str
):
    program = ProgramText()
    text = program.text(*build(program))
    draw = np.random.default_rng(20261129)
    sizes = [each.sizes for each in program.arguments]
    arrays = [draw.standard_normal(each) / max(1, np.prod(each[1:])) ** 0.5 for each in sizes]
    arrays[0] = draw.standard_normal(sizes[0])
    plain = Kernel(lower_module(text, len(arrays), "x86-64-v2", CompileOptions("strict"), lambda _: None))
    bound = Bound(text, len(arrays), list(range(1, len(arrays))), "default", target=target)
    assert sum("attention" in launch.ops for launch in bound.interface.launches) == attentions
    results = bound.run(bound.prepare(*arrays[1:]), arrays[0])
    for result, expected in zip(results, plain(*arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10)
