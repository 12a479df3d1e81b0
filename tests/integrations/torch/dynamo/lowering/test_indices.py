"""Indices out of bounds: a compiled program raises, as eager mode does; others give the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from tests.integrations.torch.dynamo.compiled import check, compile_with, kernel_count, tensor

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("fresh_dynamo")]


def embedded(table: Tensor, index: Tensor) -> Tensor:
    return torch.nn.functional.embedding(index, table).sin() * 2 + 1


def indexed(table: Tensor, index: Tensor) -> Tensor:
    return table[index].sin() * 2 + 1


def gathered(table: Tensor, index: Tensor) -> Tensor:
    return table.gather(0, index.unsqueeze(-1).expand(3, 4)).sin() * 2 + 1


def selected(table: Tensor, index: Tensor) -> Tensor:
    return table.index_select(0, index).sin() * 2 + 1


def partly_embedded(table: Tensor, index: Tensor) -> Tensor:
    """The last index is not used, so that it may have any value."""
    return torch.nn.functional.embedding(index[:-1], table).sin() * 2 + 1


def scattered(table: Tensor, index: Tensor) -> Tensor:
    return table.sin().index_put((index,), torch.ones(4)) * 2 + 1


def with_targets(table: Tensor, index: Tensor) -> Tensor:
    """``index``: targets, of which -100 is ignored."""
    return torch.nn.functional.cross_entropy(table.t()[:3].sin(), index) * 2


def computed(table: Tensor, index: Tensor) -> Tensor:
    return table[torch.where(index == 7, 3, index + 1)].sin() * 2


@pytest.mark.parametrize("function", [with_targets, computed])
def test_indices_that_are_computed(function: Callable[..., Any], address: str) -> None:
    allowed = [0, -100, 4] if function is with_targets else [7, -6, 3]
    check(function, lambda: (tensor(5, 4, grad=True), torch.tensor(allowed)), address)
    compiled = compile_with(function, address)
    for values in ((0, 5, 1), (-7, 0, 0), (0, 2**40, 0)):
        for run in (function, compiled):
            with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
                run(tensor(5, 4, grad=True), torch.tensor(values))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", [embedded, indexed, gathered, selected, scattered])
def test_indices(function: Callable[..., Any], dynamic: bool, address: str) -> None:
    def inputs(*values: int) -> tuple[Tensor, Tensor]:
        return tensor(5, 4, grad=True), torch.tensor(values)

    check(function, lambda: inputs(0, 4, 2), address, dynamic=dynamic)
    compiled = compile_with(function, address, dynamic=dynamic)
    torch.testing.assert_close(compiled(*inputs(0, 4, 2)), function(*inputs(0, 4, 2)))
    assert kernel_count() > 0
    if function in (indexed, scattered):
        torch.testing.assert_close(compiled(*inputs(0, -5, 2)), function(*inputs(0, -5, 2)))
    for values in ((0, 5, 1), (-6, 0, 0), (0, 2**40, 0)):
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
            function(*inputs(*values))
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
            compiled(*inputs(*values))


def test_indices_that_are_not_used_are_not_checked(address: str) -> None:
    check(partly_embedded, lambda: (tensor(5, 4), torch.tensor([0, 4, -100])), address)
    with pytest.raises(RuntimeError, match="out of range"):
        compile_with(partly_embedded, address)(tensor(5, 4), torch.tensor([0, 5, 1]))
