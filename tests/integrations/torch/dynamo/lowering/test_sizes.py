"""Samples of dynamic sizes satisfy the guards of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kcache_grpc.integrations.torch.dynamo.lowering.sizes import (
    choose_samples,
    evaluated,
    expression,
    free_symbols,
    shape_environment,
)


def graph_of(function: Callable[..., Any], *inputs: Any) -> Any:
    return make_fx(function, tracing_mode="symbolic")(*inputs).graph


def value_of(graph: Any) -> Any:
    return next(iter(graph.nodes)).meta["val"]


def guarded(condition: Callable[[Any], bool]) -> Callable[..., Any]:
    return lambda x: x.sin() if condition(x) else x.cos()


@pytest.mark.parametrize(
    "condition",
    [
        lambda x: x.shape[0] > 2,
        lambda x: x.shape[0] % 8 == 0,
        lambda x: x.shape[0] % 64 == 0,
        lambda x: x.shape[0] * x.shape[1] > 100,
        lambda x: x.shape[0] != x.shape[1],
        lambda x: x.shape[0] > x.shape[1],
        lambda x: x.shape[0] > x.shape[1] + 5 and x.shape[1] % 6 == 0,
        lambda x: (x.shape[0] + 1) // 2 > 3,
        lambda x: x.shape[1] % ((x.shape[0] - 11) * (x.shape[0] - 17)) != 0,
    ],
)
def test_samples_satisfy_guards(condition: Callable[[Any], bool]) -> None:
    graph = graph_of(guarded(condition), torch.empty(64, 12))
    names = sorted(free_symbols(value_of(graph)))
    samples = choose_samples(graph, names)
    assert samples is not None
    first, second = samples
    assert all(first[name] != second[name] for name in names)
    for sample in samples:
        assert set(sample) == set(names)
        sizes = [evaluated(size, sample) for size in value_of(graph).shape]
        assert condition(torch.empty(sizes, device="meta"))


def test_all_symbols_differ_in_both_samples() -> None:
    graph = graph_of(lambda x: x + 1, torch.empty(5, 6, 7))
    samples = choose_samples(graph, sorted(free_symbols(value_of(graph))))
    assert samples is not None
    sizes = [size for sample in samples for size in sample.values()]
    assert len(set(sizes)) == len(sizes)


def test_guards_that_no_sample_satisfies() -> None:
    graph = graph_of(
        guarded(lambda x: x.shape[0] == x.shape[1] + 1 and x.shape[1] % 12 == 0), torch.empty(37, 36)
    )
    names = sorted(str(name) for name in shape_environment(graph).var_to_range)
    assert choose_samples(graph, names) is None


def test_symbols_without_two_sizes_are_in_no_sample() -> None:
    """``x.shape[0]`` may still vary, so its size in the traced call is no constant."""
    condition = guarded(lambda x: x.shape[0] % 9 == 4 and x.shape[0] % 25 == 0)
    graph = graph_of(condition, torch.empty(175, 12))
    rows, columns = (str(size.node.expr) for size in value_of(graph).shape)
    samples = choose_samples(graph, [rows, columns])
    assert samples is not None
    assert [set(sample) for sample in samples] == [{columns}] * 2


def test_a_symbol_with_one_size_has_it_in_both_samples() -> None:
    condition = guarded(lambda x: x.shape[0] * x.shape[0] == 1600)
    graph = graph_of(condition, torch.empty(40, 12))
    rows, columns = (str(size.node.expr) for size in value_of(graph).shape)
    samples = choose_samples(graph, sorted([rows, columns]))
    assert samples is not None
    assert [sample[rows] for sample in samples] == [40, 40]
    assert samples[0][columns] != samples[1][columns]


def test_symbols() -> None:
    [x, *_] = graph_of(lambda x: x[1:] * 2, torch.empty(5, 6)).nodes
    names = {str(size.node.expr) for size in x.meta["val"].shape}
    assert free_symbols(x.meta["val"]) == names
    assert free_symbols([x.meta["val"].shape[0] + 1, 3, None]) == {str(x.meta["val"].shape[0])}
    assert free_symbols(torch.empty(3)) == set()
    assert free_symbols(7) == set()


def test_values() -> None:
    size = value_of(graph_of(lambda x: x * 2, torch.empty(5, 6))).shape[0]
    assert evaluated(3, {}) == 3
    assert expression(3) is None
    assert evaluated(size * 2 + 1, {str(size): 10}) == 21


def test_a_static_graph_has_no_environment() -> None:
    graph = make_fx(lambda x: x + 1, tracing_mode="fake")(torch.empty(3)).graph
    assert shape_environment(graph) is None
