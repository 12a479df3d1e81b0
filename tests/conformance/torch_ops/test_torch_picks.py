"""Pools that round up, with the places of their elements; modes; masked extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch.nn import functional

from tests.conformance.torch_ops.harness.judge import judge
from tests.conformance.torch_ops.harness.samples import Sample

pytestmark = pytest.mark.issue(number=19, point=18)

_SEED = torch.Generator().manual_seed(5)


def outcome(function: Callable[..., Any], *tensors: Any) -> str:
    verdict, _ = judge(Sample.of(function, tensors, {}))
    return f"{verdict.outcome} {verdict.reason}".strip()


_POOLS: dict[str, dict[str, Any]] = {
    "stride": {"kernel_size": 3, "stride": 2},
    "padding": {"kernel_size": 3, "stride": 3, "padding": 1},
    "dilation": {"kernel_size": (2, 3), "stride": (3, 2), "dilation": (2, 1), "padding": (0, 1)},
    "nothing behind": {"kernel_size": 2, "stride": 1},
}


def _pooled(x: Any, settings: dict[str, Any]) -> Any:
    return functional.max_pool2d(x, return_indices=True, ceil_mode=True, **settings)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", _POOLS)
def test_pools_that_round_up_give_places(name: str) -> None:
    x = torch.randn(2, 3, 7, 8, generator=_SEED)
    assert outcome(lambda x: _pooled(x, _POOLS[name]), x) == "right"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fill", [-float("inf"), float("nan")])
def test_places_of_elements_that_padding_is_like(fill: float) -> None:
    x = torch.tensor([[[1.0, 2.0, fill], [3.0, fill, 5.0], [6.0, fill, fill]]])
    assert outcome(lambda x: _pooled(x, {"kernel_size": 2}), x) == "right"


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("dim", "keepdim"), [(-1, False), (0, True)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_modes(dim: int, keepdim: bool, dtype: Any) -> None:
    x = torch.randint(0, 4, (6, 9), generator=_SEED).to(dtype)
    assert outcome(lambda x: torch.mode(x, dim, keepdim), x) == "right"


def test_mode_of_a_scalar() -> None:
    assert outcome(torch.mode, torch.tensor(3.0)) == "right"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_masked_extremes(name: str, dim: int | None) -> None:
    x = torch.randn(4, 5, generator=_SEED)
    mask = torch.rand(4, 5, generator=_SEED) > 0.4
    function: Any = getattr(torch.masked, name)
    assert outcome(lambda x, mask: function(x, dim, mask=mask), x, mask) == "right"
