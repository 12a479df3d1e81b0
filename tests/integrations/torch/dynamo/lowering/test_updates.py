"""Updates of elements of inputs, such as those of a static cache, happen in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch._functorch.aot_autograd import aot_module_simplified

from kcache_grpc.integrations.torch.dynamo.lowering.partition import packet_name
from kcache_grpc.integrations.torch.dynamo.lowering.updates import (
    select_single_elements,
    write_elements_in_place,
)
from kcache_grpc.integrations.torch.dynamo.trace import decompositions
from tests.integrations.torch.dynamo.compiled import check, tensor
from tests.integrations.torch.dynamo.eager import boxed

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two caches, a position and new values."""
    return tensor(2, 8, 4), tensor(2, 8, 4, seed=1), torch.tensor([3, 5]), tensor(2, 2, 4, seed=2)


def step(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    value = torch.tanh(new) * 2
    cache.index_copy_(1, position, value)
    return torch.softmax(cache @ value.transpose(1, 2), -1) + other.sum()


def two_caches(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache[:, position] = new.sin() + 1
    other[:, position] = new.cos() * 2
    return (cache * other).exp().sum(-1)


def twice(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache[:, position] = new.sin() * 2
    first = cache.exp() + 1
    cache[:, position - 2] = new.cos() + first[:, :2]
    return first * cache.sigmoid()


def unread(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    value = new.sin() * 2 + 1
    cache[:, position] = value
    return value.exp() * 3


def transposed(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache.transpose(0, 2)[:, position] = new.sin().transpose(0, 2) * 2
    return cache.exp() * 2


def returned(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    cache[:, position] = new.sin() * 2
    cache[:, position - 1] = new.cos() + 1
    return cache, cache.exp() * 2


def negative(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache[:, -position] = new.sin() * 2
    return cache.exp() * 2


def accumulated(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache.index_put_((torch.tensor([1, 1]), position), new.sin()[0] * 2, accumulate=True)
    return cache.exp() * 2


def from_itself(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache[:, position] = cache[:, :2]
    return cache.exp() * 2 + new.sum()


def from_the_other(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    old = other[:, 2:4]
    other[:, position] = new.sin() * 2
    cache[:, position] = old.clone()
    return cache.exp() * other.sin() * 2


def exchanged(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    first, second = cache[:, position].clone(), other[:, position].clone()
    cache[:, position], other[:, position] = second, first
    return cache.exp() * other.sin() + new.sum()


IN_PLACE = {step: 1, two_caches: 2, twice: 2, unread: 1, returned: 2, negative: 1}
COPIED = [transposed, accumulated, from_itself, from_the_other, exchanged]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("function", [*IN_PLACE, *COPIED], ids=lambda function: function.__name__)
def test_updates_equal_those_of_eager_mode(address: str, function: Callable[..., Any]) -> None:
    check(function, inputs, address, backward=False)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("function", "puts"), IN_PLACE.items(), ids=lambda each: getattr(each, "__name__", "")
)
def test_only_changed_elements_are_written(function: Callable[..., Any], puts: int) -> None:
    graph = graph_of(function)
    write_elements_in_place(graph)
    graph.lint()
    names = [packet_name(node) for node in graph.nodes]
    assert (names.count("index_put_"), names.count("copy_")) == (puts, 0)


def test_the_graph_may_return_what_it_updates() -> None:
    graph = graph_of(twice)
    (copy,) = [node for node in graph.nodes if packet_name(node) == "copy_"]
    output = next(iter(reversed(graph.nodes)))
    output.args = ((copy, *output.args[0]),)
    write_elements_in_place(graph)
    graph.lint()
    puts = [node for node in graph.nodes if packet_name(node) == "index_put_"]
    assert output.args[0][0] is puts[-1]


@pytest.mark.parametrize("function", [accumulated, from_itself], ids=lambda function: function.__name__)
def test_what_may_change_before_it_is_written_is_copied(function: Callable[..., Any]) -> None:
    graph = graph_of(function)
    write_elements_in_place(graph)
    assert "index_put_" not in [packet_name(node) for node in graph.nodes]


def graph_of(function: Callable[..., Any]) -> Any:
    """The graph that AOTAutograd makes of a function of ``inputs()``."""
    graphs: list[Any] = []

    def keep(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm.graph)
        return boxed(gm)

    def backend(gm: Any, example_inputs: Any) -> Any:
        return aot_module_simplified(
            gm,
            example_inputs,
            fw_compiler=keep,
            inference_compiler=keep,
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )

    torch.compile(function, backend=backend)(*inputs())
    return graphs[0]


def one_position(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache.index_copy_(1, position[:1], new[:, :1].sin() + 1)
    other[:, position[1:]] = new[:, 1:].cos()
    return (cache @ other.transpose(1, 2)).softmax(-1)


def one_from_the_end(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache[:, -position[:1]] = new[:, :1].sin() * 2
    return cache.exp() * 2 + other


def one_then_another(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache[:, position[:1]] = new[:, :1].sin()
    first = cache.exp() + other
    cache[:, position[:1]] = first[:, 2:3]
    return first + cache.sigmoid()


def one_of_the_old(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    """The old elements are read before they change, and after."""
    before = cache.exp()
    view = cache[:, 2:6]
    cache[:, position[:1]] = new[:, :1].sin()
    return before + cache * 2 + view.sum() + other


def one_broadcast(cache: Tensor, other: Tensor, position: Tensor, new: Tensor) -> Tensor:
    cache[:, position[:1]] = new[0, 0].sin()
    other.transpose(0, 1)[position[:1]] = new[0, :1, :1].cos()
    return cache.exp() + other.exp()


ONE = [one_position, one_from_the_end, one_then_another, one_of_the_old, one_broadcast]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("function", ONE, ids=lambda function: function.__name__)
def test_updates_of_one_element_equal_those_of_eager_mode(address: str, function: Callable[..., Any]) -> None:
    check(function, inputs, address, backward=False)


@pytest.mark.parametrize("function", [one_position, one_from_the_end], ids=lambda function: function.__name__)
def test_readers_of_one_new_element_select_it(function: Callable[..., Any]) -> None:
    graph = graph_of(function)
    write_elements_in_place(graph)
    select_single_elements(graph)
    graph.lint()
    names = [packet_name(node) for node in graph.nodes]
    assert "index_put" not in names
    assert "index_put_" in names


def test_several_elements_are_not_selected() -> None:
    graph = graph_of(step)
    write_elements_in_place(graph)
    select_single_elements(graph)
    assert "index_put" in [packet_name(node) for node in graph.nodes]


def test_an_index_out_of_range_raises(address: str) -> None:
    cache, other, _, new = inputs()
    compiled = torch.compile(one_position, backend="kcache", options={"address": address})
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        compiled(cache, other, torch.tensor([8, 1]), new)
