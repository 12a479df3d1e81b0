"""Group normalization, attention and affine chains around convolutions, before and after the rewrites."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound.affine_chains import shorten_chains
from kcache_compiler.passes.bound.dependence import bound_values, erase_unused
from kcache_compiler.passes.bound.rewrite import rewrite_bound
from kcache_compiler.passes.bound.split_axes import merge_split_axes
from kcache_compiler.types import CompileOptions
from tests.compiler.passes.bound.convolutional import (
    ProgramText,
    Value,
    interpretable,
    ints,
    require_equal_values,
)

#: As a literal of f64.
NEGATIVE_INFINITY = "0xFFF0000000000000"


def total(program: ProgramText, value: Value, dims: list[int]) -> Value:
    sizes = [size for axis, size in enumerate(value.sizes) if axis not in dims]
    return program.window("reduce", value, 0.0, "add", f"dimensions = {ints(dims)}", sizes)


def group_norm(program: ProgramText, value: Value, groups: int) -> Value:
    """As frameworks write it: channels are split into groups, and merged before gain and offset."""
    batch, channels, *space = value.sizes
    split = (batch, groups, channels // groups, *space)
    count = float(channels // groups * space[0] * space[1])
    grouped = program.reshape(value, *split)
    sums = total(program, grouped, [2, 3, 4])
    mean = program.binary("divide", sums, program.number(count, sums.sizes))
    centred = program.binary("subtract", grouped, program.broadcast(mean, split, 0, 1))
    squares = total(program, program.binary("multiply", centred, centred), [2, 3, 4])
    variance = program.binary("divide", squares, program.number(count, sums.sizes))
    shifted = program.binary("add", variance, program.number(0.01, sums.sizes))
    scale = program.add("rsqrt", [shifted], sums.sizes)
    normal = program.binary("multiply", centred, program.broadcast(scale, split, 0, 1))
    normal = program.reshape(normal, *value.sizes)
    gain, offset = (program.broadcast(program.argument(channels), value.sizes, 1) for _ in range(2))
    return program.binary("add", program.binary("multiply", normal, gain), offset)


def attention(program: ProgramText, value: Value, heads: int) -> Value:
    """Of all pixels, which are rows and columns to the program."""
    _, channels, *space = value.sizes
    plain = program.reshape(value, channels, *space)
    split = (*space, heads, channels // heads)
    queries, keys, values = (
        program.reshape(product(program, plain, program.argument(channels, channels)), *split)
        for _ in range(3)
    )
    numbers = batched(([2], [2]), ([3], [3]))
    scores = program.add("dot_general", [queries, keys], (heads, *space, *space), numbers)
    axes = f"dimensions = {ints([3, 4])}"
    top = program.window("reduce", scores, NEGATIVE_INFINITY, "maximum", axes, scores.sizes[:3])
    weights = program.binary("subtract", scores, program.broadcast(top, scores.sizes, 0, 1, 2))
    weights = program.add("exponential", [weights], scores.sizes)
    sums = program.broadcast(total(program, weights, [3, 4]), scores.sizes, 0, 1, 2)
    weights = program.binary("divide", weights, sums)
    sizes = (heads, *space, channels // heads)
    mixed = program.add("dot_general", [weights, values], sizes, batched(([0], [2]), ([3, 4], [0, 1])))
    merged = program.add(
        "transpose", [mixed], (heads, sizes[-1], *space), f"permutation = {ints([0, 3, 1, 2])}"
    )
    merged = program.reshape(merged, channels, *space)
    output = product(program, merged, program.argument(channels, channels))
    output = program.add("transpose", [output], (channels, *space), f"permutation = {ints([2, 0, 1])}")
    return program.binary("add", value, program.reshape(output, *value.sizes))


def product(program: ProgramText, value: Value, weights: Value) -> Value:
    numbers = batched(([], []), ([0], [1]))
    return program.add("dot_general", [value, weights], (*value.sizes[1:], weights.sizes[0]), numbers)


def batched(batch: tuple[list[int], list[int]], summed: tuple[list[int], list[int]]) -> str:
    numbers = [
        f"{side}_{role}_dimensions = {axes[side == 'rhs']}"
        for role, axes in (("batching", batch), ("contracting", summed))
        for side in ("lhs", "rhs")
    ]
    return f"dot_dimension_numbers = #stablehlo.dot<{', '.join(numbers)}>"


def resized(program: ProgramText, value: Value) -> Value:
    """Twice as many rows and columns, by lists of indices."""
    for axis in (2, 3):
        sizes = list(value.sizes)
        whole, others = [*sizes], [each for each in range(4) if each != axis]
        whole[axis], sizes[axis] = 1, 2 * sizes[axis]
        indices = Value(f"%{len(program.lines)}", (sizes[axis],))
        kind = f"tensor<{sizes[axis]}xi64>"
        places = [each // 2 for each in range(sizes[axis])]
        program.lines.append(
            f'{indices.name} = "stablehlo.constant"() {{value = dense<{places}> : {kind}}} : () -> {kind}'
        )
        numbers = (
            f"offset_dims = {others}, collapsed_slice_dims = [{axis}], start_index_map = [{axis}], "
            "index_vector_dim = 1"
        )
        result = Value(f"%{len(program.lines)}", tuple(sizes))
        program.lines.append(
            f'{result.name} = "stablehlo.gather"({value.name}, {indices.name}) '
            f"{{dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = {ints(whole)}}} "
            f": ({value.type}, {kind}) -> {result.type}"
        )
        value = result
    return value


def convolved(program: ProgramText, value: Value, width: int) -> Value:
    result = program.convolution(value, width, 3, padding=1)
    return program.binary("add", result, program.broadcast(program.argument(width), result.sizes, 1))


def residual(program: ProgramText, value: Value, draw: random.Random) -> Value:
    """A block of a diffusion model: the offset of the first convolution depends on the input."""
    channels = value.sizes[1]
    inner = program.relu(group_norm(program, value, draw.choice([2, 4])))
    inner = convolved(program, inner, channels)
    offset = total(program, value, [2, 3])
    inner = program.binary("add", inner, program.broadcast(offset, value.sizes, 0, 1))
    inner = program.relu(group_norm(program, inner, 4))
    return program.binary("add", value, convolved(program, inner, channels))


def batch_norm(program: ProgramText, value: Value, draw: random.Random) -> Value:
    """Before an activation, with bound statistics."""
    names = draw.choice(
        [("subtract", "multiply", "multiply", "add"), ("add", "divide", "subtract", "multiply")]
    )
    for name in names:
        factor = program.broadcast(program.argument(value.sizes[1]), value.sizes, 1)
        pair = (factor, value) if name == "subtract" and draw.random() < 0.3 else (value, factor)
        value = program.binary(name, *pair)
    return convolved(program, program.relu(value), draw.choice([4, 8]))


Layer = Callable[[ProgramText, Value, random.Random], Value]
LAYERS: tuple[Layer, ...] = (
    residual,
    batch_norm,
    lambda program, value, draw: group_norm(program, value, 2),
    lambda program, value, draw: resized(program, value) if value.sizes[2] < 8 else value,
    lambda program, value, draw: (
        attention(program, value, draw.choice([1, 2])) if value.sizes[0] == 1 else value
    ),
    lambda program, value, draw: convolved(program, value, draw.choice([4, 8])),
)


@pytest.mark.parametrize("part", [0, *(pytest.param(number, marks=pytest.mark.long) for number in (1, 2))])
def test_random_networks_have_the_same_values(part: int):
    texts: list[str] = []
    rewritten: list[str] = []
    arguments: list[list[Value]] = []
    for seed in range(20 * part, 20 * (part + 1)):
        draw, program = random.Random(seed), ProgramText()
        value = convolved(program, program.argument(draw.choice([1, 1, 2]), draw.choice([3, 8]), 4, 4), 8)
        for _ in range(draw.randint(2, 5)):
            value = draw.choice(LAYERS)(program, value, draw)
        texts.append(program.text(value))
        bound = range(1, len(program.arguments))
        rewritten.append(interpretable(mlir.parse(rewrite_bound(texts[-1], bound, CompileOptions()))))
        arguments.append(program.arguments)
    require_equal_values(texts, rewritten, arguments)


def rewritten_body(program: ProgramText, *results: Value) -> list[str]:
    """The operations that read values which are not bound, after both rewrites."""
    module = mlir.parse(program.text(*results))
    body = mlir.block_of(mlir.main_function(module))
    bound = range(1, len(program.arguments))
    merge_split_axes(body, bound_values(body, bound))
    shorten_chains(body, bound_values(body, bound))
    erase_unused(body)
    prepared = bound_values(body, bound)
    return [
        op.get_asm(use_local_scope=True)
        for op in mlir.operations(body)
        if not prepared.issuperset(op.operands)
    ]


def test_group_norm_has_the_axes_of_its_input():
    program = ProgramText()
    ops = rewritten_body(program, group_norm(program, program.argument(1, 32, 8, 8), 4))
    assert not any("x8x8x8xf64>" in op for op in ops)
    large = [op for op in ops if op.endswith("tensor<1x32x8x8xf64>")]
    assert sum("stablehlo.multiply" in op for op in large) == 2  # the square; gain and inverse deviation


def test_a_bound_batch_norm_is_one_scale_and_one_shift():
    program = ProgramText()
    value = program.argument(2, 16, 4, 4)
    for name in ("subtract", "multiply", "multiply", "add"):
        value = program.binary(name, value, program.broadcast(program.argument(16), value.sizes, 1))
    ops = [op for op in rewritten_body(program, value) if "return" not in op]
    assert len(ops) == 2


def test_a_value_in_memory_is_not_computed_again():
    """The chain of the result begins at ``shifted``, whose producer nothing else reads."""
    program = ProgramText()
    inner = program.relu(program.argument(1, 16, 8, 8))
    shifted = program.binary("add", inner, program.broadcast(program.argument(16), inner.sizes, 1))
    result = shifted
    for name in ("subtract", "multiply", "add"):
        result = program.binary(name, result, program.broadcast(program.argument(16), inner.sizes, 1))
    ops = rewritten_body(program, result, shifted)
    (first,) = (op.split(" ")[0] for op in ops if "stablehlo.maximum" in op)
    assert sum(first + "," in op or first + " :" in op for op in ops) == 1


def test_attention_over_rows_and_columns_is_over_one_axis():
    program = ProgramText()
    ops = rewritten_body(program, attention(program, program.argument(1, 16, 4, 4), 2))
    products = [op for op in ops if "dot_general" in op]
    assert any("-> tensor<2x16x16xf64>" in op for op in products)
    assert any("-> tensor<2x16x8xf64>" in op for op in products)
    assert not any("tensor<2x4x4x4x4xf64>" in op for op in ops if "reshape" not in op)
