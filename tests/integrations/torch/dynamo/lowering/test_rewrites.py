"""Rewrites of ATen graphs keep what they compute."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kcache_grpc.integrations.torch.dynamo.lowering.rewrites import (
    diagonals_as_slices,
    drop_empty_operands,
    sizes_as_tensors,
)

aten: Any = torch.ops.aten


def calls(graph: Any) -> list[Any]:
    return [node for node in graph.nodes if node.op == "call_function"]


def test_empty_operands_of_another_rank_are_dropped() -> None:
    empty, x = torch.empty(0), torch.ones(2, 3)
    module = make_fx(lambda empty, x: aten.cat.default([empty, x, x]), tracing_mode="fake")(empty, x)
    drop_empty_operands(module.graph)
    module.recompile()
    [node] = calls(module.graph)
    assert len(node.args[0]) == 2
    assert torch.equal(module(empty, x), torch.cat([x, x]))


@pytest.mark.parametrize("shapes", [[(0,), (3,)], [(0, 3), (2, 3)], [(0,), (0,)]])
def test_empty_operands_of_the_same_rank_stay(shapes: Any) -> None:
    operands = [torch.empty(shape) for shape in shapes]
    graph = make_fx(lambda *values: aten.cat.default(list(values)), tracing_mode="fake")(*operands).graph
    drop_empty_operands(graph)
    assert len(calls(graph)[0].args[0]) == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: aten.add.Tensor(x, x.shape[0]),
        lambda x: aten.mul.Tensor(x, x.shape[0]),
        lambda x: aten.div.Scalar(x, x.shape[0] + 1),
        lambda x: aten.sub.Scalar(x, x.shape[1] * 2),
        lambda x: aten.lt.Scalar(x, x.shape[1]),
        lambda x: aten.remainder.Scalar(x, x.shape[1]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_sizes_become_tensors(function: Callable[..., Any], dtype: torch.dtype) -> None:
    module = make_fx(function, tracing_mode="symbolic")(torch.ones(5, 7, dtype=dtype))
    tensors = sizes_as_tensors(module.graph, calls(module.graph))
    module.graph.lint()
    module.recompile()
    [tensor] = tensors
    assert tensor.target is aten.scalar_tensor.default
    assert tensor.meta["val"].dtype is torch.int64
    x = torch.arange(35).view(5, 7).to(dtype)
    result = module(x)
    assert result.dtype is function(x).dtype
    assert torch.equal(result, function(x))


def test_constants_stay() -> None:
    graph = make_fx(lambda x: aten.add.Tensor(x, 3), tracing_mode="symbolic")(torch.ones(5)).graph
    assert sizes_as_tensors(graph, calls(graph)) == []
    assert calls(graph)[0].args[1] == 3


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.float64, torch.complex64],
)
@pytest.mark.parametrize("factor", [1, 0.1])
def test_a_size_as_a_tensor_promotes_as_a_number(shape: Any, dtype: Any, factor: float) -> None:
    """Dtype and, to the last bit, value are those of an operator with a number of Python."""
    x, sized = torch.ones(shape).mul(3).to(dtype), torch.empty(7)
    module = make_fx(lambda x, y: x * (y.shape[0] * factor), tracing_mode="symbolic")(x, sized)
    tensors = sizes_as_tensors(module.graph, calls(module.graph))
    assert tensors
    module.recompile()
    expected = x * (7 * factor)
    assert module(x, sized).dtype == expected.dtype
    torch.testing.assert_close(module(x, sized), expected, rtol=0, atol=0)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_diagonals_that_are_read_are_slices(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 5), min_size=2, max_size=4))
    dims = data.draw(st.permutations(range(-len(shape), 0)))[:2]
    offset = data.draw(st.integers(-shape[dims[0]], shape[dims[1]]))
    strides = data.draw(st.permutations(range(len(shape))))
    x = torch.arange(math.prod(shape)).reshape([shape[axis] for axis in strides])
    x = x.permute([strides.index(axis) for axis in range(len(shape))])
    module = make_fx(lambda x: aten.diagonal.default(x, offset, *dims) * 2, tracing_mode="fake")(x)
    diagonals_as_slices(module.graph)
    module.graph.lint()
    module.recompile()
    assert aten.diagonal.default not in [node.target for node in calls(module.graph)]
    assert torch.equal(module(x), x.diagonal(offset, *dims) * 2)


@pytest.mark.parametrize(
    "function", [lambda x: aten.diagonal.default(x), lambda x: aten.diagonal.default(x)[1:] * 2]
)
def test_diagonals_that_alias_stay(function: Callable[..., Any]) -> None:
    module = make_fx(function, tracing_mode="fake")(torch.ones(3, 3))
    diagonals_as_slices(module.graph)
    assert aten.diagonal.default in [node.target for node in calls(module.graph)]
