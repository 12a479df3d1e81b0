"""Transposed convolutions are split by phase; results are those of the program as written."""

from __future__ import annotations

import random

import pytest

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound.dependence import bound_values
from kcache_compiler.passes.bound.rewrite import rewrite_bound
from kcache_compiler.types import CompileOptions
from tests.compiler.passes.bound.convolutional import (
    ProgramText,
    Value,
    interpretable,
    ints,
    require_equal_values,
)


def transposed(
    program: ProgramText,
    value: Value,
    outputs: int,
    taps: tuple[int, ...],
    strides: tuple[int, ...],
    padding: list[tuple[int, int]],
    last: bool = False,
) -> Value:
    """A convolution with base dilation; with channels ``last``, or before the spatial axes."""
    space = value.sizes[1:-1] if last else value.sizes[2:]
    channels = value.sizes[-1] if last else value.sizes[1]
    names = ", ".join(map(str, range(len(space))))
    after = [
        (size - 1) * stride + 1 + low + high - tap + 1
        for size, stride, tap, (low, high) in zip(space, strides, taps, padding, strict=True)
    ]
    if last:
        weights = program.argument(*taps, channels, outputs)
        dims = f"[b, {names}, f]x[{names}, i, o]->[b, {names}, f]"
        sizes = (value.sizes[0], *after, outputs)
    else:
        weights = program.argument(channels, outputs, *taps)
        dims = f"[b, f, {names}]x[i, o, {names}]->[b, f, {names}]"
        sizes = (value.sizes[0], outputs, *after)
    pairs = ", ".join(f"[{low}, {high}]" for low, high in padding)
    attributes = (
        f"dimension_numbers = #stablehlo.conv<{dims}>, batch_group_count = 1 : i64, "
        f"feature_group_count = 1 : i64, lhs_dilation = {ints(strides)}, "
        f"padding = dense<[{pairs}]> : tensor<{len(space)}x2xi64>"
    )
    return program.add("convolution", [value, weights], sizes, attributes)


def rewritten(program: ProgramText, *results: Value) -> tuple[str, list[tuple[str, str]]]:
    """The rewritten program for the interpreter, and its convolutions without base dilation: the types of
    their windows and results.
    """
    bound = range(1, len(program.arguments))
    module = mlir.parse(rewrite_bound(program.text(*results), bound, CompileOptions()))
    convolutions = mlir.named(module, "stablehlo.convolution")
    plain = [op for op in convolutions if "lhs_dilation" not in op.attributes]
    types = [(str(op.operands[1].type), str(op.results[0].type)) for op in plain]
    return interpretable(module), types


def test_phases_with_the_same_pixels_are_one_convolution() -> None:
    """``nn.ConvTranspose1d(6, 4, 16, 8, padding=4)``: two groups of four phases, two taps each."""
    program = ProgramText()
    value = program.relu(program.argument(1, 16, 5))
    result = program.relu(transposed(program, value, 4, (16,), (8,), [(11, 11)]))
    after, convolutions = rewritten(program, result)
    assert result.sizes == (1, 4, 40)
    assert convolutions == [("tensor<16x16x2xf64>", "tensor<1x16x5xf64>")] * 2
    assert "stablehlo.pad" not in after
    require_equal_values([program.text(result)], [after], [program.arguments])


def test_a_window_as_long_as_the_stride_is_a_product() -> None:
    """``nn.ConvTranspose2d(3, 5, 2, 2)``: no window is left."""
    program = ProgramText()
    result = transposed(
        program, program.relu(program.argument(2, 16, 4, 3)), 5, (2, 2), (2, 2), [(1, 1), (1, 1)]
    )
    after, convolutions = rewritten(program, result)
    assert convolutions == [("tensor<16x20x1x1xf64>", "tensor<2x20x4x3xf64>")]
    require_equal_values([program.text(result)], [after], [program.arguments])


def test_with_channels_last_nothing_is_copied_but_the_phases_of_rows() -> None:
    for taps, strides, shuffles in (((16,), (8,), 0), ((4, 4), (2, 2), 1), ((2, 2), (2, 2), 1)):
        program = ProgramText()
        value = program.argument(1, 32, *[8] * len(taps))
        threes, ones, same = [3] * len(taps), [1] * len(taps), [(1, 1)] * len(taps)
        value = program.relu(transposed(program, value, 64, tuple(threes), tuple(ones), same))
        around = [tap - 1 - (tap - stride) // 2 for tap, stride in zip(taps, strides, strict=True)]
        padding = [(pixels, pixels) for pixels in around]
        value = program.relu(transposed(program, value, 16, taps, strides, padding))
        for _ in range(4):
            value = program.relu(transposed(program, value, 16, tuple(threes), tuple(ones), same))
        module = mlir.parse(
            rewrite_bound(program.text(value), range(1, len(program.arguments)), CompileOptions())
        )
        known = bound_values(mlir.block_of(mlir.main_function(module)), range(1, len(program.arguments)))
        moved = [op for op in mlir.named(module, "stablehlo.transpose") if op.results[0] not in known]
        assert len(moved) == 2 + shuffles  # the argument, and the result


def test_what_has_no_phases_stays_as_it_is() -> None:
    for taps, strides, padding in (
        ((2,), (3,), [(1, 2)]),  # a phase without taps
        ((4,), (2,), [(-3, 3)]),  # pixels that no result reads
    ):
        program = ProgramText()
        result = transposed(program, program.argument(1, 2, 6), 2, taps, strides, padding)
        _, convolutions = rewritten(program, result)
        assert not convolutions
    program = ProgramText()
    result = transposed(program, program.argument(1, 2, 6), 2, (4,), (2,), [(2, 2)])
    strict = rewrite_bound(program.text(result), [1], CompileOptions("strict"))
    assert "lhs_dilation" in strict


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(4))
def test_random_windows(seed: int) -> None:
    draw = random.Random(seed)
    before: list[str] = []
    after: list[str] = []
    arguments: list[list[Value]] = []
    split = 0
    for number in range(10):
        spatial, last = draw.choice([1, 1, 2, 3]), number % 3 == 0
        strides = tuple(draw.choice([1, 2, 2, 3, 4]) for _ in range(spatial))
        taps = tuple(draw.randint(1, 2 * stride + 1) for stride in strides)
        padding = [(draw.randint(0, tap), draw.randint(0, tap + 1)) for tap in taps]
        space = [draw.randint(2, 4) for _ in range(spatial)]
        program = ProgramText()
        image = program.argument(*((2, *space, 3) if last else (2, 3, *space)))
        result = transposed(program, program.relu(image), 2, taps, strides, padding, last)
        if any(size < 1 for size in result.sizes):
            continue
        result = program.relu(result)
        text, convolutions = rewritten(program, result)
        split += len(convolutions) > 0
        before.append(program.text(result))
        after.append(text)
        arguments.append(program.arguments)
    assert split > 2
    require_equal_values(before, after, arguments)
