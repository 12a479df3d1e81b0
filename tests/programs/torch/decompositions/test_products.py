"""Products are taken apart into no more operators than they need: each is traced by Python."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torch")

from kcache_grpc.programs.torch.decompositions.table import attention, decompositions

torch: Any = import_module("torch")


def operators(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The names of the operators of the traced function, whose results have to be those of ``function``."""
    proxies: Any = import_module("torch.fx.experimental.proxy_tensor")
    traced = proxies.make_fx(function, decomposition_table=decompositions())(*arguments)
    torch.testing.assert_close(traced(*arguments), function(*arguments))
    nodes = [node for node in traced.graph.nodes if node.op == "call_function"]
    return [node.target.overloadpacket.__name__ for node in nodes]


def addmm(beta: float, alpha: float) -> Callable[..., Any]:
    return lambda x, left, right: torch.addmm(x, left, right, beta=beta, alpha=alpha)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_with_a_product_has_no_factors_of_one(dtype: Any) -> None:
    arguments = [torch.randn(size, dtype=dtype) for size in ((5,), (3, 4), (4, 5))]
    assert operators(addmm(1, 1), *arguments) == ["mm", "add"]
    assert "mul" in operators(addmm(2, 1), *arguments)
    assert "mul" in operators(addmm(1, 0.5), *arguments)


def test_a_sum_with_a_product_of_half_precision_is_computed_in_f32() -> None:
    arguments = [torch.randn(size, dtype=torch.bfloat16) for size in ((5,), (3, 4), (4, 5))]
    assert operators(addmm(1, 1), *arguments).count("convert_element_type") == 4


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_equal_batches_expands_nothing(causal: bool) -> None:
    query, key, value = (torch.randn(2, 3, length, 4) for length in (5, 6, 6))

    def attended(*arguments: Any) -> Any:
        return attention(*arguments, is_causal=causal)

    assert "expand" not in operators(attended, query, key, value)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
    torch.testing.assert_close(attended(query, key, value), expected)


@pytest.mark.parametrize(("batch", "other"), [((), ()), ((2,), (2,)), ((2, 3), (1, 3)), ((3,), (2, 3))])
def test_attention_broadcasts_its_batches(batch: tuple[int, ...], other: tuple[int, ...]) -> None:
    query = torch.randn(*batch, 5, 4)
    key, value = torch.randn(*other, 6, 4), torch.randn(*other, 6, 7)
    expected = torch.softmax(query @ key.mT / 2, -1) @ value
    torch.testing.assert_close(attention(query, key, value), expected)
