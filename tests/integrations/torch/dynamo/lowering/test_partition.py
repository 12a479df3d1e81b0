"""Islands of graphs: levels, views, order of random operators and updates; plans compute what graphs do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from kcache_grpc.integrations.torch.dynamo.lowering.partition import (
    Island,
    Partition,
    Partitioner,
    operands,
    overload_name,
    packet_name,
)
from kcache_grpc.programs.torch import recurrent
from kcache_grpc.programs.torch.graph_text.program import unsupported_reason
from tests.integrations.torch.dynamo.graphs import Description, descriptions, lowered, module_of, run

aten: Any = torch.ops.aten


def graph_of(function: Callable[..., Any], *inputs: Any) -> Any:
    return make_fx(function, tracing_mode="fake")(*inputs).graph


def partition(graph: Any, *left_out: str) -> Partition:
    """The partition where operators of these names stay with PyTorch."""
    return Partitioner(graph, lambda node: "named" if packet_name(node) in left_out else None).partition()


def steps(partition: Partition) -> list[Any]:
    """Names of operators; for an island the list of them."""
    return [
        [packet_name(node) for node in step.nodes] if isinstance(step, Island) else packet_name(step)
        for step in partition.steps
    ]


X = torch.ones(3, 3)


def test_a_supported_graph_is_one_island() -> None:
    result = partition(graph_of(lambda x: [torch.sin(x) + 1, torch.exp(x)], X))
    assert steps(result) == [["sin", "add", "exp"]]
    [island] = result.islands
    assert [node.op for node in island.inputs] == ["placeholder"]
    assert [packet_name(node) for node in island.outputs] == ["add", "exp"]


@pytest.mark.parametrize("least_operators", [2, 3, 1000])
def test_a_recurrent_layer_is_worth_a_kernel_by_itself(least_operators: int) -> None:
    tensors = [torch.ones(size) for size in ((4, 2, 3), (2, 5), (15, 3), (15, 5))]
    layer = recurrent.operators().gru_layer
    graph = graph_of(lambda x, h, w, v: layer(x, h, w, v, None, None, False)[0], *tensors)
    islands = Partitioner(graph, lambda _: None, least_operators).partition().islands
    assert [island.nodes[0].target for island in islands] == [layer.default]


@pytest.mark.parametrize(("least_operators", "count"), [(3, 1), (4, 0)])
def test_islands_of_fewer_operators_are_left_to_pytorch(least_operators: int, count: int) -> None:
    graph = graph_of(lambda x: torch.sin(x) * torch.exp(x), X)
    assert len(Partitioner(graph, lambda _: None, least_operators).partition().islands) == count


def test_levels_count_alternations() -> None:
    def function(x: Any) -> Any:
        first = torch.sin(torch.sin(x))
        second = torch.cos(torch.cos(torch.erf(first)))
        return torch.sin(torch.erf(second)) + first + torch.exp(x)

    result = partition(graph_of(function, X), "erf")
    assert steps(result) == [["sin", "sin", "exp"], "erf", ["cos", "cos"], "erf", ["sin", "add", "add"]]


def test_independent_branches_of_a_level_share_an_island() -> None:
    result = partition(graph_of(lambda x, y: [torch.sin(x) + 1, torch.cos(y) * 2], X, X))
    assert len(result.islands) == 1


def test_views_are_recomputed_inside_and_taken_outside() -> None:
    def function(x: Any) -> Any:
        y = (x.sin() + 1).t()
        return torch.erf(y), y.cos() * 2

    result = partition(graph_of(function, X), "erf")
    assert steps(result) == [["sin", "add", "t", "cos", "mul"], "t", "erf"]
    [island] = result.islands
    assert [packet_name(node) for node in island.outputs] == ["add", "mul"]


def test_a_view_of_an_input_is_no_input_of_its_island() -> None:
    result = partition(graph_of(lambda x: x.t()[1:].sin() + 1, X))
    [island] = result.islands
    assert [node.op for node in island.inputs] == ["placeholder"]
    assert [packet_name(node) for node in island.nodes] == ["t", "slice", "sin", "add"]


def test_a_view_that_is_a_result_aliases() -> None:
    module = make_fx(lambda x: (x.t(), x.sin() + 1), tracing_mode="fake")(X)
    x = torch.randn(3, 3)
    view, _ = run(lowered(module), x)
    assert view.data_ptr() == x.data_ptr()


def test_one_operator_has_no_benefit() -> None:
    result = partition(graph_of(lambda x: torch.sin(x).clone(), X))
    assert steps(result) == ["sin", "clone"]
    assert set(result.reasons.values()) == {"no benefit: too few operators that compute"}


def test_operators_without_arithmetic_have_no_benefit() -> None:
    result = partition(graph_of(lambda x: torch.cat([x.clone(), torch.zeros_like(x)]), X))
    assert result.islands == []


def test_random_operators_keep_their_order() -> None:
    def function(x: Any) -> Any:
        late = torch.rand_like(torch.erf(torch.sin(x) + 1))
        return torch.rand_like(x), late, torch.rand_like(x)

    graph = graph_of(function, X)
    expected = [node for node in graph.nodes if packet_name(node) == "rand_like"]
    result = partition(graph, "erf", "rand_like")
    assert [step for step in result.steps if step in expected] == expected


def test_updates_come_last() -> None:
    def function(x: Any) -> Any:
        y = torch.sin(x) + 1
        x.copy_(y)
        return torch.erf(y).cos() * 2

    graph = graph_of(function, X)
    copies = [node for node in graph.nodes if packet_name(node) == "copy_"]
    result = partition(graph, "erf", "copy_")
    assert result.steps[-1:] == copies


def test_names() -> None:
    [_, node, getitem, *_] = graph_of(lambda x: x.sort()[0], X).nodes
    assert (overload_name(node), packet_name(node)) == ("aten.sort.default", "sort")
    assert (overload_name(getitem), packet_name(getitem)) == ("getitem", "")
    assert operands(getitem) == [node]


def test_operands_are_those_of_nested_arguments_each_once() -> None:
    graph = torch.fx.Graph()
    x, y, size = (graph.placeholder(name) for name in ("x", "y", "size"))
    node = graph.call_function(max, ([x, (y, x)], slice(size, None)), {"z": {"key": x}})
    assert operands(node) == [x, y, size]


@given(descriptions())
def test_an_island_is_convex(description: Description) -> None:
    """No path between two nodes of an island leaves it, and steps come after what they read."""
    module, left_out = module_of(description)
    impure = {node: "impure" for node in module.graph.nodes if packet_name(node) in ("rand_like", "copy_")}
    result = Partitioner(module.graph, {**left_out, **impure}.get).partition()
    known = {node for node in module.graph.nodes if node.op == "placeholder"}
    for step in result.steps:
        if isinstance(step, Island):
            assert known.issuperset(step.inputs)
            inside = {*known.intersection(step.inputs)}
            for node in step.nodes:
                assert inside.issuperset(operands(node))
                inside.add(node)
            known.update(step.outputs)
        else:
            assert known.issuperset(operands(step))
            known.add(step)
    assert known.issuperset(operands(next(iter(reversed(module.graph.nodes)))))


@given(descriptions())
def test_a_plan_computes_what_the_graph_does(description: Description) -> None:
    """Results, updated inputs and random numbers are those of the graph's interpreter, bit for bit."""
    module, left_out = module_of(description)
    reference = torch.fx.Interpreter(copy.deepcopy(module))
    expected_inputs = [torch.linspace(-1, 2, 9).view(3, 3), torch.linspace(1, 0.5, 9).view(3, 3).t()]
    inputs = [value.clone() for value in expected_inputs]
    torch.manual_seed(3)
    expected = reference.run(*expected_inputs)
    plan = lowered(module, left_out=left_out)
    torch.manual_seed(3)
    results = run(plan, *inputs)
    torch.testing.assert_close(results, list(expected), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(inputs, expected_inputs, rtol=0, atol=0, equal_nan=True)


def test_an_island_is_on_one_device() -> None:
    def function(x: Any, y: Any) -> Any:
        left, right = torch.sin(x) * 2, torch.cos(y) * 3
        return left + right.to("cpu") * 2, right

    with FakeTensorMode():
        graph = make_fx(function)(torch.empty(4), torch.empty(4, device="cuda")).graph
    result = Partitioner(graph, unsupported_reason).partition()
    devices = [{str(node.meta["val"].device) for node in island.nodes} for island in result.islands]
    assert sorted(map(sorted, devices)) == [["cpu"], ["cpu"], ["cuda:0"]]
    assert "its tensors are on several devices" in result.reasons.values()
