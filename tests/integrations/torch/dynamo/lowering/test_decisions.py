"""Work of graphs, and the text of decisions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

pytest.importorskip("torch")

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import Cost, Decision, LeftOut, cost_of
from tests.integrations.torch.dynamo.graphs import lowered


def costs(
    function: Callable[..., Any], *inputs: Any, mode: Literal["fake", "symbolic"] = "fake"
) -> list[Cost]:
    graph = make_fx(function, tracing_mode=mode)(*inputs).graph
    return [cost_of(node, computed=True) for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("function", "shapes", "operations", "moved"),
    [
        (torch.sin, [(4, 5)], 20, 2 * 80),
        (torch.mm, [(4, 5), (5, 6)], 2 * 4 * 5 * 6, 4 * (20 + 30 + 24)),
        (torch.add, [(4, 5), (5,)], 20, 4 * (20 + 5 + 20)),
        (functional.conv2d, [(1, 2, 4, 4), (3, 2, 3, 3)], 2 * 4 * 3 * 2 * 9, 4 * (32 + 54 + 12)),
    ],
)
def test_costs(function: Any, shapes: Any, operations: int, moved: int) -> None:
    [cost] = costs(function, *map(torch.empty, shapes))
    assert cost == Cost(operations, moved)


def test_symbolic_sizes_count_with_their_hints() -> None:
    symbolic = costs(lambda x: x @ x.t(), torch.empty(4, 5), mode="symbolic")
    assert symbolic[-1].operations == 2 * 4 * 4 * 5


def test_several_results_are_all_written() -> None:
    [cost, *elements] = costs(lambda x: x.sort(), torch.empty(6))
    assert cost.bytes == 6 * 4 + 6 * 4 + 6 * 8
    assert elements == [Cost(), Cost()]


def test_views_and_inputs_have_no_cost() -> None:
    graph = make_fx(lambda x: x.t(), tracing_mode="fake")(torch.empty(2, 3)).graph
    assert [cost_of(node, computed=False) for node in graph.nodes] == [Cost()] * 3


@pytest.fixture
def _forgotten() -> Iterator[None]:
    decisions.forget()
    yield
    decisions.forget()


def test_the_text_names_operators_reasons_and_shares() -> None:
    left = [LeftOut("aten.nonzero.default", "kcache does not lower it")] * 2
    left.append(LeftOut("aten.erf.default", "no benefit", "erf"))
    left += [LeftOut("aten.exp.default", "rejected", f"exp_{index}") for index in range(5)]
    decision = Decision("forward", [3, 4], left, Cost(300, 10), Cost(100, 30), {"compile": 0.25})
    assert str(decision).splitlines() == [
        "forward: 2 kernels (7 nodes), 8 operators left to PyTorch; 75.0% of operations and "
        "25.0% of memory traffic in kernels (compile 250 ms)",
        "  2 x aten.nonzero.default: kcache does not lower it",
        "  1 x aten.erf.default: no benefit (erf)",
        "  5 x aten.exp.default: rejected (exp_0, exp_1, exp_2, exp_3, ...)",
    ]


def test_the_text_of_a_warm_start() -> None:
    decision = Decision("inference", [3], [], seconds={"disk": 0.002}, origin="warm")
    assert str(decision) == "inference: 1 kernels from the record of the source graph (disk 2 ms)"


def test_a_graph_without_work_is_in_kernels_as_a_whole() -> None:
    assert Decision("inference", [], []).share == Decision("inference", [], []).traffic_share == 1.0


def test_a_lowering_counts_what_is_inside_and_outside() -> None:
    module = make_fx(lambda x: (torch.sin(x) * 2 + torch.rand_like(x),), tracing_mode="fake")(
        torch.empty(3, 4)
    )
    decision = lowered(module).decision
    assert decision.kernels == [3]
    assert [each.operator for each in decision.left_out] == ["aten.rand_like.default"]
    assert decision.inside.operations == 3 * 12
    assert decision.outside.operations == 12
    assert set(decision.seconds) == {"partition", "write", "compile"}


@pytest.mark.usefixtures("_forgotten")
def test_decisions_are_kept_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    decision = Decision("inference", [2], [])
    with caplog.at_level(logging.INFO, logger="kcache"):
        decisions.record(decision)
    assert decisions.decisions() == [decision]
    assert caplog.messages == [str(decision)]
    for _ in range(1001):
        decisions.record(Decision("backward", [], []))
    assert len(decisions.decisions()) == 1000
    assert decision not in decisions.decisions()
