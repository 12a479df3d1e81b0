"""10,000 calls of a model with bound weights, of either frontend, take no memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import kcache_grpc as kcache
from benchmarks.models.growth import SETTLING, sampled
from kcache_grpc.torch import load
from tests.integrations.torch.dynamo.compiled import compile_with

CALLS = 10_000

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("fresh_dynamo")]


def compiled(model: Any, x: Any, address: str, client: kcache.Client) -> Callable[..., Any]:
    return compile_with(model, address, options={"bound": "weights"}, dynamic=False)


def compiled_for_all_sizes(model: Any, x: Any, address: str, client: kcache.Client) -> Callable[..., Any]:
    return compile_with(model, address, options={"bound": "weights"}, dynamic=True)


def exported(model: Any, x: Any, address: str, client: kcache.Client) -> Callable[..., Any]:
    return load(torch.export.export(model, (x,)), client=client, strict=True, bound="frozen")


def grown(call: Callable[[], Any]) -> dict[str, int]:
    """What the calls after the first tenth added, by the kind of memory."""
    samples = sampled(call, CALLS)
    return {name: values[-1] - values[SETTLING - 1] for name, values in samples.items()}


@pytest.mark.parametrize("way", [compiled, compiled_for_all_sizes, exported])
def test_calls_of_a_bound_model_take_no_memory(way: Any, address: str, client: kcache.Client) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)).eval()
    x = torch.randn(4, 64)
    with torch.no_grad():
        call = way(model, x, address, client)
        torch.testing.assert_close(call(x), model(x))
        growth = grown(lambda: call(x))
    # A leak of one object, or of 16 bytes, in each call exceeds these.
    assert growth["blocks"] < CALLS // 10
    assert growth["malloc"] < 64 << 10
    assert growth["resident"] < 1 << 20


def test_a_kept_result_is_growth() -> None:
    kept: list[Any] = []
    growth = grown(lambda: kept.append(torch.ones(64)))
    assert len(kept) == CALLS
    assert growth["blocks"] > CALLS // 2
    assert growth["malloc"] > 64 << 10
    kept.clear()
    gc.collect()
