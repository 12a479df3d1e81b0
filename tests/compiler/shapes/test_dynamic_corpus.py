"""Graphs of the corpus at random sizes: one kernel against PyTorch, and against kernels of given sizes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from tests.compiler.codegen_harness import Kernel
from tests.compiler.dynamic_corpus import COMPILED, Array, Case, Sizes, case
from tests.compiler.numpy_graph import evaluate_graph
from tests.recognition.eager.close import largest_share
from tests.recognition.eager.functions import evaluate

#: The quick ones, for every change; all of them in the long run.
QUICK = ("softmax", "layer_norm", "rotary", "conv_block", "gpt_logits", "mse_gradient")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Arrays this small are no work for several threads, which wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _agree(case: Case, count: int) -> None:
    """Compare a kernel with the function at so many sizes.

    Errors beyond what is allowed pass up to four times PyTorch's own: there the function itself magnifies
    rounding, as layer norm does of two numbers that are nearly equal.
    """
    largest, magnified = 0.0, 0
    for seed, sizes in enumerate(islice(case.sizes(0), count)):
        arguments = case.arguments(sizes, seed)
        wanted = evaluate(case.name, arguments)
        share = largest_share(case.kernel(*arguments, *case.constants), wanted)
        if share > 1:
            share /= 4 * _pytorch_in_f32(case, arguments, wanted)
            magnified += 1
        assert share <= 1, f"{case.name} at {sizes}, seed {seed}: {share} of what is allowed"
        largest = max(largest, share)
    print(f"{case.name}: {count} tuples, error {largest:.3f} of what is allowed, {magnified} magnified")


def _pytorch_in_f32(case: Case, arguments: list[Array], wanted: list[Array]) -> float:
    """The largest error of PyTorch in f32, at arguments each of which is one rounding away."""
    generator, ends = np.random.default_rng(0), np.array([-np.inf, np.inf], np.float32)

    def moved(array: Array) -> Array:
        return np.nextafter(array, generator.choice(ends, array.shape)) if array.dtype.kind == "f" else array

    near = [list(map(moved, arguments)) for _ in range(8)]
    return max(largest_share(evaluate(case.name, inputs, np.float32), wanted) for inputs in near)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", QUICK)
def test_a_kernel_of_all_sizes_agrees_with_pytorch(name: str) -> None:
    _agree(case(name), 40)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("wrong", ["s0*s2", "s0*s1", "s1", "6"])
def test_a_wrong_size_in_a_spec_is_found_out(wrong: str) -> None:
    right = case("mse_gradient")
    text = right.canonical.spec_text
    assert text.count("| s1*s2\n") == 1
    with pytest.raises(AssertionError, match="of what is allowed"):
        _agree(right.with_spec(text.replace("| s1*s2\n", f"| {wrong}\n")), 40)


@pytest.mark.long
@pytest.mark.parametrize("numerics", ["strict", "default"])
@pytest.mark.parametrize("name", COMPILED)
def test_a_kernel_of_all_sizes_agrees_with_pytorch_at_a_thousand(name: str, numerics: str) -> None:
    _agree(case(name, numerics), 1000)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", QUICK)
def test_a_spec_evaluated_with_numpy_agrees_with_pytorch(name: str) -> None:
    """Where kernels disagree, this tells erased sizes from code."""
    dynamic = case(name)
    for seed, sizes in enumerate(islice(dynamic.sizes(0), 40)):
        arguments = dynamic.arguments(sizes, seed)
        results = evaluate_graph(dynamic.graph, sizes, [*arguments, *dynamic.constants])
        assert largest_share(results, evaluate(name, arguments)) <= 1, f"{name} at {sizes}, seed {seed}"


def _same_bits(case: Case, count: int) -> None:
    """Compare with kernels of so many sizes, one each."""
    for seed, sizes in enumerate(islice(case.sizes(1), count)):
        _same_bits_at(case, case.kernel_at(sizes), sizes, seed)


def _same_bits_at(case: Case, kernel: Kernel, sizes: Sizes, seed: int) -> None:
    arguments = [*case.arguments(sizes, seed), *case.constants]
    for got, wanted in zip(case.kernel(*arguments), kernel(*arguments), strict=True):
        assert got.shape == wanted.shape
        assert got.tobytes() == wanted.tobytes(), f"{case.name} at {sizes}, seed {seed}"


def _same_bits_in_part(case: Case, count: int) -> None:
    """Compare with kernels some of whose sizes are given, at four sizes of the others."""
    generator = random.Random(case.name)
    for sizes in islice(case.sizes(2), count):
        subset = generator.sample(sorted(sizes), generator.randrange(1, len(sizes)))
        fixed = {symbol: sizes[symbol] or 1 for symbol in subset}
        kernel = case.kernel_at(fixed)
        for seed, others in enumerate(islice(case.sizes(3), 4)):
            _same_bits_at(case, kernel, others | fixed, seed)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", QUICK)
def test_kernels_of_given_sizes_give_the_same_bits(name: str) -> None:
    _same_bits(case(name), 2)


@pytest.mark.long
@pytest.mark.parametrize("name", COMPILED)
def test_kernels_of_twenty_given_sizes_give_the_same_bits(name: str) -> None:
    _same_bits(case(name), 20)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["softmax", "mse_gradient"])
def test_kernels_of_some_given_sizes_give_the_same_bits(name: str) -> None:
    _same_bits_in_part(case(name), 2)


@pytest.mark.long
@pytest.mark.parametrize("name", COMPILED)
def test_kernels_of_some_given_sizes_give_the_same_bits_for_every_graph(name: str) -> None:
    _same_bits_in_part(case(name), 4)
