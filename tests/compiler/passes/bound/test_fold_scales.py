"""Scales move into bound weights, where nothing else reads what is scaled; values stay the same."""

from __future__ import annotations

import math
import random
from collections import Counter

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound.dependence import bound_values
from kcache_compiler.passes.bound.fold_scales import fold_scales
from kcache_compiler.passes.bound.rewrite import rewrite_bound
from kcache_compiler.types import CompileOptions
from tests.compiler.passes.bound.convolutional import ProgramText, Value, require_equal_values


def folded(program: ProgramText, text: str) -> tuple[str, Counter[str]]:
    """The rewritten text, and how often it computes each operation of values that are not bound."""
    with mlir.new_context(), mlir.unknown_location():
        module = mlir.parse(text)
        body = mlir.block_of(mlir.main_function(module))
        bound = range(1, len(program.arguments))
        fold_scales(body, bound_values(body, bound))
        prepared = bound_values(body, bound)
        names = [mlir.name_of(op) for op in mlir.operations(body) if set(op.results).isdisjoint(prepared)]
        return mlir.whole_text(module), Counter(name.partition(".")[2] for name in names)


def normalized(program: ProgramText, value: Value) -> Value:
    """A batch norm of an NCHW value with bound statistics."""
    sizes, channels = value.sizes, value.sizes[1]
    mean, deviation, gain, bias = (program.broadcast(program.argument(channels), sizes, 1) for _ in range(4))
    value = program.binary("subtract", value, mean)
    value = program.binary("divide", value, deviation)
    return program.binary("add", bias, program.binary("multiply", gain, value))


def test_a_batch_norm_after_a_convolution_and_its_bias():
    program = ProgramText()
    value = program.convolution(program.argument(2, 3, 6, 5), 4, 3, padding=1)
    value = program.binary("add", value, program.broadcast(program.argument(4), value.sizes, 1))
    value = normalized(program, value)
    text = program.text(value)
    after, counts = folded(program, text)
    assert counts == {"convolution": 1, "add": 1, "return": 1}
    require_equal_values([text], [after], [program.arguments])


def test_a_batch_norm_before_an_activation_stays_before_it():
    program = ProgramText()
    value = program.relu(normalized(program, program.argument(1, 3, 4, 4)))
    value = program.relu(normalized(program, program.convolution(value, 2)))
    text = program.text(value)
    _, counts = folded(program, text)
    assert counts["multiply"] == 1
    assert counts["maximum"] == 2


def test_what_has_another_reader_is_not_scaled():
    program = ProgramText()
    value = program.convolution(program.argument(1, 3, 4, 4), 2)
    scaled = normalized(program, value)
    text = program.text(value, scaled)
    _, counts = folded(program, text)
    assert counts["multiply"] == 1


def test_a_gain_before_products_moves_to_their_weights():
    program = ProgramText()
    x, gain = program.argument(5, 8), program.argument(8)
    value = program.binary("multiply", x, program.broadcast(gain, x.sizes, 1))
    results = [product(program, value, outputs) for outputs in (3, 4)]
    text = program.text(*results)
    after, counts = folded(program, text)
    assert counts == {"dot_general": 2, "return": 1}
    require_equal_values([text], [after], [program.arguments])


def test_a_gain_that_something_else_reads_stays():
    program = ProgramText()
    x, gain = program.argument(5, 8), program.argument(8)
    value = program.binary("multiply", x, program.broadcast(gain, x.sizes, 1))
    text = program.text(product(program, value, 3), value)
    _, counts = folded(program, text)
    assert counts["multiply"] == 1


def product(program: ProgramText, value: Value, outputs: int, weights_first: bool = False) -> Value:
    """A product of the last axis of ``value`` with bound weights."""
    weights = program.argument(outputs, value.sizes[1])
    operands = [weights, value] if weights_first else [value, weights]
    numbers = "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>"
    sizes = [each.sizes[0] for each in operands]
    return program.add("dot_general", operands, sizes, f"dot_dimension_numbers = {numbers}")


def test_random_chains_have_the_same_values():
    texts: list[str] = []
    rewritten: list[str] = []
    arguments: list[list[Value]] = []
    before, after = 0, 0
    for seed in range(60):
        program = ProgramText()
        text = program.text(*random_chain(program, random.Random(seed)))
        result, counts = folded(program, text)
        before += text.count("multiply") + text.count("divide")
        after += counts["multiply"] + counts["divide"]
        texts.append(text)
        rewritten.append(result)
        arguments.append(program.arguments)
    assert after < before * 0.7
    require_equal_values(texts, rewritten, arguments)


def random_chain(program: ProgramText, draw: random.Random) -> list[Value]:
    """Scales and shifts, rarely something else, around convolutions and products with bound weights."""
    flat = draw.random() < 0.4
    value = program.argument(3, 4) if flat else program.argument(draw.randint(1, 2), 4, 3, 3)
    results: list[Value] = []
    for _ in range(3):
        value = random_steps(program, value, draw)
        if draw.random() < 0.15:
            results.append(value)
        if flat:
            value = product(program, value, draw.choice([1, 4, 5]), draw.random() < 0.5)
        else:
            groups = draw.choice([1, 2, 4]) if value.sizes[1] == 4 else 1
            size = draw.choice([1, 3])
            value = program.convolution(
                value, draw.choice([4, 8]) if groups > 1 else 4, size, 1, size // 2, groups
            )
            if value.sizes[1] == 8:
                value = program.convolution(value, 4)
    return [random_steps(program, value, draw), *results]


def random_steps(program: ProgramText, value: Value, draw: random.Random) -> Value:
    names = ["multiply", "multiply", "divide", "add", "subtract", "negate", "relu", "merged"]
    for _ in range(draw.randint(0, 4)):
        match draw.choice(names):
            case "negate":
                value = program.add("negate", [value], value.sizes)
            case "relu":
                value = program.relu(value)
            case "merged":
                rows, channels, *space = value.sizes
                merged = program.reshape(value, rows, channels, math.prod(space))
                scale = program.broadcast(program.argument(channels), merged.sizes, 1)
                value = program.reshape(program.binary("multiply", scale, merged), *value.sizes)
            case name:
                operands = [value, random_factor(program, value.sizes, draw)]
                value = program.binary(name, *(operands if name == "divide" else draw.sample(operands, 2)))
    return value


def random_factor(program: ProgramText, sizes: tuple[int, ...], draw: random.Random) -> Value:
    """A bound value of ``sizes``: mostly one that varies along channels alone."""
    kind = draw.random()
    if kind < 0.2:
        return program.number(draw.uniform(0.5, 2), sizes)
    if kind < 0.3:
        return program.argument(*sizes)
    axis = draw.randrange(len(sizes)) if kind < 0.4 else 1
    return program.broadcast(program.argument(sizes[axis]), sizes, axis)


def test_other_types_and_strict_numerics_stay_as_they_are():
    program = ProgramText()
    text = program.text(normalized(program, program.convolution(program.argument(1, 3, 4, 4), 2)))
    with mlir.new_context(), mlir.unknown_location():
        bound = range(1, len(program.arguments))
        assert rewrite_bound(text, bound, CompileOptions("strict")) == text
        assert rewrite_bound(text, bound, CompileOptions("default")) != text
    for narrow in ("bf16", "f16"):
        _, counts = folded(program, text.replace("f64", narrow))
        assert counts["multiply"] == 1, narrow
