"""Operands whose sizes or strides are dynamic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch

from kcache_grpc.integrations.torch.dynamo.backend import kcache
from kcache_grpc.integrations.torch.dynamo.lowering import decisions


def test_static_sizes_with_dynamic_strides(address: str) -> None:
    """A view of one column has the strides of its base, which no program has as sizes."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1).sum(0)

    torch.compiler.reset()
    decisions.forget()
    compiled = torch.compile(
        function, backend=kcache, options={"strict": True, "address": address, "warm_start": False}
    )
    base = torch.arange(24.0).view(3, 8) - 9
    for view in (base[:, :4], base[:, 4:5], base.repeat(1, 2)[:, 4:5]):
        torch.testing.assert_close(compiled(view), function(view))
    assert [decision.left_out for decision in decisions.decisions()] == [[]] * len(decisions.decisions())
    assert len(decisions.decisions()) >= 2


def parts(x: torch.Tensor, count: int) -> torch.Tensor:
    return (x[:count] * 2).sum(0)


def rows_of_six(x: torch.Tensor, count: int) -> torch.Tensor:
    return (x.flatten()[: count * 6].clone().view(-1, 6) * 2).sum(0)


@pytest.mark.parametrize("function", [parts, rows_of_six])
def test_sizes_that_guards_relate(function: Callable[..., torch.Tensor], address: str) -> None:
    """They are no constants, although few sizes satisfy the guards."""
    torch.compiler.reset()
    options = {"strict": True, "address": address, "warm_start": False, "least_operators": 0}
    compiled = torch.compile(function, backend=kcache, options=options, dynamic=True)
    for rows, count in ((9, 3), (9, 4), (9, 7), (12, 5)):
        x = torch.arange(rows * 6.0).view(rows, 6) - 9
        torch.testing.assert_close(compiled(x, count), function(x, count))


@pytest.mark.long
def test_a_growing_cache(address: str) -> None:
    """Kernels compute all but the concatenation, which no program for many sizes has."""

    def function(query: torch.Tensor, keys: torch.Tensor, new: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = keys.shape[1]
        keys = torch.cat([keys, new], 1)
        position = torch.arange(count, count + 1)
        mask = torch.arange(count + 1) <= position[:, None]
        scores = torch.where(mask, query @ keys.transpose(1, 2) * 0.5 + count, -1e9)
        return torch.softmax(scores, -1) @ keys, keys

    torch.compiler.reset()
    decisions.forget()
    compiled = torch.compile(
        function, backend=kcache, options={"strict": True, "address": address, "warm_start": False}
    )
    keys = torch.randn(2, 3, 4)
    for _ in range(4):
        query, new = torch.randn(2, 1, 4), torch.randn(2, 1, 4)
        expected = function(query, keys, new)
        for actual, each in zip(compiled(query, keys, new), expected, strict=True):
            torch.testing.assert_close(actual, each)
        keys = expected[1]
    dynamic = decisions.decisions()[-1]
    assert len(decisions.decisions()) == 2
    assert dynamic.kernels
    names = {each.operator for each in dynamic.left_out}
    assert names <= {"aten.cat.default", "aten.arange.start_step", "aten.scalar_tensor.default"}


def test_a_size_as_the_only_dynamic_operand(address: str) -> None:
    """A tensor that holds a size has no dynamic size itself."""

    def function(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * 2 + keys.shape[0]) * x

    torch.compiler.reset()
    decisions.forget()
    compiled = torch.compile(
        function, backend=kcache, options={"strict": True, "address": address, "warm_start": False}
    )
    x = torch.randn(3, 4)
    for count in (3, 5, 7):
        keys = torch.zeros(count, 2)
        torch.testing.assert_close(compiled(x, keys), function(x, keys))
    dynamic = decisions.decisions()[-1]
    assert [each.operator for each in dynamic.left_out] == ["aten.scalar_tensor.default"]
