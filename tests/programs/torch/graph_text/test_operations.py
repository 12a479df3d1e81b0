"""Names of operations: the list is fresh, and overloads are those that torch-mlir's importer writes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kcache_grpc.programs.torch.graph_text.writer import is_defined, is_known, operation_name, overload_of
from scripts.generate_torch_operations import FILE, generated, not_comparable

aten: Any = torch.ops.aten


def test_the_list_of_operations_is_fresh() -> None:
    if reason := not_comparable():
        pytest.skip(reason)
    assert FILE.read_text() == generated(), "run: python -m scripts.generate_torch_operations write"


def test_names_have_the_overload_unless_it_is_the_default() -> None:
    assert operation_name(aten.add.Tensor._schema) == "torch.aten.add.Tensor"
    assert operation_name(aten.relu.default._schema) == "torch.aten.relu"


def test_the_service_lowers_more_than_the_dialect_defines() -> None:
    extra = [line[1:] for line in FILE.read_text().splitlines() if line.startswith("+")]
    assert extra
    for name in extra:
        assert is_known(f"torch.{name}")
        assert not is_defined(f"torch.{name}")
    assert is_defined("torch.aten.add.Tensor")
    assert not is_known("torch.aten.no_such_operator")


@pytest.mark.parametrize(
    ("function", "overload"),
    [
        (lambda x: aten.mul.Tensor(x, 2), aten.mul.Scalar),
        (lambda x: aten.mul.Tensor(x, x), aten.mul.Tensor),
        (lambda x: aten.add.Tensor(x, 2.5), aten.add.Scalar),
        (lambda x: aten.sub.Tensor(x, 2), aten.sub.Scalar),
        (lambda x: aten.div.Tensor(x, 2), aten.div.Scalar),
        (lambda x: aten._unsafe_index_put(x, [torch.tensor([0])], x[:1]), aten.index_put.default),
    ],
)
def test_overloads(function: Any, overload: Any) -> None:
    graph = make_fx(function, tracing_mode="fake")(torch.randn(3, 3)).graph
    overloads = [overload_of(node) for node in graph.nodes if node.op == "call_function"]
    assert overload in overloads
