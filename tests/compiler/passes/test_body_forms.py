"""What fusion writes in long programs: few forms, and copies that are what it would write."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.chains.programs import chain
from kcache_compiler import canonicalize
from kcache_compiler.compile import lower_until
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bufferization.split_long_chains import LESS, MANY, READERS
from kcache_compiler.passes.fusion.body_forms import Forms
from kcache_compiler.passes.fusion.elementwise import fuse_all
from kcache_compiler.passes.legalize.concatenate import FEW
from kcache_compiler.schedule.choices import FuseLimits
from kcache_compiler.spec.dynamic_graph import fixed_sizes, specialize
from kcache_compiler.spec.rendering.stablehlo import render_graph
from kcache_compiler.spec.text import parse_spec
from tests.compiler.codegen_harness import kernel_of

TARGET = "x86-64-v3"


def _rendered(kind: str, count: int) -> tuple[str, int]:
    canonical = canonicalize(chain(kind, count).encode(), "stablehlo", "default")
    graph = parse_spec(canonical.spec_text)
    graph = specialize(graph, fixed_sizes(graph, canonical.arg_spec))
    return render_graph(graph), len(canonical.arg_spec.args)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["add quantized", "dot_general quantized", "cosine"])
def test_a_longer_chain_has_no_more_forms(kind: str) -> None:
    counts: list[int] = []
    for count in (40, 80):
        with lower_until(*_rendered(kind, count), TARGET, "fuse") as module:
            forms = Forms(FuseLimits(), long=True)
            ops = mlir.named(module, "linalg.generic")
            counts.append(len({forms.read(op) for op in ops}))
    assert counts[0] == counts[1]
    assert counts[0] < 40


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    "kind",
    ["add quantized", "dot_general quantized", "tanh quantized", "reverse", "pad", "concatenate", "mixed"],
)
def test_copied_code_is_what_would_be_written(kind: str) -> None:
    texts: list[str] = []
    for long in (False, True):
        with lower_until(*_rendered(kind, 60), TARGET, "fuse") as module:
            fuse_all(mlir.named(mlir.main_function(module), "linalg.generic"), FuseLimits(), long)
            texts.append(mlir.whole_text(module))
    assert texts[0] == texts[1]


def test_constants_of_a_chain_have_few_readers_each_before_bufferization_and_are_one_after() -> None:
    program = _rendered("add quantized", 5 * READERS)
    with lower_until(*program, TARGET, "bufferize") as module:
        constants = [op for op in mlir.named(module, "arith.constant") if mlir.is_tensor(op.results[0].type)]
        assert len(constants) > 5
        assert all(len(list(mlir.uses(op.results[0]))) <= READERS for op in constants)
    with lower_until(*program, TARGET, "forward-results") as module:
        names = [str(op.attributes["name"]) for op in mlir.named(module, "memref.get_global")]
        assert names
        assert len(names) == len(set(names))


def test_what_says_a_window_has_few_readers_each_before_bufferization() -> None:
    with lower_until(*_rendered("reduce_window", 3 * READERS), TARGET, "bufferize") as module:
        empty = mlir.named(module, "tensor.empty")
        assert len(empty) >= 3
        assert all(len(list(mlir.uses(op.results[0]))) <= READERS for op in empty)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["dynamic_update_slice", "scatter"])
def test_what_a_long_program_updates_in_place_is_copied_in_between(kind: str) -> None:
    """Else bufferization compares all updates of one buffer with all of its readers, for each update."""
    with lower_until(*_rendered(kind, MANY + 44), TARGET, "bufferize") as module:
        copies = mlir.named(module, "bufferization.alloc_tensor")
        assert len(copies) >= MANY // LESS


def test_operations_that_read_from_within_are_told_apart_by_what_they_read() -> None:
    """Else the toolchain compares the bodies of all pairs of them."""
    program = _rendered("concatenate", 2 * READERS)
    with lower_until(*program, TARGET, "simplify") as module:
        ops = mlir.named(module, "linalg.generic")
        told = {mlir.int_of(op.attributes["kcache.reads"]) for op in ops}
        assert len(told) == len(ops) >= 2 * READERS
    with lower_until(*program, TARGET, "bufferize") as module:
        assert "kcache.reads" not in mlir.whole_text(mlir.main_function(module))


def test_what_an_operation_has_of_others_before_it_takes_an_index_in_is_copied_by_none() -> None:
    """A product of all pairs reads its factors in two orders: the index of one is turned around."""
    kind, pairs = "tensor<4x4xf32>", "lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [1, 0]"
    lines = "\n".join(
        f"%a{n} = stablehlo.tanh %v{n} : {kind}\n"
        f"%i{n} = stablehlo.iota dim = 0 : {kind}\n"
        f"%b{n} = stablehlo.add %i{n}, %w : {kind}\n"
        f"%c{n} = stablehlo.exponential %b{n} : {kind}\n"
        f'%v{n + 1} = "stablehlo.dot_general"(%a{n}, %c{n}) '
        f"{{dot_dimension_numbers = #stablehlo.dot<{pairs}>}} : ({kind}, {kind}) -> {kind}"
        for n in range(4)
    )
    text = f"func.func @main(%v0: {kind}, %w: {kind}) -> {kind} {{\n{lines}\nreturn %v4 : {kind}\n}}"
    texts: list[str] = []
    for long in (False, True):
        with lower_until(text, 2, TARGET, "fuse") as module:
            fuse_all(mlir.named(mlir.main_function(module), "linalg.generic"), FuseLimits(), long)
            texts.append(mlir.whole_text(module))
    assert texts[0] == texts[1]


def _joined(count: int) -> str:
    kinds = [f"tensor<2x{1 + number % 3}xf32>" for number in range(count)]
    parameters = ", ".join(f"%a{number}: {kind}" for number, kind in enumerate(kinds))
    names = ", ".join(f"%a{number}" for number in range(count))
    whole = f"tensor<2x{sum(1 + number % 3 for number in range(count))}xf32>"
    return (
        f"func.func @main({parameters}) -> {whole} {{\n"
        f"%r = stablehlo.concatenate {names}, dim = 1 : ({', '.join(kinds)}) -> {whole}\n"
        f"return %r : {whole}\n}}"
    )


def test_many_tensors_are_concatenated_group_by_group() -> None:
    """A body that looks for its place among all of them takes time that goes with their square."""
    text = _joined(1100)
    with lower_until(text, 1100, TARGET, "linalg") as module:
        counts = [len(op.operands) for op in mlir.named(module, "stablehlo.concatenate")]
    assert len(counts) == 35 + 2 + 1
    assert max(counts) <= FEW
    random = np.random.default_rng(5)
    arrays = [random.normal(size=(2, 1 + number % 3)).astype(np.float32) for number in range(1100)]
    assert np.array_equal(kernel_of(text)(*arrays)[0], np.concatenate(arrays, axis=1))
