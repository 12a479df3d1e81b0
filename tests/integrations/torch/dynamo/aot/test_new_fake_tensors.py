"""Fake tensors that are made without a dispatch are those that operators return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from kcache_grpc.integrations.torch.dynamo.aot.fake_tensors import detached, fakes_of, new_empty, view_of


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


def _resized() -> torch.Tensor:
    value = torch.empty(4, 6)
    value.untyped_storage().resize_(0)
    return value


def _with_gradient() -> torch.Tensor:
    value = torch.ones(4, requires_grad=True)
    value.sum().backward()
    return value


def _in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(4)


#: Inputs, and whether ``fakes_of`` makes their fake tensors.
INPUTS: dict[str, tuple[Callable[[], Any], bool]] = {
    "tensor": (lambda: torch.empty(4, 6), True),
    "parameter": (lambda: torch.nn.Parameter(torch.empty(4, 6)), True),
    "frozen parameter": (lambda: torch.nn.Parameter(torch.empty(4, 6), requires_grad=False), True),
    "requires grad": (lambda: torch.empty(4, 6, requires_grad=True), True),
    "channels last": (lambda: torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last), True),
    "narrow": (lambda: torch.empty(4, dtype=torch.float8_e5m2), True),
    "no elements": (lambda: torch.empty(0, 6), True),
    "strided": (lambda: torch.empty_strided((3, 2), (5, 2)), True),
    "overlapping": (lambda: torch.empty_strided((3, 2), (0, 1)), True),
    "buffer": (lambda: torch.nn.Buffer(torch.empty(4, 6)), False),
    "rank 0": (lambda: torch.tensor(2), False),
    "view": (lambda: torch.empty(4, 6)[1:], False),
    "part of a storage": (lambda: torch.empty(4, 6).detach()[:2].detach(), False),
    "no storage": (_resized, False),
    "no leaf": (lambda: torch.empty(4, requires_grad=True) * 2, False),
    "with a gradient": (_with_gradient, False),
    "of inference mode": (_in_inference_mode, False),
    "sparse": (lambda: torch.eye(3).to_sparse(), False),
    "conjugate": (lambda: torch.empty(3, dtype=torch.complex64).conj(), False),
    "subclass": (lambda: torch.empty(3).as_subclass(type("Own", (torch.Tensor,), {})), False),
    "integer": (lambda: 3, False),
}


@pytest.mark.parametrize("name", INPUTS)
def test_fake_tensors_of_inputs(name: str) -> None:
    make, is_quick = INPUTS[name]
    value, mode = make(), FakeTensorMode()
    [fake] = fakes_of(mode, [value])
    assert (fake is not value) == is_quick
    if is_quick:
        expected = FakeTensorMode().from_tensor(value, static_shapes=True)
        own, others = (
            (*facts(each)[:7], *facts(each)[8:], isinstance(each, torch.nn.Parameter), vars(each).keys())
            for each in (fake, expected)
        )
        assert own == others
        assert fake.fake_mode is mode


def test_inputs_that_share_a_storage_are_left_to_the_mode() -> None:
    whole, other = torch.empty(4, 6), torch.empty(4, 6)
    alias = whole.detach()
    values = [whole, other, alias]
    assert [
        fake is value for fake, value in zip(fakes_of(FakeTensorMode(), values), values, strict=True)
    ] == [*(True, False, True)]
    assert fakes_of(FakeTensorMode(), [other, other]) == [other, other]


def test_real_tensors_are_kept_for_a_mode_that_propagates_them() -> None:
    with torch._functorch.config.patch(fake_tensor_propagate_real_tensors=True):
        value = torch.empty(4, 6)
        assert fakes_of(FakeTensorMode(), [value])[0] is value
