"""Regions of convolutions are computed with channels last; results are those of the program as written."""

from __future__ import annotations

import random
import re

import pytest

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound.channels_last.assign import assign_layouts
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


def assigned(program: ProgramText, *results: Value) -> tuple[str, list[str]]:
    """The rewritten program, and its operations that read values which are not bound, as text."""
    bound = range(1, len(program.arguments))
    module = mlir.parse(assign_layouts(program.text(*results), bound))
    body = mlir.block_of(mlir.main_function(module))
    prepared = bound_values(body, bound)
    ops = [op for op in mlir.operations(body) if not prepared.issuperset(op.operands)]
    # Text of an operation by itself: to number the values of the function takes time for each.
    names = [op.get_asm(use_local_scope=True) for op in ops]
    return interpretable(module), names


def transposes(ops: list[str]) -> list[str]:
    return [op for op in ops if "stablehlo.transpose" in op]


def block(program: ProgramText, value: Value, width: int) -> Value:
    """A residual block; batch norms are folded before."""
    inner = program.convolution(value, width, 3, padding=1)
    inner = program.relu(shifted(program, inner))
    inner = shifted(program, program.convolution(inner, value.sizes[1]))
    return program.relu(program.binary("add", value, inner))


def shifted(program: ProgramText, value: Value) -> Value:
    return program.binary("add", value, program.broadcast(program.argument(value.sizes[1]), value.sizes, 1))


def mean(program: ProgramText, value: Value) -> Value:
    """The global average, of sizes (batch, channels)."""
    total = program.window("reduce", value, 0.0, "add", f"dimensions = {ints([2, 3])}", value.sizes[:2])
    return program.binary(
        "divide", total, program.number(float(value.sizes[2] * value.sizes[3]), total.sizes)
    )


@pytest.mark.parametrize(("size", "count"), [(5, 1), (9, 2)])
def test_a_long_sum_is_split_by_axis(size: int, count: int):
    """One pass over 81 elements rounds more often than two passes over 9."""
    program = ProgramText()
    value = program.relu(program.convolution(program.argument(1, 3, size, size), 8, 3, padding=1))
    result = mean(program, value)
    text, ops = assigned(program, result)
    assert sum("stablehlo.reduce" in op for op in ops) == count
    require_equal_values([program.text(result)], [text], [program.arguments])


def test_a_classifier_has_no_transposes():
    program = ProgramText()
    value = program.convolution(program.argument(2, 3, 9, 9), 8, 3, 2, 1)
    value = pooled(program, program.relu(value), "maximum")
    for _ in range(2):
        value = block(program, value, 4)
    value = excited(program, value)
    text, ops = assigned(program, mean(program, value))
    assert not transposes(ops)
    convolutions = [op for op in ops if "stablehlo.convolution" in op]
    assert len(convolutions) == 7
    results = [re.search(r"->\[(.*?)\],", op) for op in convolutions]
    assert {result[1] for result in results if result} == {"b, 0, 1, f"}
    assert "[b, f, 0, 1]x[0, 1, i, o]" in convolutions[0]  # three channels stay as they are
    require_equal_values([program.text(mean_again(program))], [text], [program.arguments])


def mean_again(program: ProgramText) -> Value:
    """The last value of ``program``."""
    line = program.lines[-1]
    sizes = re.search(r"-> tensor<([\dx]*)x?f64>$", line)
    assert sizes is not None
    return Value(line.split(" ")[0], tuple(int(size) for size in sizes[1].split("x") if size))


