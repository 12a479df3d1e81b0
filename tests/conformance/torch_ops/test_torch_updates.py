"""Updates in place, and normalizations in training mode, give what eager mode gives."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch.nn import functional

from tests.conformance.torch_ops.harness.judge import judge
from tests.conformance.torch_ops.harness.samples import Sample

pytestmark = pytest.mark.issue(number=19, point=18)

_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def verdict(function: Any, *tensors: Any) -> str:
    outcome, _ = judge(Sample.of(function, tensors, {}))
    return f"{outcome.outcome} {outcome.reason}"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_in_training_mode(dtype: Any, affine: bool) -> None:
    x, mean, variance = torch.randn(3, 4, 5) * 3 + 20, torch.randn(4), torch.rand(4) + 1
    weight, bias = torch.rand(4) + 1, torch.randn(4)

    def normalized(x: Any, mean: Any, variance: Any, weight: Any, bias: Any) -> Any:
        factors = (weight, bias) if affine else (None, None)
        return functional.batch_norm(x, mean, variance, *factors, training=True, momentum=0.3)

    tensors = (tensor.to(dtype) for tensor in (x, mean, variance, weight, bias))
    assert verdict(normalized, *tensors).startswith("right")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", _DTYPES)
def test_instance_norm_with_statistics(dtype: Any) -> None:
    def normalized(x: Any, mean: Any, variance: Any, weight: Any) -> Any:
        return functional.instance_norm(x, mean, variance, weight, None, use_input_stats=True)

    tensors = torch.randn(3, 4, 5) * 3 + 20, torch.randn(4), torch.rand(4) + 1, torch.rand(4)
    assert verdict(normalized, *(tensor.to(dtype) for tensor in tensors)).startswith("right")


def test_instance_norm_without_statistics() -> None:
    assert verdict(functional.instance_norm, torch.randn(2, 3, 4, 4) * 3 + 20).startswith("right")


def _sliced(x: Any, y: Any) -> Any:
    x[0].copy_(y)
    x[:, 1] = 3.0
    y.zero_()
    return x.sum()


def _only_written(x: Any, y: Any) -> Any:
    x.copy_(y)
    return y * 2


@pytest.mark.parametrize(
    "function",
    [
        _sliced,
        _only_written,
        lambda x, y: x.add_(y),
        lambda x, y: (x.relu_().mul_(2), x.clamp_(max=1))[1] + y,
    ],
    ids=["slices", "written only", "the result", "twice"],
)
def test_inputs_that_are_updated(function: Any) -> None:
    assert verdict(function, torch.randn(3, 3), torch.randn(3)).startswith("right")
