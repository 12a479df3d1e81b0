"""The incomplete gamma function gives what eager mode gives."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch

from tests.conformance.torch_ops.harness.judge import judge
from tests.conformance.torch_ops.harness.samples import Sample

pytestmark = pytest.mark.issue(number=19, point=18)

_SEED = torch.Generator().manual_seed(7)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.long), torch.bfloat16]
)
def test_igamma(dtype: Any) -> None:
    special = torch.tensor([0.0, 1e-3, 0.5, 1.0, 7.0, 99.0, 101.0, 1e4, float("inf"), -1.0])
    parameters, numbers = torch.meshgrid(special, special, indexing="ij")
    a = 10 ** torch.empty(60).uniform_(-2, 4, generator=_SEED)
    x = a + a.sqrt() * torch.randn(60, generator=_SEED)
    pairs = torch.cat([parameters.flatten(), a]), torch.cat([numbers.flatten(), x.clamp(min=0)])
    verdict, _ = judge(Sample.of(torch.igamma, tuple(part.to(dtype) for part in pairs), {}))
    assert verdict.outcome == "right", verdict


@pytest.mark.long
def test_igamma_of_two_shapes() -> None:
    a, x = torch.tensor([[0.5], [30.0]]), torch.tensor([0.1, 5.0, 40.0])
    verdict, _ = judge(Sample.of(torch.special.gammainc, (a, x), {}))
    assert verdict.outcome == "right", verdict