def pooled(program: ProgramText, value: Value, combiner: str) -> Value:
    batch, channels, *space = value.sizes
    attributes = (
        f"window_dimensions = {ints([1, 1, 2, 2])}, window_strides = {ints([1, 1, 2, 2])}, "
        f"padding = dense<[[0, 0], [0, 0], {', '.join(f'[1, {extent % 2}]' for extent in space)}]> "
        ": tensor<4x2xi64>"
    )
    after = [(extent + 1 + extent % 2 - 2) // 2 + 1 for extent in space]
    start = 0.0 if combiner == "add" else -9.0
    return program.window("reduce_window", value, start, combiner, attributes, (batch, channels, *after))


def excited(program: ProgramText, value: Value) -> Value:
    """Squeeze and excitation."""
    batch, channels, *_ = value.sizes
    squeezed = program.reshape(mean(program, value), batch, channels, 1, 1)
    squeezed = program.relu(program.convolution(squeezed, 2))
    gate = program.reshape(program.convolution(squeezed, channels), batch, channels)
    return program.binary("multiply", value, program.broadcast(gate, value.sizes, 0, 1))


def test_channels_of_groups_are_split_from_the_padding_to_the_last_elementwise_operation():
    program = ProgramText()
    value = program.relu(program.convolution(program.argument(1, 3, 6, 6), 8, 3, padding=1))
    inner = program.relu(shifted(program, program.convolution(value, 8, 3, padding=1, groups=4)))
    result = mean(program, program.convolution(inner, 8))
    text, ops = assigned(program, result)
    (grouped,) = [op for op in ops if "feature_group_count = 4" in op]
    assert "padding" not in grouped
    assert "tensor<1x8x8x8xf64>" in grouped
    split = [re.findall(r"stablehlo\.(\w+)", op)[0] for op in ops if op.endswith("x4x2xf64>")]
    assert split == ["reshape", "pad", "reshape", "add", "maximum"]
    require_equal_values([program.text(result)], [text], [program.arguments])


def test_values_at_the_boundary_are_converted_once():
    program = ProgramText()
    value = program.argument(1, 8, 6, 6)
    for _ in range(3):
        value = block(program, value, 8)
    _, ops = assigned(program, value)
    dims = [re.findall(r"dims = (.*?) :", op) for op in transposes(ops)]
    assert dims == [["[1, 2, 0]"], ["[2, 0, 1]"]]


def test_a_convolution_alone_keeps_its_layout():
    program = ProgramText()
    value = program.relu(program.convolution(program.argument(1, 8, 6, 6), 8, 3, padding=1))
    text = program.text(value)
    assert assign_layouts(text, [1]) == text


def test_strict_numerics_and_weights_of_each_call_keep_the_layout():
    program = ProgramText()
    value = program.argument(1, 8, 6, 6)
    for _ in range(3):
        value = block(program, value, 8)
    text = program.text(mean(program, value))
    bound = range(1, len(program.arguments))
    assert rewrite_bound(text, bound, CompileOptions("strict")) == text
    assert "[b, 0, 1, f]" in rewrite_bound(text, bound, CompileOptions("fast"))
    biases = [index for index in bound if len(program.arguments[index].sizes) == 1]
    assert assign_layouts(text, biases) == text


def test_patches_as_rows_need_no_transpose():
    program = ProgramText()
    value = shifted(program, program.convolution(program.argument(1, 3, 8, 8), 16, 4, 4))
    rows = program.reshape(value, 1, 16, 4)
    _, ops = assigned(
        program, program.add("transpose", [rows], (1, 4, 16), f"permutation = {ints([0, 2, 1])}")
    )
    assert not transposes(ops)


def test_an_elementwise_operation_on_a_transpose_has_the_layout_of_its_reader():
    """A product whose rows are pixels is transposed by the program, and added to an image."""
    program = ProgramText()
    source = program.argument(1, 8, 6, 6)
    value = program.relu(program.convolution(source, 8, 3, padding=1))
    numbers = "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [1]"
    operands = [program.reshape(source, 8, 6, 6), program.argument(8, 8)]
    rows = program.add(
        "dot_general", operands, (6, 6, 8), f"dot_dimension_numbers = #stablehlo.dot<{numbers}>"
    )
    image = program.add("transpose", [rows], (8, 6, 6), f"permutation = {ints([2, 0, 1])}")
    image = program.relu(program.binary("add", image, program.broadcast(program.argument(8), (8, 6, 6), 0)))
    value = program.binary("add", program.reshape(value, 8, 6, 6), image)
    result = mean(program, program.convolution(program.reshape(value, 1, 8, 6, 6), 8))
    text, ops = assigned(program, result)
    assert len(transposes(ops)) == 1  # of the input
    require_equal_values([program.text(result)], [text], [program.arguments])


def test_a_long_chain_of_elementwise_operations_is_converted_at_its_end():
    program = ProgramText()
    value = program.argument(1, 8, 6, 6)
    for _ in range(1200):  # more than the recursion limit
        value = program.add("negate", [value], value.sizes)
    for _ in range(3):
        value = block(program, value, 8)
    _, ops = assigned(program, mean(program, value))
    assert len(transposes(ops)) == 1


def dense_block(program: ProgramText, value: Value, layers: int) -> tuple[Value, list[Value]]:
    """Each layer appends channels to its input; the last value, and all before it."""
    values: list[Value] = []
    for _ in range(layers):
        values.append(value)
        inner = program.convolution(program.relu(value), 4, 3, padding=1)
        sizes = (value.sizes[0], value.sizes[1] + 4, *value.sizes[2:])
        value = program.add("concatenate", [value, inner], sizes, "dimension = 1 : i64")
    return value, values


def test_a_chain_of_concatenations_has_one_buffer():
    program = ProgramText()
    value = program.relu(program.convolution(program.argument(1, 3, 6, 6), 8, 3, padding=1))
    value, _ = dense_block(program, value, 4)
    result = mean(program, program.convolution(value, 8))
    text, ops = assigned(program, result)
    inserted = [op for op in ops if "tensor.insert_slice" in op]
    assert len(inserted) == 5
    assert all("into tensor<1x6x6x24xf64>" in op for op in inserted)
    assert text.count("dense<7.") == 1  # the buffer, which is empty
    require_equal_values([program.text(result)], [text], [program.arguments])


@pytest.mark.parametrize(("middle", "insertions"), [(4, 2), (3, 3)])
def test_slices_that_make_up_a_value_are_concatenated_as_one(middle: int, insertions: int):
    program = ProgramText()
    value = program.convolution(program.argument(1, 3, 5, 5), 8, 3, padding=1)
    names = ("start_indices", "limit_indices", "strides")
    parts: list[Value] = []
    for numbers in (((0,) * 4, (1, 4, 5, 5), (1,) * 4), ((0, middle, 0, 0), (1, 8, 5, 5), (1,) * 4)):
        attributes = ", ".join(f"{name} = {ints(each)}" for name, each in zip(names, numbers, strict=True))
        parts.append(program.add("slice", [value], (1, numbers[1][1] - numbers[0][1], 5, 5), attributes))
    parts.append(program.relu(program.convolution(parts[0], 4, 3, padding=1)))
    sizes = (1, sum(each.sizes[1] for each in parts), 5, 5)
    result = program.convolution(program.add("concatenate", parts, sizes, "dimension = 1 : i64"), 8)
    text, ops = assigned(program, result)
    assert sum("tensor.insert_slice" in op for op in ops) == insertions
    require_equal_values([program.text(result)], [text], [program.arguments])


def test_values_of_a_chain_that_are_read_again_keep_theirs():
    program = ProgramText()
    value = program.relu(program.convolution(program.argument(2, 3, 6, 6), 8, 3, padding=1))
    value, values = dense_block(program, value, 3)
    again, _ = dense_block(program, values[1], 2)
    results = [mean(program, program.convolution(each, 4)) for each in (value, again, values[2])]
    text, _ = assigned(program, *results)
    require_equal_values([program.text(*results)], [text], [program.arguments])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("part", range(2))
def test_random_networks_have_the_same_values(part: int):
    texts: list[str] = []
    rewritten: list[str] = []
    arguments: list[list[Value]] = []
    moved = 0
    for seed in range(40 * part, 40 * (part + 1)):
        program = ProgramText()
        results = random_network(program, random.Random(seed))
        text, ops = assigned(program, *results)
        moved += sum("0, 1, f], " in op for op in ops)
        texts.append(program.text(*results))
        rewritten.append(text)
        arguments.append(program.arguments)
    assert moved > 60
    require_equal_values(texts, rewritten, arguments)


def random_network(program: ProgramText, draw: random.Random) -> list[Value]:
    """Layers of image models in random order; some values are results, too."""
    value = program.argument(draw.choice([1, 1, 2]), draw.choice([3, 8]), 6, 6)
    results: list[Value] = []
    for _ in range(draw.randint(3, 8)):
        value = draw.choice(LAYERS)(program, value, draw)
        if draw.random() < 0.1:
            results.append(value)
    return [mean(program, value) if draw.random() < 0.5 else value, *results]


def _convolution(program: ProgramText, value: Value, draw: random.Random) -> Value:
    channels = value.sizes[1]
    groups = draw.choice([1, 1, 2, channels]) if channels % 2 == 0 else 1
    size = draw.choice([1, 3])
    outputs = channels if groups > 1 else draw.choice([1, 4, 8])
    return shifted(program, program.convolution(value, outputs, size, 1, size // 2, groups))


def _concatenated(program: ProgramText, value: Value, draw: random.Random) -> Value:
    other = _convolution(program, value, draw)
    sizes = (value.sizes[0], value.sizes[1] + other.sizes[1], *value.sizes[2:])
    return program.add("concatenate", draw.sample([value, other], 2), sizes, "dimension = 1 : i64")


def _without_batch(program: ProgramText, value: Value, draw: random.Random) -> Value:
    """Elementwise operations on a value without its batch axis, or with its rows and columns as one axis."""
    batch, channels, *space = value.sizes
    merged = (batch, channels, space[0] * space[1]) if batch > 1 or draw.random() < 0.5 else value.sizes[1:]
    flat = program.reshape(value, *merged)
    axis = 0 if merged == value.sizes[1:] else 1
    scale = program.broadcast(program.argument(channels), merged, axis)
    return program.reshape(program.relu(program.binary("multiply", flat, scale)), *value.sizes)


def _cut(program: ProgramText, value: Value, draw: random.Random) -> Value:
    """Padding, a slice, a reversal."""
    low = (0, 0, 1, 0)
    padded = [size + before + 1 for size, before in zip(value.sizes, low, strict=True)]
    padded[:2] = value.sizes[:2]
    numbers = [f"edge_padding_low = {ints(low)}", f"edge_padding_high = {ints((0, 0, 1, 1))}"]
    attributes = ", ".join([*numbers, f"interior_padding = {ints((0, 0, 0, 0))}"])
    result = program.add("pad", [value, program.number(0.5, ())], padded, attributes)
    start = [0, 0, 1, 1]
    sizes = [size - first for size, first in zip(padded, start, strict=True)]
    limits = f"start_indices = {ints(start)}, limit_indices = {ints(padded)}, strides = {ints([1] * 4)}"
    result = program.add("slice", [result], sizes, limits)
    return program.add("reverse", [result], sizes, f"dimensions = {ints(draw.choice([[2], [1, 3]]))}")


def _transposed(program: ProgramText, value: Value, draw: random.Random) -> Value:
    """An operation on a value with channels last, by the program."""
    batch, channels, *space = value.sizes
    last = (batch, *space, channels)
    result = program.add("transpose", [value], last, f"permutation = {ints([0, 2, 3, 1])}")
    result = program.binary("multiply", result, program.broadcast(program.argument(channels), last, 3))
    return program.add("transpose", [result], value.sizes, f"permutation = {ints([0, 3, 1, 2])}")


def _selected(program: ProgramText, value: Value, draw: random.Random) -> Value:
    """Operations with scalar operands, and with a bound value of all axes."""
    bound = program.argument(*value.sizes)
    clamped = program.add("clamp", [program.number(-1.0, ()), value, program.number(1.0, ())], value.sizes)
    return program.binary("subtract", clamped, bound)


def _softmax(program: ProgramText, value: Value, draw: random.Random) -> Value:
    """Each element less the maximum of the channels, as a softmax begins."""
    batch, _, *space = value.sizes
    maximum = program.window("reduce", value, -99.0, "maximum", f"dimensions = {ints([1])}", (batch, *space))
    return program.binary("subtract", value, program.broadcast(maximum, value.sizes, 0, 2, 3))


LAYERS = (
    _convolution,
    _convolution,
    _concatenated,
    _without_batch,
    _cut,
    _transposed,
    _selected,
    _softmax,
    lambda program, value, draw: block(program, value, draw.choice([4, 8])),
    lambda program, value, draw: excited(program, value),
    lambda program, value, draw: pooled(program, value, draw.choice(["add", "maximum"])),
)
