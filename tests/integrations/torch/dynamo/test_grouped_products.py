"""Products of groups of rows, as mixtures of experts have them: values, gradients, and groups of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.programs.torch import grouped_products, recurrent
from tests.integrations.torch.dynamo.compiled import check, compile_with, tensor

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

#: Not exported, and ``torch.nn.functional`` has it since PyTorch 2.10 only.
GROUPED_MM: Any = torch.ops.aten._grouped_mm
ROWS, GROUPS, INNER, WIDTH = 150, 5, 16, 24
#: Offsets of 150 rows: even, empty groups, all rows in one, rows after the last group, one row each.
OFFSETS = (
    (30, 60, 90, 120, 150),
    (0, 0, 7, 7, 150),
    (0, 0, 150, 150, 150),
    (150, 150, 150, 150, 150),
    (10, 10, 139, 140, 141),
    (1, 2, 3, 4, 5),
    (0, 0, 0, 0, 0),
)
#: Groups whose offset is not above those before have no rows.
NOT_ASCENDING = (100, 50, 150, 150, 60)


@pytest.fixture(autouse=True)
def forget_decisions() -> None:
    decisions.forget()


def offsets(values: tuple[int, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def inside(values: tuple[int, ...], result: Tensor) -> Tensor:
    """The rows that are in a group: eager mode does not initialize the others."""
    return result[: values[-1]]


def random_offsets(count: int) -> Iterator[tuple[int, ...]]:
    """Offsets in no order, before the first row and after the last one; of no rows; that end early."""
    generator = torch.Generator().manual_seed(0)
    for limit in (ROWS + 1, 2 * ROWS, 20):
        for _ in range(count):
            yield tuple(torch.randint(-20, limit, (GROUPS,), generator=generator).tolist())


def test_groups_of_random_offsets(address: str) -> None:
    recurrent.operators()
    rows, right = tensor(ROWS, INNER), tensor(ROWS, WIDTH, seed=1)
    weights = tensor(GROUPS, INNER, WIDTH, seed=2)

    def function(rows: Tensor, right: Tensor, weights: Tensor, offsets: Tensor) -> tuple[Tensor, ...]:
        operators = torch.ops.kcache
        transposed = weights.transpose(1, 2)
        return (
            operators.grouped_mm(rows, weights, offsets),
            operators.grouped_mm(right, transposed, offsets),
            operators.grouped_outer(rows, right, offsets),
        )

    compiled = compile_with(function, address)
    for values in random_offsets(10):
        expected = function(rows.double(), right.double(), weights.double(), offsets(values))
        for actual, exact in zip(compiled(rows, right, weights, offsets(values)), expected, strict=True):
            torch.testing.assert_close(actual, exact.float(), msg=lambda text, at=values: f"{at}: {text}")
    assert not any(each.left_out for each in decisions.decisions())


def test_groups_of_many_rows(address: str) -> None:
    """More than a block has: products of all blocks of a group are stored, outer products are summed."""
    recurrent.operators()
    count = 1300
    rows, right, weights = tensor(count, 8), tensor(count, 12, seed=1), tensor(2, 8, 12, seed=2)

    def function(rows: Tensor, right: Tensor, weights: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        operators = torch.ops.kcache
        return operators.grouped_mm(rows, weights, offsets), operators.grouped_outer(rows, right, offsets)

    compiled = compile_with(function, address)
    for values in ((1300, 1300), (0, 1300), (1, 1300), (513, 1290), (1050, 1172), (600, 1200), (511, 1)):
        expected = function(rows.double(), right.double(), weights.double(), offsets(values))
        for actual, exact in zip(compiled(rows, right, weights, offsets(values)), expected, strict=True):
            torch.testing.assert_close(actual, exact.float(), rtol=1e-5, atol=1e-4)
    assert not any(each.left_out for each in decisions.decisions())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("transposed", [False, True], ids=["row-major", "transposed"])
def test_products_of_groups_of_any_size(dtype: torch.dtype, transposed: bool, address: str) -> None:
    recurrent.operators()
    operator = torch.ops.kcache.grouped_mm
    rows = tensor(ROWS, INNER, dtype=dtype)
    weights = tensor(GROUPS, *((WIDTH, INNER) if transposed else (INNER, WIDTH)), seed=1, dtype=dtype)

    def function(rows: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
        return operator(rows, weights.transpose(1, 2) if transposed else weights, offsets)

    compiled = compile_with(function, address)
    wide_weights = (weights.transpose(1, 2) if transposed else weights).double()
    for values in (*OFFSETS, NOT_ASCENDING):
        actual = compiled(rows, weights, offsets(values))
        expected = grouped_products.grouped_mm(rows.double(), wide_weights, offsets(values))
        torch.testing.assert_close(actual, expected.to(dtype))
    assert not any(each.left_out for each in decisions.decisions())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_sums_of_outer_products_of_groups(dtype: torch.dtype, address: str) -> None:
    recurrent.operators()
    left, right = tensor(ROWS, INNER, dtype=dtype), tensor(ROWS, WIDTH, seed=1, dtype=dtype)
    compiled = compile_with(torch.ops.kcache.grouped_outer, address)
    for values in (*OFFSETS, NOT_ASCENDING):
        actual = compiled(left, right, offsets(values))
        expected = grouped_products.grouped_outer(left.double(), right.double(), offsets(values))
        torch.testing.assert_close(actual, expected.to(dtype))
    assert not any(each.left_out for each in decisions.decisions())


def test_a_group_does_not_see_the_values_of_others(address: str) -> None:
    recurrent.operators()
    rows, right, weights = tensor(20, INNER), tensor(20, WIDTH, seed=1), tensor(2, INNER, WIDTH, seed=2)
    rows[7:], right[7:], weights[1] = torch.nan, torch.inf, torch.nan
    ends = offsets((7, 20))
    products = compile_with(torch.ops.kcache.grouped_mm, address)(rows, weights, ends)
    torch.testing.assert_close(products[:7], rows[:7] @ weights[0])
    assert bool(products[7:].isnan().all())
    sums = compile_with(torch.ops.kcache.grouped_outer, address)(rows, right, ends)
    torch.testing.assert_close(sums[0], rows[:7].t() @ right[:7])
    assert bool(sums[1].isnan().all())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("axis", [0, 1, 2], ids=["rows", "groups", "widths"])
def test_products_of_dynamic_sizes_stay_with_pytorch(axis: int, address: str) -> None:
    recurrent.operators()
    compiled = compile_with(lambda *args: torch.ops.kcache.grouped_mm(*args).sin() * 2 + 1, address)
    for size in (4, 6, 9):
        sizes = [4, 3, 5]
        sizes[axis] = size
        rows, weights = tensor(sizes[0], INNER), tensor(sizes[1], INNER, sizes[2], seed=1)
        ends = torch.arange(sizes[1], dtype=torch.int32).clamp(max=sizes[0])
        expected = grouped_products.grouped_mm(rows, weights, ends).sin() * 2 + 1
        torch.testing.assert_close(compiled(rows, weights, ends), expected)
    reasons = {each.reason for decision in decisions.decisions() for each in decision.left_out}
    assert any("dynamic" in reason for reason in reasons)


def experts(product: Callable[..., Any]) -> Callable[..., Any]:
    """Tokens sorted by expert, their products, and their order restored, as ``transformers`` has it."""

    def function(tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        numbers, order = torch.sort(chosen)
        counts = torch.histc(numbers.float(), bins=GROUPS, min=0, max=GROUPS - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        products = product(tokens[order], weights.transpose(1, 2), ends)
        return torch.nn.functional.silu(products)[torch.argsort(order)]

    return function


def test_experts_in_bf16_and_their_gradients(address: str) -> None:
    function = experts(lambda rows, weights, ends: GROUPED_MM(rows, weights, offs=ends))

    def inputs() -> tuple[Any, ...]:
        chosen = torch.randint(0, GROUPS, (16,), generator=torch.Generator().manual_seed(0))
        tokens, weights = (
            tensor(16, INNER, dtype=torch.bfloat16),
            tensor(GROUPS, WIDTH, INNER, seed=1, dtype=torch.bfloat16),
        )
        return tokens.requires_grad_(), weights.requires_grad_(), chosen

    check(function, inputs, address)
    left = [each.operator for decision in decisions.decisions() for each in decision.left_out]
    assert left == []


def test_all_ranks_of_grouped_mm(address: str) -> None:
    kind = torch.bfloat16
    cases = (
        (tensor(32, 16, dtype=kind), tensor(3, 16, 8, seed=1, dtype=kind), offsets((8, 8, 32))),
        (tensor(16, 32, dtype=kind), tensor(32, 8, seed=1, dtype=kind), offsets((8, 16, 32))),
        (tensor(3, 16, 8, dtype=kind), tensor(8, 32, seed=1, dtype=kind), offsets((8, 16, 32))),
        (tensor(3, 16, 8, dtype=kind), tensor(3, 8, 32, seed=1, dtype=kind), None),
    )
    for left, right, ends in cases:
        torch._dynamo.reset()
        actual = compile_with(lambda a, b, o: GROUPED_MM(a, b, offs=o) * 2, address)(left, right, ends)
        expected = GROUPED_MM(left, right, offs=ends) * 2
        torch.testing.assert_close(actual, expected)
        assert actual.stride() == expected.stride()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize(("bins", "bounds"), [(8, (0, 7)), (10, (0, 1)), (7, (-3, 4)), (5000, (-2, 2))])
def test_histogram(dtype: torch.dtype, bins: int, bounds: tuple[int, int], address: str) -> None:
    low, high = bounds
    edges = torch.linspace(low, high, bins + 1, dtype=dtype)
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, low - 1.0, high + 1.0, -0.0], dtype=dtype)
    values = torch.cat([edges, edges + 1e-3, tensor(300).to(dtype), special])

    def function(x: Tensor) -> Tensor:
        return torch.histc(x, bins, low, high) + 1

    compiled = compile_with(function, address, options={"least_operators": 0})
    torch.testing.assert_close(compiled(values), function(values), rtol=0, atol=0)
    assert not any(each.left_out for each in decisions.decisions())
