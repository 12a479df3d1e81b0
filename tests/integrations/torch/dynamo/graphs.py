"""Random ATen graphs, and plans of graphs whose kernels always fail, so that operators run in their place."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from kcache_grpc.errors import KcacheError
from kcache_grpc.integrations.torch.dynamo.lowering.lower import Lowered, Lowering
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Program, executable

aten: Any = torch.ops.aten
_SIZE = 3

#: Operator -> how many of the operands it takes.
_UNARY = (aten.sin.default, aten.neg.default, aten.relu.default, aten.cumsum.default, aten.rand_like.default)
_BINARY = (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.maximum.default)
_VIEWS = ("t", "transpose", "row", "part", "element")


class Line(NamedTuple):
    """A call of a random graph: ``operator`` of the values numbered ``operands``."""

    operator: Any
    operands: tuple[int, int]


class Description(NamedTuple):
    """A random graph: its calls, the results, updates of inputs, and what stays with PyTorch."""

    lines: list[Line]
    outputs: list[int]
    updates: dict[int, int]
    left_out: set[int]


@st.composite
def descriptions(draw: Any, inputs: int = 2) -> Description:
    """Graphs of 1 to 14 calls over ``inputs`` square matrices."""
    count = draw(st.integers(1, 14))
    lines = [
        Line(
            draw(st.sampled_from([*_UNARY, *_BINARY, *_VIEWS])),
            (draw(st.integers(0, inputs + index - 1)), draw(st.integers(0, inputs + index - 1))),
        )
        for index in range(count)
    ]
    values = st.integers(inputs, inputs + count - 1)
    outputs = draw(st.lists(values, min_size=1, max_size=3))
    updates = draw(st.dictionaries(st.integers(0, inputs - 1), values, max_size=inputs))
    return Description(lines, outputs, updates, draw(st.sets(st.integers(0, count - 1))))


def module_of(description: Description, inputs: int = 2) -> tuple[Any, dict[Any, str]]:
    """The graph as a module, and the nodes that stay with PyTorch, each with a reason."""
    graph = torch.fx.Graph()
    values = [graph.placeholder(f"x{index}") for index in range(inputs)]
    left_out: dict[Any, str] = {}
    for index, line in enumerate(description.lines):
        first, second = (values[position] for position in line.operands)
        values.append(_call(graph, line.operator, first, second))
        if index in description.left_out:
            left_out[values[-1]] = "drawn"
    # No input is updated with a view of itself.
    copies = {
        target: graph.call_function(aten.clone.default, (values[source],))
        for target, source in description.updates.items()
    }
    for target, source in copies.items():
        graph.call_function(aten.copy_.default, (values[target], source))
    graph.output(tuple(values[index] for index in description.outputs))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    _give_values(module)
    return module, left_out


def _call(graph: Any, target: Any, first: Any, second: Any) -> Any:
    call = graph.call_function
    if target == "t":
        return call(aten.t.default, (first,))
    if target == "transpose":
        return call(aten.transpose.int, (first, 0, -1))
    if target == "row":
        return call(aten.expand.default, (call(aten.select.int, (first, 0, 1)), [_SIZE, _SIZE]))
    if target == "part":
        parts = call(aten.split.Tensor, (first, 1))
        return call(aten.expand.default, (call(operator.getitem, (parts, 1)), [_SIZE, _SIZE]))
    if target == "element":
        return call(operator.getitem, (call(aten.sort.default, (first,)), 0))
    if target is aten.cumsum.default:
        return call(target, (first, 0))
    return call(target, (first, second) if target in _BINARY else (first,))


def _give_values(module: Any) -> None:
    """Fake values of the nodes, as AOTAutograd gives them."""
    mode = FakeTensorMode()
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    fakes = [mode.from_tensor(torch.ones(_SIZE, _SIZE)) for _ in placeholders]
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*fakes)


class FailingKernel:
    """A kernel whose calls fail; it counts them."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []

    def __call__(self, tensors: list[Any]) -> Any:
        assert all(tensor.is_contiguous() for tensor in tensors)
        raise KcacheError("no kernel")

    def failed(self, error: Exception) -> None:
        """Called before the operators run."""
        self.failures.append(error)


def failing(programs: Sequence[Program]) -> list[FailingKernel]:
    """A kernel for each program."""
    return [FailingKernel() for _ in programs]


def lowered(module: Any, kind: str = "inference", left_out: Mapping[Any, str] | None = None) -> Lowered:
    """The plan of a graph, with kernels that fail."""
    return Lowering(module, kind, failing, lambda _: (), left_out=dict(left_out or {})).lower()


def run(plan: Lowered, *inputs: Any) -> Any:
    """The results of a plan."""
    return executable(plan.plan, plan.kernels)(list(inputs))
