"""Fake tensors that are made without a dispatch are those that operators return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from kcache_grpc.integrations.torch.dynamo.aot.fake_tensors import detached, new_empty, view_of


@pytest.fixture(params=[False, True], ids=["fake", "with real tensors"])
def mode(request: pytest.FixtureRequest) -> FakeTensorMode:
    with torch._functorch.config.patch(fake_tensor_propagate_real_tensors=request.param):
        return FakeTensorMode()


def facts(value: Any) -> Any:
    """What a program can see of a fake tensor."""
    return (
        *(type(value), value.shape, value.stride(), value.storage_offset(), value.dtype, value.device),
        *(value.requires_grad, value.fake_mode, value.untyped_storage().nbytes(), value.is_leaf),
        torch._C._dispatch_keys(value).raw_repr(),
    )


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.float8_e5m2])
@pytest.mark.parametrize(("size", "stride"), [((2, 3), (3, 1)), ((2, 3), (1, 4)), ((), ()), ((0, 3), (3, 1))])
def test_new_tensors(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, context: Any, mode: FakeTensorMode
) -> None:
    device = torch.device("cpu")
    with mode, context():
        expected = torch.empty_strided(size, stride, dtype=dtype, device=device)
        value = new_empty(mode, size, stride, dtype, device)
        assert facts(value) == facts(expected)
        assert facts(value + 1 if dtype == torch.float32 else value.clone())[0] is FakeTensor
        other = new_empty(mode, size, stride, dtype, device)
    assert value.untyped_storage()._cdata != other.untyped_storage()._cdata


@pytest.mark.parametrize("grad", [False, True])
def test_views(grad: bool, mode: FakeTensorMode) -> None:
    with mode, torch.no_grad():
        base = torch.nn.Parameter(torch.empty(4, 6), requires_grad=grad)[1:]
        value, expected = view_of(base, (2, 3), (6, 2), 7), torch.as_strided(base, (2, 3), (6, 2), 7)
        assert facts(value) == facts(expected)
    assert value.untyped_storage()._cdata == base.untyped_storage()._cdata


CASES: list[Callable[[], Any]] = [
    lambda: torch.nn.Parameter(torch.empty(4, 6)),
    lambda: torch.empty(4, 6, dtype=torch.int8),
    lambda: torch.empty(4, 6).t()[1:],
]


@pytest.mark.parametrize("make", CASES)
def test_detached_tensors(make: Callable[[], Any], mode: FakeTensorMode) -> None:
    with mode, torch.no_grad():
        original = make()
        value = detached(original)
        expected = original.detach().requires_grad_(original.requires_grad)
        assert facts(value) == facts(expected)
        assert value.untyped_storage()._cdata == original.untyped_storage()._cdata
        before = original.shape
        value.unsqueeze_(0)
    assert original.shape == before
